"""A classifier goes to Hugging Face's format and back with its head, its labels and its scores.

Scores of `runs.predict` are held against a NumPy transcription of BERT in Hugging Face's
conventions.
"""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands import answers_of
from encoder.convert import convert_from_huggingface, convert_from_tensorflow
from engine.errors import UserError
from huggingface_folders import (KINDS, assert_same_values, classifier_tensors, config_entries,
                                 numpy_states, write_huggingface)

TEXTS = ["word", "words word", "words words words"]


@pytest.fixture(scope="module", params=sorted(KINDS))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def source(kind, tmp_path_factory):
    """A Hugging Face folder of a classifier."""
    return write_huggingface(
        tmp_path_factory.mktemp("kind") / "source", classifier_tensors(len(KINDS[kind][1])),
        config=config_entries(kind),
        tokenizer_config={"do_lower_case": True, "model_max_length": 12})


@pytest.fixture(scope="module")
def ours(source, tmp_path_factory):
    """The classifier as a model of ours, and its labels and scores of TEXTS."""
    folder = tmp_path_factory.mktemp("ours")
    assert convert_from_huggingface(source, str(folder / "model")).warnings == []
    return folder / "model", predicted(folder / "model", folder, TEXTS)


def predicted(model_dir, folder, texts):
    """The answers of runs.predict: labels, and scores [n, labels] ([n, 1] of a regression)."""
    answers = answers_of(model_dir, texts, folder)
    return [each.get("label") for each in answers], np.array([
        [each["value"]] if "value" in each else list(each["probabilities"].values()) for each in answers])


def test_a_hugging_face_classifier_scores_here_with_its_labels(kind, source, ours):
    folder, (labels, scores) = ours
    assert json.loads((folder / "task.json").read_text()) == {
        "kind": kind, "labels": [] if kind == "regression" else list(KINDS[kind][1]),
        "label_separator": "," if kind == "multi_label" else "", "takes_pairs": False,
        "do_lower_case": True, "max_seq_length": 12}
    logits = [pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"]
              for _, pooled, tensors in (numpy_states(source, text) for text in TEXTS)]
    expected = KINDS[kind][2](np.array(logits))
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    if kind == "classes":
        assert labels == [KINDS[kind][1][index] for index in expected.argmax(axis=1)]


def test_there_and_back_gives_the_same_bits_and_labels(kind, source, ours, tmp_path):
    assert convert_from_tensorflow(str(ours[0]), str(tmp_path / "back")).warnings == []
    assert_same_values(*(load_file(os.path.join(folder, "model.safetensors"))
                         for folder in (str(tmp_path / "back"), source)))
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert {key: config[key] for key in config_entries(kind)} == config_entries(kind)
    tokenizer = json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())
    assert tokenizer["do_lower_case"] is True and tokenizer["model_max_length"] == 12


def test_a_classifier_of_pairs_scores_pairs(tmp_path, capsys):
    source = write_huggingface(tmp_path / "source", classifier_tensors(3),
                               config=config_entries("classes"))
    convert_from_huggingface(source, str(tmp_path / "single"))
    assert "one of single texts; if it was trained on pairs" in capsys.readouterr().err
    convert_from_huggingface(source, str(tmp_path / "ours"), takes_pairs=True)
    assert "single texts" not in capsys.readouterr().err
    back, = convert_from_tensorflow(str(tmp_path / "ours"), str(tmp_path / "back")).warnings
    assert "set --takes_pairs" in back
    labels, scores = predicted(tmp_path / "ours", tmp_path, [("word", "words"), ("words", "word")])
    assert scores.shape == (2, 3) and np.abs(scores[0] - scores[1]).max() > 1e-3


@pytest.mark.parametrize("changes, num_labels, kind, labels", [
    ({"problem_type": None}, 3, "classes", ["good, very", "bad", "neither"]),
    ({"problem_type": None, "architectures": None, "id2label": None}, 2, "classes",
     ["LABEL_0", "LABEL_1"]),
    ({"problem_type": None, "id2label": {"0": "LABEL_0"}}, 1, "regression", []),
    ({"id2label": {"1": "b", "0": "a"}}, 2, "classes", ["a", "b"]),
    ({"problem_type": "multi_label_classification"}, 3, "multi_label",
     ["good, very", "bad", "neither"])])
def test_the_kind_is_what_transformers_takes_it_for(tmp_path, changes, num_labels, kind, labels):
    config = {**config_entries("classes"), **changes}  # None: the entry is not there
    source = write_huggingface(
        tmp_path / "source", classifier_tensors(num_labels),
        config={name: value for name, value in config.items() if value is not None})
    convert_from_huggingface(source, str(tmp_path / "ours"))
    description = json.loads((tmp_path / "ours" / "task.json").read_text())
    assert (description["kind"], description["labels"]) == (kind, labels)
    assert description["label_separator"] == (";" if kind == "multi_label" else "")
    assert description["max_seq_length"] == 16  # as many as the model has positions


@pytest.mark.parametrize("changes, message", [
    ({"id2label": {"0": "a", "2": "b"}}, "id2label is no map from 0, 1, 2"),
    ({"id2label": {"0": "a", "1": "a"}}, "the same label twice: a, a"),
    ({"problem_type": "regression"}, "a regression to 3 numbers"),
    ({"problem_type": "multi_label_classification",
      "id2label": {"0": "a, b; c", "1": "d|#e", "2": "e"}}, "every separator"),
    ({"id2label": {"0": "a", "1": "b\tc", "2": "d"}},
     r"the label 'b\\tc': .* a tab or a line end"),
])
def test_labels_that_make_no_sense_are_one_clear_line(tmp_path, changes, message):
    source = write_huggingface(tmp_path / "source", classifier_tensors(3),
                               config={**config_entries("classes"), **changes})
    with pytest.raises(UserError, match=message):
        convert_from_huggingface(source, str(tmp_path / "out"))
    assert os.listdir(str(tmp_path)) == ["source"]
