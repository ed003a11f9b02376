"""Plays a training step on paper: when each operation of the real graph would run on each card.

The graph is the one that a training runs, built for cards that need not be there. Each card has a
compute stream and a link. An operation starts when all that it waits for in the graph is done and
its stream is free; streams take operations in the order in which they become ready, one at a time.
An all-reduce occupies the links of all cards, a copy the link of the card that receives it.
"""

import collections
import heapq
from typing import Callable, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import modeling
import optimization
from encoder import classifier
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.model import Mode

import tensorflow.compat.v1 as tf

# What moves no data on a card: views, shapes, and what is there before the step.
_FREE = {"Const", "ExpandDims", "Identity", "IdentityN", "NoOp", "Placeholder", "ReadVariableOp",
         "Reshape", "Shape", "Size", "Squeeze", "VarHandleOp"}
# TensorFlow's kernel splits a pack without a copy if all parts begin at a multiple of so many bytes.
_ALIGNMENT = 64
_READS_PART = {"GatherV2", "Slice", "StridedSlice"}  # no more than they return
# How often the size of its last input goes through memory: Adam reads gradient, m, v and the
# parameter and writes the last three; the decay reads two and writes one.
_UPDATES = {"ResourceApplyAdam": 7, "AssignSubVariableOp": 3}


class Rates(NamedTuple):
    """What the cards and what is between them sustain."""
    flops: float  # operations/s in matrix products
    memory: float  # bytes/s
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
        return (self.flops / rates.flops
                + (self.memory + self.part * rates.cards) / rates.memory
                + (rates.all_reduce(self.reduced) if self.reduced else 0)
                + (rates.gather(self.received) if self.received else 0))


class Unit(NamedTuple):
    """What is started at a time: an operation, an all-reduce of all cards, or a copy."""
    work: Work
    streams: Tuple[str, ...]  # that it occupies
    needs: Sequence[int]  # indices of other units


def units_of_step(layers: int, hidden: int, *, cards: int, batch_size: int, length: int,
                  transfer_dtype: tf.DType = tf.float32) -> List[Unit]:
    """A training step of a BERT with two labels on one card, or on several, for which two stand.

    Two cards show what every card does among more: only the times of what crosses them, and the
    number of parts that a card gathers, depend on how many there are.
    """
    with tf.Graph().as_default():
        train_ops = _train_ops(layers, hidden, min(cards, 2), batch_size, length, transfer_dtype)
        return _units(_needed(train_ops), hidden, batch_size * length)


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


def _train_ops(layers, hidden, cards, batch_size, length, transfer_dtype) -> List[tf.Operation]:
    names = tuple(f"/gpu:{card}" for card in range(cards))
    strategy = Devices(names, "GPU", "nccl" if cards > 1 else "one_device",
                       tf.ConfigProto()).strategy()
    config = modeling.BertConfig(30522, hidden, layers, hidden // 64, 4 * hidden,
                                 type_vocab_size=2)
    forward = classifier.forward_of(config, 2)

    def train_op():
        tf.train.get_or_create_global_step()
        features = {name: tf.placeholder(tf.int32, [batch_size, length])
                    for name in ("input_ids", "input_mask", "segment_ids")}
        features["label_ids"] = tf.placeholder(tf.int32, [batch_size])
        mode = Mode(is_training=True, dropout_seed=tf.constant([1, 2], tf.int64))
        _, gradients = optimization.mean_gradients(lambda _: forward(features, mode).loss, 1)
        return optimization.create_train_op(gradients, 1e-4, 10, 1,
                                            transfer_dtype=transfer_dtype)

    with strategy.scope():
        results = strategy.experimental_local_results(
            runtime.run_on_replicas(strategy, train_op))
    return [getattr(result, "op", result) for result in results]


def _needed(operations: Iterable[tf.Operation]) -> Set[tf.Operation]:
    """All that runs for these to run."""
    seen, waiting = set(), list(operations)
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return seen


def _units(operations: Set[tf.Operation], hidden: int, tokens: int) -> List[Unit]:
    """`tokens` are those of a card."""
    works, streams = {}, collections.defaultdict(list)
    needs = collections.defaultdict(set)
    for op in sorted(operations, key=lambda op: op.name):
        key = _key(op)
        works[key] = _work(op, hidden, tokens)
        streams[key].append(("link " if works[key].reduced else "compute ") + op.device)
        needs[key].update(_key(control) for control in op.control_inputs)
        for tensor in op.inputs:
            source = _key(tensor.op)
            if tensor.op.device != op.device and _is_on_card(op) and _is_on_card(tensor.op):
                source = (tensor.name, op.device)
                works[source] = Work(received=_bytes(tensor))
                streams[source] = ["link " + op.device]
                needs[source] = {_key(tensor.op)}
            needs[key].add(source)
    numbers = {key: number for number, key in enumerate(works)}
    return [Unit(works[key], tuple(streams[key]), [numbers[needed] for needed in needs[key]])
            for key in works]


def _key(op: tf.Operation):
    """One for the members of an all-reduce, which start together; else the operation's own."""
    return op.get_attr("shared_name") if op.type == "NcclAllReduce" else op.name


def _work(op: tf.Operation, hidden: int, tokens: int) -> Work:
    if not _is_on_card(op) or op.type in _FREE:
        return Work()
    if op.type == "NcclAllReduce":
        return Work(reduced=_bytes(op.inputs[0]))
    if op.type == "MatMul":
        inner = op.inputs[0].shape.as_list()[0 if op.get_attr("transpose_a") else 1]
        return Work(flops=2 * inner * op.outputs[0].shape.num_elements())
    tensors = [*op.inputs, *op.outputs]
    if "PartitionedCall" in op.type and [hidden, 4 * hidden] in _shapes(tensors):
        return Work(flops=_layer_flops(op, tensors, hidden))
    if op.type == "SplitV" and not any(_bytes(part) % _ALIGNMENT for part in op.outputs[:-1]):
        return Work()
    if op.type in _UPDATES:
        return Work(memory=_UPDATES[op.type] * _bytes(op.inputs[-1]))
    if op.type in _READS_PART:
        return Work(memory=2 * sum(map(_bytes, op.outputs)))
    # The rows of two cards' word embeddings stand for those of all cards.
    gathered = [tensor for tensor in tensors
                if tensor.shape.ndims and tensor.shape.as_list()[0] == 2 * tokens]
    return Work(memory=sum(map(_bytes, tensors)) - sum(map(_bytes, gathered)),
                part=sum(map(_bytes, gathered)) / 2)


def _layer_flops(op: tf.Operation, tensors: Sequence[tf.Tensor], hidden: int) -> float:
    """Operations of a call of an encoder layer, or of its gradient, which takes twice as many.

    For F of T tokens: 2 D^2 for each of the F's queries, outputs of attention and 8 D^2 weights of
    the feed-forward part, and of T keys and values; 4 F T D for scores and weighted sums.
    """
    states = [shape for shape in _shapes(tensors) if len(shape) == 3 and shape[-1] == hidden]
    batch_size, length = max(states)[:2]
    queries = min(states)[1]
    forward = batch_size * (hidden**2 * (20 * queries + 4 * length)
                            + 4 * queries * length * hidden)
    return forward * (2 if "gradients/" in op.name else 1)


def _shapes(tensors: Iterable[tf.Tensor]) -> List[List[int]]:
    return [tensor.shape.as_list() for tensor in tensors if tensor.shape.is_fully_defined()]


def _bytes(tensor: tf.Tensor) -> float:
    """Of a tensor of known shape; 0 for others and for handles of variables."""
    if tensor.dtype == tf.resource or not tensor.shape.is_fully_defined():
        return 0
    return tensor.shape.num_elements() * tensor.dtype.size


def _is_on_card(op: tf.Operation) -> bool:
    return "GPU" in op.device
