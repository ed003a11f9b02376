"""DistilBERT and ELECTRA become a BERT that computes the same; weights in several files and in 16 bits."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import checkpoint_values
from encoder.convert import convert_from_huggingface, convert_from_tensorflow
from engine.errors import UserError
from huggingface_folders import (
    CONFIG, ENCODER, HEADS, HIDDEN, POOLER, as_type, assert_same_values, classifier_tensors, config_entries, prefixed,
    random_tensors, write_huggingface)

SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
PREDICTIONS = {name: shape for name, shape in HEADS.items() if "predictions" in name}


@pytest.mark.parametrize("prefix", (True, False))
@pytest.mark.parametrize("model_type", ("distilbert", "electra"))
def test_an_encoder_of_another_type_becomes_a_bert_of_the_same_values(model_type, prefix, tmp_path):
    """The conversion transposes kernels as it does those of BERT. A type without segments gets zeros for them."""
    tensors = prefixed(random_tensors(ENCODER))
    bert = write_huggingface(tmp_path / "bert", tensors)
    if model_type == "distilbert":
        tensors[SEGMENTS] = np.zeros_like(tensors[SEGMENTS])
    source = as_type(model_type, bert, tmp_path / "source", prefix=prefix)
    conversion = convert_from_huggingface(source, str(tmp_path / "ours"))
    pooler, = conversion.warnings
    assert pooler.startswith("no pooler among the weights")
    convert_from_tensorflow(conversion.output, str(tmp_path / "back"))
    assert_same_values(load_file(str(tmp_path / "back" / "model.safetensors")), tensors)
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == {
        **CONFIG, "architectures": ["BertModel"], "pad_token_id": 0}


def test_the_words_that_distilbert_predicts_are_bert_s(tmp_path):
    tensors = prefixed(random_tensors({**ENCODER, **PREDICTIONS}))
    source = as_type("distilbert", write_huggingface(tmp_path / "bert", tensors), tmp_path / "source",
                     architectures=["DistilBertForMaskedLM"])
    path = os.path.join(source, "model.safetensors")
    held = load_file(path)
    save_file({**held, "vocab_projector.weight": held["distilbert.embeddings.word_embeddings.weight"].copy()}, path)
    conversion = convert_from_huggingface(source, str(tmp_path / "ours"))
    convert_from_tensorflow(conversion.output, str(tmp_path / "back"))
    tensors[SEGMENTS] = np.zeros_like(tensors[SEGMENTS])
    assert_same_values(load_file(str(tmp_path / "back" / "model.safetensors")), tensors)


def test_the_head_of_a_discriminator_is_left_out_with_a_line(tmp_path):
    tensors = {**prefixed(random_tensors(ENCODER)), "discriminator_predictions.dense.weight": np.zeros((2, 2), "f4")}
    source = as_type("electra", write_huggingface(tmp_path / "bert", tensors), tmp_path / "source")
    head, _ = convert_from_huggingface(source, str(tmp_path / "ours")).warnings
    assert "no place for it: discriminator_predictions.dense.weight" in head


RELU = {"pre_classifier.weight": (HIDDEN, HIDDEN), "pre_classifier.bias": (HIDDEN,)}
GELU = {"classifier.dense.weight": (HIDDEN, HIDDEN), "classifier.out_proj.weight": (2, HIDDEN)}
OUTPUTS = {"classifier.weight": (2, HIDDEN), "classifier.bias": (2,)}


@pytest.mark.parametrize("model_type, head, config, message", [
    ("distilbert", {**RELU, **OUTPUTS}, {"architectures": ["DistilBertForSequenceClassification"]},
     "pre_classifier.bias, which computes ReLU where BERT's pooler computes tanh; the encoder alone"),
    ("electra", GELU, {"architectures": ["ElectraForSequenceClassification"]},
     "classifier.dense.weight, which computes GELU where"),
    ("electra", {"electra.embeddings_project.weight": (HIDDEN, 8)}, {},
     "embeddings_project.weight, which projects embeddings after their LayerNorm"),
    ("electra", {"sequence_summary.summary.weight": (HIDDEN, HIDDEN), "classifier.weight": (1, HIDDEN),
                 "classifier.bias": (1,)},
     {"architectures": ["ElectraForMultipleChoice"]},
     "sequence_summary.summary.weight, of a head that no model here has; the encoder alone can be converted: AutoModel"),
    ("electra", {**OUTPUTS, "crf.transitions": (2, 2)},
     {"architectures": ["ElectraForTokenClassification"], "id2label": {"0": "O", "1": "B-A"}},
     "crf.transitions, of a head that no model here has"),
    ("electra", {}, {"architectures": ["ElectraForQuestionAnswering"]}, "lacks 2 of the 2 variables of a BERT's reader"),
    ("electra", {}, {"model_type": "bert"}, "lacks 37 of the 37 variables of a BERT's encoder"),
    ("distilbert", {}, {"model_type": "bert"}, "config.json lacks 'hidden_size': is its model_type, 'bert', right"),
    ("electra", {}, {"model_type": ["electra"]}, r"model_type is \['electra'\]; only .*\(bert, electra, ernie, distilbert\)"),
])
def test_what_no_bert_computes_is_refused_by_name(model_type, head, config, message, tmp_path):
    tensors = {**prefixed(random_tensors(ENCODER)), **random_tensors(head)}
    source = as_type(model_type, write_huggingface(tmp_path / "bert", tensors), tmp_path / "source", **config)
    with pytest.raises(UserError, match=message):
        convert_from_huggingface(source, str(tmp_path / "ours"))
    assert not (tmp_path / "ours").exists()


def split_into(folder, tensors, count):
    """Replaces a folder's file of tensors by several, and the list of what is in which."""
    os.remove(os.path.join(folder, "model.safetensors"))
    parts = [f"model-{number + 1:05}-of-{count:05}.safetensors" for number in range(count)]
    in_part = {name: parts[number % count] for number, name in enumerate(sorted(tensors))}
    for part in parts:
        save_file({name: tensors[name] for name in tensors if in_part[name] == part}, os.path.join(folder, part))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": 1}, "weight_map": in_part}, file)
    return parts


def test_weights_in_several_files_are_those_in_one_and_a_missing_file_is_named(tmp_path):
    tensors = classifier_tensors(3)
    source = write_huggingface(tmp_path / "source", tensors, config=config_entries("classes"))
    expected = convert_from_huggingface(source, str(tmp_path / "expected"))
    *_, last = split_into(source, tensors, 3)
    conversion = convert_from_huggingface(source, str(tmp_path / "ours"))
    assert_same_values(checkpoint_values(conversion.output), checkpoint_values(expected.output))
    os.remove(os.path.join(source, last))
    with pytest.raises(UserError, match=f"index.json names 3 files, and {last} is missing: copy all of them"):
        convert_from_huggingface(source, str(tmp_path / "more"))
    with open(os.path.join(source, "model.safetensors.index.json"), "w") as file:
        json.dump({"weight_map": []}, file)
    with pytest.raises(UserError, match="index.json is damaged: 'weight_map'"):
        convert_from_huggingface(source, str(tmp_path / "more"))
    assert not (tmp_path / "more").exists()


def test_bfloat16_is_the_upper_half_of_float32(tmp_path):
    """NumPy has no such type, so that the file is written by hand."""
    tensors = prefixed(random_tensors({**ENCODER, **POOLER}))
    source = write_huggingface(tmp_path / "source", tensors)
    halves = {name: (value.view("<u4") >> 16).astype("<u2") for name, value in tensors.items()}
    header, place = {"__metadata__": {"format": "pt"}}, 0
    for name, half in halves.items():
        header[name] = {"dtype": "BF16", "shape": list(half.shape), "data_offsets": [place, place + half.nbytes]}
        place += half.nbytes
    text = json.dumps(header).encode()
    with open(os.path.join(source, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(half.tobytes() for half in halves.values()))
    conversion = convert_from_huggingface(source, str(tmp_path / "ours"))
    convert_from_tensorflow(conversion.output, str(tmp_path / "back"))
    assert_same_values(load_file(str(tmp_path / "back" / "model.safetensors")), {
        name: (half.astype("<u4") << 16).view("<f4") for name, half in halves.items()})
