"""Where TensorFlow's placer would put a graph that is meant for cards which need not be there.

TensorFlow's CUDA builds register their kernels for GPUs on any machine. What has none is moved
to the CPU in silence (soft placement), together with all that is colocated with it.
"""

import collections
import functools
import math
from typing import Collection, Iterable, Iterator, List, NamedTuple, Set, Tuple

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function_def_to_graph, kernels

# Their bodies are looked at.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Calls with these attributes are left out: XLA compiles every operation and keeps values on the card.
_COMPILED = ("_XlaCompile", "_XlaMustCompile")


class Moved(NamedTuple):
    """An operation that was to be on a card and would be on the CPU."""
    operation: str
    because_of: str  # the operation without a kernel, which may be another


def kept_on_cpu(operations: Iterable[tf.Operation]) -> List[Moved]:
    """What of the operations the placer would move from a card to the CPU.

    The strategy's iterator is left out: it lives on the host, whatever names it by a card.
    """
    moved = []
    others = [op for op in operations if not op.type.startswith("MultiDeviceIterator")]
    for group in _colocated_groups(others):
        if any("GPU" in op.device for op in group):
            lacking = [op for op in group if "CPU" in op.device or not _gpu_kernel_of(op)]
            if lacking:
                moved += [Moved(op.name, f"{lacking[0].type} {lacking[0].name}") for op in group]
    return moved


def operations_without_kernels(graph: tf.Graph, operations: Collection[tf.Operation]) -> Set[str]:
    """In the bodies of the functions that the operations call on cards: those without a kernel."""
    return {f"{op.type} in {name}" for name, body in _bodies_on_cards(graph, operations) for op in body
            if "CPU" in op.device or not _gpu_kernel_of(op)}


def copies_through_host(graph: tf.Graph, operations: Collection[tf.Operation],
                        at_least: int = 64) -> List[str]:
    """Tensors of so many bytes that go from a card to the host's memory or back.

    Of the operations, and of the bodies of the functions that they call on cards. What the
    iterator gives is not counted: it comes from the host. A size that is known only when the
    graph runs is taken for a large one.
    """
    return _copies(operations, at_least) + [
        f"{copy} in {name}" for name, body in _bodies_on_cards(graph, operations)
        for copy in _copies(body, at_least)]


def round_trips(graph: tf.Graph, operations: Collection[tf.Operation]) -> List[str]:
    """Tensors that the host waits for in the middle of a step: cards get what becomes of them.

    Of the operations of a step, and of the bodies of the functions that they call on cards. A step may
    begin with copies to a card and end with copies from it.
    """
    readers = collections.defaultdict(list)
    for op in operations:
        for source in {*(x.op for x in op.inputs), *op.control_inputs}:
            readers[source].append(op)

    def reaches_card(op: tf.Operation) -> bool:
        seen, waiting = set(), [op]
        while waiting:
            op = waiting.pop()
            if op not in seen:
                seen.add(op)
                if any(_size(x) and not _is_in_host_memory(op, "output", x.value_index)
                       for x in op.outputs):
                    return True
                waiting += readers[op]
        return False

    return [f"{x.name} -> {op.name}" for x, op in _read_by_host(operations) if reaches_card(op)] + [
        f"{x.name} -> {op.name} in {name}" for name, body in _bodies_on_cards(graph, operations)
        for x, op in _read_by_host(body)]


def _read_by_host(operations: Iterable[tf.Operation]) -> Iterator[Tuple[tf.Tensor, tf.Operation]]:
    return ((x, op) for op in operations for position, x in enumerate(op.inputs) if _size(x)
            and _is_in_host_memory(op, "input", position)
            and not _is_in_host_memory(x.op, "output", x.value_index))


def _copies(operations: Iterable[tf.Operation], at_least: int) -> List[str]:
    return [f"{tensor.name} {tensor.dtype.name} {tensor.shape} -> {op.name}"
            for op in operations for position, tensor in enumerate(op.inputs)
            if "Iterator" not in tensor.op.type and _size(tensor) >= at_least
            and _is_in_host_memory(op, "input", position)
            != _is_in_host_memory(tensor.op, "output", tensor.value_index)]


def _size(tensor: tf.Tensor) -> float:
    """In bytes. Resources and strings, which stay where they are, have none."""
    if tensor.dtype.base_dtype in (tf.resource, tf.string, tf.variant):
        return 0
    if not tensor.shape.is_fully_defined():
        return math.inf
    return tensor.shape.num_elements() * tensor.dtype.size


def _colocated_groups(operations: List[tf.Operation]) -> Iterable[List[tf.Operation]]:
    """The operations that the placer keeps together: by request, or by a variable they share."""
    parents = {op: op for op in operations}
    by_name = {op.name: op for op in operations}

    def root(op):
        while parents[op] is not op:
            parents[op] = parents[parents[op]]
            op = parents[op]
        return op

    for op in operations:
        partners = [by_name.get(name.decode()[len("loc:@"):]) for name in op.colocation_groups()]
        partners += [tensor.op for tensor in op.inputs
                     if tensor.dtype == tf.resource or tensor.dtype._is_ref_dtype]
        for partner in partners:
            if partner in parents:
                parents[root(op)] = root(partner)
    groups = collections.defaultdict(list)
    for op in operations:
        groups[root(op)].append(op)
    return groups.values()


def _bodies_on_cards(graph: tf.Graph, operations: Iterable[tf.Operation]
                     ) -> Iterator[Tuple[str, List[tf.Operation]]]:
    """The functions that the operations call on cards: name and body of each."""
    functions, seen = graph.as_graph_def().library, set()
    library = {function.signature.name: function for function in functions.function}
    waiting = [op.node_def for op in operations if "GPU" in op.device]
    while waiting:
        node = waiting.pop()
        name = node.attr["f"].func.name
        if node.op in _CALLS and name not in seen and not _is_compiled(node):
            seen.add(name)
            waiting += library[name].node_def
            with tf.Graph().as_default():
                tf.import_graph_def(tf.GraphDef(library=functions))  # those that a body calls
                body = function_def_to_graph.function_def_to_graph(library[name])
            yield name, body.get_operations()


def _is_compiled(node) -> bool:
    return any(node.attr[name].b for name in _COMPILED if name in node.attr)


@functools.lru_cache(maxsize=1 << 14)
def _gpu_kernel_of(op: tf.Operation):
    """The KernelDef of an operation's kernel for GPUs; of a call, anything that is true; or None."""
    if op.type in _CALLS:
        return op
    node = op.node_def
    return next((kernel for kernel in _gpu_kernels_of(op.type) if _fits(kernel, node)), None)


@functools.lru_cache(maxsize=None)
def _gpu_kernels_of(operation: str):
    registered = kernels.get_registered_kernels_for_op(operation).kernel
    return [kernel for device in ("GPU", "DEFAULT")  # the second where there is none of the first
            for kernel in registered if kernel.device_type == device]


def _fits(kernel, node) -> bool:
    for constraint in kernel.constraint:
        value = node.attr[constraint.name]
        types = set(value.list.type) or {value.type}
        if not types <= set(constraint.allowed_values.list.type):
            return False
    return True


def _is_in_host_memory(op: tf.Operation, direction: str, position: int) -> bool:
    kernel = _gpu_kernel_of(op)
    if "CPU" in op.device or not kernel:
        return True
    if _is_compiled(op.node_def):
        return False
    if op.type in _CALLS or op.type == "Placeholder":  # a function's argument
        tensors = op.inputs if direction == "input" else op.outputs
        return tensors[position].dtype.base_dtype == tf.int32
    return _argument(op, direction, position) in kernel.host_memory_arg


def _argument(op: tf.Operation, direction: str, position: int) -> str:
    """The name of the argument that an operation's n-th input or output belongs to."""
    arguments = op.op_def.input_arg if direction == "input" else op.op_def.output_arg
    for argument in arguments:
        if argument.number_attr:
            size = op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            size = len(op.get_attr(argument.type_list_attr))
        else:
            size = 1
        if position < size:
            return argument.name
        position -= size
    raise AssertionError(f"{op.name} has no such {direction}")
