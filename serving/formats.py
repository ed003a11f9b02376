"""The JSON of requests and answers: Text Embeddings Inference's, and OpenAI's for embeddings.

A function of `READERS` turns the body of a request into a `Question`: the examples, and a function that
makes the answer from their predictions. Errors have the statuses of Text Embeddings Inference.
"""

import base64
import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from engine import log
from engine.data import text_files
from runs.capability import AnyResult
from runs.rows import Example
from serving.model import ServedModel

# Types of errors, as clients of Text Embeddings Inference know them, and one of ours.
VALIDATION, EMPTY, UNREAD, BACKEND, OVERLOADED, UNHEALTHY, TIMEOUT = (
    "validation", "empty", "tokenizer", "backend", "overloaded", "unhealthy", "timeout")

_MOST_DIGITS = 18  # of an integer: Python takes quadratic time to read long ones
_UNUSED = {"prompt_name": None, "truncation_direction": "right", "raw_scores": False,
           "dimensions": None}  # fields of other services → the one value that is served

Entry = Dict[str, Any]


class Refusal(Exception):
    """A request gets this error for an answer.

    Attributes:
        status: of HTTP.
        error_type: one of the constants of this module.
        index: of the text that is at fault, from 0.
        headers: of the response.
    """

    def __init__(self, status: int, error_type: str, message: str, index: Optional[int] = None,
                 **headers: str):
        super().__init__(log.visible(message))
        self.status, self.error_type, self.index, self.headers = status, error_type, index, headers

    def body(self) -> Dict[str, Any]:
        """The error object."""
        where = {} if self.index is None else {"index": self.index}
        return {"error": str(self), "error_type": self.error_type, **where}


class Question(NamedTuple):
    """What a request asks."""
    examples: List[Example]
    truncate: bool
    answer: Callable[[List[Entry]], Any]  # the examples' entries → the body of the answer


def read_object(body: bytes) -> Dict[str, Any]:
    """The JSON object in a body; raises a `Refusal` if there is none."""
    try:
        found = json.loads(body.decode("utf-8"), parse_int=_parse_int, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, VALIDATION, f"the body is no JSON: {log.brief(error)}") from None
    if not isinstance(found, dict):
        raise Refusal(422, VALIDATION, "the body is no JSON object")
    return found


def entries_of(results: Sequence[AnyResult]) -> List[Entry]:
    """The results as objects; raises a `Refusal` for a text that the model cannot read."""
    for index, result in enumerate(results):
        if isinstance(result, str):
            raise Refusal(422, UNREAD, result, index)
    return [result.entry for result in results]


def to_json(body: Any) -> bytes:
    """JSON in UTF-8. Raises a `Refusal` if a number of it is none: the model's fault."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:
        raise Refusal(424, BACKEND, "the model computes a score that is not a number") from None


def _predict(body: Dict[str, Any], model: ServedModel) -> Question:
    inputs = _field(body, "inputs")
    if inputs == []:
        raise Refusal(400, EMPTY, "`inputs` cannot be empty")
    is_batch = isinstance(inputs, list) and isinstance(inputs[0], list)
    given = inputs if is_batch else [[inputs] if isinstance(inputs, str) else inputs]
    examples = [_example(texts, index, model.reader.takes_pairs) for index, texts in enumerate(given)]
    pairs = [example.text_b is not None for example in examples]
    if any(pairs) and not all(pairs):
        raise Refusal(422, VALIDATION, "the model reads texts or pairs of texts, and not both in "
                      "a request", pairs.index(not pairs[0]))

    def answer(entries: List[Entry]) -> Any:
        shown = [_prediction(entry) for entry in entries]
        return shown if is_batch else shown[0]

    return Question(examples, _truncate(body), answer)


def _embed(body: Dict[str, Any], model: ServedModel) -> Question:
    _require_vectors(model)
    _field(body, "normalize", bool, True)  # the vectors have the length 1 either way
    return Question(_texts(body, "inputs"), _truncate(body),
                    lambda entries: [entry["vector"] for entry in entries])


def _similarity(body: Dict[str, Any], model: ServedModel) -> Question:
    _require_vectors(model)
    inputs, parameters = _field(body, "inputs", dict), _field(body, "parameters", dict, {})
    source = _text(inputs, "source_sentence")
    sentences = _texts(inputs, "sentences")
    return Question([Example(source, each.text_a, None) for each in sentences],
                    _truncate({**body, **parameters}),
                    lambda entries: [entry["similarity"] for entry in entries])


def _rerank(body: Dict[str, Any], model: ServedModel) -> Question:
    if not ranks(model):
        raise Refusal(424, BACKEND, "model is not a re-ranker model: it takes no pairs, or gives "
                      "them more than one score; see /predict")
    query, texts = _text(body, "query"), _texts(body, "texts")
    returns_text = _field(body, "return_text", bool, False)

    def answer(entries: List[Entry]) -> Any:
        ranked = [{"index": index, "score": _score(entry),
                   **({"text": text.text_a} if returns_text else {})}
                  for index, (entry, text) in enumerate(zip(entries, texts))]
        return sorted(ranked, key=lambda rank: -rank["score"])

    pairs = [Example(query, text.text_a, None) for text in texts]
    if model.reader.ranks_first:  # phrases for the slot of a text
        pairs = [Example(pair.text_b, pair.text_a, None) for pair in pairs]
    return Question(pairs, _truncate(body), answer)


def _openai(body: Dict[str, Any], model: ServedModel) -> Question:
    _require_vectors(model)
    examples, truncate = _texts(body, "input"), _truncate(body)
    encoding = _field(body, "encoding_format", str, "float")
    if encoding not in ("float", "base64"):
        raise Refusal(422, VALIDATION, "`encoding_format` must be float or base64")

    def answer(entries: List[Entry]) -> Any:
        tokens = model.count_tokens(examples)
        shown = [entry["vector"] for entry in entries]
        if encoding == "base64":
            shown = [base64.b64encode(np.array(vector, "<f4").tobytes()).decode("ascii")
                     for vector in shown]
        return {"object": "list", "model": model.name, "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(shown)],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}

    return Question(examples, truncate, answer)


# Route → (the object in the body, the model) → what is asked. They raise `Refusal`.
READERS: Dict[str, Callable[[Dict[str, Any], ServedModel], Question]] = {
    "/predict": _predict,
    "/embed": _embed,
    "/similarity": _similarity,
    "/rerank": _rerank,
    "/v1/embeddings": _openai,
}


def gives_vectors(model: ServedModel) -> bool:
    """Whether the model gives a vector for a text."""
    return "vector" in model.reader.columns


def ranks(model: ServedModel) -> bool:
    """Whether the model gives a pair of texts one score: a number, or one of two probabilities."""
    reader = model.reader
    return bool(reader.takes_pairs) and reader.columns[0] == "label" and len(reader.columns) in (1, 3)


def main_route(model: ServedModel) -> str:
    """The route that POST / stands for."""
    return "/embed" if gives_vectors(model) else "/predict"


def routes_of(model: ServedModel) -> List[str]:
    """The routes that the model answers."""
    has = {"/embed": gives_vectors, "/similarity": gives_vectors, "/v1/embeddings": gives_vectors,
           "/rerank": ranks}
    return [route for route in READERS if has.get(route, bool)(model)]


def _require_vectors(model: ServedModel) -> None:
    if not gives_vectors(model):
        raise Refusal(424, BACKEND, "model is not an embedding model; see /predict")


def _prediction(entry: Entry) -> Any:
    """An entry, a classifier's as its labels and their scores, best first."""
    if "probabilities" not in entry:
        return entry
    scores = [{"score": score, "label": label} for label, score in entry["probabilities"].items()]
    return sorted(scores, key=lambda each: -each["score"])


def _score(entry: Entry) -> float:
    return entry["value"] if "value" in entry else list(entry["probabilities"].values())[1]


def _example(texts: Any, index: int, takes_pairs: Optional[bool]) -> Example:
    if not isinstance(texts, list) or not 1 <= len(texts) <= 2 or not all(
            isinstance(text, str) for text in texts):
        raise Refusal(422, VALIDATION, "`inputs` must be a text, a pair of texts [text, text], "
                      "or a list of such lists [[text], [text, text]]", index)
    if takes_pairs is not None and takes_pairs != (len(texts) == 2):
        raise Refusal(422, VALIDATION, "the model takes " + (
            "pairs of texts: [first, second], or several as [[first, second], ...]" if takes_pairs
            else "single texts: a text, or several as [[text], [text], ...]"), index)
    first, *second = map(text_files.whole_characters, texts)
    return Example(first, second[0] if second else None, None)


def _text(body: Dict[str, Any], name: str) -> str:
    return text_files.whole_characters(_field(body, name, str))


def _texts(body: Dict[str, Any], name: str) -> List[Example]:
    given = _field(body, name)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list):
        raise Refusal(422, VALIDATION, f"`{name}` must be a text or a list of texts")
    if not texts:
        raise Refusal(400, EMPTY, f"`{name}` cannot be empty")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise Refusal(422, VALIDATION, f"`{name}` must hold texts (token ids are not read)",
                          index)
    return [Example(text_files.whole_characters(text), None, None) for text in texts]


def _truncate(body: Dict[str, Any]) -> bool:
    for name, served in _UNUSED.items():
        value = body.get(name, served)
        if value is not None and value != served:
            raise Refusal(422, VALIDATION, f"`{name}` must be {json.dumps(served)} or left out: "
                          "other values are not served")
    return _field(body, "truncate", bool, False)


_MISSING = object()
_NAMES = {str: "a text", bool: "true or false", dict: "an object", object: "given"}


def _field(body: Dict[str, Any], name: str, kind: type = object, default: Any = _MISSING) -> Any:
    """A field of the body; null counts as its default."""
    value = body.get(name, default)
    if value is None and default is not _MISSING:
        value = default
    if value is _MISSING or not isinstance(value, kind):
        raise Refusal(422, VALIDATION, f"`{name}` must be {_NAMES[kind]}")
    return value


def _parse_int(digits: str) -> float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _no_constant(name: str) -> Tuple[()]:
    raise ValueError(f"{name} is not JSON")
