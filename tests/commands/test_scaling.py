"""The model behind benchmarks/scaling.md, against the graph."""

import pytest

from benchmarks import scaling, step_cost, step_graph
from conftest import on_tensorflow_2
from pages import text_of

pytestmark = on_tensorflow_2  # the page has the figures of its graphs

TINY = scaling.Shape("tiny", 2, 64)
EXAMPLES, LENGTH = 4, 16


def test_the_graph_computes_and_moves_what_the_formulas_say():
    workload = step_graph.Workload(TINY.layers, TINY.hidden, EXAMPLES, LENGTH)
    flops = sum(cost.flops for cost in step_cost.step_costs(workload))
    d = TINY.hidden
    around = 3 * (2 * d * d + 2 * d * 2) + 2 * (2 * LENGTH * 2 * d)  # pooler and head; token types
    # The gradient of a normalization takes its means as products, of D values each.
    assert flops == pytest.approx(EXAMPLES * (scaling.our_flops(TINY, LENGTH) + around), rel=5e-3)
    crossing = [op.inputs[0].shape.num_elements()
                for op in step_graph.operations_of(workload._replace(cards=2))
                if op.type == "NcclAllReduce" and op.device.endswith("GPU:0")]
    assert sum(crossing) == sum(scaling.bucket_values(TINY))


def test_the_page_has_what_the_script_computes():
    """One cell of its tables, which takes a real graph."""
    at = scaling.SETTINGS[0], 8, scaling.PCIE
    assert f"| {1e3 * scaling.step_seconds(*at):,.0f}, {scaling.efficiency(*at):.0%} |" in (
        text_of("benchmarks/scaling.md"))
