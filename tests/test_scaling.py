"""The model behind benchmarks/scaling.md, against hand-worked cells and the real variables."""

import numpy as np
import pytest

from benchmarks import scaling
from modeling import BertConfig, BertModel

import tensorflow.compat.v1 as tf

BASE_DENSE_BYTES = 344171528  # 4 * (109,482,240 - 30,522 * 768 + 2 * 768 + 2)
V100_FLOPS = 46.78 * 72 * (24 * 128 * 1024**2 + 4 * 128**2 * 1024)


def test_eight_cards_over_pcie_take_what_was_worked_out_by_hand():
    forward = 11 * (1811939328 + 50331648) + 301989888 + 11796480 + 393216
    compute = 32 * 3 * forward / V100_FLOPS  # 0.180 s
    communication = 1.75 * BASE_DENSE_BYTES / 10e9 + 7 * 32 * 128 * 3076 / 10e9  # 0.069 s
    step = scaling.step(scaling.BASE, scaling.FLOAT32, 8, scaling.PCIE)
    assert step.seconds == pytest.approx(compute + communication)
    assert step.efficiency == pytest.approx(0.723, abs=5e-4)


def test_fp16_computes_faster_and_communicates_as_much():
    steps = [scaling.step(scaling.BASE, precision, 8, scaling.PCIE)
             for precision in (scaling.FLOAT32, scaling.FLOAT16)]
    communication = [step.seconds * (1 - step.efficiency) for step in steps]
    assert communication[0] == pytest.approx(communication[1])
    assert steps[1].efficiency == pytest.approx(0.420, abs=5e-4)


def test_two_machines_share_one_network_link_each():
    moved = scaling.traffic(scaling.BASE, 4)
    part = 32 * 128 * 3076
    inside = (1.75 * BASE_DENSE_BYTES + 15 * part) / 120e9
    between = (BASE_DENSE_BYTES + 8 * part) / 1.1e9
    assert scaling.communication_seconds(
        moved, 16, scaling.NVLINK, scaling.NETWORKS[0]) == pytest.approx(inside + between)


def test_one_card_communicates_nothing():
    assert scaling.step(scaling.LARGE, scaling.FLOAT16, 1, scaling.PCIE).efficiency == 1


def test_dense_values_are_those_of_the_encoder_without_its_word_embeddings_and_of_two_labels():
    hidden = 16
    BertModel(BertConfig(vocab_size=50, hidden_size=hidden, num_hidden_layers=3,
                         num_attention_heads=2, intermediate_size=4 * hidden, type_vocab_size=2),
              True, tf.zeros([2, 8], tf.int32))
    encoder = sum(int(np.prod(variable.shape.as_list())) for variable in tf.trainable_variables()
                  if "word_embeddings" not in variable.name)
    assert scaling.dense_values(scaling.Shape("tiny", 3, hidden)) == encoder + 2 * hidden + 2


def test_the_page_is_what_the_script_writes():
    with open(scaling.RESULT, encoding="utf-8") as file:
        assert file.read() == scaling.page()
