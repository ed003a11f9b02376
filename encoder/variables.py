"""Which variable of a TensorFlow BERT is which tensor of a Hugging Face one, and its shape.

Only names and shapes, no files. A checkpoint consists of parts, each complete or absent; only
the encoder is required.
"""

import functools
import re
from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Tuple

from engine.errors import UserError

ENCODER = "encoder"
POOLER = "pooler"
MASKED_LM_HEAD = "masked-LM head"
NEXT_SENTENCE_HEAD = "next-sentence head"
CLASSIFIER = "classifier"

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"

# A name in one of these scopes that is not in the table belongs to another model or config.
_OWN_SCOPES = ("bert/", "bert.", "cls/predictions/", "cls.predictions.")

# How other code names the variables of a BERT: below another scope, and as transformers spells them.
_SPELLINGS = (
    (r"^(.*?/)?(?=(embeddings|encoder|pooler)/)", "bert/"), (r"/layer_\._(?=\d+/)", "/layer_"),
    (r"LayerNorm/weight(?=/|$)", "LayerNorm/gamma"), (r"LayerNorm/bias(?=/|$)", "LayerNorm/beta"),
    (r"_embeddings/(weight|embeddings)(?=/|$)", "_embeddings"))


class Row(NamedTuple):
    """One variable under both its names."""
    tensorflow: str
    huggingface: str
    shape: Tuple[int, ...]  # in TensorFlow
    transposed: bool = False  # a dense layer's kernel is [inputs, outputs] in TensorFlow only

    def shape_in(self, framework: str) -> Tuple[int, ...]:
        """The shape in "tensorflow" or "huggingface"."""
        return self.shape[::-1] if self.transposed and framework == "huggingface" else self.shape


class Match(NamedTuple):
    """What a checkpoint holds of the table."""
    rows: List[Row]
    parts: List[str]
    warnings: List[str]


def match(shapes: Mapping[str, Tuple[int, ...]], config: Mapping[str, Any], framework: str,
          path: str, num_outputs: Optional[int] = None) -> Match:
    """Finds the table's rows among a checkpoint's variables.

    Args:
        shapes: the shapes of the checkpoint's variables, by name.
        config: the values of `bert_config.json`.
        framework: "tensorflow" or "huggingface": whose names `shapes` has.
        path: the checkpoint's path, for messages.
        num_outputs: the number of the classifier's outputs; None to ignore its head.
    """
    table = correspondence(config, num_outputs)
    rows: List[Row] = []
    parts = [part for part, candidates in table.items()
             if part == ENCODER or any(getattr(row, framework) in shapes for row in candidates)]
    for part in parts:
        _check_part(part, table[part], shapes, framework, path)
        rows.extend(table[part])
    left_out = sorted(set(shapes) - {getattr(row, framework) for row in rows})
    for name in left_out:
        if name.startswith(_OWN_SCOPES):
            raise UserError(f"{path} holds {name}, which a BERT of its configuration does not "
                            "have: configuration and weights are of different models")
    warnings = [f"left out, because nothing here reads it: {', '.join(left_out)}"] * bool(left_out)
    if POOLER not in parts:
        warnings.append("no pooler among the weights: fine-tuning starts it at random")
    return Match(rows, parts, warnings)


def known_names(names: Collection[str]) -> Dict[str, str]:
    """{our name: its name} for a BERT's variables under known names of other code; else {}."""
    ours = {functools.reduce(lambda text, spelling: re.sub(*spelling, text), _SPELLINGS, name): name
            for name in names}
    is_known = WORD_EMBEDDINGS in ours and len(ours) == len(names) and ours.keys() != set(names)
    return ours if is_known else {}


def correspondence(config: Mapping[str, Any],
                   num_outputs: Optional[int] = None) -> Dict[str, List[Row]]:
    """The rows of each part of a BERT of this config, and of a classifier if it has outputs."""
    hidden = config["hidden_size"]
    classifier = {} if num_outputs is None else {CLASSIFIER: [
        Row("output_weights", "classifier.weight", (num_outputs, hidden)),
        Row("output_bias", "classifier.bias", (num_outputs,))]}
    return {
        ENCODER: _embeddings(config) + [
            row for layer in range(config["num_hidden_layers"])
            for row in _layer(f"bert/encoder/layer_{layer}/", hidden, config["intermediate_size"])],
        POOLER: _dense("bert/pooler/dense", hidden, hidden),
        MASKED_LM_HEAD: [
            *_dense("cls/predictions/transform/dense", hidden, hidden),
            *_layer_norm("cls/predictions/transform/LayerNorm", hidden),
            Row("cls/predictions/output_bias", "cls.predictions.bias", (config["vocab_size"],))],
        NEXT_SENTENCE_HEAD: [
            Row("cls/seq_relationship/output_weights", "cls.seq_relationship.weight", (2, hidden)),
            Row("cls/seq_relationship/output_bias", "cls.seq_relationship.bias", (2,))],
        **classifier,
    }


def _check_part(part: str, rows: List[Row], shapes: Mapping[str, Tuple[int, ...]],
                framework: str, path: str) -> None:
    missing = [name for name in (getattr(row, framework) for row in rows) if name not in shapes]
    if missing:
        raise UserError(f"{path} lacks {len(missing)} of the {len(rows)} variables of a BERT's "
                        f"{part} of its configuration, such as {missing[0]}")
    for row in rows:
        name, expected = getattr(row, framework), row.shape_in(framework)
        if shapes[name] != expected:
            raise UserError(f"{path}: {name} has the shape {list(shapes[name])}, its "
                            f"configuration says {list(expected)}")


def _embeddings(config: Mapping[str, Any]) -> List[Row]:
    tables = {"word": "vocab_size", "token_type": "type_vocab_size",
              "position": "max_position_embeddings"}
    return [
        Row(f"bert/embeddings/{name}_embeddings", f"bert.embeddings.{name}_embeddings.weight",
            (config[size], config["hidden_size"])) for name, size in tables.items()
    ] + _layer_norm("bert/embeddings/LayerNorm", config["hidden_size"])


def _layer(scope: str, hidden: int, intermediate: int) -> List[Row]:
    return [
        *_dense(scope + "attention/self/query", hidden, hidden),
        *_dense(scope + "attention/self/key", hidden, hidden),
        *_dense(scope + "attention/self/value", hidden, hidden),
        *_dense(scope + "attention/output/dense", hidden, hidden),
        *_layer_norm(scope + "attention/output/LayerNorm", hidden),
        *_dense(scope + "intermediate/dense", hidden, intermediate),
        *_dense(scope + "output/dense", intermediate, hidden),
        *_layer_norm(scope + "output/LayerNorm", hidden),
    ]


def _dense(scope: str, inputs: int, outputs: int) -> List[Row]:
    theirs = _huggingface_scope(scope)
    return [Row(scope + "/kernel", theirs + ".weight", (inputs, outputs), transposed=True),
            Row(scope + "/bias", theirs + ".bias", (outputs,))]


def _layer_norm(scope: str, size: int) -> List[Row]:
    theirs = _huggingface_scope(scope)
    return [Row(scope + "/gamma", theirs + ".weight", (size,)),
            Row(scope + "/beta", theirs + ".bias", (size,))]


def _huggingface_scope(scope: str) -> str:
    return scope.replace("layer_", "layer/").replace("/", ".")
