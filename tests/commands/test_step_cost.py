"""What a step asks of a card, counted in real graphs and in one worked out by hand."""

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


@pytest.mark.parametrize("changes", [{}, dict(xla=True)], ids=str)
def test_a_step_asks_of_a_card_what_the_newest_results_say(changes):
    workload = Workload(12, 768, 32, 128, precision="float16", **changes)
    row = {"step": step_cost.describe("base", workload),
           **step_cost.figures(workload, step_cost.step_costs(workload)), "published, examples/s": ""}
    assert report.table([row]).splitlines()[-1] in page_tables.newest_tables()[step_cost.STEPS]


def test_a_crf_launches_as_many_kernels_for_any_number_of_words():
    counts = [len(step_cost.step_costs(Workload(1, 768, 32, 128, task, "float16", xla=True)))
              for task in (step_graph.TAGGING, step_graph.CRF)]
    assert counts[1] - counts[0] <= 280
