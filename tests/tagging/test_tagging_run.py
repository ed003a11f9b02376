"""`python -m tagging.run`: scored by entity, every line of a file kept."""

import json

import numpy as np
import pytest

from commands import answers_of, ends_with_error, results_of, run_here
from conftest import cpu_devices, on_tensorflow_2, plain_session
from engine.checkpoints import checkpoints
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import INFERENCE
from reproducible_model import write_model
from tagging import data, evaluation, formats, model, run, schemes
from tagging.formats import Layout
from tagging.model import Tagger
from tagging_files import columns, made_up, write_random_tagger
from runs import kinds
from runs.rows import Example

import tensorflow.compat.v1 as tf


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train.txt, dev.txt, and test.txt with a sentence of 1,000 words, in IOB1."""
    folder = tmp_path_factory.mktemp("tags")
    for name, count, longest in (("train", 128, 20), ("dev", 24, 20), ("test", 6, 60)):
        (folder / f"{name}.txt").write_text(columns(made_up(count, len(name), longest), "iob1"))
    with open(folder / "test.txt", "a") as file:
        file.write("\n\n" + "small _ -\ncat _ -\n" * 500 + "\n-DOCSTART- -X- -\n\n")
    return folder


@pytest.fixture
def flags(folder, tmp_path):
    return dict(write_model(tmp_path / "model")._asdict(), data_dir=folder, output_dir=tmp_path / "out",
                store_dir=folder / "store", max_seq_length=16, train_batch_size=8,
                num_cpu_replicas=1, num_train_epochs=4, learning_rate=3e-3, do_train=True,
                do_eval=True, do_predict=True)


def open_set(path, tiny_model, max_seq_length=16):
    file = formats.open_file(str(path), Layout(), has_tags=True)
    return data.load_sentences(file, data.find_tags(file), tiny_model.encoding(max_seq_length),
                               str(path.parent / "store"))


def test_a_loss_is_the_mean_over_the_words(tiny_model, folder):
    found, config = open_set(folder / "train.txt", tiny_model), tiny_model.config(num_hidden_layers=1)
    features = found.source().fetch_for_step(np.arange(8), 16)
    with tf.Graph().as_default(), plain_session() as session:
        inputs = {name: tf.constant(value) for name, value in features.items()}
        words, _ = model.words_of(config, Tagger(found.tags, False), inputs, INFERENCE)
        loss = tf.reduce_mean(inputs["weights"] * model._losses(words, inputs["label_ids"], None))
        session.run(tf.global_variables_initializer())
        loss, emissions = session.run([loss, words.emissions])
    losses = [np.logaddexp.reduce(word) - word[label]
              for window, count in enumerate(features["num_words"])
              for word, label in zip(emissions[window, :count], features["label_ids"][window])]
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)


def entities_of(lines, column):
    """The entities of each sentence in the lines of columns."""
    sentences = "\n".join(lines).split("\n\n")
    return [schemes.entities([line.split()[column] for line in sentence.strip().split("\n")])
            for sentence in sentences]


@on_tensorflow_2
def test_a_run_learns_is_scored_by_entity_and_keeps_every_line(flags, folder, tmp_path):
    run_here({**flags, "crf": True, "eval_each_epoch": True}, run)
    results = results_of(tmp_path / "out")
    assert results["eval_f1"] > 0.5 and results["num_sentences"] == 24
    lines = (tmp_path / "out" / "predict.txt").read_text().splitlines()
    before = (folder / "test.txt").read_text().splitlines()
    assert [line.rpartition(" ")[0] if line else "" for line in lines] == before
    for found, sentence in zip(entities_of(lines, 3), "\n".join(lines).split("\n\n")):
        tags = [line.split()[3] for line in sentence.strip().split("\n")]
        assert schemes.spell(found, len(tags), "iob1") == tags
    # Later, without the training file and with the dev set's sentences as test set:
    run_here({**flags, "do_train": False, "do_eval": False, "init_checkpoint": None,
              "test_file": folder / "dev.txt"}, run)
    lines = (tmp_path / "out" / "predict.txt").read_text().splitlines()
    total, rows = evaluation.score(
        zip(entities_of(lines, 2), entities_of(lines, 3)), missed={})
    assert results["eval_f1"] == pytest.approx(total[2], abs=1e-12) and results["per_type"] == rows
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Sentences with mistakes" in page and "<small>ANIMAL</small>" in page
    assert_tags_texts(tmp_path, lines)


def assert_tags_texts(folder, lines):
    """`runs.predict` finds in running texts what the lines of columns have."""
    sentences = [[line.split()[0] for line in sentence.strip().split("\n")]
                 for sentence in "\n".join(lines).split("\n\n")]
    found = [answer["entities"] for answer in answers_of(folder / "out", map(" ".join, sentences), folder)]
    for words, expected, actual in zip(sentences, entities_of(lines, 3), found):
        assert [(entry["label"], entry["text"]) for entry in actual] == [
            (entity.type, " ".join(words[entity.first:entity.last + 1])) for entity in expected]
        assert all(" ".join(words)[entry["start"]:entry["end"]] == entry["text"]
                   for entry in actual)
    assert len(found) == len(sentences) and any(found)


@pytest.mark.parametrize("max_seq_length", (5, 8, 15, 16))
def test_each_word_of_a_long_sentence_has_the_label_of_one_window(
        max_seq_length, tiny_model, tmp_path):
    """The words "treehouse" and "unliked" have several pieces, and the limit cuts some."""
    sentences = list(made_up(8, 6, 60))
    for words, _ in sentences:
        words[:] = [{"the": "treehouse", "a": "unliked"}.get(word, word) for word in words]
    (tmp_path / "long.txt").write_text(columns(sentences, "bioes"))
    found = open_set(tmp_path / "long.txt", tiny_model, max_seq_length)
    records = found.records
    assert len(found) > len(sentences) and found.tags.scheme == "bioes"
    assert records.lengths("input_ids").max() <= max_seq_length
    assert records.lengths("first_pieces").min() > 0
    labels = found.of_sentences(records.padded("labels", np.arange(len(found)), max_seq_length))
    assert list(evaluation.entities_of(found, labels)) == [entities for _, entities in sentences]


FILES = {  # what a user may have, and what is said of it
    "unknown.txt": "the _ I-PLANET\n",
    "empty.txt": "",
    "odd.txt": "the _\nold _ _\n",
    "spaces.jsonl": '{"text": " ", "label": {}}\n'}


def test_a_text_without_words_has_no_entities(tiny_model, tmp_path):
    description = write_random_tagger(tmp_path, tiny_model, crf=False)
    _, opened = kinds.open_reader(str(tmp_path))
    encoded = opened.encode([Example((text,)) for text in ("", "the cat ", " ")])
    with Predictor(opened.forward, cpu_devices(1)) as predictor:
        predictor.restore(checkpoints.open_checkpoint(str(tmp_path)))
        found = [result.entry["entities"]
                 for result in encoded.decode(predictor.predict(encoded.source, 8))]
    assert found[0] == found[2] == [] and len(found) == 3
    (tmp_path / "task.json").write_text(json.dumps({**description, "scheme": "iob9"}))
    with pytest.raises(UserError, match="task.json is damaged: .* the scheme iob9"):
        kinds.open_reader(str(tmp_path))


@pytest.mark.parametrize("changes, message", [
    ({"dev_file": "unknown.txt"},
     "unknown.txt, line 1: an entity of the type 'PLANET', which the model does not know"),
    ({"train_file": "empty.txt"}, "empty.txt holds no sentences"),
    ({"test_file": "spaces.jsonl"}, "spaces.jsonl holds no sentences"),
    ({"do_train": False}, "has no trained tagger; train one"),
    ({"test_file": "odd.txt"}, "odd.txt, line 2: 3 columns, and the first line has 2"),
    ({"word_column": 4}, "--word_column=4: ")])
def test_bad_input_is_one_line_and_leaves_nothing(changes, message, flags, tmp_path, capsys):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    changes = {name: tmp_path / value if value in FILES else value
               for name, value in changes.items()}
    with ends_with_error(capsys, message):
        run_here({**flags, **changes}, run)
    assert not list((tmp_path / "out").glob("*"))


def test_a_test_file_that_its_predictions_would_replace_is_refused(flags, folder, tmp_path, capsys):
    text, mine = (folder / "test.txt").read_text(), tmp_path / "out" / "predict.txt"
    mine.parent.mkdir()
    mine.write_text(text)
    with ends_with_error(capsys, f"--output_dir: {mine} is also an input; name another output"):
        run_here({**flags, "test_file": mine}, run)
    assert mine.read_text() == text
