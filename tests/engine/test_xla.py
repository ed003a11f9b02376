"""--xla compiles and changes no number, on several replicas, too."""

import os
import re

import numpy as np
import pytest

import modeling
import optimization
import processes
from benchmarks import step_graph
from bert_reference import assert_close, evaluate, random_features, tiny_config
from commands import arguments, on_cola
from conftest import (
    assert_same_training, checkpoint_values, cpu_devices, on_tensorflow_2, plain_session, write_tiny_model)
from engine.data import batches
from engine.data.plan import TrainingPlan
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.training import run_record, xla
from engine.training.settings import TrainingSettings

import tensorflow.compat.v1 as tf


class Run:
    """One training by the command, and the programs that XLA says it made for it."""

    def __init__(self, directory, model, *flags, **changes):
        self.dump, self.output_dir = str(directory / "dump"), directory / "out"
        process = processes.run(["run_classifier.py", *flags, *arguments(on_cola(
            model, directory, learning_rate=1e-3, save_checkpoints_steps=1, keep_checkpoint_max=100, **changes))],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "XLA_FLAGS": f"--xla_dump_to={self.dump}"})
        assert process.returncode == 0, process.stderr
        self.log = process.stderr
        self.values = checkpoint_values(str(self.output_dir))

    def programs(self):
        """Their names, which TensorFlow 1.15 does not write."""
        if not os.path.isdir(self.dump):
            return []
        names = [name for name in os.listdir(self.dump) if "before_optimizations" in name]
        return [re.sub(r".*inference_|_\d+__.*", "", name) for name in names]


def plain_and_compiled(directory, model, **flags):
    """The same training without --xla and with it, which must have compiled."""
    plain, compiled = (Run(directory / str(len(more)), model, *more, **flags)
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
    assert "when that first comes: 24 tokens" in compiled.log
    # The sums of a layer's gradients, and of the others.
    expected = sorted(2 * [*PROGRAMS, "add", "add"])
    assert len(compiled.programs()) == len(expected)
    if not runtime.IS_TENSORFLOW_1:
        assert sorted(compiled.programs()) == expected


@on_tensorflow_2
def test_a_model_is_compiled_for_each_length_that_comes(tmp_path):
    (tmp_path / "model").mkdir()
    compiled = plain_and_compiled(tmp_path, write_tiny_model(tmp_path / "model", num_hidden_layers=3),
                                  num_cpu_replicas=1, train_batch_size=4)
    assert len(compiled.programs()) in [times * (len(PROGRAMS) + 2) for times in (2, 3)]
    assert "when that first comes: 8, 16, 24 tokens" in compiled.log


def test_compiled_layers_have_the_outputs_and_gradients_of_the_others():
    def run(compiled):
        return evaluate(modeling.BertModel, tiny_config(num_hidden_layers=2), random_features(), is_training=True,
                        known_shape=False, gradients=True, gives_attention_scores=True,
                        dropout_seed=np.array([1, 2], np.int32), computation=modeling.Computation(
                            dtype=tf.float16, recompute=True, compiled=compiled))

    assert_close(run(True), run(False), tolerance=0.02)  # XLA rounds to 16 bits at fewer places


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_gradients_of_several_passes_are_added_by_one_program_to_the_same_values(micro_batches):
    random = np.random.RandomState(4)
    passes = random.randn(2, micro_batches, 4, 5).astype(np.float16)

    def loss_of(index):
        weights = [tf.get_variable(f"bert/layer_0/{name}", [4, 5], initializer=tf.ones_initializer())
                   for name in "ab"]
        return tf.add_n([tf.reduce_sum(tf.cast(tf.cast(weight, tf.float16) * each[index], tf.float32))
                         for weight in weights for each in map(tf.constant, passes)])

    def gradients(compiled):
        with tf.Graph().as_default(), plain_session() as session:
            _, pairs = optimization.mean_gradients(loss_of, micro_batches, compiled=compiled)
            session.run(tf.global_variables_initializer())
            calls = [op for op in step_graph.needed([gradient.op for gradient, _ in pairs])
                     if "PartitionedCall" in op.type]
            return session.run([gradient for gradient, _ in pairs]), calls

    (plain, _), (compiled, calls) = gradients(False), gradients(True)
    np.testing.assert_array_equal(compiled, plain)
    assert len(calls) == micro_batches


def source_of(lengths):
    return batches.Source(np.array(lengths), None, max(lengths))


def test_lengths_hold_every_record_and_share_out_the_tokens(tmp_path, capsys):
    """Of anchors and candidates, too: see `Source.encoded`."""
    lengths = np.random.RandomState(2).choice([5, 6, 30, 31, 58], 4000, p=[.4, .3, .2, .09, .01])
    for source, expected in ((source_of(lengths), [8, 32, 58]), (source_of(lengths)._replace(
            encoded=np.stack([lengths // 2, lengths], axis=1)), [8, 16, 32, 58])):
        plan = TrainingPlan(source.lengths, 8, 1)
        bucketed = xla.bucketed(source, TrainingSettings(xla=True), cpu_devices(1), 10**6, str(tmp_path))
        assert f"when that first comes: {', '.join(map(str, expected))} tokens" in capsys.readouterr().err
        assert bucketed.buckets.tolist() == expected
        for step in range(300):
            exact = source.lengths_of_batch(plan.global_batch(step))
            assert bucketed.lengths_of_batch(plan.global_batch(step)) == tuple(
                min(each for each in expected if each >= length) for length in exact)


@pytest.mark.parametrize("spread", [40, 400])
def test_as_many_tokens_lie_between_two_lengths_as_between_two_others(spread, tmp_path):
    lengths = np.random.RandomState(3).randint(1, spread, 5000)
    source = source_of(lengths)
    chosen = xla.bucketed(source, TrainingSettings(xla=True), cpu_devices(1), 1, str(tmp_path)).buckets
    padded = source.padded_lengths()
    shares = np.diff([0, *(padded[padded <= length].sum() for length in chosen)]) / padded.sum()
    assert len(chosen) <= 8 and shares.min() > 0
    # A length of 8 tokens more or less may go to either side.
    assert (shares < 1 / 8 + max(padded[padded == each].sum() for each in chosen) / padded.sum()).all()


CARDS = Devices(("/gpu:0",), "GPU", "one_device", runtime.session_config())


@pytest.fixture
def decided(tmp_path, monkeypatch, capsys):
    """What a training decides on a machine with the parts of CUDA."""
    for name in ("nvvm/libdevice/libdevice.10.bc", "bin/ptxas"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(runtime, "CUDA_FOLDERS", (str(tmp_path),))
    monkeypatch.setenv("PATH", "")

    def decide(devices, steps, **changes):
        source = source_of([16] * 64)
        bucketed = xla.bucketed(source, TrainingSettings(**changes), devices, steps, str(tmp_path))
        said = capsys.readouterr().err
        assert ("XLA: on" in said) == (bucketed.buckets is not None)
        return said
    return decide


@on_tensorflow_2
@pytest.mark.parametrize("devices, steps, said", [
    (CARDS, 999, "XLA: off (by default in fewer than 1,000 steps)"),
    (CARDS, 1000, "XLA: on (by default on cards from 1,000 steps on); it compiles the layers for each length of "
     "batches, when that first comes: 16 tokens; and the update once"),
    (CARDS._replace(kind="CPU"), 10**6, "")])
def test_by_default_a_long_training_on_cards_is_compiled(devices, steps, said, decided):
    assert decided(devices, steps).startswith(said)


@on_tensorflow_2
def test_a_resumed_training_keeps_what_it_decided(decided, tmp_path):
    run_record.write(str(tmp_path), run_record.Record({}, {}))
    assert decided(CARDS, 3000).startswith("XLA: on (by default")
    assert run_record.load(str(tmp_path)).compiled_lengths == [16]
    assert decided(CARDS, 999).startswith("XLA: on (as this run began)")
    run_record.update(str(tmp_path), compiled_lengths=[])
    assert decided(CARDS, 3000).startswith("XLA: off (as this run began)")
    assert decided(CARDS, 3000, xla=True).startswith("XLA: on (--xla)")
    run_record.update(str(tmp_path), compiled_lengths=["16"])
    with pytest.raises(UserError, match="run.json is damaged: its compiled_lengths are"):
        decided(CARDS, 3000)


def test_without_what_xla_needs_it_is_off_and_nothing_is_recorded(decided, tmp_path, monkeypatch):
    run_record.write(str(tmp_path), run_record.Record({}, {}))
    monkeypatch.setattr(runtime, "CUDA_FOLDERS", ())
    assert decided(CARDS, 3000).startswith(
        f"XLA: off (by default on TensorFlow {tf.VERSION})" if runtime.IS_TENSORFLOW_1 else
        "XLA: off (XLA needs CUDA's nvvm/libdevice/libdevice.10.bc and bin/ptxas")
    assert run_record.load(str(tmp_path)).compiled_lengths is None
