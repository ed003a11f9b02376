"""What crosses replicas in one training step, counted in the graph: each gradient once.

The graph is built for cards that need not be there, and not run.
"""

import numpy as np
import pytest

import modeling
import optimization
from encoder import classifier
from engine import runtime
from engine.devices import Devices
from engine.model import Mode

import tensorflow.compat.v1 as tf

BATCH, LENGTH, VOCAB, HIDDEN = 4, 8, 100, 16


def config() -> modeling.BertConfig:
    return modeling.BertConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0)


def operations_of_a_step(num_replicas: int, kind: str, all_reduce: str, micro_batches: int = 1,
                         float16: bool = False):
    """All that one step of a classifier's training runs."""
    names = tuple(f"/{kind}:{i}" for i in range(num_replicas))
    strategy = Devices(names, kind.upper(), all_reduce, tf.ConfigProto()).strategy()
    forward = classifier.forward_of(config(), 2)

    def train_op():
        tf.train.get_or_create_global_step()
        features = {name: tf.placeholder(tf.int32, [BATCH, LENGTH])
                    for name in ("input_ids", "input_mask", "segment_ids")}
        features["label_ids"] = tf.placeholder(tf.int32, [BATCH])

        def loss_of(index):
            rows = index * (BATCH // micro_batches) + tf.range(BATCH // micro_batches)
            part = {name: tf.gather(values, rows) for name, values in features.items()}
            mode = Mode(is_training=True, computation=modeling.Computation(
                dtype=tf.float16 if float16 else tf.float32))
            with tf.variable_scope(tf.get_variable_scope()):
                return forward(part, mode).loss
        scale = optimization.LossScale.create() if float16 else None
        _, gradients = optimization.mean_gradients(loss_of, micro_batches, scale)
        return optimization.create_train_op(gradients, 1e-4, 10, 1, loss_scale=scale)

    with strategy.scope():
        train_ops = strategy.experimental_local_results(
            runtime.run_on_replicas(strategy, train_op))
    seen, waiting = set(), [getattr(op, "op", op) for op in train_ops]
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return seen


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


@pytest.mark.parametrize("num_replicas, micro_batches, float16", [
    (2, 1, False), (3, 1, False), (8, 1, False), (2, 4, False), (2, 1, True)])
def test_cards_exchange_one_pack_of_gradients_and_the_rows_of_the_embeddings(
        num_replicas, micro_batches, float16):
    operations = operations_of_a_step(num_replicas, "gpu", "nccl", micro_batches, float16)
    packs = [op for op in operations if op.type == "NcclAllReduce"]
    assert sorted({op.device for op in packs}) == sorted(op.device for op in packs)
    assert [op.inputs[0].shape.as_list() for op in packs] == [[num_dense_values()]] * num_replicas

    moved = crossings(operations, "gpu")
    for device in {op.device for op in packs}:
        received = sorted(shape for _, shape, target in moved if target == device and shape)
        rows = BATCH * LENGTH
        # Values and indices of each other replica's rows; no parameter, no slot.
        assert received == sorted([(rows,), (rows, HIDDEN)] * (num_replicas - 1))


def test_functions_that_replicas_share_name_no_card():
    operations_of_a_step(2, "gpu", "nccl")
    functions = tf.get_default_graph().as_graph_def().library.function
    names = [function.signature.name for function in functions]
    assert any("backward" in name and "encoder_layer" in name for name in names)
    assert not {node.device for function in functions for node in function.node_def
                if "GPU" in node.device.upper()}


def test_without_nccl_each_dense_gradient_goes_to_one_device_and_back_once():
    operations = operations_of_a_step(2, "cpu", "one_device")
    moved = crossings(operations, "cpu")
    rows = BATCH * LENGTH * (HIDDEN + 1)
    for device in ("CPU:0", "CPU:1"):
        values = sum(int(np.prod(shape)) for _, shape, target in moved
                     if target.endswith(device) and shape)
        assert values == num_dense_values() + rows
