"""What a training says it reaches: counted operations, and shares of the cards' peak."""

import re

import numpy as np
import pytest

import modeling
from bert_reference import tiny_config
from encoder import classifier
from engine import progress
from engine.devices.devices import Devices
from engine.devices.gpus import Card
from engine.training import summaries, throughput
from trainings import run_loop, settings, training_source

import tensorflow.compat.v1 as tf

LENGTH = 8


def devices_with(*names):
    return Devices(tuple(f"/gpu:{i}" for i in range(len(names))), "GPU", "nccl",
                   tf.ConfigProto(), cards_in_use=tuple(map(Card, names)))


def test_the_operations_are_three_times_those_of_the_encoder_s_graph():
    config = tiny_config()
    modeling.transformer_model(
        tf.zeros([3, LENGTH, config.hidden_size]), None, config.hidden_size,
        config.num_hidden_layers, config.num_attention_heads, config.intermediate_size,
        computation=modeling.Computation(inlined=True))
    forward = 0
    for op in tf.get_default_graph().get_operations():
        if op.type in ("MatMul", "BatchMatMul", "BatchMatMulV2"):
            transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
            inner = op.inputs[0].shape[-2 if transposed else -1]
            forward += 2 * op.outputs[0].shape.num_elements() * int(inner)
    assert throughput.flops_of_training(config, np.full(3, LENGTH)).sum() == 3 * forward


@pytest.mark.parametrize("names, precision, teraflops", [
    (["NVIDIA A100-SXM4-40GB"] * 8, "tf32", 1248), (["Tesla V100-SXM2-16GB"], "tf32", 15.7),
    (["NVIDIA H100 PCIe"], "float16", 756), (["NVIDIA L40S"], "float16", 362), (["NVIDIA L4"], "tf32", 60),
    (["NVIDIA RTX A4000"], "float16", None), (["NVIDIA A100 MIG 1g.5gb"], "float16", None),
    (["NVIDIA A100-SXM4-40GB", "Some card"], "float16", None), ([], "float16", None)])
def test_the_peak_is_that_of_all_cards_and_unknown_if_one_is(names, precision, teraflops):
    peak = throughput.peak(devices_with(*names), precision)
    assert peak == (teraflops and pytest.approx(teraflops * 1e12))


def test_a_run_says_its_operations_in_its_lines_and_curves(tiny_model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_SECONDS", -1)
    monkeypatch.setattr(throughput, "peak", lambda devices, precision: 1e15)
    source, config = training_source(tiny_model, tmp_path), tiny_model.config()
    run_loop(classifier.forward_of(config, 2), source, 2,
             settings(tmp_path / "out", 8, num_train_steps=4), None, config=config)
    assert re.search(r"examples/s, [\d.e+-]+ TFLOP/s \(0% of the peak\), 00:0", capsys.readouterr().err)
    history = summaries.read_history(str(tmp_path / "out"))
    flops = throughput.flops_of_training(config, source.lengths).mean()
    for (_, teraflops), (_, share), (_, rate) in zip(*(history[name] for name in (
            "model_tflops", "peak_share", "examples_per_second"))):
        assert teraflops == pytest.approx(rate * flops / 1e12, rel=1e-4)
        assert share == pytest.approx(rate * flops / 1e15, rel=1e-4)
