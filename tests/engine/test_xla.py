"""--xla compiles a handful of times and changes no number, on several replicas, too."""

import json
import os
import re

import numpy as np
import pytest

from commands import arguments, run_command
from conftest import (assert_same_training, checkpoint_values, on_tensorflow_1, on_tensorflow_2,
                      write_cola)
from engine.data import batches
from engine.devices import runtime
from engine.errors import UserError


class Run:
    """One training by the command, and the programs that XLA says it made for it."""

    def __init__(self, directory, model, *flags, **changes):
        self.dump, output_dir = str(directory / "dump"), directory / "out"
        process = run_command("--do_train", *flags, *arguments({
            **model._asdict(), "task_name": "cola", "max_seq_length": 24,
            "data_dir": write_cola(directory / "cola", train=48), "output_dir": output_dir,
            "learning_rate": 1e-3, **changes}), XLA_FLAGS=f"--xla_dump_to={self.dump}")
        assert process.returncode == 0, process.stderr
        self.log = process.stderr
        self.values = checkpoint_values(str(output_dir))

    def num_programs(self):
        if not os.path.isdir(self.dump):
            return 0
        return len([name for name in os.listdir(self.dump) if "before_optimizations" in name])


def with_dropout(model, directory):
    config = dict(vars(model.config()), hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    path = directory / "bert_config.json"
    path.write_text(json.dumps(config))
    return model._replace(bert_config_file=str(path))


@pytest.fixture(scope="module")
def one_length(tiny_model, tmp_path_factory):
    """Without --xla and with it: dropout, two replicas, accumulation, every step 24 tokens."""
    directory = tmp_path_factory.mktemp("one_length")
    model = with_dropout(tiny_model, directory)
    flags = dict(num_cpu_replicas=2, train_batch_size=4, gradient_accumulation_steps=2,
                 num_train_epochs=1, dynamic_padding="false")
    return [Run(tmp_path_factory.mktemp("run"), model, *more, **flags)
            for more in ((), ("--xla",))]


@on_tensorflow_2
def test_two_replicas_with_dropout_and_accumulation_end_with_the_same_values(
        one_length, tiny_model):
    plain, compiled = one_length
    assert plain.num_programs() == 0
    assert compiled.num_programs() > 0, "XLA must have compiled for this to mean anything"
    assert_same_training(plain.values, compiled.values)
    initial = checkpoint_values(tiny_model.init_checkpoint)["bert/pooler/dense/kernel"]
    assert np.abs(compiled.values["bert/pooler/dense/kernel"] - initial).max() > 1e-4
    assert "XLA compiled the layers for 1 length in 3 steps: 24 tokens" in compiled.log
    assert "XLA" not in plain.log


@on_tensorflow_1
def test_it_compiles_once_for_each_of_a_few_lengths_and_says_so(
        one_length, tiny_model, tmp_path):
    """Without dropout, whose masks depend on the length that a step is padded to."""
    flags = dict(num_cpu_replicas=1, train_batch_size=2, num_train_epochs=1)
    plain = Run(tmp_path / "plain", tiny_model, **flags)
    compiled = Run(tmp_path / "compiled", tiny_model, "--xla", **flags)
    assert_same_training(plain.values, compiled.values)
    lengths = re.findall(r"XLA compiled the layers for (\d+) tokens in step", compiled.log)
    assert 1 < len(lengths) == len(set(lengths)) <= 3
    assert (f"XLA compiled the layers for {len(lengths)} lengths in 24 steps: "
            f"{', '.join(sorted(lengths, key=int))} tokens") in compiled.log
    one_length_of_two_replicas = one_length[1].num_programs()
    assert 0 < compiled.num_programs() <= len(lengths) * one_length_of_two_replicas


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


def test_an_installation_without_xla_is_one_line(monkeypatch):
    assert runtime.has_kernel("XlaLaunch") and not runtime.has_kernel("NoSuchOperation")
    monkeypatch.setattr(runtime, "has_kernel", lambda operation: False)
    with pytest.raises(UserError, match="^--xla: .* built without XLA; leave the flag out"):
        runtime.prepare_xla()
