"""Out of memory is answered with the batch, the length and what to change, on every replica."""

import numpy as np
import pytest

import processes
from commands import arguments, on_cola, run_command
from conftest import cpu_devices, on_tensorflow_1
from engine.data.batches import Source
from engine.devices.devices import out_of_memory_explained
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import Outputs

import tensorflow.compat.v1 as tf

# With 16 heads, the attention of so many examples of that length has 2**32 probabilities, 17 GB;
# nothing else is large.
BATCH_SIZE, LENGTH = 256, 1024
ADDRESS_SPACE = 16 * 2**30


@on_tensorflow_1
def test_a_training_step_that_does_not_fit_is_one_line(two_layers, tmp_path):
    """Two layers: the last one computes only what the classifier reads."""
    model = two_layers.with_config(tmp_path / "bert_config.json", max_position_embeddings=LENGTH,
                                   num_attention_heads=16)._replace(init_checkpoint=None)
    process = run_command(*arguments(on_cola(
        model, tmp_path, train=2 * BATCH_SIZE, max_seq_length=LENGTH, train_batch_size=BATCH_SIZE,
        num_cpu_replicas=2, dynamic_padding=False)), address_space=ADDRESS_SPACE)
    assert process.returncode == 2 and "Traceback" not in process.stderr, process.stderr
    error, = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
    assert error == process.stderr.splitlines()[-1] == (
        f"error: out of memory in training step 1: {BATCH_SIZE} examples per replica at a time "
        f"x {LENGTH} tokens; divide --train_batch_size and multiply --gradient_accumulation_steps "
        "by the same number for the same step in less, or set --recompute_layers or a smaller "
        "--max_seq_length; no checkpoint was saved before it")


_FAILING = """
import sys
from absl import flags
from engine.cli import command
def main(values):
    {}
command.run(main, flags.FlagValues(), usage="", argv=["it"])
"""


@pytest.mark.parametrize("failing, said", [
    ("bytearray(1 << 60)", "out of memory: "),
    ("import numpy; numpy.zeros(1 << 57)", "out of memory: "),
    ("files = [open('/dev/null') for _ in range(1 << 21)]", "too many open files: "),
    ("raise BlockingIOError(11, 'Resource temporarily unavailable')", "no more threads or processes"),
    ("from tensorflow.compat.v1 import errors; raise errors.InternalError("
     "None, None, 'CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory')",
     "out of memory on a card: another process")])
def test_what_runs_out_outside_a_step_is_one_line(failing, said):
    process = processes.run(["-c", _FAILING.format(failing)])
    line, = process.stderr.splitlines()
    assert process.returncode == 2 and line.startswith(f"error: {said}"), process.stderr


def test_a_prediction_step_that_does_not_fit_names_the_batch_or_the_length():
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
        for size, said in ((4, "step of 4 examples per replica x 16 tokens; lower --eval_batch_size"),
                           (1, "step of 1 example per replica x 16 tokens; lower --max_seq_length")):
            with pytest.raises(UserError, match=said):
                # Whichever thread has the long step, beside those with short ones.
                predictor.predict(source_of([4] * 64 + [16] * 4), size)
        assert predictor.predict(source_of([8]), 4)["sum"].tolist() == [0.0]


def test_a_card_that_another_process_has_filled_is_out_of_memory_and_other_internal_errors_pass():
    def fails(message):
        with out_of_memory_explained(lambda: "in a step"):
            raise tf.errors.InternalError(None, None, message)

    for message in ("CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
                    "Dst tensor is not initialized."):
        with pytest.raises(UserError, match="out of memory in a step; another process may hold"):
            fails(message)
    with pytest.raises(tf.errors.InternalError, match="Blas GEMM launch failed"):
        fails("Blas GEMM launch failed")
