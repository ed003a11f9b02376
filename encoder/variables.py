"""Which variable of a TensorFlow BERT is which tensor of a Hugging Face model, and its shape.

Only names and shapes, no files. A checkpoint consists of parts, each complete or absent; only
the encoder is required. Some types of Hugging Face's models are a BERT under other names.
"""

import functools
import re
from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Tuple

from engine.errors import UserError

ENCODER = "encoder"
POOLER = "pooler"
MASKED_LM_HEAD = "masked-LM head"
NEXT_SENTENCE_HEAD = "next-sentence head"
CLASSIFIER = "classifier"
TAGGER = "tagger"
READER = "reader"
CHOOSER = "chooser"

# The heads of fine-tuned models, of which a model has at most one → the end of the names of
# transformers' classes that have it.
HEADS = {CLASSIFIER: "ForSequenceClassification", TAGGER: "ForTokenClassification",
         READER: "ForQuestionAnswering", CHOOSER: "ForMultipleChoice"}

SEGMENTS = 2  # of a BERT, where a Hugging Face type has none
POOLER_SCOPE = "bert/pooler/"
WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"

# A name in one of these scopes that is not in the table belongs to another model or config.
_OWN_SCOPES = ("bert/", "bert.", "cls/predictions/", "cls.predictions.")
# Heads that models are pretrained with, which a fine-tuned one does without.
_PRETRAINING = ("cls.", "discriminator_predictions.", "generator_predictions.", "generator_lm_head.")
_ENCODER_ALONE = ("; the encoder alone can be converted: AutoModel.from_pretrained(DIR).save_pretrained(NEW_DIR) "
                  "writes it")
# What is computed with tensors in these scopes, beyond what a BERT and its heads can.
_INEXPRESSIBLE = {
    "pre_classifier": f"computes ReLU where BERT's pooler computes tanh{_ENCODER_ALONE}",
    "classifier.dense": f"computes GELU where BERT's pooler computes tanh{_ENCODER_ALONE}",
    "bert.embeddings_project": "projects embeddings after their LayerNorm, behind which a BERT's layers begin"}

# How other code names the variables of a BERT: below another scope, and as transformers spells them.
_SPELLINGS = (
    (r"^(.*?/)?(?=(embeddings|encoder|pooler)/)", "bert/"), (r"/layer_\._(?=\d+/)", "/layer_"),
    (r"LayerNorm/weight(?=/|$)", "LayerNorm/gamma"), (r"LayerNorm/bias(?=/|$)", "LayerNorm/beta"),
    (r"_embeddings/(weight|embeddings)(?=/|$)", "_embeddings"))


class Naming(NamedTuple):
    """How a type of Hugging Face's models names what a BERT has."""
    prefix: str  # of the encoder's tensors, which a bare encoder lacks
    entries: Mapping[str, str] = {}  # an entry of BERT's configuration → its own
    tensors: Mapping[str, str] = {}  # a part of a tensor's name → BERT's
    has_segments: bool = True  # without: the embeddings of BERT's segments are zeros


# The types of models whose encoder is a BERT, by `model_type`.
TYPES = {
    "bert": Naming("bert."), "electra": Naming("electra."), "ernie": Naming("ernie."),
    "distilbert": Naming(
        "distilbert.",
        {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
         "intermediate_size": "hidden_dim", "hidden_act": "activation", "hidden_dropout_prob": "dropout",
         "attention_probs_dropout_prob": "attention_dropout"},
        {"transformer.layer.": "encoder.layer.", "attention.q_lin.": "attention.self.query.",
         "attention.k_lin.": "attention.self.key.", "attention.v_lin.": "attention.self.value.",
         "attention.out_lin.": "attention.output.dense.",
         "sa_layer_norm.": "attention.output.LayerNorm.", "ffn.lin1.": "intermediate.dense.",
         "ffn.lin2.": "output.dense.", "output_layer_norm.": "output.LayerNorm.",
         "vocab_transform.": "cls.predictions.transform.dense.",
         "vocab_layer_norm.": "cls.predictions.transform.LayerNorm.",
         "vocab_projector.bias": "cls.predictions.bias",
         "vocab_projector.weight": "cls.predictions.decoder.weight"}, has_segments=False)}

# Scopes in TensorFlow → in Hugging Face's BERT, where it is another word.
_SCOPES = {"": "classifier", "cls/squad": "qa_outputs"}
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
        scope = _SCOPES.get(scope) or scope.replace("layer_", "layer/").replace("/", ".")
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
          path: str, heads: Mapping[str, int] = {}) -> Match:
    """Finds the table's rows among a checkpoint's variables.

    Args:
        shapes: the shapes of the checkpoint's variables, by name.
        config: the values of `bert_config.json`.
        framework: "tensorflow" or "huggingface": whose names `shapes` has.
        path: the checkpoint's path, for messages.
        heads: the numbers of outputs of those of HEADS that are read.
    """
    table = correspondence(config, heads)
    rows: List[Row] = []
    for name in sorted(shapes):
        if _scope_of(name) in _INEXPRESSIBLE:
            raise UserError(f"{path} holds {name}, which {_INEXPRESSIBLE[_scope_of(name)]}")
    is_foreign = framework == "huggingface"  # whose config names the heads
    parts = [part for part, candidates in table.items() if part == ENCODER or is_foreign and part in heads
             or any(getattr(row, framework) in shapes for row in candidates)]
    for part in parts:
        missing = [name for name in (getattr(row, framework) for row in table[part])
                   if name not in shapes]
        if missing:
            raise UserError(f"{path} lacks {len(missing)} of the {len(table[part])} variables of a "
                            f"BERT's {part} of its configuration, such as {missing[0]}")
        rows.extend(table[part])
    left_out = sorted(set(shapes) - {getattr(row, framework) for row in rows})
    for name in left_out:
        if name.startswith(_OWN_SCOPES):
            raise UserError(f"{path} holds {name}, which a BERT of its configuration does not "
                            "have: configuration and weights are of different models")
        if is_foreign and not name.startswith(_PRETRAINING):
            raise UserError(f"{path} holds {name}, of a head that no model here has{_ENCODER_ALONE}")
    for row in rows:
        name, is_turned = getattr(row, framework), row.transposed and is_foreign
        expected = row.shape[::-1] if is_turned else row.shape
        if shapes[name] != expected:
            raise UserError(f"{path}: {name} has the shape {list(shapes[name])}, its "
                            f"configuration says {list(expected)}")
    warnings = [f"left out, because the model that is written has no place for it: "
                f"{', '.join(left_out)}"] * bool(left_out)
    if POOLER not in parts and not heads.keys() & {TAGGER, READER}:  # which read none
        warnings.append("no pooler among the weights: a classifier that is fine-tuned from it starts one as the identity")
    return Match(rows, parts, warnings)


def _scope_of(name: str) -> str:
    return name.rpartition(".")[0]


def known_names(names: Collection[str]) -> Dict[str, str]:
    """{our name: its name} for a BERT's variables under known names of other code; else {}."""
    ours = {functools.reduce(lambda text, spelling: re.sub(*spelling, text), _SPELLINGS, name): name
            for name in names}
    is_known = WORD_EMBEDDINGS in ours and len(ours) == len(names) and ours.keys() != set(names)
    return ours if is_known else {}


def correspondence(config: Mapping[str, Any], heads: Mapping[str, int] = {}
                   ) -> Dict[str, List[Row]]:
    """The rows of each part of a BERT of this config, with heads of these numbers of outputs."""
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
        **{head: output_layer("cls/squad/" if head == READER else "", outputs)
           for head, outputs in heads.items()}}
