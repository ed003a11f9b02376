"""The model behind benchmarks/scaling.md, against hand-worked cells, the variables and the graph."""

import functools

import pytest

from benchmarks import scaling, schedule, step_cost, step_graph
from benchmarks.schedule import Rates, Unit, Work
from conftest import on_tensorflow_2


pytestmark = on_tensorflow_2  # the page has the figures of its graphs

BASE_DENSE_BYTES = 344171528  # 4 * (109,482,240 - 30,522 * 768 + 2 * 768 + 2)
TINY = scaling.Shape("tiny", 3, 64)
EXAMPLES, LENGTH = 4, 16
CARD = step_cost.Rates(1e12, 1e12)


@functools.lru_cache(maxsize=None)
def tiny_units(cards: int):
    return schedule.units_of_step(step_graph.Workload(TINY.layers, TINY.hidden, EXAMPLES, LENGTH,
                                                      cards=cards))


# --- What is added up ----------------------------------------------------------------------


def test_eight_cards_over_pcie_communicate_as_long_as_was_worked_out_by_hand():
    assert scaling.communication_seconds(
        scaling.traffic(scaling.BASE), 8, scaling.PCIE) == pytest.approx(
            1.75 * BASE_DENSE_BYTES / 10e9 + 8.4e-6 + 14 * 5.7e-6  # 0.060 s
            + 7 * 32 * 128 * 3080 / 10e9)  # 0.009 s


def test_the_graph_computes_and_moves_what_the_formulas_say():
    one, two = (schedule.total(tiny_units(cards)) for cards in (1, 2))
    d = TINY.hidden
    around = 3 * (2 * d * d + 2 * d * 2) + 2 * (2 * LENGTH * 2 * d)  # pooler and head; token types
    # The gradient of a normalization takes its means as products, of D values each.
    assert one.flops == pytest.approx(EXAMPLES * (scaling.our_flops(TINY, LENGTH) + around), rel=5e-3)
    assert (one.reduced, one.received) == (0, 0)
    assert two.flops == 2 * one.flops
    assert two.reduced == 4 * scaling.dense_values(TINY)
    learning_rate = 4  # bytes, from the first card
    assert two.received == 2 * EXAMPLES * LENGTH * (4 * d + 8) + learning_rate
    assert 2 * one.memory < two.memory + 2 * two.part


def test_two_cards_exchange_the_vectors_of_a_step_once():
    operations = step_graph.operations_of(step_graph.Workload(
        TINY.layers, TINY.hidden, EXAMPLES, LENGTH, step_graph.SIMILARITY, cards=2))
    vectors, gradients = (4 * op.inputs[0].shape.num_elements() for op in operations
                          if op.type == "NcclAllReduce" and op.device.endswith("GPU:0"))
    assert min(vectors, gradients) == scaling.pool_bytes(TINY, 2, EXAMPLES)


# --- What is played ------------------------------------------------------------------------


def test_an_all_reduce_overlaps_what_does_not_wait_for_it():
    """Two cards: a layer, its all-reduce beside the layer beneath, whose all-reduce waits."""
    computes = [Unit(Work(flops=10), (f"compute {card}",), ()) for card in (0, 1)]
    beneath = [Unit(Work(flops=20), (f"compute {card}",), (card,)) for card in (0, 1)]
    links = ("link 0", "link 1")
    units = [*computes, Unit(Work(reduced=3), links, (0, 1)), *beneath,
             Unit(Work(reduced=1), links, (3, 4)),
             Unit(Work(received=2), ("link 1",), (3,)),
             Unit(Work(memory=40), ("compute 0",), (2, 5))]
    rates = Rates(step_cost.Rates(1, 10), 2, all_reduce=lambda size: 10 * size, gather=lambda part: 5 * part)
    # Layers end at 10 and 30, all-reduces at 40 and 50, the update takes 4. The copy ends at 60.
    assert schedule.play(units, rates) == 60
    assert schedule.play(units[:6] + units[7:], rates) == 54


def test_a_step_ends_after_its_last_bucket_and_its_rows_have_crossed():
    def played(all_reduce, gather):
        return schedule.play(tiny_units(2), Rates(CARD, 2, all_reduce, gather))
    free = played(lambda size: 0, lambda part: 0)
    # One bucket: it needs the embeddings' gradient, the last of all.
    assert played(lambda size: 1, lambda part: 0) == pytest.approx(1 + free, rel=0.01)
    # Values and indices of the rows; the learning rate, one number, crosses as well.
    assert played(lambda size: 0, lambda part: part > 4) == pytest.approx(2 + free, rel=0.01)


# --- The page ------------------------------------------------------------------------------


def test_the_page_has_what_the_script_computes():
    """One cell of its tables, which takes two real graphs, and what no graph is needed for."""
    with open(scaling.RESULT, encoding="utf-8") as file:
        page = file.read()
    result = scaling.step(scaling.BASE, scaling.FLOAT32, 8, scaling.PCIE)
    assert f"| {1e3 * result.seconds:,.0f}, {result.efficiency:.0%} |" in page
    assert scaling.assumptions_table() in page
    for run in scaling.DEEP_LEARNING_EXAMPLES:
        row = run.row(run.name, scaling.communication_seconds(run.moved, 8, scaling.NVLINK))
        assert " | ".join(row.values()) in page
