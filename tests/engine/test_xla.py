"""--xla compiles and changes no number, on several replicas, too."""

import os
import re

import numpy as np
import pytest

import modeling
from bert_reference import assert_close, evaluate, random_features, tiny_config
from commands import arguments, run_command
from conftest import (
    assert_same_training, checkpoint_values, on_tensorflow_1, on_tensorflow_2, write_cola, write_tiny_model)
from engine.data import batches
from engine.devices import runtime

import tensorflow.compat.v1 as tf

ROUNDING = {tf.float32: 1e-5, tf.float16: 0.02, tf.bfloat16: 0.1}


class Run:
    """One training by the command, and the programs that XLA says it made for it."""

    def __init__(self, directory, model, *flags, **changes):
        self.dump, self.output_dir = str(directory / "dump"), directory / "out"
        process = run_command("--do_train", *flags, *arguments({
            **model._asdict(), "task_name": "cola", "max_seq_length": 24,
            "data_dir": write_cola(directory / "cola", train=48), "output_dir": self.output_dir,
            "learning_rate": 1e-3, "save_checkpoints_steps": 1, "keep_checkpoint_max": 100,
            **changes}), XLA_FLAGS=f"--xla_dump_to={self.dump}")
        assert process.returncode == 0, process.stderr
        self.log = process.stderr
        self.values = checkpoint_values(str(self.output_dir))

    def programs(self):
        """Their names, which TensorFlow 1.15 does not write."""
        if not os.path.isdir(self.dump):
            return []
        names = [name for name in os.listdir(self.dump) if "before_optimizations" in name]
        if runtime.SHARES_PROGRAMS:  # all of them were made before the first step
            first_step = os.path.getmtime(self.output_dir / "model.ckpt-1.index")
            assert all(os.path.getmtime(os.path.join(self.dump, name)) < first_step for name in names)
        return [re.sub(r".*inference_|_\d+__.*", "", name) for name in names]


def plain_and_compiled(directory, model, **flags):
    """The same training without --xla and with it, which must have compiled."""
    plain, compiled = (Run(directory / str(len(more)), model, *more, num_train_epochs=1, **flags)
                       for more in ((), ("--xla",)))
    assert not plain.programs() and "XLA" not in plain.log
    assert_same_training(plain.values, compiled.values)
    return compiled


# For each length and device, of a model with one layer. With more layers, the last one has two
# programs more than the others: only a few of its rows are computed.
PROGRAMS = ["encoder_layer_backward", "encoder_layer_forward", "normalize_and_drop_backward",
            "normalize_and_drop_forward"]


def test_two_replicas_with_dropout_and_accumulation_end_with_the_same_values(
        tiny_model, tmp_path):
    """Of one length, on which the masks of dropout depend."""
    model = tiny_model.with_config(
        tmp_path / "bert_config.json", hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    compiled = plain_and_compiled(
        tmp_path, model, num_cpu_replicas=2, train_batch_size=4,
        gradient_accumulation_steps=2, dynamic_padding="false")
    initial = checkpoint_values(tiny_model.init_checkpoint)["bert/pooler/dense/kernel"]
    assert np.abs(compiled.values["bert/pooler/dense/kernel"] - initial).max() > 1e-4
    assert "of 8, 16, 24 tokens" in compiled.log
    assert len(compiled.programs()) == 2 * len(PROGRAMS)
    if not runtime.IS_TENSORFLOW_1:
        assert sorted(compiled.programs()) == sorted(2 * PROGRAMS)


@on_tensorflow_1
def test_batches_of_a_few_lengths_end_with_the_same_values(tiny_model, tmp_path):
    compiled = plain_and_compiled(tmp_path, tiny_model, num_cpu_replicas=1, train_batch_size=4)
    assert len(compiled.programs()) in [times * len(PROGRAMS) for times in (2, 3)]


@on_tensorflow_2
def test_a_model_of_many_layers_is_compiled_for_several_lengths_at_the_same_time(tmp_path):
    (tmp_path / "model").mkdir()
    compiled = plain_and_compiled(tmp_path, write_tiny_model(tmp_path / "model", num_hidden_layers=6),
                                  num_cpu_replicas=1, train_batch_size=4)
    assert len(compiled.programs()) in [times * (len(PROGRAMS) + 2) for times in (2, 3)]
    assert "XLA has compiled the layers for batches of 8, 16" in compiled.log


@pytest.mark.parametrize("dtype, recompute", [
    (tf.float16, True),
    *(pytest.param(dtype, False, marks=on_tensorflow_2) for dtype in (tf.float32, tf.bfloat16))])
def test_compiled_layers_have_the_outputs_and_gradients_of_the_others(dtype, recompute):
    def run(compiled):
        return evaluate(modeling.BertModel, tiny_config(), random_features(), is_training=True,
                        known_shape=False, gradients=True, gives_attention_scores=True,
                        dropout_seed=np.array([1, 2], np.int32), computation=modeling.Computation(
                            dtype=dtype, recompute=recompute, compiled=compiled))

    # XLA rounds to 16 bits at fewer places.
    assert_close(run(True), run(False), tolerance=ROUNDING[dtype])


@pytest.mark.parametrize("max_length, expected", [
    (128, [16, 24, 32, 48, 64, 96, 128]),
    (512, [48, 64, 96, 128, 192, 256, 384, 512]),
    (30, [8, 16, 24, 30]),
    (5, [5])])
def test_batches_have_one_of_at_most_eight_lengths(max_length, expected):
    source = batches.Source(np.arange(1, max_length + 1), None, max_length).bucketed()
    assert source.buckets.tolist() == expected
    padded = source.padded_lengths()
    assert set(padded) <= set(expected)
    np.testing.assert_array_equal(
        padded, [min(bucket for bucket in expected if bucket >= length)
                 for length in source.lengths])
