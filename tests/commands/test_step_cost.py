"""What a step asks of a card, counted in real graphs."""

import pytest

from benchmarks import page_tables, report, step_cost, step_graph
from benchmarks.step_graph import Workload
from conftest import on_tensorflow_2

pytestmark = on_tensorflow_2  # the figures of docs/results.md are those of its graphs


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
