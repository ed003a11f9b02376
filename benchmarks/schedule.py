"""Plays a training step on paper: when each operation of the real graph would run on each card.

The graph is the one that a training runs, built for cards that need not be there. Each card has a
compute stream and a link. An operation starts when all that it waits for in the graph is done and
its stream is free; streams take operations in the order in which they become ready, one at a time.
An all-reduce occupies the links of all cards, a copy the link of the card that receives it.
"""

import collections
import heapq
from typing import Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from benchmarks import step_cost, step_graph

import tensorflow.compat.v1 as tf


class Rates(NamedTuple):
    """What the cards and what is between them sustain."""
    card: step_cost.Rates
    cards: int = 1
    all_reduce: Optional[Callable[[float], float]] = None  # from bytes of each card to seconds
    gather: Optional[Callable[[float], float]] = None  # from bytes of one card's part to seconds


class Work(NamedTuple):
    """What an operation does; most do one thing."""
    flops: float = 0
    memory: float = 0  # bytes
    part: float = 0  # bytes in memory for each of the cards
    reduced: float = 0  # bytes
    received: float = 0  # bytes from each other card

    def seconds(self, rates: Rates) -> float:
        """How long it takes."""
        return (rates.card.seconds(self.flops, self.memory + self.part * rates.cards)
                + (rates.all_reduce(self.reduced) if self.reduced else 0)
                + (rates.gather(self.received) if self.received else 0))


class Unit(NamedTuple):
    """What is started at a time: an operation, an all-reduce of all cards, or a copy."""
    work: Work
    streams: Tuple[str, ...]  # that it occupies
    needs: Sequence[int]  # indices of other units


def units_of_step(workload: step_graph.Workload) -> List[Unit]:
    """A step on one card, or on several, for which two stand.

    Two cards show what every card does among more: only the times of what crosses them, and the
    number of parts that a card gathers, depend on how many there are.
    """
    operations = step_graph.operations_of(workload._replace(cards=min(workload.cards, 2)))
    return _units(operations, workload.batch_size * workload.length)


def play(units: Sequence[Unit], rates: Rates) -> float:
    """The seconds from the start of the step to the end of its last operation."""
    followers = collections.defaultdict(list)
    for index, unit in enumerate(units):
        for needed in unit.needs:
            followers[needed].append(index)
    num_missing = [len(unit.needs) for unit in units]
    free_at = collections.defaultdict(float)  # by stream
    ready = [(0.0, index) for index, count in enumerate(num_missing) if not count]
    ends = [0.0] * len(units)
    while ready:
        end, index = heapq.heappop(ready)
        seconds = units[index].work.seconds(rates)
        if seconds:
            end = max([end] + [free_at[stream] for stream in units[index].streams]) + seconds
            free_at.update(dict.fromkeys(units[index].streams, end))
        ends[index] = end
        for follower in followers[index]:
            num_missing[follower] -= 1
            if not num_missing[follower]:
                start = max(ends[needed] for needed in units[follower].needs)
                heapq.heappush(ready, (start, follower))
    return max(ends)


def total(units: Sequence[Unit]) -> Work:
    """The work of all units, added up."""
    return Work(*map(sum, zip(*(unit.work for unit in units))))


def _units(operations: Iterable[tf.Operation], tokens: int) -> List[Unit]:
    """`tokens` are those of a card."""
    works, streams = {}, collections.defaultdict(list)
    needs = collections.defaultdict(set)
    for op, costs in step_cost.costs_of(operations).items():
        key = _key(op)
        needed = {_key(control) for control in op.control_inputs}
        for tensor in op.inputs:
            source = _key(tensor.op)
            if tensor.op.device != op.device and _is_on_card(op) and _is_on_card(tensor.op):
                source = (tensor.name, op.device)
                works[source] = Work(received=_bytes(tensor))
                streams[source] = ["link " + op.device]
                needs[source] = {_key(tensor.op)}
            needed.add(source)
        for number, cost in enumerate(costs[:-1]):  # kernels of a function, one after another
            works[(key, number)] = Work(flops=cost.flops, memory=cost.bytes)
            streams[(key, number)] = ["compute " + op.device]
            needs[(key, number)] = needed
            needed = {(key, number)}
        works[key] = _work(op, costs[-1], tokens) if costs and _is_on_card(op) else Work()
        streams[key].append(("link " if works[key].reduced else "compute ") + op.device)
        needs[key].update(needed)
    numbers = {key: number for number, key in enumerate(works)}
    return [Unit(works[key], tuple(streams[key]), [numbers[needed] for needed in needs[key]])
            for key in works]


def _key(op: tf.Operation):
    """One for the members of an all-reduce, which start together; else the operation's own."""
    return op.get_attr("shared_name") if op.type == "NcclAllReduce" else op.name


def _work(op: tf.Operation, cost: step_cost.Cost, tokens: int) -> Work:
    if op.type == "NcclAllReduce":
        return Work(reduced=_bytes(op.inputs[0]))
    # The rows of two cards' word embeddings stand for those of all cards.
    gathered = sum(_bytes(tensor) for tensor in (*op.inputs, *op.outputs)
                   if tensor.shape.ndims and tensor.shape.as_list()[0] == 2 * tokens)
    return Work(flops=cost.flops, memory=max(0, cost.bytes - gathered), part=gathered / 2)


def _bytes(tensor: tf.Tensor) -> float:
    """Of a tensor of known shape; 0 for others and for handles of variables."""
    if tensor.dtype == tf.resource or not tensor.shape.is_fully_defined():
        return 0
    return tensor.shape.num_elements() * tensor.dtype.size


def _is_on_card(op: tf.Operation) -> bool:
    return "GPU" in op.device
