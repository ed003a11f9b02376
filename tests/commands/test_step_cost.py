"""What a step asks of a card, counted in real graphs and in one worked out by hand."""

import collections
import functools

import pytest

from replication import graph_functions
from benchmarks import page_tables, report, step_cost, step_graph
from benchmarks.step_cost import Cost
from benchmarks.step_graph import Workload
from conftest import on_tensorflow_2

import tensorflow.compat.v1 as tf

pytestmark = on_tensorflow_2  # the figures of docs/results.md are those of its graphs


def toy_layer(weights, settings, x):
    return tf.nn.relu(tf.matmul(x, weights) * settings)


@functools.lru_cache(maxsize=None)
def costs(layers=12, **workload):
    workload = Workload(layers, 768, 32, 128, **workload)
    return step_cost.step_costs(workload)


def gigabytes(of):
    return sum(cost.bytes for cost in of if not cost.is_product) / 1e9


def test_a_function_costs_what_its_body_launches_at_the_sizes_of_the_call():
    x, weights = tf.zeros([4, 8]), tf.zeros([8, 16])
    y = graph_functions.call_shared(toy_layer, weights, 0.5, [(x, [None, 8])])
    total = tf.reduce_sum(y)
    total.op.inputs[0].set_shape([4, 16])
    kernels = [cost for op, costs in step_cost.costs_of(step_graph.needed([total.op])).items()
             if op.type != "Fill" for cost in costs]
    values = 4 * 16 * 4  # bytes of the result
    assert kernels == [
        Cost("MatMul", "toy_layer", 2 * 4 * 8 * 16, 4 * 8 * 4 + 8 * 16 * 4 + values),
        Cost("Mul", "toy_layer", 0, 2 * values + 4), Cost("Relu", "toy_layer", 0, 2 * values),
        Cost("Sum", "", 0, values + 2 * 4 + 4)]


def test_a_kernel_takes_as_long_as_its_slowest_part_and_no_less_than_its_launch():
    card = step_cost.Card("toy", {"float16": 1e12 / step_cost.PRODUCT_SHARE["float16"]},
                          1e9 / step_cost.MEMORY_SHARE)
    of = [Cost("MatMul", "", 2e12, 1e9), Cost("Mul", "", 0, 3e9), Cost("Mul", "", 0, 4)]
    assert card.seconds(of, "float16") == pytest.approx(2 + 3 + step_cost.LAUNCH_SECONDS)


def test_a_step_in_float16_asks_of_a_card_what_the_newest_results_say():
    workload = Workload(12, 768, 32, 128, precision="float16")
    row = {"step": step_cost.describe("base", workload),
           **step_cost.figures(workload, costs(precision="float16")), "published, examples/s": ""}
    assert report.table([row]).splitlines()[-1] in page_tables.newest_tables()[step_cost.STEPS]


@pytest.mark.parametrize("changes", [{"precision": "float32"}, {"precision": "float16", "xla": True, "cards": 2}],
                         ids=str)
def test_an_update_moves_at_least_gradients_weights_and_moments(changes):
    parameters = (30522 + 512 + 2 + 2) * 768 + 12 * 768 * 768 + 13 * 768  # of one layer, without a head
    update = [cost for cost in costs(1, **changes)
              if cost.kind == "ResourceApplyAdam" or "optimizer_update" in cost.function]
    # Of gradients at least 16 bits; weights and both moments are in float32, read and written.
    assert sum(cost.bytes for cost in update) >= parameters * (2 + 3 * 2 * 4)


def test_a_transfer_in_float16_casts_each_gradient_once_on_either_side_and_small_ones_together():
    of = costs(2, precision="float16", cards=2)
    casts = [cost for cost in of if cost.kind == "Cast" and not cost.function]
    assert sum(cost.kind == "NcclAllReduce" for cost in of) == 3
    assert len(casts) <= 60 and gigabytes(casts) <= 0.24  # the forward pass's of 24 weights included


def test_with_xla_each_pass_of_a_layer_is_one_program():
    plain, of = (costs(3, precision="float16", **more) for more in ({}, dict(xla=True)))
    programs = collections.Counter(cost.function for cost in of if cost.kind == cost.function)
    # Also the casts of a layer's weights, and the update.
    assert sorted(programs.values()) == [1, 1, 1, 3, 3, 3]
    assert len(of) <= 83  # three more for each layer
    flops, compiled = (sum(cost.flops for cost in each) for each in (plain, of))
    assert compiled == pytest.approx(flops, rel=0.01)


def test_with_xla_one_program_a_layer_adds_what_two_texts_give_its_gradients():
    of = costs(2, precision="float16", xla=True, task=step_graph.SIMILARITY)
    programs = collections.Counter(cost.function for cost in of if cost.kind == cost.function)
    assert programs.pop("add") == 3 and set(programs.values()) == {1, 2, 4}  # of layers, and the rest
    assert sum(cost.kind == "Cast" for cost in of) < 10 and len(of) + 10 * 7 <= 250  # of 12 layers


def test_with_xla_accumulation_moves_10_bytes_for_a_gradient_of_16_bits():
    of = costs(2, precision="float16", xla=True, micro_batches=2)
    added = sum(cost.bytes for cost in of if cost.kind == "add")
    weights = 2 * (12 * 768 * 768 + 13 * 768)  # of two layers
    head = 768 * 768 + (768 + 2) * 1 + 2 * 768 + (512 + 2 + 2) * 768  # and what else is dense, in float32
    assert added == pytest.approx(10 * weights + 12 * head, rel=0.01)


def test_a_crf_launches_as_many_kernels_for_any_number_of_words():
    counts = [len(costs(layers=1, task=task, precision="float16", xla=True))
              for task in (step_graph.TAGGING, step_graph.CRF)]
    assert counts[1] - counts[0] <= 280
