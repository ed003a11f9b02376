"""Out of memory is answered with the batch, the length and what to change, on every replica."""

import os

import numpy as np
import pytest

from commands import arguments, run_command
from conftest import cpu_devices, on_tensorflow_1, write_cola
from engine.checkpoints import checkpoints
from engine.data.batches import Source
from engine.devices.devices import out_of_memory_explained
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import Outputs

import tensorflow.compat.v1 as tf

# With 16 heads, the attention of so many examples of that length has 2**32 probabilities, 17 GB,
# and so has that of one of the longest; nothing else is large.
BATCH_SIZE, LENGTH = 256, 1024
LONGEST = 16384
ADDRESS_SPACE = 16 * 2**30
NUM_REPLICAS = 2


@pytest.fixture(scope="module")
def long_model(two_layers, tmp_path_factory):
    """Many positions and heads: its memory is that of the padded length squared.

    It has two layers because the last one computes only what the classifier reads.
    """
    path = tmp_path_factory.mktemp("long_model") / "bert_config.json"
    return two_layers.with_config(path, max_position_embeddings=LONGEST,
                                  num_attention_heads=16)._replace(init_checkpoint=None)


def run(long_model, data_dir, output_dir, *more, num_cpu_replicas=1):
    return run_command(*arguments(dict(
        long_model._asdict(), task_name="cola", data_dir=data_dir, output_dir=output_dir,
        max_seq_length=LENGTH, train_batch_size=BATCH_SIZE,
        eval_batch_size=BATCH_SIZE, predict_batch_size=BATCH_SIZE,
        num_train_epochs=1, num_cpu_replicas=num_cpu_replicas)), *more,
        address_space=ADDRESS_SPACE)


def the_error_of(process):
    assert process.returncode == 2, process.stderr
    assert "Traceback" not in process.stderr
    error, = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
    assert error == process.stderr.splitlines()[-1]
    return error


@on_tensorflow_1
def test_a_training_step_that_does_not_fit_is_one_line(long_model, tmp_path):
    data_dir = write_cola(tmp_path / "cola", train=NUM_REPLICAS * BATCH_SIZE)
    output_dir = tmp_path / "out"
    error = the_error_of(run(long_model, data_dir, output_dir, "--do_train",
                             "--dynamic_padding=false", num_cpu_replicas=NUM_REPLICAS))
    assert error == (
        f"error: out of memory in training step 1: {BATCH_SIZE} examples per replica at a time "
        f"x {LENGTH} tokens; divide --train_batch_size and multiply --gradient_accumulation_steps "
        "by the same number for the same step in less, or set --recompute_layers or a smaller "
        "--max_seq_length; no checkpoint was saved before it")


@on_tensorflow_1
def test_an_evaluation_that_does_not_fit_is_one_line(long_model, tmp_path):
    data_dir = write_cola(tmp_path / "cola", train=4, dev=4)
    with open(os.path.join(data_dir, "dev.tsv"), "a") as file:
        file.write("x\t1\t\t" + "cat " * LONGEST + "\n")
    assert the_error_of(run(
        long_model, data_dir, tmp_path / "out", "--do_train", "--do_eval",
        f"--max_seq_length={LONGEST}", "--train_batch_size=1", "--eval_batch_size=1",
        "--eval_every_steps=1")) == (
            f"error: out of memory in a step of 1 example per replica x {LONGEST} tokens; "
            "lower --max_seq_length")
    assert checkpoints.latest(str(tmp_path / "out")).global_step == 1


def test_steps_of_several_examples_that_do_not_fit_name_the_batch():
    def source_of(lengths):
        return Source(np.array(lengths), lambda indices, length: {
            "input_ids": np.zeros([len(indices), length], np.int32)}, max_length=16)

    def forward(features, mode):
        """More than there are addresses, where the input is longer than 8."""
        tf.get_variable("unused", [])  # no model is without
        size = tf.cast(tf.shape(features["input_ids"])[1] > 8, tf.int64) * 2**30 + 1
        return Outputs(loss=None, predictions={
            "sum": tf.reduce_sum(tf.fill([1, size, size], 0.0), axis=[1, 2])})

    devices = cpu_devices(1)._replace(concurrent_steps=2, max_step_tokens=None)
    with Predictor(forward, devices) as predictor:
        with pytest.raises(UserError, match="step of 4 examples per replica x 16 tokens; lower "
                                            "--eval_batch_size"):
            # Whichever thread has the long step, beside those with short ones.
            predictor.predict(source_of([4] * 64 + [16] * 4), 4)
        assert predictor.predict(source_of([8]), 4)["sum"].tolist() == [0.0]


def test_a_full_disk_which_tensorflow_reports_alike_keeps_its_traceback():
    # Alone in a session: TensorFlow 1.15 has been seen to wait for ever for the functions of a
    # training step beside which an operation fails.
    with tf.Graph().as_default(), tf.Session() as session:
        writing = tf.io.write_file("/dev/full", "what has no place")
        with pytest.raises(tf.errors.ResourceExhaustedError, match="No space left"):
            with out_of_memory_explained(lambda: "in a step"):
                session.run(writing)
