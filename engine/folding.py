"""A graph with all that depends on constants alone computed once, before the first step.

TensorFlow's own folding leaves out what is large, such as casts and parts of weights, and needs its
graph optimizers, which the sessions here do without.
"""

from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from engine.checkpoints import saved_model

# Operations that only hand on a tensor.
_HAND_ON = ("Identity", "IdentityN", "StopGradient", "PreventGradient")
# Types of operations whose value changes between steps, or exists only within a loop.
_NOT_CONSTANT = ("Placeholder", "Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch")


def folded(feeds: Sequence[tf.Tensor], fetches: Any, weights: Mapping[str, np.ndarray],
           config: tf.ConfigProto) -> Tuple[List[tf.Tensor], Any]:
    """A new graph for `fetches`, nested tensors, with their values as functions of `feeds`.

    Args:
        feeds: placeholders of a graph that ends here.
        weights: the values of other placeholders, by the names of the tensors. As constants of that
            graph they would stay in memory: TensorFlow keeps each custom gradient, and its graph.
        config: of the session in which constants are computed.

    Returns:
        The feeds and fetches in the new graph.
    """
    graph = feeds[0].graph
    ends = [_origin(tensor) for tensor in tf.nest.flatten(fetches)]
    needed = tf.graph_util.extract_sub_graph(
        graph.as_graph_def(), [tensor.op.name for tensor in [*feeds, *ends]])
    operations = [graph.get_operation_by_name(node.name) for node in needed.node]
    constant = _constant_operations(graph, {name.split(":")[0] for name in weights})
    kept = [each for each in operations if each.name not in constant and not _hands_on(each)]
    read = [_origin(tensor) for each in kept for tensor in each.inputs] + ends
    edge = {tensor.name: tensor for tensor in read if tensor.op.name in constant}
    with tf.Session(graph=graph, config=config) as session:
        values = session.run(edge, weights)
    nodes = {node.name: node for node in needed.node}
    result = tf.GraphDef(versions=needed.versions, library=needed.library)
    for name, value in values.items():
        node = result.node.add(name=_new_name(name), op="Const", device=edge[name].op.device)
        node.attr["dtype"].type = edge[name].dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(
            tf.make_tensor_proto(value) if edge[name].dtype == tf.string
            else saved_model.as_proto(value))
    for operation in kept:
        node = result.node.add()
        node.CopyFrom(nodes[operation.name])
        node.attr.pop("_class", None)  # it may name what is gone
        del node.input[:]
        node.input.extend(_inputs(operation, edge))
    with tf.Graph().as_default() as new:
        tf.import_graph_def(result, name="")

    def moved(tensor: tf.Tensor) -> tf.Tensor:
        origin = _origin(tensor)
        name = f"{_new_name(origin.name)}:0" if origin.name in edge else origin.name
        return new.get_tensor_by_name(name)

    return [moved(tensor) for tensor in feeds], tf.nest.map_structure(moved, fetches)


def _inputs(operation: tf.Operation, edge: Dict[str, tf.Tensor]) -> Iterator[str]:
    for tensor in map(_origin, operation.inputs):
        yield _new_name(tensor.name) if tensor.name in edge else tensor.name
    for other in operation.control_inputs:
        if _hands_on(other):
            other = _origin(other.outputs[0]).op
        if f"{other.name}:0" not in edge:
            yield f"^{other.name}"


def _new_name(name: str) -> str:
    return f"{name.replace(':', '/output_')}/folded"


def _hands_on(operation: tf.Operation) -> bool:
    return operation.type in _HAND_ON and not operation.control_inputs


def _origin(tensor: tf.Tensor) -> tf.Tensor:
    while _hands_on(tensor.op):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def _constant_operations(graph: tf.Graph, weights: Set[str]) -> Set[str]:
    found = set(weights)
    for operation in graph.get_operations():  # inputs come before their users, except in loops
        if operation.type not in _NOT_CONSTANT and operation.outputs and not (
                operation.control_inputs or operation.op_def.is_stateful) and all(
                    tensor.op.name in found for tensor in operation.inputs):
            found.add(operation.name)
    return found
