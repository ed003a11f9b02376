"""Every example is predicted once, in order, whatever the set, the batch and the replicas."""

import numpy as np
import pytest

from conftest import checkpoint_values, cpu_devices, plain_session, write_cola
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.data.plan import inference_plan
from engine.inference import Predictor
from engine.model import INFERENCE
from tasks.data import load_texts
from tasks.table import TASKS

SIZES = (1, 44, 50, 143)

import tensorflow.compat.v1 as tf  # noqa: E402


@pytest.fixture(scope="module")
def trained(with_head):
    return checkpoints.open_checkpoint(with_head)


@pytest.fixture(scope="module")
def sources(tiny_model, tmp_path_factory):
    sources = {}
    for size in SIZES:
        directory = tmp_path_factory.mktemp(f"cola{size}")
        task = TASKS["cola"].within(write_cola(directory, test=size))
        texts = load_texts(task.test, task.kind, tiny_model.encoding(), str(directory / "store"))
        sources[size] = texts.source(with_labels=False)
    return sources


@pytest.fixture(scope="module")
def expected(tiny_model, trained, sources):
    """By the set's size: the logits of each example alone, padded to the full length, for reference."""
    with tf.Graph().as_default(), plain_session() as session:
        inputs = {name: tf.placeholder(tf.int32, [None, None])
                  for name in ("input_ids", "input_mask", "segment_ids")}
        logits = classifier.forward_of(tiny_model.config(), 2)(inputs, INFERENCE).predictions["logits"]
        tf.train.Saver().restore(session, trained.path)
        one = session.make_callable(logits, [inputs[name] for name in sorted(inputs)])
        by_size = {}
        for size, source in sources.items():
            examples = (source.fetch(np.array([index]), source.max_length) for index in range(size))
            by_size[size] = np.concatenate(
                [one(*[each[name] for name in sorted(inputs)]) for each in examples])
    assert by_size[SIZES[-1]].std(axis=0).min() > 1e-3, "else no order would show"
    return by_size


def replicas(count, **changes):
    """With a session for each replica, as on cards."""
    return cpu_devices(count)._replace(kind="GPU", **changes)


@pytest.mark.parametrize("devices", (
    lambda: replicas(3), lambda: cpu_devices(1)._replace(concurrent_steps=4), lambda: replicas(2, concurrent_steps=3)))
def test_all_sizes_and_batches_give_every_example_once_and_in_order(
        tiny_model, trained, sources, expected, devices):
    with Predictor(classifier.forward_of(tiny_model.config(), 2),
                   devices()) as predictor:
        predictor.restore(trained)
        for size in SIZES:
            for batch_size in (4, 8):
                logits = predictor.predict(sources[size], batch_size)["logits"]
                assert logits.shape == (size, 2)
                np.testing.assert_allclose(logits, expected[size], atol=1e-6)


@pytest.mark.parametrize("devices", (cpu_devices, replicas))
def test_variables_that_have_other_names_in_the_files_are_read_from_these(
        tiny_model, trained, sources, expected, tmp_path, devices):
    """The layer of a model of one is the second of two in the files, as of a student that is cut from its teacher."""
    values = checkpoint_values(trained.path)
    layers = {name: value for name, value in values.items() if "/layer_0/" in name}
    moved = {name.replace("/layer_0/", "/layer_1/"): value for name, value in layers.items()}
    prefix = str(tmp_path / "model.ckpt")
    checkpoints.write_checkpoint(prefix, {**values, **moved, **{name: value + 1 for name, value in layers.items()}})
    stored = checkpoints.open_checkpoint(prefix)
    with Predictor(classifier.forward_of(tiny_model.config(), 2), devices(2)) as predictor:
        for names, is_right in (({name: name.replace("/layer_0/", "/layer_1/") for name in values}, True),
                                ({name: name for name in values}, False)):
            predictor.restore(stored.renamed(names))
            logits = predictor.predict(sources[44], 8)["logits"]
            assert np.allclose(logits, expected[44], atol=1e-6) == is_right


def test_the_number_of_replicas_does_not_change_a_bit(tiny_model, trained, sources):
    predictions = []
    for devices in (cpu_devices(1), cpu_devices(2), replicas(3)):
        with Predictor(classifier.forward_of(tiny_model.config(), 2), devices) as predictor:
            predictor.restore(trained)
            predictions.append(predictor.predict(sources[143], 4)["logits"].tobytes())
    assert len(set(predictions)) == 1


@pytest.mark.parametrize("size", SIZES)
def test_the_plan_fills_a_batch_with_tokens(size):
    lengths = np.random.RandomState(0).randint(1, 30, size)
    plan = inference_plan(lengths, 8 * 32)
    assert sorted(np.concatenate(plan)) == list(range(size))
    for indices in plan:
        assert len(indices) * lengths[indices].max() <= 8 * 32
    for indices in plan[:-1]:  # one more example would be too many
        assert (len(indices) + 1) * lengths[indices].max() > 8 * 32
    assert (np.diff(lengths[np.concatenate(plan)]) <= 0).all()


def test_an_example_longer_than_a_batch_has_tokens_has_a_batch_of_its_own():
    assert [indices.tolist() for indices in inference_plan(np.array([4, 40, 4]), 8)] == [[1], [0, 2]]
