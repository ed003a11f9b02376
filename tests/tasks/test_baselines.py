"""The loss of the best constant prediction, by hand and against any other constant."""

import numpy as np
import pytest

from encoder.label_types import MultiLabel, Regression, SingleLabel
from reading import data as reading_data
from reading.data import WindowSettings
from reading_files import write_made_up
from tagging import data as tagging_data, formats
from tagging_files import columns, made_up

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
        file, tagging_data.find_tags(file), encoding, str(tmp_path), dynamic_padding=True)
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
