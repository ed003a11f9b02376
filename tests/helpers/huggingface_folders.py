"""A small BERT in a Hugging Face folder, for the tests of the conversion."""

import json
import os
import shutil

import numpy as np
from safetensors.numpy import load_file, save_file

from bert_reference import reference_bert
from modeling import BertConfig

HIDDEN, INTERMEDIATE, LAYERS, VOCAB, POSITIONS = 12, 20, 2, 30, 16
CONFIG = {
    "model_type": "bert", "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
    "num_attention_heads": 3, "intermediate_size": INTERMEDIATE, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "layer_norm_eps": 1e-12,
    "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "initializer_range": 0.02}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word", "##s", "\u2028", "é"]

# As transformers 5 names and shapes them: [outputs, inputs].
ENCODER = {
    "embeddings.word_embeddings.weight": (VOCAB, HIDDEN),
    "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
    "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    "embeddings.LayerNorm.weight": (HIDDEN,), "embeddings.LayerNorm.bias": (HIDDEN,),
}
for _layer in ("encoder.layer.0.", "encoder.layer.1."):
    for _dense, _shape in (("attention.self.query", (HIDDEN, HIDDEN)),
                           ("attention.self.key", (HIDDEN, HIDDEN)),
                           ("attention.self.value", (HIDDEN, HIDDEN)),
                           ("attention.output.dense", (HIDDEN, HIDDEN)),
                           ("intermediate.dense", (INTERMEDIATE, HIDDEN)),
                           ("output.dense", (HIDDEN, INTERMEDIATE))):
        ENCODER[f"{_layer}{_dense}.weight"] = _shape
        ENCODER[f"{_layer}{_dense}.bias"] = _shape[:1]
    for _norm in ("attention.output.LayerNorm", "output.LayerNorm"):
        ENCODER[f"{_layer}{_norm}.weight"] = ENCODER[f"{_layer}{_norm}.bias"] = (HIDDEN,)
POOLER = {"pooler.dense.weight": (HIDDEN, HIDDEN), "pooler.dense.bias": (HIDDEN,)}
HEADS = {
    "cls.predictions.transform.dense.weight": (HIDDEN, HIDDEN),
    "cls.predictions.transform.dense.bias": (HIDDEN,),
    "cls.predictions.transform.LayerNorm.weight": (HIDDEN,),
    "cls.predictions.transform.LayerNorm.bias": (HIDDEN,),
    "cls.predictions.bias": (VOCAB,),
    "cls.seq_relationship.weight": (2, HIDDEN), "cls.seq_relationship.bias": (2,)}


def random_tensors(shapes, seed=0):
    random = np.random.RandomState(seed)
    return {name: random.normal(1.0 if name.endswith("Norm.weight") else 0.0, 0.3, shape).astype(
        np.float32) for name, shape in shapes.items()}


def prefixed(tensors):
    return {name if name.startswith("cls.") else "bert." + name: value
            for name, value in tensors.items()}


def write_huggingface(folder, tensors, *, config=(), tokenizer_config=None):
    folder.mkdir()
    save_file(tensors, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({**CONFIG, **dict(config)}))
    (folder / "vocab.txt").write_text("".join(token + "\n" for token in TOKENS), encoding="utf-8")
    if tokenizer_config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return str(folder)


def assert_same_values(actual, expected):
    """Two sets of float32 arrays by name are the same bits."""
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        assert actual[name].dtype == np.float32
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def write_bare_encoder(folder):
    """A folder as a sentence encoder's: names without the prefix, positions as a tensor."""
    tensors = random_tensors({**ENCODER, **POOLER})
    tensors["embeddings.position_ids"] = np.arange(POSITIONS, dtype=np.int64)[None]
    return write_huggingface(folder, tensors)


def numpy_bert(tensors, activation, ids, mask, segments):
    """Hidden states [layers + 1] of [batch, length, hidden], and the pooled output.

    Args:
        activation: as `bert_reference` names it.
    """
    values = {}
    for name, value in tensors.items():
        if "LayerNorm" in name:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        elif "embeddings" in name:
            name = name.replace(".weight", "")
        elif name.endswith(".weight"):
            name, value = name.replace(".weight", ".kernel"), value.T
        values["bert/" + name.replace("layer.", "layer_").replace(".", "/")] = value
    config = BertConfig.from_dict({**CONFIG, "hidden_act": activation})
    found = reference_bert(values, config, ids, mask, segments)
    return [found["embedding"], found["layer_0"], found["layer_1"]], found["pooled"]


def numpy_states(source, *texts):
    """The states of texts' tokens [length, hidden], the pooled output [hidden], and the folder's tensors.

    WordPiece by hand: [CLS] 2, [SEP] 3, word 5, ##s 6.
    """
    tensors = load_file(os.path.join(str(source), "model.safetensors"))
    ids, segments = [2], [0]
    for number, text in enumerate(texts):
        pieces = [piece for word in text.split() for piece in [5] + [6] * word.endswith("s")] + [3]
        ids += pieces
        segments += [number] * len(pieces)
    bare = {name.replace("bert.", "", 1): value for name, value in tensors.items()}
    unused = {name: np.zeros(shape, np.float32) for name, shape in POOLER.items()}
    states, pooled = numpy_bert({**unused, **bare}, "gelu_erf", np.array([ids]), np.ones([1, len(ids)], int),
                                np.array([segments]))
    return states[-1][0], pooled[0], tensors


# Kind of the labels → Hugging Face's problem type, labels, what logits [n, labels] mean.
KINDS = {
    "classes": ("single_label_classification", ("good, very", "bad", "neither"),
                lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)),
    "multi_label": ("multi_label_classification", ("red", "green"), lambda x: 1 / (1 + np.exp(-x))),
    "regression": ("regression", ("LABEL_0",), lambda x: x),
}


def config_entries(kind):
    problem, labels, _ = KINDS[kind]
    return {"architectures": ["BertForSequenceClassification"], "problem_type": problem,
            "id2label": {str(index): label for index, label in enumerate(labels)},
            "label2id": {label: index for index, label in enumerate(labels)}}


def classifier_tensors(num_labels):
    return random_tensors({**{name if name.startswith("classifier") else "bert." + name: shape
                              for name, shape in {**ENCODER, **POOLER}.items()},
                           "classifier.weight": (num_labels, HIDDEN),
                           "classifier.bias": (num_labels,)})


# Of each type: replacements that turn BERT's names into those of transformers 5, in this order; the parts that it
# lacks; its configuration.
_DISTILBERT = (
    ("bert.encoder.layer.", "distilbert.transformer.layer."), ("bert.embeddings.", "distilbert.embeddings."),
    ("attention.self.query.", "attention.q_lin."), ("attention.self.key.", "attention.k_lin."),
    ("attention.self.value.", "attention.v_lin."), ("attention.output.dense.", "attention.out_lin."),
    ("attention.output.LayerNorm.", "sa_layer_norm."), ("intermediate.dense.", "ffn.lin1."),
    ("output.dense.", "ffn.lin2."), ("output.LayerNorm.", "output_layer_norm."),
    ("cls.predictions.transform.dense.", "vocab_transform."),
    ("cls.predictions.transform.LayerNorm.", "vocab_layer_norm."),
    ("cls.predictions.bias", "vocab_projector.bias"))
_DISTILBERT_ENTRIES = {
    "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim", "hidden_act": "activation", "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout"}
_NOT_IN_DISTILBERT = ("layer_norm_eps", "type_vocab_size")


def as_type(kind, source, folder, *, prefix=True, **config):
    """Writes a folder of BERT's as one of "distilbert" or "electra", which have no pooler.

    Args:
        prefix: whether the encoder's names have one.
        config: entries to change.
    """
    shutil.copytree(str(source), str(folder))
    names = _DISTILBERT if kind == "distilbert" else (("bert.", "electra."),)
    tensors = {}
    for name, value in load_file(os.path.join(str(source), "model.safetensors")).items():
        if name.startswith("bert.pooler") or kind == "distilbert" and "token_type" in name:
            continue
        for ours, theirs in names:
            name = name.replace(ours, theirs)
        tensors[name if prefix else name.replace(f"{kind}.", "", 1)] = value
    save_file(tensors, os.path.join(str(folder), "model.safetensors"))
    path = os.path.join(str(folder), "config.json")
    with open(path) as file:
        entries = json.load(file)
    entries["architectures"] = [name.replace("Bert", {"distilbert": "DistilBert", "electra": "Electra"}[kind])
                                for name in entries.get("architectures", ["BertModel"])]
    if kind == "distilbert":
        entries = {_DISTILBERT_ENTRIES.get(name, name): value for name, value in entries.items()
                   if name not in _NOT_IN_DISTILBERT}
    else:
        entries["embedding_size"] = entries["hidden_size"]
    with open(path, "w") as file:
        json.dump({**entries, "model_type": kind, **config}, file)
    return str(folder)
