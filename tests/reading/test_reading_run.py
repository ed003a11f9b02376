"""`python run_squad.py`: questions are answered window by window."""

import json
import random
import shutil

import numpy as np
import pytest

import run_squad
from bert_reference import random_values
from commands import ends_with_error, results_in, results_of, run_here
from conftest import checkpoint_values, googles, on_tensorflow_2, plain_session
from engine.errors import UserError
from engine.model import INFERENCE
from exports import run_saved_model
from pages import Page
from reading import model
from reading_files import PLAIN, load, question, text_of, write, write_made_up
from runs import kinds, predict

import tensorflow.compat.v1 as tf


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file to train on and one to answer, some of whose questions have no answer."""
    folder = tmp_path_factory.mktemp("questions")
    return {"train_file": write_made_up(folder / "train.json", seed=1, unanswerable=0.3),
            "predict_file": write_made_up(folder / "dev.json", seed=2, unanswerable=0.3)}


def flags(tiny_model, files, output_dir, **changes):
    return dict(dict(tiny_model._asdict(), **files, output_dir=output_dir, max_seq_length=32,
                     doc_stride=10, max_query_length=8, version_2_with_negative=True,
                     train_batch_size=8, num_train_epochs=1, learning_rate=1e-3,
                     num_cpu_replicas=1), **changes)


def outputs(forward, features, values):
    """The predictions and the loss of a model, with these values of its variables."""
    with tf.Graph().as_default(), plain_session() as session:
        inputs = {name: tf.constant(value, tf.int32) for name, value in features.items()}
        found = forward(inputs)
        if values is None:
            return random_values(tf.global_variables())
        session.run(tf.global_variables_initializer())
        for variable in tf.global_variables():
            if variable.op.name in values:
                variable.load(values[variable.op.name], session)
        return session.run(found)


def our_forward(config):
    def forward(inputs):
        found = model.forward_of(config)(inputs, INFERENCE)
        return {**found.predictions, "loss": found.loss}
    return forward


def test_no_result_depends_on_the_padding(tiny_model, files, tmp_path):
    questions = load(files["train_file"], tiny_model, tmp_path, True, version_2_with_negative=True)
    source, config = questions.training_source(), tiny_model.config()
    short = np.argsort(source.lengths)[:3]
    length = int(source.lengths[short].max())
    values = outputs(our_forward(config), source.fetch(short, 32), None)
    tight, wide = (outputs(our_forward(config), source.fetch(short, padded), values)
                   for padded in (length, 32))
    assert length < 32 and tight["loss"] == pytest.approx(wide["loss"], rel=1e-5)
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(tight[name], wide[name][:, :length], rtol=1e-5, atol=1e-5)
        assert (wide[name][:, length:] < -1e8).all()


def test_logits_and_loss_are_those_of_googles_code(tiny_model, files, tmp_path):
    """Of windows without padding, which is among the tokens of Google's loss."""
    google = googles("run_squad")
    questions = load(files["train_file"], tiny_model, tmp_path, True, version_2_with_negative=True)
    source, config = questions.training_source(), tiny_model.config()
    full = np.flatnonzero(source.lengths == 32)[:6]
    features = source.fetch(full, 32)
    assert len(full) == 6 and features["start_positions"].any()

    def their_logits(inputs):
        start, end = google.create_model(
            google_config, False, inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"],
            False)
        return {"start_logits": start, "end_logits": end}

    def their_loss(inputs):
        model_fn = google.model_fn_builder(google_config, None, 1e-3, 10, 0, False, False)
        spec = model_fn({**inputs, "unique_ids": inputs["start_positions"]}, None,
                        tf.estimator.ModeKeys.TRAIN, {})
        return {"loss": spec.loss}

    google_config = google.modeling.BertConfig.from_dict(config.to_dict())
    values = outputs(our_forward(config), features, None)
    ours = outputs(our_forward(config), features, values)
    for forward in (their_logits, their_loss):
        for name, value in outputs(forward, features, values).items():
            np.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def trained(tiny_model, files, tmp_path_factory):
    """The output directory of a training with evaluations on the way, and then predictions."""
    output_dir = tmp_path_factory.mktemp("reading")
    run_here(flags(tiny_model, files, output_dir, do_train=True, do_predict=True, do_eval=True,
                   eval_each_epoch=True), run_squad)
    return output_dir


@on_tensorflow_2
def test_all_questions_are_answered_and_scored(trained, files):
    predictions, n_best, odds = (json.loads((trained / name).read_text()) for name in (
        "predictions.json", "nbest_predictions.json", "null_odds.json"))
    asked = [question["id"] for article in json.load(open(files["predict_file"]))["data"]
             for paragraph in article["paragraphs"] for question in paragraph["qas"]]
    assert list(predictions) == list(n_best) == list(odds) == asked
    for entries in n_best.values():
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1)
    results = results_of(trained)
    assert results["total"] == len(asked) == results["HasAns_total"] + results["NoAns_total"]
    evaluations = json.loads((trained / "evaluations.json").read_text())["evaluations"]
    assert evaluations[-1]["f1"] == pytest.approx(results["f1"])
    assert (trained / "vocab.txt").exists()
    page = Page((trained / "report.html").read_text(encoding="utf-8"))
    rows = {row[0]: float(row[3]) for row in page.rows[1:] if len(row) > 3}
    assert rows["has an answer"] == pytest.approx(results["HasAns_f1"], abs=1e-4)
    assert "up to 64 tokens" in rows and "Wrong answers" in page.text
    assert {"class": "right"} in page.all("mark")


def test_a_later_command_has_the_windows_and_answers_of_the_training(
        trained, tiny_model, files, tmp_path):
    """In other batches, on other replicas."""
    questions = load(files["predict_file"], tiny_model, tmp_path, False,
                     version_2_with_negative=True)
    assert len(questions) % (2 * 3), "the last batch should be an uneven one"
    flags = dict(init_checkpoint=trained, predict_file=files["predict_file"], do_predict=True,
                 num_cpu_replicas=2, predict_batch_size=3)
    run_here(dict(flags, output_dir=tmp_path / "same"), run_squad)
    assert (tmp_path / "same" / "predictions.json").read_text() == (trained / "predictions.json").read_text()
    assert results_in(tmp_path / "same") == results_in(trained)
    expected, found = (json.loads((folder / "null_odds.json").read_text())
                       for folder in (trained, tmp_path / "same"))
    assert found == pytest.approx(expected, abs=1e-4)
    run_here(dict(flags, output_dir=tmp_path / "other", null_score_diff_threshold=-1000), run_squad)
    assert not any(json.loads((tmp_path / "other" / "predictions.json").read_text()).values())


def test_the_export_has_the_logits_of_the_model(trained, tiny_model, files, tmp_path):
    run_here(dict(output_dir=trained, do_export=True), run_squad)
    questions = load(files["predict_file"], tiny_model, tmp_path, False,
                     version_2_with_negative=True)
    features = questions.source(slice(0, 2)).fetch(np.arange(2), 32)
    found = run_saved_model(trained / "export", features)
    expected = outputs(
        lambda inputs: model.forward_of(tiny_model.config())(inputs, INFERENCE).predictions,
        features, checkpoint_values(str(trained)))
    assert sorted(found) == sorted(expected)
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5)


def test_the_command_that_predicts_with_any_model_gives_the_same_answers(trained, files, tmp_path):
    """From the folder and from the export, from a file with a question and a context in each line."""
    pairs = [{"question": question["question"], "context": paragraph["context"]}
             for article in json.load(open(files["predict_file"]))["data"]
             for paragraph in article["paragraphs"] for question in paragraph["qas"]]
    pairs.append({"question": "who", "context": " "})  # no word, no answer
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    expected, odds = (list(json.loads((trained / name).read_text()).values())
                      for name in ("predictions.json", "null_odds.json"))

    def predicted(folder, name):
        run_here(dict(output_dir=folder, input_file=tmp_path / "pairs.jsonl",
                      text_pair_column="context", output_file=tmp_path / name,
                      num_cpu_replicas=1), predict)
        return (tmp_path / name).read_text().split("\n")[:-1]

    entries = [json.loads(line) for line in predicted(trained, "answers.jsonl")]
    assert [entry["answer"] for entry in entries] == [*expected, ""]
    run_here(dict(output_dir=trained, do_export=True), run_squad)
    header, *rows = [line.split("\t") for line in predicted(trained / "export", "answers.tsv")]
    assert header == ["answer", "probability", "null_odds"] == list(entries[0])
    assert [row[0] for row in rows] == [*expected, ""]
    assert [float(row[2]) for row in rows[:-1]] == pytest.approx(odds, abs=1e-4)


def test_files_of_predictions_have_no_answer_where_a_context_has_no_token(trained, files, tmp_path, capsys):
    contexts = ["the cat", "", " ", "\u200b\u200d", "\udbb9", "\u00ad \u0301", "\n\n"]
    asked = [(context, [question(str(number), "what ?", [(context[:3], 0)])])
             for number, context in enumerate(contexts)]
    del asked[-1][1][0]["answers"]
    shutil.copytree(str(trained), str(tmp_path / "copy"))
    run_here(dict(output_dir=tmp_path / "copy", predict_file=write(tmp_path / "q.json", *asked),
                  version_2_with_negative=False, do_predict=True, num_cpu_replicas=1), run_squad)
    first, *others = json.loads((tmp_path / "copy" / "predictions.json").read_text()).values()
    assert first and others == [""] * 6
    assert "1 of 7 questions lack \"answers\", so there are no scores" in capsys.readouterr().err
    run_here(dict(output_dir=tmp_path / "copy", predict_file=files["predict_file"], version_2_with_negative=False,
                  do_eval=True, num_cpu_replicas=1), run_squad)
    assert "have no answer, and count as mistakes: --version_2_with_negative" in capsys.readouterr().err


@pytest.mark.parametrize("entry, message", [
    ({"kind": "poems"}, "task.json names the kind 'poems'"),
    ({"n_best_size": None}, "'n_best_size' is null"),
    ({"max_seq_length": 99}, "is 99, and the model has 40 positions")])
def test_a_description_that_does_not_fit_is_an_error_of_one_line(entry, message, trained, tmp_path):
    shutil.copytree(str(trained), str(tmp_path / "copy"))
    task = tmp_path / "copy" / "task.json"
    task.write_text(json.dumps({**json.loads(task.read_text()), **entry}))
    with pytest.raises(UserError, match=message):
        kinds.open_reader(str(tmp_path / "copy"))


UNANSWERED = text_of(("the cat", [{"id": "7", "question": "the"}]))
SAME_ID = text_of(*[("the cat", [question(7, "the", [("cat", 4)])])] * 2)


@pytest.mark.parametrize("changes, content, message", [
    (dict(max_query_length=30), None, "leaves no room for a context"),
    (dict(do_train=False, do_predict=True), None, "does not answer questions"),
    (dict(predict_file="bad.json", do_eval=True), UNANSWERED, "does not have the answers of all"),
    (dict(predict_file="bad.json", do_predict=True), SAME_ID, "have the same id, '7'")])
def test_bad_input_is_an_error_of_one_line_and_nothing_is_trained(
        changes, content, message, tiny_model, files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text(content or "")
    with ends_with_error(capsys, message):
        run_here({**flags(tiny_model, files, tmp_path / "out", do_train=True), **changes}, run_squad)
    assert not list((tmp_path / "out").glob("*.*"))


@on_tensorflow_2
def test_a_fitted_layer_finds_what_the_encoder_tells_apart_before_any_training(two_layers, tmp_path):
    """The answer is the one bird of a context."""
    words, generator = [word for word in PLAIN if word != "bird"], random.Random(0)
    paragraphs = []
    for number in range(60):
        before, after = (" ".join(generator.choice(words) for _ in range(generator.randint(2, 9))) for _ in range(2))
        paragraphs.append((f"{before} bird {after}", [question(str(number), "who ?", [("bird", len(before) + 1)])]))
    files = {"train_file": write(tmp_path / "train.json", *paragraphs[:40]),
             "predict_file": write(tmp_path / "dev.json", *paragraphs[40:])}
    exact = []
    for fits in (None, False):
        run_here(flags(two_layers, files, tmp_path / str(fits), do_train=True, do_eval=True, learning_rate=1e-30,
                       num_train_epochs=1, version_2_with_negative=False, fit_output_layer=fits), run_squad)
        exact.append(results_in(tmp_path / str(fits))["exact_match"])
    assert exact[0] > 90 and exact[1] < 50
