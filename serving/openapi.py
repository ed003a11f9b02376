"""The description of the routes at /openapi.json, in OpenAPI's format."""

from typing import Any, Dict, List

from engine.version import VERSION
from serving import formats

Schema = Dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_ONE_OR_TWO: Schema = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 2}
_SCORE: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean", "default": False}
_VECTORS: Schema = {"type": "array", "items": {"type": "array", "items": _SCORE}}


def _object(required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": required.split(), "properties": properties}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_PREDICTION = {"oneOf": [
    _array(_object("score label", score=_SCORE, label=_TEXT)),
    {"type": "object", "description": "what runs.predict --format=jsonl writes"}]}

# Route → what it does, the request, the answer.
_POSTS = {
    "/predict": (
        "Predicts for a text, a pair of texts, or many. A classifier answers its labels, best "
        "first; other models answer an object, such as {\"value\": 3.5}, {\"entities\": [...]} or "
        "{\"answer\": ..., \"probability\": ...}.",
        _object("inputs", truncate=_FLAG, inputs={"oneOf": [
            _TEXT, {**_ONE_OR_TWO, "description": "a text, or one pair"}, _array(_ONE_OR_TWO)]}),
        {"oneOf": [_PREDICTION, _array(_PREDICTION)]}),
    "/embed": (
        "Gives each text a vector of length 1.",
        _object("inputs", inputs=_TEXTS, truncate=_FLAG, normalize={**_FLAG, "default": True}),
        _VECTORS),
    "/similarity": (
        "Compares a text with others: the cosine of their vectors.",
        _object("inputs", parameters=_object("", truncate=_FLAG), inputs=_object(
            "source_sentence sentences", source_sentence=_TEXT, sentences=_array(_TEXT))),
        _array(_SCORE)),
    "/rerank": (
        "Scores texts for a query, and sorts them, best first.",
        _object("query texts", query=_TEXT, texts=_array(_TEXT), truncate=_FLAG, return_text=_FLAG),
        _array(_object("index score", index={"type": "integer"}, score=_SCORE, text=_TEXT))),
    "/v1/embeddings": (
        "Gives each text a vector of length 1, as OpenAI's clients ask for it.",
        _object("input", input=_TEXTS, model=_TEXT,
                encoding_format={"type": "string", "enum": ["float", "base64"]}),
        _object("object data model usage", object=_TEXT, model=_TEXT,
                data=_array({"type": "object"}), usage={"type": "object"})),
}
_GETS = {"/health": "Answers once the models are open.", "/info": "The model and the limits.",
         "/metrics": "Metrics for Prometheus.", "/openapi.json": "This description."}
_ERRORS = {
    "400": "no JSON, or an empty batch", "401": "the token is missing or wrong",
    "408": "the request did not arrive in time",
    "413": "the body, the batch or a text is too long", "415": "no Content-Type: application/json",
    "422": "a field is missing or of another type, or a text cannot be read; `index` says which",
    "424": "the model does not do this, or it failed", "429": "too many requests; see Retry-After",
    "503": "the service ends; see Retry-After", "504": "the answer took too long"}
_ERROR = _object("error error_type", error=_TEXT, error_type=_TEXT, index={"type": "integer"})


def description(models: List[str]) -> Dict[str, Any]:
    """The routes of some models, the first of which answers those without a name."""
    paths: Dict[str, Any] = {}
    for prefix in ["", *(f"/models/{name}" for name in models)]:
        for route in formats.READERS:
            summary, request, answer = _POSTS[route]
            paths[prefix + route] = {"post": {
                "summary": summary,
                "requestBody": {"required": True, "content": _json(request)},
                "responses": {"200": {"description": "the answer", "content": _json(answer)},
                              **{status: {"description": what, "content": _json(_ERROR)}
                                 for status, what in _ERRORS.items()}}}}
        for route, summary in _GETS.items():
            paths[prefix + route] = {"get": {
                "summary": summary, "responses": {"200": {"description": "the answer"}}}}
    return {"openapi": "3.0.3", "paths": paths, "info": {
        "title": "Trained BERT models", "version": VERSION}}


def _json(schema: Schema) -> Dict[str, Any]:
    return {"application/json": {"schema": schema}}
