"""Models of other code's trainings become model folders."""

import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import run_here
from conftest import checkpoint_values
from encoder import convert, model_files
from encoder.convert import (
    convert_from_checkpoint, convert_from_huggingface, convert_from_tensorflow)
from engine.checkpoints import checkpoints
from engine.errors import UserError
from huggingface_folders import (
    assert_same_values, classifier_tensors, config_entries, write_huggingface)
from multigpu_optimizer import UPDATES


def values_in(folder):
    return checkpoint_values(os.path.join(folder, "bert_model.ckpt"))


def description_in(folder):
    with open(os.path.join(folder, "task.json")) as file:
        return json.load(file)


@pytest.fixture
def classifier(tmp_path):
    """A Hugging Face classifier with three labels, and its model folder."""
    source = write_huggingface(tmp_path / "source", classifier_tensors(3),
                               config=config_entries("classes"))
    convert_from_huggingface(source, str(tmp_path / "ours"))
    return source, str(tmp_path / "ours")


@pytest.fixture
def foreign(classifier, tmp_path):
    """A training's folder of other code: checkpoints with slots and a step, nothing else."""
    _, ours = classifier
    values = values_in(ours)
    (tmp_path / "foreign").mkdir()
    checkpoints.write_checkpoint(str(tmp_path / "foreign" / "model.ckpt-7"), {
        **values, "global_step": np.int64(7),
        UPDATES: np.int64(7),
        **{f"{name}/adam_m": np.zeros_like(value) for name, value in values.items()}})
    (tmp_path / "foreign" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    return str(tmp_path / "foreign")


def test_a_classifier_of_other_code_becomes_one_of_ours_with_labels(
        classifier, foreign, tmp_path, capsys):
    _, ours = classifier
    run_here(dict(from_checkpoint=foreign, labels="a,b,c", takes_pairs=True, max_seq_length=9,
                  bert_config_file=f"{ours}/bert_config.json", vocab_file=f"{ours}/vocab.txt",
                  do_lower_case=False, output_dir=tmp_path / "out"), convert)
    assert "--do_lower_case=false" in capsys.readouterr().out
    assert_same_values(values_in(ours), values_in(tmp_path / "out"))
    assert description_in(tmp_path / "out") == {
        "kind": "classes", "labels": ["a", "b", "c"], "label_separator": "", "takes_pairs": True,
        "do_lower_case": False, "max_seq_length": 9}
    model_files.require_labels(model_files.open_folder(str(tmp_path / "out"), ""))


def test_without_labels_the_encoder_alone_goes_to_hugging_face(classifier, foreign, tmp_path):
    source, ours = classifier
    labels, left_out = convert_from_tensorflow(
        foreign, str(tmp_path / "back"), bert_config_file=f"{ours}/bert_config.json",
        vocab_file=f"{ours}/vocab.txt").warnings
    assert "--from_checkpoint and --labels" in labels
    assert left_out.endswith(": output_bias, output_weights"), "neither slots nor the step"
    tensors = load_file(os.path.join(source, "model.safetensors"))
    assert_same_values(load_file(str(tmp_path / "back" / "model.safetensors")), {
        name: value for name, value in tensors.items() if not name.startswith("classifier")})


@pytest.mark.parametrize("num_outputs, labels, kind, found", [
    (1, [], None, ("regression", [], "")), (3, ["a", "b,", "c"], "multi_label",
                                            ("multi_label", ["a", "b,", "c"], ";")),
    (1, ["a"], None, ("classes", ["a"], ""))])
def test_the_kind_of_its_labels_can_be_said(
        classifier, foreign, tmp_path, num_outputs, labels, kind, found):
    for name in ("bert_config.json", "vocab.txt"):
        shutil.copy(os.path.join(classifier[1], name), foreign)
    values = checkpoint_values(foreign)
    checkpoints.write_checkpoint(os.path.join(foreign, "model.ckpt-7"), {
        **values, "output_weights": values["output_weights"][:num_outputs],
        "output_bias": values["output_bias"][:num_outputs]})
    convert_from_checkpoint(foreign, str(tmp_path / "out"), labels=labels, label_kind=kind)
    description = description_in(tmp_path / "out")
    assert tuple(description[name] for name in ("kind", "labels", "label_separator")) == found
    assert (description["max_seq_length"], description["do_lower_case"]) == (16, True)


@pytest.mark.parametrize("changes, message", [
    (dict(labels=["a", "b"]), "--labels names 2 labels, and the classifier has 3 outputs"),
    (dict(labels=["a", "b", "a"]), "--labels has the same label twice: a, b, a"),
    (dict(labels=[], label_kind="regression"), "a regression has one output"),
    (dict(max_seq_length=17), "--max_seq_length=17: the model has only 16 positions"),
    (dict(bert_config_file=None), "foreign holds no bert_config.json; copy there"),
    (dict(source="source"), "is a Hugging Face folder: python -m encoder.convert --from_hugg"),
])
def test_what_does_not_fit_is_one_clear_line_and_nothing_is_written(
        classifier, foreign, tmp_path, changes, message):
    _, ours = classifier
    arguments = dict(labels=["a", "b", "c"], bert_config_file=f"{ours}/bert_config.json",
                     vocab_file=f"{ours}/vocab.txt")
    source = str(tmp_path / changes.get("source", "foreign"))
    arguments = {**arguments, **changes, "source": source, "output_dir": str(tmp_path / "out")}
    with pytest.raises(UserError, match=message) as refused:
        convert_from_checkpoint(**arguments)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()
