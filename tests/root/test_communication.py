"""What crosses replicas in one training step, counted in the graph: each gradient once, and early.

The graph is built for cards that need not be there, and not run.
"""

import collections
import re
from typing import Dict, List, NamedTuple, Optional, Set

import numpy as np
import pytest

import modeling
import optimization
from benchmarks.step_graph import needed
from conftest import on_tensorflow_1, on_tensorflow_2
from encoder import classifier
from engine.devices import runtime
from engine.devices.devices import Devices
from engine.model import Mode
from engine.workers.cluster import Cluster
from engine.workers.coordination import Peers

import tensorflow.compat.v1 as tf

BATCH, LENGTH, VOCAB, LAYERS = 4, 8, 100, 3
HIDDEN = 2048  # a layer and the pooler fill a bucket each, in any type


def config(hidden: int) -> modeling.BertConfig:
    return modeling.BertConfig(
        vocab_size=VOCAB, hidden_size=hidden, num_hidden_layers=LAYERS, num_attention_heads=2,
        intermediate_size=2 * hidden, max_position_embeddings=40, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0)


class Step(NamedTuple):
    """A step of a classifier's training, of all replicas."""
    operations: Set[tf.Operation]  # all that it runs
    gradients: List[List[optimization.GradientAndVariable]]  # for each replica


def step_of(num_replicas: int, kind: str, all_reduce: str, micro_batches: int = 1,
            transfer_dtype: tf.DType = tf.float32, **more) -> Step:
    names = tuple(f"/{kind}:{i}" for i in range(num_replicas))
    strategy = Devices(names, kind.upper(), all_reduce, tf.ConfigProto()).strategy()
    return step_under(strategy, micro_batches, transfer_dtype, **more)


def step_under(strategy: tf.distribute.Strategy, micro_batches: int = 1,
               transfer_dtype: tf.DType = tf.float32, most_rows: Optional[int] = None,
               hidden: int = HIDDEN, bias_correction: bool = False, **computation) -> Step:
    forward = classifier.forward_of(config(hidden), 2)
    gradients_of_replicas = []

    def train_op():
        tf.train.get_or_create_global_step()
        features = {name: tf.placeholder(tf.int32, [BATCH, LENGTH])
                    for name in ("input_ids", "input_mask", "segment_ids")}
        features["label_ids"] = tf.placeholder(tf.int32, [BATCH])

        def loss_of(index):
            rows = index * (BATCH // micro_batches) + tf.range(BATCH // micro_batches)
            part = {name: tf.gather(values, rows) for name, values in features.items()}
            mode = Mode(is_training=True, computation=modeling.Computation(**computation))
            with tf.variable_scope(tf.get_variable_scope()):
                return forward(part, mode).loss
        scale = optimization.LossScale.create() if transfer_dtype == tf.float16 else None
        _, gradients = optimization.mean_gradients(
            loss_of, micro_batches, scale and tf.convert_to_tensor(scale.value))
        gradients_of_replicas.append(gradients)
        return optimization.create_update(
            gradients, 1e-4, 10, 1, loss_scale=scale, transfer_dtype=transfer_dtype,
            most_rows=most_rows, bias_correction=bias_correction).operation

    with strategy.scope():
        train_ops = strategy.experimental_local_results(
            strategy.extended.call_for_each_replica(train_op))
    return Step(needed(getattr(op, "op", op) for op in train_ops), gradients_of_replicas)


def crossings(operations, kind: str):
    """(tensor, to which device) for each tensor that moves between replicas' devices."""
    return {(tensor.name, tuple(tensor.shape.as_list()), op.device)
            for op in operations for tensor in op.inputs
            if tensor.op.device != op.device and f"{kind.upper()}:" in tensor.op.device
            and f"{kind.upper()}:" in op.device}


def num_dense_values() -> int:
    """Values of all parameters but the word embeddings, whose gradient is sparse."""
    return sum(int(np.prod(variable.shape.as_list())) for variable in tf.trainable_variables()
               if "word_embeddings" not in variable.name and "replica" not in variable.name)


def dense_gradients(step: Step) -> Dict[tf.Operation, str]:
    """From the operations that give the replicas' dense gradients to a variable of each."""
    return {gradient.op: variable.name for gradients in step.gradients
            for gradient, variable in gradients if not isinstance(gradient, tf.IndexedSlices)}


def all_reduces(step: Step) -> Dict[str, List[tf.Operation]]:
    """By card: its all-reduces, in the order of what they wait for.

    A bucket waits for its gradients, and for all that the buckets before it wait for. Those that
    wait for the same may go in any order.
    """
    by_card = collections.defaultdict(list)
    for op in step.operations:
        if op.type == "NcclAllReduce":
            by_card[op.device].append(op)
    gradients = set(dense_gradients(step))
    return {card: sorted(found, key=lambda op: (len(needed([op]) & gradients),
                                                op.get_attr("shared_name")))  # as on other cards
            for card, found in by_card.items()}


def sizes(operations) -> List[int]:
    return [op.inputs[0].shape.num_elements() for op in operations]


@pytest.mark.parametrize("num_replicas, micro_batches, transfer_dtype", [
    pytest.param(4, 1, tf.float32, marks=on_tensorflow_1),
    pytest.param(2, 2, tf.float16, marks=on_tensorflow_2)])
def test_cards_exchange_each_dense_gradient_once_and_the_rows_of_the_embeddings(
        num_replicas, micro_batches, transfer_dtype):
    step = step_of(num_replicas, "gpu", "nccl", micro_batches, transfer_dtype)
    by_card = all_reduces(step)
    assert len(by_card) == num_replicas
    for buckets in by_card.values():
        assert sum(sizes(buckets)) == num_dense_values()
        assert len(buckets) == 2 if micro_batches > 1 else len(buckets) > 2  # nothing overlaps with their sum
        assert {op.inputs[0].dtype for op in buckets} == {transfer_dtype}

    moved = crossings(step.operations, "gpu")
    for device in by_card:
        received = sorted(shape for _, shape, target in moved if target == device and shape)
        rows = BATCH * LENGTH
        # Values and indices of each other replica's rows; no parameter, no slot.
        assert received == sorted([(rows,), (rows, HIDDEN)] * (num_replicas - 1))


def test_a_gradient_of_sixteen_bits_crosses_without_being_widened():
    step = step_of(2, "gpu", "nccl", transfer_dtype=tf.float16, dtype=tf.float16)
    sent = needed(op for found in all_reduces(step).values() for op in found)
    narrowed = [op for op in sent if op.type == "Cast" and op.outputs[0].dtype == tf.float16]
    assert narrowed  # the gradients of layer normalization, for instance
    assert not [op for op in narrowed if op.inputs[0].op.type == "Cast"]


def test_small_gradients_share_a_bucket_and_functions_that_replicas_share_name_no_card():
    by_card = all_reduces(step_of(2, "gpu", "nccl", hidden=16))
    assert [sizes(buckets) for buckets in by_card.values()] == [[num_dense_values()]] * 2
    functions = tf.get_default_graph().as_graph_def().library.function
    names = [function.signature.name for function in functions]
    assert any("backward" in name and "encoder_layer" in name for name in names)
    assert not {node.device for function in functions for node in function.node_def
                if "GPU" in node.device.upper()}


def test_each_card_updates_its_own_variables_alone():
    step = step_of(3, "gpu", "nccl", transfer_dtype=tf.float16, hidden=16, bias_correction=True)
    moved = {(op.name, x.name) for op in step.operations for x in op.inputs
             if x.dtype == tf.resource and "GPU" in op.device and op.device != x.op.device}
    assert moved == set()


def depth(name: str) -> int:
    """How far a variable is from the model's output: that of a layer, or of what is around it."""
    layer = re.search(r"layer_(\d+)/", name)
    if layer:
        return LAYERS - int(layer.group(1))
    return LAYERS + 1 if "embeddings" in name else 0


@pytest.mark.parametrize("transfer_dtype, computation", [
    pytest.param(tf.float32, {"recompute": True}, marks=on_tensorflow_1),
    pytest.param(tf.float16, {"dtype": tf.float16}, marks=on_tensorflow_2)])
def test_no_bucket_waits_for_a_gradient_of_the_layers_beneath_it(transfer_dtype, computation):
    step = step_of(2, "gpu", "nccl", transfer_dtype=transfer_dtype, **computation)
    by_card = all_reduces(step)
    depths = {op: depth(name) for op, name in dense_gradients(step).items()}
    for buckets in by_card.values():
        waits_for = [{depths[op] for op in needed([bucket]) if op in depths}
                     for bucket in buckets]
        deepest = [max(found) for found in waits_for]
        assert deepest == sorted(deepest) and set(deepest) == set(range(LAYERS + 2))
        # Together with the one above it, a bucket has all gradients down to its own layer.
        own = [sum(variable.shape.num_elements() for gradient, variable in step.gradients[0]
                   if depth(variable.name) == layer and "word_embeddings" not in variable.name)
               for layer in range(LAYERS + 2)]
        assert [sum(size for size, layer in zip(sizes(buckets), deepest) if layer == wanted)
                for wanted in range(LAYERS + 2)] == own
    names = [[op.get_attr("shared_name") for op in buckets] for buckets in by_card.values()]
    assert names == names[:1] * 2, "cards reduce in one order"


def test_without_nccl_each_dense_gradient_goes_to_one_device_and_back_once():
    moved = crossings(step_of(2, "cpu", "one_device").operations, "cpu")
    rows = BATCH * LENGTH * (HIDDEN + 1)
    for device in ("CPU:0", "CPU:1"):
        values = sum(int(np.prod(shape)) for _, shape, target in moved
                     if target.endswith(device) and shape)
        assert values == num_dense_values() + rows


def transfers(step: Step) -> Dict[str, List[tf.Operation]]:
    """By card: what it sends to other machines, each after those that it waits for."""
    by_card = collections.defaultdict(list)
    for op in step.operations:
        if op.type.startswith("Collective"):
            by_card[op.device].append(op)
    return {card: sorted(found, key=lambda op: len(needed([op]) & set(found)))
            for card, found in by_card.items()}


@pytest.mark.parametrize("most_rows, transfer_dtype", [
    (BATCH * LENGTH, tf.float16), (2 * VOCAB, tf.float32)])
def test_machines_exchange_buckets_in_one_order_and_rows_or_their_sum(most_rows, transfer_dtype):
    """Two machines of two cards. The rows are more bytes than their sum if there are many."""
    cards = Devices(("/gpu:0", "/gpu:1"), "GPU", "nccl", tf.ConfigProto(),
                    peers=Peers(Cluster(("a:1", "b:1"), 1)))
    session_config = tf.ConfigProto()
    strategy = cards.multi_worker_strategy(session_config)
    step = step_under(strategy, transfer_dtype=transfer_dtype, most_rows=most_rows)
    by_card = transfers(step)
    assert [card[-5:] for card in sorted(by_card)] == ["GPU:0", "GPU:1"]
    for found in by_card.values():
        reduced = [op for op in found if "Reduce" in op.type]
        gathered = [op for op in found if "Gather" in op.type]
        assert len(reduced) > 2
        for earlier, later in zip(reduced, reduced[1:] + gathered[:1]):
            assert earlier in needed([later])
        if most_rows == BATCH * LENGTH:
            assert sum(sizes(reduced)) == num_dense_values() and len(gathered) >= 2
        else:
            # All parameters, and the sum of the rows' squares.
            assert sum(sizes(reduced)) == num_dense_values() + VOCAB * HIDDEN + 1 and not gathered
    # Over NCCL, but for the initial values, whose broadcasts have no order. (In 1.15 NCCL only reduces.)
    broadcasts = [op for op in tf.get_default_graph().get_operations() if "Bcast" in op.type]
    assert broadcasts and {op.get_attr("communication_hint") for op in broadcasts} == {b"auto"}
    if runtime.IS_TENSORFLOW_1:
        assert session_config.experimental.collective_nccl
    else:
        assert not session_config.experimental.collective_nccl and {
            op.get_attr("communication_hint") for found in by_card.values() for op in found} == {b"nccl"}
