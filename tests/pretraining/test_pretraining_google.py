"""Google's TFRecords and checkpoints have here the losses and accuracies that they have there."""

import random

import numpy as np
import pytest

from conftest import WORDS, checkpoint_values, cpu_devices, googles, sentences
from encoder.pretraining_tfrecords import Sizes
from engine.checkpoints import checkpoints
from engine.inference import Predictor
from engine.model import Mode
from pretraining import capability, model
from pretraining.data import load_records

import tensorflow.compat.v1 as tf

LENGTH, PREDICTIONS = 24, 5


@pytest.fixture(scope="module")
def google():
    return googles("run_pretraining")


@pytest.fixture(scope="module")
def googles_records(google, tiny_model, tmp_path_factory):
    """A TFRecord file that Google's create_pretraining_data made."""
    create, tokenization = googles("create_pretraining_data"), googles("tokenization")
    folder = tmp_path_factory.mktemp("google")
    lines = sentences(40, seed=5)
    (folder / "text.txt").write_text("\n".join(
        line if number % 6 else "" for number, line in enumerate(lines)))
    tokenizer = tokenization.FullTokenizer(tiny_model.vocab_file)
    instances = create.create_training_instances(
        [str(folder / "text.txt")], tokenizer, LENGTH, dupe_factor=2, short_seq_prob=0.3,
        masked_lm_prob=0.2, max_predictions_per_seq=PREDICTIONS, rng=random.Random(3))
    path = str(folder / "examples.tfrecord")
    create.write_instance_to_example_files(instances, tokenizer, LENGTH, PREDICTIONS, [path])
    return path


def googles_answers(google, path, tiny_model, count, checkpoint):
    """Loss and metrics of its model_fn on the first `count` records in one batch."""
    config = tiny_model.config()
    with tf.Graph().as_default(), tf.Session() as session:
        features = google.input_fn_builder([path], LENGTH, PREDICTIONS, is_training=False)(
            {"batch_size": count}).make_one_shot_iterator().get_next()
        spec = google.model_fn_builder(config, None, 1e-5, 10, 1, False, False)(
            features, None, tf.estimator.ModeKeys.EVAL, None)
        metric_fn, arguments = spec.eval_metrics
        metrics = metric_fn(*arguments)
        tf.set_random_seed(4)
        generator = np.random.RandomState(8)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for variable in tf.trainable_variables():
            variable.load(generator.normal(scale=0.3, size=variable.shape.as_list()), session)
        tf.train.Saver().save(session, checkpoint, write_meta_graph=False)
        loss, _ = session.run([spec.loss, {name: update for name, (_, update) in metrics.items()}])
        return {"loss": loss, **session.run({name: value for name, (value, _) in metrics.items()})}


def records_of(path, tmp_path):
    return load_records(path, "--input_file", Sizes(LENGTH, PREDICTIONS, len(WORDS) + 5),
                        str(tmp_path), vocab_file=None)


def test_losses_and_accuracies_of_a_batch_are_googles(google, googles_records, tiny_model,
                                                      tmp_path):
    checkpoint, records = str(tmp_path / "model.ckpt"), records_of(googles_records, tmp_path)
    count = len(records)
    assert count > 20
    expected = googles_answers(google, googles_records, tiny_model, count, checkpoint)
    forward = model.forward_of(tiny_model.config(), next_sentences=True)
    with Predictor(forward, cpu_devices(3)) as predictor:
        predictor.restore(checkpoints.open_checkpoint(checkpoint))
        actual = capability.metrics_of(predictor.predict(records.source(), 4))
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(actual["perplexity"], np.exp(expected["masked_lm_loss"]), rtol=1e-4)


def test_the_training_loss_of_a_batch_is_googles(google, googles_records, tiny_model, tmp_path):
    """Its sum over the batch's weight plus 1e-5, and the model's variables are its own."""
    checkpoint = str(tmp_path / "model.ckpt")
    expected = googles_answers(google, googles_records, tiny_model, 16, checkpoint)
    features = records_of(googles_records, tmp_path).source().fetch_for_step(
        np.arange(16), LENGTH)
    with tf.Session() as session:
        outputs = model.forward_of(tiny_model.config(), next_sentences=True)(
            {name: tf.constant(values) for name, values in features.items()}, Mode(is_training=True))
        tf.train.Saver().restore(session, checkpoint)
        assert session.run(outputs.loss) == pytest.approx(expected["loss"], rel=1e-5)
    ours = {variable.op.name for variable in tf.global_variables()}
    assert ours == set(checkpoint_values(checkpoint))
