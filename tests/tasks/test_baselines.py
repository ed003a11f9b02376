"""The loss of the best constant prediction, by hand and against any other constant."""

import numpy as np
import pytest

from commands import run_here
from conftest import on_tensorflow_2, sentences
from encoder.label_types import MultiLabel, Regression, SingleLabel
from engine.training import run_record
from reading import data as reading_data, scores
from reading.data import WindowSettings
from reading_files import write_made_up
from tagging import data as tagging_data, formats
from tagging_files import columns, made_up
from tasks import metrics

SEVERAL = np.array([[1, 0], [1, 0], [1, 1], [0, 0]], np.float32)
NUMBERS = np.array([0, 1, 5], np.float32)


@pytest.mark.parametrize("kind, labels, expected", (
    # Of four, three have the one label: -(3 ln 3/4 + ln 1/4) / 4.
    (SingleLabel("abc"), np.array([0, 0, 2, 0]), 0.562335),
    (MultiLabel("ab", ","), SEVERAL, 0.562335),  # both labels are 3 : 1
    (Regression(), NUMBERS, 14 / 3)))  # (4 + 1 + 9) / 3, from the mean, 2
def test_no_constant_has_a_lower_loss(kind, labels, expected):
    def loss(logits):
        return kind.losses(np.broadcast_to(logits, (len(labels), kind.num_outputs)), labels).mean()

    best = kind.best_constant(labels)
    assert loss(best) == pytest.approx(expected, rel=1e-5)
    for seed in range(20):
        assert loss(best + 0.3 * np.random.RandomState(seed).randn(kind.num_outputs)) >= loss(best)


@pytest.fixture
def encoding(tiny_model):
    return tiny_model.encoding(32)


def test_that_of_a_tagger_is_the_mean_over_words(encoding, tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(columns(made_up(20, seed=1), "iob1"))
    file = formats.open_file(str(path), formats.Layout(), has_tags=True)
    sentences = tagging_data.load_sentences(
        file, tagging_data.find_tags(file), encoding, str(tmp_path))
    labels = [sentences.records.values("labels", np.array([i]))[0] for i in range(20)]
    share = np.bincount(np.concatenate(labels)) / sum(map(len, labels))
    assert sentences.baseline().loss(np.array([2, 7])) == pytest.approx(
        -np.log(share[np.concatenate([labels[2], labels[7]])]).mean())


def test_that_of_a_reader_has_no_answer_at_its_frequency(encoding, tmp_path):
    questions = reading_data.load(
        write_made_up(tmp_path / "train.json", contexts=20), encoding,
        WindowSettings(doc_stride=10, max_query_length=8), str(tmp_path), is_training=True)
    starts, lengths = questions.records.flat("starts"), questions.training_source().lengths
    share = np.mean(starts == 0)
    with_answer, without = np.argmax(starts > 0), np.argmin(starts)
    assert 0 < share < 1 and starts[without] == 0
    loss = questions.baseline().loss
    assert loss(np.array([without])) == pytest.approx(-np.log(share))
    assert loss(np.array([with_answer])) == pytest.approx(
        np.log((lengths[with_answer] - 1) / (1 - share)))


@on_tensorflow_2
def test_a_training_on_shuffled_labels_is_warned_of_by_the_dev_set(tiny_model, tmp_path, capsys):
    """It learns its few examples by heart, and the training loss says nothing."""
    for name, count, seed in (("train", 40, 1), ("dev", 60, 2)):
        labels = np.random.RandomState(seed).randint(0, 2, count)
        (tmp_path / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(
            f"{text}\t{label}\n" for text, label in zip(sentences(count, seed), labels)))
    run_here(dict(tiny_model._asdict(), task_name="file", data_dir=tmp_path, do_train=True, do_eval=True,
                  max_seq_length=24, num_train_epochs=40, train_batch_size=8, learning_rate=3e-3,
                  num_cpu_replicas=1, output_dir=tmp_path / "out"))
    warning = run_record.load(str(tmp_path / "out")).warning
    assert warning.startswith("on the dev set this model's loss is")
    assert warning in capsys.readouterr().err and warning.split(":")[0] in (
        tmp_path / "out" / "report.html").read_text().replace("&#39;", "'")


@pytest.mark.parametrize("predicted, loss, expected", [
    ([0, 1, 2, 3, 4] * 12, 0.5, None),
    ([0, 1, 2, 2, 2] * 12, 0.5, None),  # two of five are never predicted
    ([0, 1, 1, 1, 1] * 12, 0.5, "never predicts 3 of the 5 labels of the dev set, such as 'c'"),
    ([0, 1, 2, 3, 4] * 12, 1.7, "always predicting the labels' frequencies has 1.609"),  # ln 5
    ([0, 1, 1, 1, 1] * 8, 1.7, None)])  # 40 examples say little
def test_a_dev_set_says_whether_rare_labels_were_learnt(predicted, loss, expected):
    labels = np.arange(len(predicted)) % 5
    for was_fitted in (False, True):
        warning = metrics.warning(SingleLabel("abcde"), labels, np.array(predicted), loss, was_fitted=was_fitted)
        assert warning is None if expected is None else expected in warning
        if warning and "never predicts" in warning:
            assert ("--fit_output_layer" in warning) == (not was_fitted)


def test_a_reader_is_compared_with_one_answer_to_all_questions():
    right = [["red"]] * 20 + [["blue"]] * 40
    for answers, expected in ((["red"] * 60, "'blue' to every question has 66.67"), (["red"] * 10 + ["blue"] * 50, None)):
        answered = [scores.Answered(scores.squad(answer, of_one), of_one, True) for answer, of_one in zip(answers, right)]
        warning = scores.warning(answered, scores.squad)
        assert warning is None if expected is None else expected in warning
