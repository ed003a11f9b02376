"""A half-finished run of Google's code continues in ours, and ours in Google's.

Google's code reads `global_step` for the learning rate and adds one to it in no
particular order, so that its rate may be that of the next step. A schedule so long
that one step makes no difference lets the two be compared.
"""

import os

import numpy as np
import pytest

from conftest import assert_same_training, checkpoint_values, plain_session
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.data.plan import TrainingPlan
from trainings import crash_after, run_loop, settings

import tensorflow.compat.v1 as tf

pytest.importorskip("bert", reason="Google's package runs on TensorFlow 1.15 only")

HALF, STEPS, BATCH, SEED = 5, 10, 16, 7
SCHEDULE_STEPS, LEARNING_RATE = 10**6, 5e-5


def run_google(model, source, *, start_from: str, first_step, last_step, save_to):
    """Google's create_model and create_optimizer in a plain session, without dropout."""
    from bert import modeling, optimization, run_classifier
    config = modeling.BertConfig.from_dict(model.config().to_dict())
    plan = TrainingPlan(source.lengths, BATCH, SEED)
    with tf.Graph().as_default(), plain_session() as session:
        inputs = {name: tf.placeholder(tf.int32, [BATCH, source.max_length])
                  for name in ("input_ids", "input_mask", "segment_ids")}
        labels = tf.placeholder(tf.int32, [BATCH])
        tf.train.get_or_create_global_step()
        loss, _, _, _ = run_classifier.create_model(
            config, False, inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"],
            labels, 2, False)
        train_op = optimization.create_optimizer(
            loss, LEARNING_RATE, SCHEDULE_STEPS, 0, False)
        session.run(tf.global_variables_initializer())
        held = tf.train.load_checkpoint(start_from).get_variable_to_shape_map()
        tf.train.Saver([variable for variable in tf.global_variables()
                        if variable.op.name in held]).restore(session, start_from)
        for step in range(first_step, last_step):
            features = source.fetch(plan.global_batch(step), source.max_length)
            session.run(train_op, {labels: features["label_ids"],
                                   **{inputs[name]: features[name] for name in inputs}})
        tf.train.Saver().save(session, os.path.join(save_to, "model.ckpt"), global_step=last_step)


def run_ours(model, source, output_dir, init_checkpoint=None) -> None:
    """Two replicas to step STEPS of the schedule, with a checkpoint after half of them."""
    with crash_after(STEPS):
        run_loop(classifier.forward_of(model.config(), 2), source, 2,
                 settings(output_dir, BATCH // 2, num_train_steps=SCHEDULE_STEPS, warmup_steps=0,
                          learning_rate=LEARNING_RATE, seed=SEED, save_checkpoints_steps=HALF),
                 init_checkpoint)


@pytest.fixture(scope="module")
def google_whole(tiny_model, source, with_head, tmp_path_factory):
    """Ten steps of Google's code, with its checkpoint after the fifth."""
    directory = str(tmp_path_factory.mktemp("google"))
    run_google(tiny_model, source, start_from=with_head, first_step=0, last_step=HALF,
               save_to=directory)
    half = checkpoints.latest(directory).path
    whole = str(tmp_path_factory.mktemp("google_whole"))
    run_google(tiny_model, source, start_from=half, first_step=HALF, last_step=STEPS,
               save_to=whole)
    return directory, checkpoint_values(whole)


def test_a_run_of_googles_code_continues_in_ours_on_two_replicas(
        tiny_model, source, google_whole):
    directory, expected = google_whole
    run_ours(tiny_model, source, directory)
    assert checkpoints.latest(directory).global_step == STEPS
    assert_same_training(expected, checkpoint_values(directory))


def test_a_run_of_ours_continues_in_googles_code(
        tiny_model, source, with_head, google_whole, tmp_path):
    _, expected = google_whole
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    theirs.mkdir()
    run_ours(tiny_model, source, ours, checkpoints.open_checkpoint(with_head))
    half = str(ours / f"model.ckpt-{HALF}")
    run_google(tiny_model, source, start_from=half, first_step=HALF, last_step=STEPS,
               save_to=str(theirs))
    assert_same_training(expected, checkpoint_values(str(theirs)))
    np.testing.assert_equal(
        sorted(checkpoint_values(half)), sorted(expected), "names are the original's")
