"""The routes that predict: the fields that they read, and their answers.

They follow Text Embeddings Inference, and OpenAI for embeddings, in their errors too. pydantic
checks the fields, and /openapi.json describes them.
"""

import base64
import json
import math
import re
from typing import Any, Callable, ClassVar, Dict, List, Optional, Sequence, Type, TypeVar, Union

import numpy as np
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from starlette.exceptions import HTTPException
from typing_extensions import Annotated, Literal

from engine import log
from runs.capability import Result
from runs.rows import Example
from serving.model import ServedModel

# Types of errors, as clients of Text Embeddings Inference know them, and one of ours.
VALIDATION, EMPTY, UNREAD, BACKEND, OVERLOADED, UNHEALTHY, TIMEOUT = (
    "validation", "empty", "tokenizer", "backend", "overloaded", "unhealthy", "timeout")
# (examples, whether to cut those that are too long) → their results
Predict = Callable[[List[Example], Optional[bool]], List[Result]]


class Refusal(HTTPException):
    """A request gets an `openapi.Error` for an answer; its type is one of the constants of this module."""

    def __init__(self, status: int, message: str, error_type: str = VALIDATION,
                 index: Optional[int] = None, **headers: str):
        super().__init__(status, log.visible(message), headers)
        self.error_type, self.index = error_type, index


def _nested(*kinds: Any) -> Any:
    """A union of a text, a list of texts … by depth; errors are of the depth that a value has."""
    def tag(value: Any) -> str:
        depth = 0
        while isinstance(value, list) and depth < len(kinds) - 1:
            depth, value = depth + 1, next(iter(value), None)
        return f"depth {depth}"

    return Annotated[Union[tuple(Annotated[kind, Tag(f"depth {depth}")]
                                 for depth, kind in enumerate(kinds))], Discriminator(tag)]


_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_Row = Annotated[List[str], Field(min_length=1)]  # the texts of an example
_Rows = _nested(str, _Row, Annotated[List[_Row], Field(min_length=1)])
_Texts = _nested(str, Annotated[List[str], Field(min_length=1)])
_Ids = _nested(int, List[int], List[List[int]])


def _listed(texts: Union[str, List[str]]) -> List[str]:
    return [texts] if isinstance(texts, str) else texts


class Fields(BaseModel):
    """Fields of a JSON object, or of one in it; null counts as left out, whether there is such a field or not."""
    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_unknown_nulls(cls, fields: Any) -> Any:
        return fields if not isinstance(fields, dict) else {
            name: value for name, value in fields.items() if value is not None or name in cls.model_fields}


class Options(Fields):
    """Fields of all routes; some are here only to be refused by name."""
    truncate: Optional[bool] = None
    truncation_direction: Optional[Literal["Right", "right"]] = None
    prompt_name: None = None
    raw_scores: Optional[Literal[False]] = None
    dimensions: None = None
    encoding_format: Optional[Literal["float"]] = None


class Parameters(Options):
    """Options of a task, as clients of Hugging Face send them; others than these are refused."""
    model_config = ConfigDict(strict=True, extra="forbid")


class Body(Fields):
    """The field that says which of several models answers, whatever the route."""
    model: Optional[str] = None

    @classmethod
    def read(cls: Type["AnyBody"], body: bytes) -> "AnyBody":
        """The fields in some JSON; raises a `Refusal` that names the field and the value."""
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            faults = error.errors()
        fault = next((each for each in faults if each["type"] == "extra_forbidden"), faults[0])
        if fault["type"] == "json_invalid":
            raise Refusal(400, fault["msg"])
        index = next((part for part in fault["loc"] if isinstance(part, int)), None)
        names = [part for part in fault["loc"] if isinstance(part, str) and "depth " not in part]
        value = log.brief(json.dumps(fault["input"], default=repr))
        message = f"`{'.'.join(names)}`" if names else "the body"
        if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
            fields = [name for name, field in cls.model_fields.items() if field.annotation is not type(None)]
            raise Refusal(400, f"`{log.brief(fault['loc'][0])}` is no field of this route; it has {', '.join(fields)}")
        if fault["type"] in ("literal_error", "none_required", "extra_forbidden"):  # what other services have
            raise Refusal(422, f"{message}: {value} is not served; leave it out", index=index)
        message += f": {fault['msg']}"
        if fault["type"] == "too_short":
            raise Refusal(400, message, EMPTY, index)
        if fault["type"] not in ("missing", "too_long"):
            message += f", not {value}"
        if fault["type"] == "string_type" and value.lstrip("[")[:1].isdigit() and (
                index is not None or value[0] == "["):
            message += "; token ids are not read"
        elif names and cls.model_fields[names[0]].description:
            message += f"; it is {cls.model_fields[names[0]].description}"
        raise Refusal(422, message, index=index)


AnyBody = TypeVar("AnyBody", bound=Body)


class Request(Options, Body):
    """The body of a request. Its subclasses are the routes; their texts describe them.

    Attributes of a route:
        column: of the model's results that it needs; None: it takes any model.
        needs: what kind of model that is.
        is_split: whether more texts than --max_client_batch_size are predicted in parts.
    """
    model_config = ConfigDict(strict=True, extra="forbid")
    column: ClassVar[Optional[str]] = "vector"
    needs: ClassVar[str] = "an embedding model"
    is_split: ClassVar[bool] = False
    parameters: Optional[Parameters] = None
    options: Any = Field(None, description="how Hugging Face's own service is to answer, as its clients say; ignored")

    @classmethod
    def fits(cls, model: ServedModel) -> bool:
        """Whether the model answers such requests."""
        return cls.column is None or cls.column in model.reader.columns

    @property
    def cuts(self) -> Optional[bool]:
        """Whether texts that are too long are cut."""
        return self.parameters and self.parameters.truncate or self.truncate

    def answer(self, model: ServedModel, predict: Predict) -> Any:
        """The body of the answer; raises a `Refusal` if there is none."""
        raise NotImplementedError


class PredictRequest(Request):
    """Predicts for a text, a pair or more texts, or many. A classifier answers its labels, best first;
    other models answer an object, such as {"value": 3.5} or {"entities": [...]}."""
    column = None
    inputs: _Rows = Field(
        description="a text, a pair [text, text], or a list of such rows [[text], [text, text]]; more texts, "
        "where the model reads them together")

    def answer(self, model: ServedModel, predict: Predict) -> Any:
        is_batch = isinstance(self.inputs, list) and isinstance(self.inputs[0], list)
        rows = self.inputs if is_batch else [_listed(self.inputs)]
        takes = model.reader.takes
        of_all = takes.after(min(len(rows[0]), 2))
        misfit = next((index for index, row in enumerate(rows) if not of_all.allows(len(row))), None)
        if misfit is not None:
            raise Refusal(422, f"the model takes {takes.describe('[{}]')}; a list of such lists is many", index=misfit)
        results = predict([Example(tuple(row)) for row in rows], self.cuts)
        answers: List[Any] = [sorted(({"score": score, "label": label} for label, score in result.scores),
                                     key=lambda each: -each["score"])
                              if result.scores else result.entry for result in results]
        return answers if is_batch else answers[0]


class Vectors(Request):
    """A request for vectors of texts; cuts them to `dimensions`, and to the length 1 again."""
    dimensions: Optional[Annotated[int, Field(ge=1)]] = None
    normalize: Optional[bool] = None

    def vectors(self, texts: List[str], predict: Predict) -> List[List[float]]:
        """A vector for each text."""
        results = predict([Example((text,)) for text in texts], self.cuts)
        vectors = [result.entry["vector"] for result in results]
        if self.normalize is False:
            vectors = (np.array(vectors) * [[result.norm] for result in results]).tolist()
        if self.dimensions is None:
            return vectors
        if self.dimensions > len(vectors[0]):
            raise Refusal(422, f"`dimensions`: the model's vectors have {len(vectors[0])} "
                          f"components, not {self.dimensions}")
        cut = np.array(vectors)[:, :self.dimensions]
        if self.normalize is False:
            return cut.tolist()
        return (cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12)).tolist()


class EmbedRequest(Vectors):
    """Gives each text a vector, of length 1 but with "normalize": false."""
    inputs: _Texts
    prompt_name: Optional[str] = None

    def answer(self, model: ServedModel, predict: Predict) -> List[List[float]]:
        prompt = ""
        if self.prompt_name is not None:
            prompt = model.description.get("query_prefix", "")
            if not prompt or self.prompt_name != "query":
                known = "query alone" if prompt else "none"
                raise Refusal(422, f"`prompt_name`: the model has {known}, not "
                              f"{log.brief(json.dumps(self.prompt_name))}")
        return self.vectors([prompt + text for text in _listed(self.inputs)], predict)


class EmbedAllRequest(Request):
    """Refused: models give a vector for each text, and none for each token."""
    column, needs = "vectors of tokens", "a model that gives each token a vector"


class EmbedSparseRequest(Request):
    """Refused: no model gives sparse vectors."""
    column, needs = "sparse vectors", "a model that gives sparse vectors"


class Comparison(Fields):
    """A text, and those that it is compared with."""
    model_config = ConfigDict(strict=True, extra="forbid")
    source_sentence: str
    sentences: _Texts


class SimilarityRequest(Request):
    """Compares a text with others: the cosine of their vectors."""
    inputs: Comparison

    def answer(self, model: ServedModel, predict: Predict) -> List[float]:
        examples = [Example((self.inputs.source_sentence, text)) for text in _listed(self.inputs.sentences)]
        return [min(1.0, result.entry["similarity"])  # rounding exceeds it
                for result in predict(examples, self.cuts)]


class RerankRequest(Request):
    """Scores texts for a query, and sorts them, best first: by a number, or by the probability of the label that says
    that a text is relevant."""
    needs = ("a re-ranker model: it takes no pairs, or gives them neither a number nor two labels of which one, such as "
             "1, yes, relevant or entailment, says that a text fits")
    query: str
    texts: _Texts
    return_text: Optional[bool] = None
    raw_scores: Optional[bool] = Field(None, description="whether a plain number, as models of Hugging Face give it, "
                                       "stays as it is, and does not become a probability")

    @classmethod
    def fits(cls, model: ServedModel) -> bool:
        name, *labels = model.reader.columns
        return bool(model.reader.takes.pairs) and name == "label" and (not labels or _relevant(labels) is not None)

    def answer(self, model: ServedModel, predict: Predict) -> List[Dict[str, Any]]:
        texts, labels = _listed(self.texts), model.reader.columns[1:]
        if labels and self.raw_scores:
            raise Refusal(422, "`raw_scores`: true is not served; the model ends with probabilities")
        pairs = [(text, self.query) if model.reader.ranks_first else (self.query, text)
                 for text in texts]
        results = predict([Example(pair) for pair in pairs], self.cuts)
        if labels:
            scores = [dict(result.scores)[_relevant(labels)] for result in results]
        else:  # a standardized one is a number of the training's own scale
            is_plain = not self.raw_scores and "deviation" not in model.description
            scores = [_sigmoid(result.entry["value"]) if is_plain else result.entry["value"] for result in results]
        return [{"index": index, "score": scores[index],
                 **({"text": texts[index]} if self.return_text else {})}
                for index in sorted(range(len(texts)), key=lambda index: -scores[index])]


# Names of a label for texts that fit a query. The other label is then "0", "no", "not_entailment", "unrelated".
_RELEVANT = re.compile("1|label_1|true|t|yes|y|pos|positive|fits|good|correct|right|(is_)?(relevan|entail|match|duplicat|"
                       "paraphras|equivalen|similar|related|same|answer).*", re.IGNORECASE)


def _relevant(labels: Sequence[str]) -> Optional[str]:
    """The one of two labels that says that a text fits a query; None if that is not clear."""
    found = [label for label in labels if _RELEVANT.fullmatch(label)]
    return found[0] if len(labels) == 2 and len(found) == 1 else None


def _sigmoid(value: float) -> float:
    return 0.5 + 0.5 * math.tanh(value / 2)


class OpenAIRequest(Vectors):
    """Gives each text a vector of length 1, as OpenAI's clients ask for it, who send fields of many services."""
    model_config = ConfigDict(strict=True, extra="ignore")
    is_split = True
    input: _Texts
    encoding_format: Optional[Literal["float", "base64"]] = None

    def answer(self, model: ServedModel, predict: Predict) -> Dict[str, Any]:
        texts = _listed(self.input)
        vectors = self.vectors(texts, predict)
        if self.encoding_format == "base64":
            vectors = [base64.b64encode(np.array(vector, "<f4").tobytes()).decode("ascii")
                       for vector in vectors]
        tokens = int(model.reader.encode([Example((text,)) for text in texts]).source.lengths.sum())
        return {"object": "list", "model": model.name, "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


class TokenizeRequest(Request):
    """Splits texts into the tokens of the model's vocabulary, without their places in the texts."""
    column = None
    inputs: _Texts
    add_special_tokens: Optional[bool] = None

    def answer(self, model: ServedModel, predict: Predict) -> List[List[Dict[str, Any]]]:
        tokenizer = model.tokenizer
        ids, lengths = tokenizer.encode_batch(_listed(self.inputs))
        rows = np.split(ids, np.cumsum(lengths)[:-1])
        if self.add_special_tokens is not False:
            rows = [[tokenizer.cls_id, *row, tokenizer.sep_id] for row in rows]
        return [[{"id": int(number), "text": token, "special": token in _SPECIAL, "start": None,
                  "stop": None} for number, token in zip(row, tokenizer.convert_ids_to_tokens(row))]
                for row in rows]


class DecodeRequest(Request):
    """Joins tokens to texts."""
    column = None
    ids: _Ids
    skip_special_tokens: Optional[bool] = None

    def answer(self, model: ServedModel, predict: Predict) -> List[str]:
        rows = self.ids if isinstance(self.ids, list) else [self.ids]
        rows, texts = rows if rows and isinstance(rows[0], list) else [rows], []
        for index, row in enumerate(rows):
            try:
                tokens = model.tokenizer.convert_ids_to_tokens(row)
            except KeyError as error:
                raise Refusal(422, f"`ids`: the vocabulary has no {error}", UNREAD, index) from None
            texts.append(" ".join(token for token in tokens if self.skip_special_tokens is False
                                  or token not in _SPECIAL).replace(" ##", ""))
        return texts


REQUESTS = {  # by route
    "/predict": PredictRequest, "/embed": EmbedRequest, "/similarity": SimilarityRequest,
    "/rerank": RerankRequest, "/embeddings": OpenAIRequest, "/v1/embeddings": OpenAIRequest,
    "/tokenize": TokenizeRequest, "/decode": DecodeRequest,
    "/embed_all": EmbedAllRequest, "/embed_sparse": EmbedSparseRequest}


def route_of(path: str, model: ServedModel) -> str:
    """The route of a path; of / the one that it stands for, what the model has first."""
    return path if path in REQUESTS else next(
        route for route in ("/embed", "/rerank", "/predict") if REQUESTS[route].fits(model))
