"""Taggers, readers and choosers go to Hugging Face's format and back with their heads, their tags and their answers.

The reference is BERT in NumPy, with Hugging Face's names and layouts. `python -m benchmarks.conversions`
compares with transformers itself.
"""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks import conversions
from commands import answers_of, ends_with_error, run_here
from encoder import convert, tag_set
from encoder.convert import convert_from_huggingface, convert_from_tensorflow
from engine.errors import UserError
from huggingface_folders import (
    ENCODER, HIDDEN, POOLER, assert_same_values, numpy_states, random_tensors, write_huggingface)
from runs import text_predictor
from tagging import run as tagging, schemes
from tagging_files import write_random_tagger

POSITIONS = 80
BARE = {**ENCODER, "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN)}
TAGS = ("B-Y", "I-X", "O", "B-X")  # in no order; Y has no I, as in a small training set
PAIRS = [("word words", "words word words"), ("words", "word"), ("word word words word", "word words words")]


def write_folder(folder, task, num_outputs, pooler=(), **config):
    """A folder with a random head."""
    scope = {"QuestionAnswering": "qa_outputs"}.get(task, "classifier")
    tensors = random_tensors({**{f"bert.{name}": shape for name, shape in {**BARE, **dict(pooler)}.items()},
                              f"{scope}.weight": (num_outputs, HIDDEN), f"{scope}.bias": (num_outputs,)}, seed=3)
    return write_huggingface(folder, tensors, tokenizer_config={"do_lower_case": True}, config={
        "architectures": [f"BertFor{task}"], "max_position_embeddings": POSITIONS, **config})


def write_tagger(folder, tags=TAGS, **config):
    names = {str(index): tag for index, tag in enumerate(tags)}
    return write_folder(folder, "TokenClassification", len(tags), id2label=names, **config)


def logits_of(source, scope, *texts):
    """[tokens, outputs], by NumPy."""
    states, _, tensors = numpy_states(source, *texts)
    return states @ tensors[f"{scope}.weight"].T + tensors[f"{scope}.bias"]


def test_each_word_has_its_best_tag_in_the_order_of_the_file_and_comes_back_with_the_same_bits(tmp_path):
    """Whatever stands before it, as in transformers: the labels do not say what the model learned of sequences."""
    source = write_tagger(tmp_path / "source")
    assert convert_from_huggingface(source, str(tmp_path / "ours")).warnings == []
    assert json.loads((tmp_path / "ours" / "task.json").read_text()) == {
        "kind": "tags", "types": ["Y", "X"], "scheme": "iob2", "crf": False, "own_tags": list(TAGS),
        "do_lower_case": True, "max_seq_length": POSITIONS}
    tags = []
    for (text, _), found in zip(PAIRS, conversions.values_of(str(tmp_path / "ours"), PAIRS)):
        words = text.split()
        first = [1 + sum(1 + word.endswith("s") for word in words[:number]) for number in range(len(words))]
        logits = logits_of(source, "classifier", text)
        assert [tag for tag, _ in found.values()] == [TAGS[best] for best in logits[first].argmax(axis=1)]
        np.testing.assert_allclose([score for _, score in found.values()],
                                   [conversions.softmax(logits[place]).max() for place in first], atol=1e-5)
        tags.append([tag for tag, _ in found.values()])
    begun = [sum(tag != "O" and not (tag[0] == "I" and before[1:] == tag[1:])
                 for before, tag in zip(["O", *row], row)) for row in tags]
    answers = answers_of(tmp_path / "ours", [text for text, _ in PAIRS], tmp_path)
    assert [len(answer["entities"]) for answer in answers] == begun and sum(begun)
    assert convert_from_tensorflow(str(tmp_path / "ours"), str(tmp_path / "back")).warnings == []
    assert_same_values(*(load_file(os.path.join(str(folder), "model.safetensors"))
                         for folder in (tmp_path / "back", source)))
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["id2label"] == {str(index): tag for index, tag in enumerate(TAGS)}
    assert config["label2id"] == {tag: index for index, tag in enumerate(TAGS)}


def test_a_tagger_that_was_trained_here_keeps_its_scheme_there_and_back(tiny_model, tmp_path, capsys):
    """Its pooler, which a tagger does not read, is left out."""
    (tmp_path / "ours").mkdir()
    description = write_random_tagger(tmp_path / "ours", tiny_model, False)
    assert convert_from_tensorflow(str(tmp_path / "ours"), str(tmp_path / "theirs")).warnings == []
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert config["id2label"] == {"0": "O", "1": "B-A", "2": "I-A"} and config["scheme"] == "iob2"
    assert not [name for name in load_file(str(tmp_path / "theirs" / "model.safetensors")) if "pooler" in name]
    convert_from_huggingface(str(tmp_path / "theirs"), str(tmp_path / "again"))
    assert json.loads((tmp_path / "again" / "task.json").read_text()) == description
    (tmp_path / "crf").mkdir()
    write_random_tagger(tmp_path / "crf", tiny_model, True)
    with ends_with_error(capsys, "is a tagger with a CRF", "has no place", "without --crf"):
        run_here(dict(from_tensorflow=tmp_path / "crf", output_dir=tmp_path / "out"), convert)
    assert not (tmp_path / "out").exists()


def test_a_converted_tagger_is_evaluated_on_files_whose_tags_it_has(tmp_path, capsys):
    convert_from_huggingface(write_tagger(tmp_path / "source"), str(tmp_path / "ours"))
    flags = dict(init_checkpoint=tmp_path / "ours", output_dir=tmp_path / "out", do_eval=True, num_cpu_replicas=1, dev_file=tmp_path / "dev.txt")
    (tmp_path / "dev.txt").write_text("word I-X\nwords I-X\nword O\n\nword B-Y\nword I-Y\n")
    with ends_with_error(capsys, "dev.txt, line 6: an entity needs the tag I-Y", "has B-Y, I-X, O, B-X"):
        run_here(flags, tagging)
    (tmp_path / "dev.txt").write_text("word I-X\nwords B-X\nword O\n")
    run_here(flags, tagging)
    assert "eval_f1" in (tmp_path / "out" / "eval_results.txt").read_text()


@pytest.mark.parametrize("tags, scheme", [
    (("O", "I-X", "I-Y", "B-X"), "iob1"), (("B-X", "O"), "iob2"), (("O", "S-X", "B-X"), "bioes"),
    (("O", "S-X", "M-X"), "bmes")])
def test_files_are_read_in_the_scheme_that_the_tags_show(tags, scheme):
    config = {"id2label": {str(index): tag for index, tag in enumerate(tags)}}
    found = tag_set.from_huggingface(config, "config.json", len(tags))
    assert (found.scheme, found.labels) == (scheme, tags)
    assert schemes.transitions(found).pairs.all()


@pytest.mark.parametrize("tags, config, message", [
    (("O", "NOUN"), {}, "id2label has 'NOUN'; only tags of entities can be converted"),
    (("B-X", "I-X"), {}, "id2label lacks 'O'"),
    (("O", "B-X", "I-X"), {"id2label": {"0": "O", "1": "B-X"}},
     "classifier.weight has the shape .3, 12., its configuration says .2, 12."),
])
def test_tags_that_no_tagger_has_are_one_line(tags, config, message, tmp_path):
    names = {str(index): tag for index, tag in enumerate(tags)}
    source = write_folder(tmp_path / "source", "TokenClassification", len(tags), **{"id2label": names, **config})
    with pytest.raises(UserError, match=message):
        convert_from_huggingface(source, str(tmp_path / "ours"))
    assert not (tmp_path / "ours").exists()


def test_a_reader_computes_the_same_and_comes_back_with_the_same_bits(tmp_path):
    source = write_folder(tmp_path / "source", "QuestionAnswering", 2)
    convert_from_huggingface(source, str(tmp_path / "ours"))
    assert json.loads((tmp_path / "ours" / "task.json").read_text()) == {
        "kind": "answers", "do_lower_case": True, "max_seq_length": POSITIONS}
    for pair, found in zip(PAIRS, conversions.values_of(str(tmp_path / "ours"), PAIRS)):
        for ours, theirs in zip(found, logits_of(source, "qa_outputs", *pair).T):
            np.testing.assert_allclose(ours, conversions.softmax(theirs), atol=1e-5)
    convert_from_tensorflow(str(tmp_path / "ours"), str(tmp_path / "back"))
    assert_same_values(*(load_file(os.path.join(str(folder), "model.safetensors"))
                         for folder in (tmp_path / "back", source)))
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == ["BertForQuestionAnswering"]
    path = tmp_path / "ours" / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version_2_with_negative": True}))
    warning, = convert_from_tensorflow(str(tmp_path / "ours"), str(tmp_path / "thresholds")).warnings
    assert "compare an answer's score with that of [CLS]" in warning
    # A checkpoint of Google's run_squad.py, which no task.json describes.
    path.unlink()
    convert_from_tensorflow(str(tmp_path / "ours" / "bert_model.ckpt"), str(tmp_path / "google"))
    assert json.loads((tmp_path / "google" / "config.json").read_text())["architectures"] == [
        "BertForQuestionAnswering"]


def test_a_chooser_computes_the_same_and_comes_back_with_the_same_bits(tmp_path):
    source = write_folder(tmp_path / "source", "MultipleChoice", 1, POOLER)
    assert convert_from_huggingface(source, str(tmp_path / "ours")).warnings == []
    assert json.loads((tmp_path / "ours" / "task.json").read_text()) == {
        "kind": "multiple_choice", "do_lower_case": True, "max_seq_length": POSITIONS}
    question, choices, logits = "word words", ("words", "word word", "words words word"), []
    for choice in choices:
        _, pooled, tensors = numpy_states(source, question, choice)
        logits.append((pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"])[0])
    predict_for = text_predictor.TextPredictor(str(tmp_path / "ours"), num_cpu_replicas=1)
    found, = predict_for([(question, *choices)])
    predict_for.close()
    np.testing.assert_allclose(found["probabilities"], conversions.softmax(np.array(logits)), atol=1e-5)
    convert_from_tensorflow(str(tmp_path / "ours"), str(tmp_path / "back"))
    assert_same_values(*(load_file(os.path.join(str(folder), "model.safetensors"))
                         for folder in (tmp_path / "back", source)))
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == ["BertForMultipleChoice"]
