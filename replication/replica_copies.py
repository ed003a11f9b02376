"""Copies of a replica's operations, variables and slots, for all replicas but the first.

TensorFlow copies a graph's nodes in a tenth of the time in which Python creates them. Knows no BERT.
"""

import functools
from typing import Any, Callable, Dict, Iterable, List, Sequence, Set, Tuple

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import resource_variable_ops

from replication import graph_functions


class CopiedOperations:
    """A function whose operations are created by its first call, and copied by the others.

    If the function waits for the other replicas, each of them creates its own operations.

    Args:
        function: takes nested tensors, and returns nested tensors, operations and None. It creates
            the same operations in each call, but for its arguments and `own_tensors`.
        own_tensors: returns what else a replica's operations work with, such as handles of its
            variables. Called after the first call, and in each of the others.
    """

    def __init__(self, function: Callable[..., Any],
                 own_tensors: Callable[[], List[tf.Tensor]] = list):
        self._function = function
        self._own_tensors = own_tensors
        self._results: Any = None  # of the first call
        self._own: List[tf.Tensor] = []  # its arguments and own tensors
        self._created: Set[tf.Operation] = set()
        self._device = ""
        self._outer: Dict[str, Any] = {}  # what the operations use but did not create, by name
        self._nodes = tf.GraphDef()

    def __call__(self, *arguments: Any) -> Any:
        flat = tf.nest.flatten(arguments, expand_composites=True)
        if self._results is None:
            return self._create(arguments, flat)
        if not self._nodes.node:
            self._keep_nodes()
        for node in self._nodes.node:
            if "frame_name" in node.attr:  # of a loop: each needs a name of its own
                node.attr["frame_name"].s += b"/copy"
        own = dict(self._outer)
        own.update((first.name, x) for first, x in zip(self._own, flat + self._own_tensors())
                   if first.name in own)
        results = tf.nest.flatten(self._results, expand_composites=True)
        copies = iter(tf.import_graph_def(
            self._nodes, own, [x.name for x in results if x is not None], name="copy"))
        return tf.nest.pack_sequence_as(self._results, [
            x if x is None else next(copies) for x in results], expand_composites=True)

    def _create(self, arguments: Sequence[Any], flat: List[tf.Tensor]) -> Any:
        graph = tf.get_default_graph()
        number = len(graph.get_operations())
        results = self._function(*arguments)
        if self._results is None:
            self._results = results
            self._own = flat + self._own_tensors()
            self._created = set(graph.get_operations()[number:])
            self._device = tf.constant(0.0).op.device
        return results

    def _keep_nodes(self) -> None:
        own = {x.name for x in self._own}
        waits, kept, waiting = set(), set(), [
            getattr(x, "op", x) for x in tf.nest.flatten(self._results, expand_composites=True)
            if x is not None]
        while waiting:
            op = waiting.pop()
            if op in kept:
                continue
            kept.add(op)
            self._add_node(op)
            self._outer.update((x.name, x) for x in op.inputs
                               if x.name in own or x.op not in self._created)
            waits.update(x for x in op.control_inputs if x not in self._created)
            waiting += [x.op for x in op.inputs if x.name not in self._outer]
            waiting += [x for x in op.control_inputs if x in self._created]
        self._nodes.versions.CopyFrom(tf.get_default_graph().graph_def_versions)
        if waits:
            with tf.control_dependencies(waits):
                after = tf.constant(0.0)  # imported nodes wait for tensors alone
            self._outer.update((f"^{x.name}", after) for x in waits)

    def _add_node(self, op: tf.Operation) -> None:
        node = self._nodes.node.add()
        node.CopyFrom(op.node_def)
        if node.device == self._device:
            node.device = ""  # the caller's
        node.attr.pop("_class", None)  # not beside the original
        # Of function calls, TensorFlow would not infer them.
        node.attr["_output_shapes"].list.shape.extend([x.shape.as_proto() for x in op.outputs])


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
        copies = tf.import_graph_def(
            nodes, {value.name: value for value in self._values},
            [f"{name}:0" for name in names] + [f"{name}/Assign" for name in names],
            name=f"slots_of_replica_{self._num_copies}")
        # The initializers of tables are part of the local initialization.
        tf.get_collection_ref(tf.GraphKeys.TABLE_INITIALIZERS).extend(copies[len(names):])
        return copies[:len(names)]


def copy_variables(strategy: tf.distribute.Strategy) -> None:
    """Makes the variables of a strategy's replicas but the first plain handles, a node each.

    TensorFlow's have five nodes, made in Python. The handles need `assignments`.
    """
    create_variable = strategy.extended._create_variable

    def create(next_creator, *arguments, **options):
        copies: List[tf.Variable] = []  # of one variable, the first replica's first

        def create_copy(*arguments, **options):
            copies.append(_copy(copies[0], options["name"]) if copies
                          else next_creator(*arguments, **options))
            return copies[-1]
        return create_variable(create_copy, *arguments, **options)

    strategy.extended._create_variable = create


def _copy(first: tf.Variable, name: str) -> tf.Variable:
    name = name.rstrip("/")  # absolute, whatever the name scope
    with tf.init_scope():
        handle = tf.raw_ops.VarHandleOp(
            dtype=first.dtype, shape=first.shape, shared_name=name, name=f"{name}/")
    return resource_variable_ops.BaseResourceVariable(
        handle=handle, dtype=first.dtype, shape=first.shape, unique_id=name, handle_name=name,
        trainable=first.trainable, synchronization=first.synchronization,
        aggregation=first.aggregation, initial_value=first.initial_value,
        initializer_op=first.initializer)


def assignments(variables: Iterable[Sequence[tf.Variable]]) -> List[tf.Operation]:
    """Operations that assign the first replica's values to the others, one for each of these.

    Args:
        variables: the copies of each.
    """
    mirrored = [copies for copies in variables if len(copies) > 1]
    if not mirrored:
        return []
    first, *others = zip(*mirrored)
    values = [variable.read_value() for variable in first]

    def assign_copies(*tensors):
        pairs = zip(tensors[:len(values)], tensors[len(values):])
        with tf.control_dependencies([assign(handle, value) for handle, value in pairs]):
            return [tf.constant(0.0)]

    call = graph_functions.called(assign_copies, "assign_copies", [
        tf.TensorSpec(x.shape, x.dtype) for x in [*map(handle_of, first), *values]], by_xla=False)
    done = []
    for replica in others:
        with tf.device(replica[0].device):
            done += call(*map(handle_of, replica), *values)
    return [x.op for x in done]


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
