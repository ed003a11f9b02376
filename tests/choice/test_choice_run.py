"""`python -m choice.run`: trained, scored and asked in every way."""

import json

import numpy as np
import pytest

from choice import data, files, model, run
from choice_files import made_up, write
from commands import ends_with_error, results_of, run_here
from conftest import on_tensorflow_1, on_tensorflow_2, plain_session
from engine.model import INFERENCE
from reproducible_model import write_model
from runs import predict
from runs.text_predictor import TextPredictor

import tensorflow.compat.v1 as tf


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, with its sets beside it, that has trained, evaluated, chosen and exported."""
    folder = tmp_path_factory.mktemp("choice")
    for name, count in (("train", 160), ("dev", 40), ("test", 12)):
        write(folder / f"{name}.jsonl", made_up(count, seed=len(name) + count))
    run_here(dict(write_model(folder / "model")._asdict(), data_dir=folder, output_dir=folder / "out",
                  max_seq_length=16, train_batch_size=16, num_cpu_replicas=1, num_train_epochs=6,
                  learning_rate=3e-3, do_train=True, do_eval=True, do_predict=True, do_export=True), run)
    return folder


def lines_of(path):
    return path.read_text().splitlines()


@on_tensorflow_1
def test_it_learns_and_says_what_it_chose(trained):
    results = results_of(trained / "out")
    assert results["eval_accuracy"] > 0.9 and results["num_examples"] == 40
    shares = [list(map(float, line.split("\t"))) for line in lines_of(trained / "out" / "test_results.tsv")]
    chosen = [int(line) for line in lines_of(trained / "out" / "predict.txt")]
    questions = [json.loads(line) for line in open(trained / "test.jsonl")]
    assert [len(each) for each in shares] == [len(question["choices"]) for question in questions]
    np.testing.assert_allclose([sum(each) for each in shares], 1, atol=1e-6)
    assert chosen == [int(np.argmax(each)) for each in shares]
    assert np.mean([one == question["answer"] for one, question in zip(chosen, questions)]) > 0.8
    assert "Mistakes" in (trained / "out" / "report.html").read_text() or results["eval_accuracy"] == 1


def test_the_predictor_the_command_and_an_export_answer_alike(trained, tmp_path):
    questions = [json.loads(line) for line in open(trained / "test.jsonl")]
    texts = [[question["question"], *question["choices"]] for question in questions]
    answers = []
    for folder in (trained / "out", trained / "out" / "export"):
        predictor = TextPredictor(str(folder), num_cpu_replicas=1)
        answers.append([entry["probabilities"] for entry in predictor([*texts, texts[0]])][:-1])
        predictor.close()
    run_here(dict(output_dir=trained / "out", input_file=trained / "test.jsonl", num_cpu_replicas=1,
                  output_file=tmp_path / "out.jsonl"), predict)
    entries = [json.loads(line) for line in open(tmp_path / "out.jsonl")]
    answers.append([entry["probabilities"] for entry in entries])
    expected = [list(map(float, line.split("\t"))) for line in lines_of(trained / "out" / "test_results.tsv")]
    for each in answers:
        np.testing.assert_allclose(sum(each, []), sum(expected, []), atol=1e-5)
    assert [entry["text"] for entry in entries] == [
        question["choices"][entry["choice"]] for entry, question in zip(entries, questions)]


@on_tensorflow_2
def test_a_later_command_reads_files_as_the_training_did(tmp_path, capsys):
    def write_rows(name, questions):  # no header: the answer first, counted from 1
        (tmp_path / name).write_text("".join("\t".join([str(each["answer"] + 1), each["question"], *each["choices"]]) + "\n"
                                             for each in questions))

    questions = [each for each in made_up(120, seed=5, most=3) if len(each["choices"]) == 3]
    write_rows("train.tsv", questions[:32])
    write_rows("dev.tsv", [each for each in questions[32:] if each["answer"] < 2])  # alone, they could be from 0
    write_rows("test.tsv", questions[32:42])
    every = dict(write_model(tmp_path / "model")._asdict(), data_dir=tmp_path, output_dir=tmp_path / "out",
                 max_seq_length=16, num_cpu_replicas=1)
    run_here(dict(every, answer_column="1", text_column="2", choice_column="3,4,5", do_train=True, do_eval=True,
                  train_batch_size=16, num_train_epochs=1, fit_output_layer=True), run)
    results = (tmp_path / "out" / "eval_results.json").read_text()
    assert "--fit_output_layer has no effect on this kind of training" in capsys.readouterr().err
    run_here(dict(every, do_eval=True, do_predict=True), run)
    assert (tmp_path / "out" / "eval_results.json").read_text() == results
    assert "answers are numbers from 1: no header line, " in capsys.readouterr().err
    run_here(dict(output_dir=tmp_path / "out", input_file=tmp_path / "test.tsv", num_cpu_replicas=1,
                  output_file=tmp_path / "out.jsonl"), predict)
    entries = [json.loads(line) for line in open(tmp_path / "out.jsonl")]
    assert [entry["text"] in each["choices"] for entry, each in zip(entries, questions[32:42])] == [True] * 10
    shares = [list(map(float, line.split("\t"))) for line in lines_of(tmp_path / "out" / "test_results.tsv")]
    for entry, of_one in zip(entries, shares):
        np.testing.assert_allclose(entry["probabilities"], of_one, atol=1e-5)


def test_a_model_of_another_kind_and_a_text_too_few_are_one_line(trained, tiny_classifier, tmp_path, capsys):
    with ends_with_error(capsys, "was not trained to choose"):
        run_here(dict(output_dir=tiny_classifier, do_export=True), run)
    with ends_with_error(capsys, "--text_column", "chooses among answers"):
        run_here(dict(output_dir=trained / "out", input_file=trained / "dev.jsonl", output_file=tmp_path / "out.tsv",
                      text_column="question", num_cpu_replicas=1), predict)
    with pytest.raises(Exception, match="each as .question, choice, choice, ..."):
        predictor = TextPredictor(str(trained / "out"), num_cpu_replicas=1)
        predictor([["a question", "one choice"]])


def test_questions_of_a_step_may_have_fewer_choices_and_be_shorter_than_the_first_of_the_file(tiny_model, tmp_path):
    long = {"question": "the cat sees the dog", "choices": ["the old house and a tree", "a bird"], "answer": 0}
    short = [{"question": "a", "choices": ["the", "cat", "dog"][:count], "answer": 1} for count in (2, 3)]
    path = write(tmp_path / "train.jsonl", [long, *short])
    questions = data.load(files.open_file(str(path), {}, None, labelled=True), tiny_model.encoding(16), str(tmp_path / "store"))
    ids = questions.training_source().fetch(np.array([1, 2]), 8)["input_ids"]
    assert ids.shape == (2, 3, 8) and not ids[0, 2].any() and ids[0, :2].all(axis=0)[0] and ids[1].any(axis=1).all()


def test_the_loss_is_the_softmax_over_the_choices_of_each_question_however_many(tiny_model, tmp_path):
    path = write(tmp_path / "train.jsonl", made_up(6, seed=3))
    questions = data.load(files.open_file(str(path), {}, None, labelled=True), tiny_model.encoding(16), str(tmp_path / "store"))
    assert len(set(questions.counts)) > 1
    source, one_by_one, every = questions.training_source(), questions.source(), np.arange(6)
    features, config = source.fetch_for_step(every, *source.lengths_of_batch(every)), tiny_model.config()
    assert features["input_ids"].shape == (6, questions.counts.max(), 16)
    assert features["input_ids"].size <= 6 * source.most_tokens
    alone = [one_by_one.fetch(np.array([index]), 16) for index in range(len(one_by_one.lengths))]
    with tf.Graph().as_default(), plain_session() as session:
        inputs = {name: tf.placeholder(tf.int32, [None] * value.ndim) for name, value in features.items()}
        choice = {name: tf.placeholder(tf.int32, [None, None]) for name in alone[0]}
        with tf.variable_scope(tf.get_variable_scope()):
            loss = model.training_forward_of(config)(inputs, INFERENCE).loss
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            logit = model.classifier.forward_of(config, 1)(choice, INFERENCE).predictions["logits"]
        session.run(tf.global_variables_initializer())
        found = session.run(loss, {inputs[name]: value for name, value in features.items()})
        logits = np.concatenate([session.run(logit, {choice[name]: value for name, value in each.items()})
                                 for each in alone])
    shares = questions.probabilities(logits)
    expected = [-np.log(of_one[answer]) for of_one, answer in zip(shares, features["label_ids"])]
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-5)
