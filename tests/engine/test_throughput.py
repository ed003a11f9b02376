"""What a training says it reaches: counted operations, shares of a card's peak, memory."""

import re

import numpy as np
import pytest

import modeling
from bert_reference import tiny_config
from encoder import classifier
from engine import progress
from engine.data.plan import TrainingPlan
from engine.devices.devices import Devices
from engine.devices.gpus import Card
from engine.model import INFERENCE
from engine.training import summaries, throughput
from pretraining import model as pretraining_model
from trainings import run_loop, settings, training_source

import tensorflow.compat.v1 as tf

LENGTH = 8
INLINED = INFERENCE._replace(computation=modeling.Computation(inlined=True))


@pytest.fixture(scope="module")
def source(tiny_model, tmp_path_factory):
    return training_source(tiny_model, tmp_path_factory.mktemp("cola"))


def devices_with(*names):
    return Devices(tuple(f"/gpu:{i}" for i in range(len(names))), "GPU", "nccl",
                   tf.ConfigProto(), cards_in_use=tuple(map(Card, names)))


# --- Operations --------------------------------------------------------------------------


def products_of(outputs):
    """Operations of the matrix products on which some outputs depend, by their shapes."""
    total, seen, waiting = 0, set(), [output.op for output in outputs]
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        waiting += [tensor.op for tensor in op.inputs]
        if op.type in ("MatMul", "BatchMatMul", "BatchMatMulV2"):
            transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
            inner = op.inputs[0].shape[-2 if transposed else -1]
            total += 2 * op.outputs[0].shape.num_elements() * int(inner)
    return total


def features_of(batch):
    return {name: tf.ones([batch, LENGTH], tf.int32)
            for name in ("input_ids", "input_mask", "segment_ids")}


def test_a_classifiers_operations_are_those_of_its_graph():
    config = tiny_config()
    features = features_of(3)
    outputs = classifier.forward_of(config, 2)(features, INLINED).predictions
    # Not counted as the model's: the head, and types as a product of 3 of them.
    others = 3 * 2 * 2 * config.hidden_size + 3 * LENGTH * 2 * 3 * config.hidden_size
    counted = throughput.classifier(config)(np.full(3, LENGTH))
    assert counted == 3 * (products_of(outputs.values()) - others)


def test_pretrainings_operations_are_those_of_its_graph():
    config, masked = tiny_config(), 2
    features = features_of(3)
    features.update(masked_lm_positions=tf.ones([3, masked], tf.int32),
                    masked_lm_ids=tf.ones([3, masked], tf.int32),
                    masked_lm_weights=tf.ones([3, masked]),
                    next_sentence_labels=tf.zeros([3], tf.int32))
    forward = pretraining_model.forward_of(config, next_sentences=True)
    outputs = forward(features, INLINED).predictions
    others = 3 * 2 * 2 * config.hidden_size + 3 * LENGTH * 2 * 3 * config.hidden_size
    counted = (throughput.encoder_forward(config, np.full(3, LENGTH), outputs=1 + masked)
               + throughput.masked_words_forward(config, 3 * masked))
    assert counted == products_of(outputs.values()) - others


# --- Peaks -------------------------------------------------------------------------------


@pytest.mark.parametrize("names, precision, teraflops", [
    (["NVIDIA A100-SXM4-40GB"], "bfloat16", 312), (["NVIDIA A100-SXM4-40GB"] * 8, "tf32", 1248),
    (["Tesla V100-SXM2-16GB"], "tf32", 15.7), (["Tesla V100-PCIE-32GB"], "float16", 112),
    (["NVIDIA H100 PCIe"], "float16", 756), (["NVIDIA H100 80GB HBM3"], "float32", 66.9),
    (["NVIDIA H200"], "bfloat16", 989), (["NVIDIA L40S"], "float16", 362), (["NVIDIA L4"], "tf32", 60),
    (["NVIDIA A10"], "float16", 125), (["NVIDIA RTX A4000"], "float16", None), (["NVIDIA A100 MIG 1g.5gb"], "float16", None),
    (["NVIDIA A100-SXM4-40GB", "Some card"], "float16", None), ([], "float16", None)])
def test_the_peak_is_that_of_all_cards_and_unknown_if_one_is(names, precision, teraflops):
    found = throughput.peak(devices_with(*names), precision)
    assert found == (teraflops and pytest.approx(teraflops * 1e12))


def test_a_line_says_the_share_of_the_peak_where_it_is_known():
    def described(*names):
        return throughput.Throughput(devices_with(*names), "float16").describe(78e12)

    assert described("NVIDIA A100-SXM4-40GB") == ", 78 TFLOP/s (25% of the peak)"
    assert described("Some card") == ", 78 TFLOP/s"


# --- A run -------------------------------------------------------------------------------


def test_a_run_says_its_operations_and_memory_in_its_lines_and_curves(
        tiny_model, source, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_SECONDS", -1)
    counted = []

    def operations(lengths):
        counted.append(len(lengths))
        return 1e9 * lengths.sum()

    run_loop(classifier.forward_of(tiny_model.config(), 2), source, 2,
             settings(tmp_path, 8, num_train_steps=4), None, operations=operations)
    assert set(counted) == {16}
    lines = capsys.readouterr().err.splitlines()
    assert any(re.search(r"examples/s, [\d.e+]+ TFLOP/s, 00:0\d left", line) for line in lines)
    memory, = [line for line in lines if line.startswith("Peak memory: ")]
    history = summaries.read_history(str(tmp_path))
    # The process may have grown in between.
    assert history["peak_memory_gb"][-1][1] == pytest.approx(float(memory.split()[2]), abs=0.11)
    assert "peak_share" not in history
    plan = TrainingPlan(source.lengths, 16, seed=7)
    for (step, teraflops), (_, rate) in zip(history["model_tflops"],
                                            history["examples_per_second"]):
        mean_tokens = source.lengths[plan.global_batch(step - 1)].mean()
        assert teraflops == pytest.approx(rate * mean_tokens * 1e-3, rel=1e-4)
