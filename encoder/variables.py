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


# The last part of a variable's name in TensorFlow → in Hugging Face's BERT.
_LAST_NAMES = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias",
               "output_weights": "weight", "output_bias": "bias"}


class Row(NamedTuple):
    """A variable: its name and its shape in TensorFlow."""
    tensorflow: str
    shape: Tuple[int, ...]

    @property
    def huggingface(self) -> str:
        """Its name in a Hugging Face BERT."""
        scope, _, last = self.tensorflow.rpartition("/")
        scope = scope.replace("layer_", "layer/").replace("/", ".") or "classifier"
        return f"{scope}.{_LAST_NAMES.get(last, f'{last}.weight')}"

    @property
    def transposed(self) -> bool:
        """Whether Hugging Face has it transposed: a dense layer's kernel, [inputs, outputs]."""
        return self.tensorflow.endswith("/kernel")


class Match(NamedTuple):
    """The rows of the table that a checkpoint has."""
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
        missing = [name for name in (getattr(row, framework) for row in table[part])
                   if name not in shapes]
        if missing:
            raise UserError(f"{path} lacks {len(missing)} of the {len(table[part])} variables of a "
                            f"BERT's {part} of its configuration, such as {missing[0]}")
        rows.extend(table[part])
    for row in rows:
        name, is_turned = getattr(row, framework), row.transposed and framework == "huggingface"
        expected = row.shape[::-1] if is_turned else row.shape
        if shapes[name] != expected:
            raise UserError(f"{path}: {name} has the shape {list(shapes[name])}, its "
                            f"configuration says {list(expected)}")
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
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]

    def dense(scope: str, inputs: int = hidden, outputs: int = hidden) -> List[Row]:
        return [Row(f"{scope}/kernel", (inputs, outputs)), Row(f"{scope}/bias", (outputs,))]

    def layer_norm(scope: str) -> List[Row]:
        return [Row(f"{scope}/LayerNorm/{name}", (hidden,)) for name in ("gamma", "beta")]

    def layer(scope: str) -> List[Row]:
        return [*dense(f"{scope}/attention/self/query"), *dense(f"{scope}/attention/self/key"),
                *dense(f"{scope}/attention/self/value"), *dense(f"{scope}/attention/output/dense"),
                *layer_norm(f"{scope}/attention/output"),
                *dense(f"{scope}/intermediate/dense", hidden, intermediate),
                *dense(f"{scope}/output/dense", intermediate, hidden),
                *layer_norm(f"{scope}/output")]

    def output_layer(scope: str, outputs: int) -> List[Row]:
        return [Row(f"{scope}output_weights", (outputs, hidden)),
                Row(f"{scope}output_bias", (outputs,))]

    classifier = {} if num_outputs is None else {CLASSIFIER: output_layer("", num_outputs)}
    return {
        ENCODER: [
            Row("bert/embeddings/word_embeddings", (config["vocab_size"], hidden)),
            Row("bert/embeddings/token_type_embeddings", (config["type_vocab_size"], hidden)),
            Row("bert/embeddings/position_embeddings", (config["max_position_embeddings"], hidden)),
            *layer_norm("bert/embeddings"),
            *(row for number in range(config["num_hidden_layers"])
              for row in layer(f"bert/encoder/layer_{number}"))],
        POOLER: dense("bert/pooler/dense"),
        MASKED_LM_HEAD: [*dense("cls/predictions/transform/dense"),
                         *layer_norm("cls/predictions/transform"),
                         Row("cls/predictions/output_bias", (config["vocab_size"],))],
        NEXT_SENTENCE_HEAD: output_layer("cls/seq_relationship/", 2),
        **classifier}
