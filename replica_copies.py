"""Copies of the optimizer's slots and operations for all replicas but the first.

TensorFlow copies a graph's nodes in a tenth of the time in which Python creates them. Knows no BERT.
"""

import functools
from typing import Any, Callable, Dict, List, Sequence, Tuple

import tensorflow.compat.v1 as tf


class CopiedOperations:
    """A function whose operations are created by its first call, and copied by the others.

    Args:
        function: takes nested tensors, and returns operations and a tensor. It creates the same
            operations in each call, but for their arguments.
    """

    def __init__(self, function: Callable[..., Tuple[List[tf.Operation], tf.Tensor]]):
        self._function = function
        self._arguments: List[tf.Tensor] = []
        self._outer: Dict[str, Any] = {}  # what the operations use but did not create, by name
        self._nodes = tf.GraphDef()
        self._results: List[str] = []

    def __call__(self, *arguments: Any) -> Tuple[List[tf.Operation], tf.Tensor]:
        flat = tf.nest.flatten(arguments, expand_composites=True)
        if not self._arguments:
            graph = tf.get_default_graph()
            number = len(graph.get_operations())
            operations, tensor = self._function(*arguments)
            self._arguments, self._results = flat, [x.name for x in (*operations, tensor)]
            self._keep(graph.get_operations()[number:])
            return operations, tensor
        own = {**self._outer, **{x.name: own_x for x, own_x in zip(self._arguments, flat)}}
        *operations, tensor = tf.import_graph_def(self._nodes, own, self._results, name="copy")
        return operations, tensor

    def _keep(self, operations: Sequence[tf.Operation]) -> None:
        created = {op.name for op in operations}
        self._nodes.versions.CopyFrom(operations[0].graph.graph_def_versions)
        for op in operations:
            node = self._nodes.node.add()
            node.CopyFrom(op.node_def)
            node.device = ""  # the caller's, and not beside the original
            node.attr.pop("_class", None)
            self._outer.update((x.name, x) for x in op.inputs if x.op.name not in created)
        waits = [x for op in operations for x in op.control_inputs if x.name not in created]
        if waits:
            with tf.control_dependencies(waits):
                after = tf.constant(0.0)  # imported nodes wait for tensors alone
            self._outer.update((f"^{x.name}", after) for x in waits)


class Slots:
    """An optimizer's m, v and counter: variables on the first replica, plain copies on the others.

    Checkpoints hold only the first replica's. The local initialization, which runs after
    variables are initialized or restored, fills the copies from them. Mirrored variables would
    take most of the time to build the graph: slots are two thirds of all variables.

    Args:
        parameter_names: of the variables to update.
        counter: its name; empty for none.
    """

    def __init__(self, parameter_names: Sequence[str], counter: Sequence[str]):
        self._counter = counter
        self._names = [[f"{name}/{slot}" for name in parameter_names] for slot in ("adam_m", "adam_v")]
        self._first: List[tf.Variable] = []
        self._values: List[tf.Tensor] = []  # of the first replica's, for the others
        self._num_copies = 0

    def create(self, parameters: Sequence[tf.Variable]
               ) -> Tuple[List[tf.Tensor], List[tf.Tensor], List[tf.Tensor]]:
        """m, v and the counter of a replica on the current device, as handles for kernels."""
        # The names are the original's in any scope of the caller; and slots are initialized
        # before any step, so they ignore the control dependencies of the caller's updates.
        with tf.name_scope(None), tf.control_dependencies(None):
            if self._first:
                handles = self._copies()
            else:
                zeros = functools.lru_cache(maxsize=None)(tf.zeros)  # one for all of a shape
                self._first = [_slot(name, parameter, zeros(tuple(parameter.shape.as_list())))
                               for names in self._names
                               for name, parameter in zip(names, parameters)]
                self._first += [_slot(name, parameters[0], zeros(())) for name in self._counter]
                handles = list(map(handle_of, self._first))
        count = len(parameters)
        return handles[:count], handles[count:2 * count], handles[2 * count:]

    def _copies(self) -> List[tf.Tensor]:
        if not self._values:
            self._values = [first.value() for first in self._first]
        self._num_copies += 1
        nodes = tf.GraphDef(versions=tf.get_default_graph().graph_def_versions)
        for first, value in zip(self._first, self._values):
            _add_variable(nodes, first, f"{first.op.name}/copy_{self._num_copies}", value)
        names = [first.op.name for first in self._first]
        made = tf.import_graph_def(
            nodes, {value.name: value for value in self._values},
            [f"{name}:0" for name in names] + [f"{name}/Assign" for name in names],
            name=f"slots_of_replica_{self._num_copies}")
        # The initializers of tables are part of the local initialization.
        tf.get_collection_ref(tf.GraphKeys.TABLE_INITIALIZERS).extend(made[len(names):])
        return made[:len(names)]


def handle_of(variable: tf.Variable) -> tf.Tensor:
    """The handle or reference that an optimizer's kernel updates in place."""
    # In TensorFlow 1 a variable may be a reference, not a resource.
    is_reference = variable.dtype != variable.dtype.base_dtype
    return variable._ref() if is_reference else variable.handle


def read(handle: tf.Tensor) -> tf.Tensor:
    """The value of the variable behind a handle of `handle_of`."""
    if handle.dtype == tf.resource:
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    return tf.identity(handle)


def assign(handle: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    """Assigns to the variable behind a handle of `handle_of`; a resource takes the buffer over."""
    if handle.dtype == tf.resource:
        return tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return tf.raw_ops.Assign(ref=handle, value=value).op


def assign_sub(handle: tf.Tensor, change: tf.Tensor) -> tf.Operation:
    """Subtracts from the variable behind a handle of `handle_of`."""
    if handle.dtype == tf.resource:
        return tf.raw_ops.AssignSubVariableOp(resource=handle, value=change)
    return tf.raw_ops.AssignSub(ref=handle, value=change).op


def _slot(name: str, parameter: tf.Variable, initial_value: tf.Tensor) -> tf.Variable:
    # It has the parameter's type: a resource variable or, in programs written for Google's code,
    # a reference variable.
    slot = type(parameter)(initial_value, trainable=False, name=name)
    if slot.op.name != name:
        raise ValueError(f"{name} exists already: one optimizer per variable, each "
                         "with a name= of its own")
    return slot


def _add_variable(nodes: tf.GraphDef, like: tf.Variable, resource: str, value: tf.Tensor) -> None:
    """Adds the nodes of a variable like another one, and of its assignment of a value."""
    name, dtype = like.op.name, tf.AttrValue(type=tf.float32.as_datatype_enum)
    nodes.node.add(name=name, op="VarHandleOp", attr={
        "dtype": dtype, "shape": tf.AttrValue(shape=like.shape.as_proto()),
        "shared_name": tf.AttrValue(s=resource.encode())})
    nodes.node.add(name=f"{name}/Assign", op="AssignVariableOp", input=[name, value.name],
                   attr={"dtype": dtype})
