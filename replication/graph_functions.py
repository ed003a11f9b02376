"""Graph functions, shared by layers and replicas, that keep little for the backward pass.

Also functions of tensors whose gradients do not make the host wait for a card.

A model calls the same function for each layer, on each replica, with the layer's weights as
arguments. TensorFlow builds its graph once. Between the two passes it keeps the inputs of the
gradient, or only its own inputs, to recompute the rest. Knows no BERT.
"""

import functools
import itertools
import operator
import threading
from typing import Any, Callable, Container, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import tensorflow.compat.v1 as tf

# The attribute of a call whose function XLA compiles whole.
_MUST_COMPILE = "_XlaCompile" if tf.VERSION.startswith("1.") else "_XlaMustCompile"
# Operations that cost a compiled function nothing, on arguments or their shapes.
_VIEWS = ("Bitcast", "Cast", "Const", "ExpandDims", "Identity", "IdentityN", "Pack", "Reshape", "Shape",
          "StridedSlice")

# A session's own setting does not reach the functions that it calls.
_AS_BUILT = tf.ConfigProto()
_AS_BUILT.graph_options.rewrite_options.disable_meta_optimizer = True

_tracing = threading.Lock()
_traced: Dict[tuple, Callable[..., Any]] = {}


def call_shared(function: Callable[..., Any], weights: Any, settings: Any,
                inputs: Sequence[Tuple[tf.Tensor, Sequence[Optional[int]]]], *,
                compiled: bool = False) -> Any:
    """Calls function(weights, settings, *inputs) as a graph function.

    The function is traced once in a process for each combination of settings and shapes: twelve
    layers on eight replicas are 96 calls, not 96 copies of two hundred nodes.

    Args:
      weights: nested tuples of tensors.
      settings: hashable.
      inputs: tensors, each with the shape to trace for, None for sizes that differ between calls.
      compiled: let XLA compile one program for each pass, device and shape.
    """
    flat_weights = tf.nest.flatten(weights)
    tensors = [tensor for tensor, _ in inputs] + flat_weights
    shapes = [shape for _, shape in inputs] + [weight.shape.as_list() for weight in flat_weights]
    specs = tuple((tuple(shape), tensor.dtype.base_dtype)
                  for shape, tensor in zip(shapes, tensors))
    key = (function, settings, specs, compiled)
    with _tracing:
        if key not in _traced:
            structure = tf.nest.map_structure(lambda weight: None, weights)
            _traced[key] = _trace(function, settings, structure, specs, compiled)
    traced = _traced[key]
    return traced(*[_bits_as(x, own.dtype) for x, own in zip(tensors, traced.inputs)])


def recomputed(compute: Callable[..., List[tf.Tensor]], inputs: Sequence[tf.Tensor]
               ) -> List[tf.Tensor]:
    """compute(*inputs), whose gradient keeps only the inputs and recomputes the rest."""
    @tf.custom_gradient
    def function(*own_inputs):
        def gradient(*d_outputs):
            # Recompute only when the gradient is needed. The gradient of a graph function is a
            # function, which waits for its arguments anyway; inlined operations would not.
            with tf.control_dependencies(d_outputs):
                again = [tf.identity(tensor) for tensor in own_inputs]
            return tf.gradients(compute(*again), again, list(d_outputs))
        return compute(*own_inputs), gradient

    return function(*inputs)


def _trace(function: Callable[..., Any], settings: Any, structure: Any,
           specs: Sequence[Tuple[Sequence[Optional[int]], tf.DType]], compiled: bool
           ) -> Callable[..., Any]:
    """Traces a graph function. It refers to nothing in the caller's graph, which may be deleted."""
    num_inputs = len(specs) - len(tf.nest.flatten(structure))
    # On a card a call has its int32 arguments in the host's memory, where XLA does not look. So
    # seeds reach a compiled function as floats with their bits.
    types = [tf.float32 if compiled and dtype == tf.int32 else dtype for _, dtype in specs]
    signature = [tf.TensorSpec(shape, dtype) for (shape, _), dtype in zip(specs, types)]

    def arguments_of_function() -> List[tf.Tensor]:
        return [tf.placeholder(spec.dtype, spec.shape) for spec in signature]

    # A new graph has no device scope, no seed and no control dependencies, so a function traced in
    # it runs on the device of each caller. The gradient is traced here, too: TensorFlow would
    # trace it on first use, in the first replica, and all replicas would compute their gradients
    # on that replica's card.
    with tf.Graph().as_default():
        arguments = arguments_of_function()
        weights = tf.nest.pack_sequence_as(structure, arguments[num_inputs:])
        inputs = [_bits_as(x, dtype) for x, (_, dtype) in zip(arguments[:num_inputs], specs)]
        flat_function = _with_lean_gradient(
            arguments, function(weights, settings, *inputs),
            function.__name__.lstrip("_") if compiled else None)
    flat_function.__name__ = function.__name__  # shown in profiles
    with tf.Graph().as_default():
        shared = _noinline_function(flat_function, signature)
        arguments = arguments_of_function()
        tf.gradients(shared(*arguments), [x for x in arguments if x.dtype.is_floating])
        return shared


def _with_lean_gradient(arguments: Sequence[tf.Tensor], result: Any,
                        program: Optional[str]) -> Callable[..., Any]:
    """A function from the arguments to `result`, made from the operations of the current graph.

    Between the two passes it keeps only the inputs of its gradient. TensorFlow's own gradient of
    a function also keeps the inputs of operations whose results are unused: 409 MB instead of
    245 MB for a layer of BERT-base with 32 x 128 tokens.

    If XLA is to compile it, `program` is its name. It would return copies of its arguments, so the
    gradient takes the arguments themselves.
    """
    outputs = tf.nest.flatten(result)
    forward_operations = set(tf.get_default_graph().get_operations())
    d_outputs = [tf.placeholder(output.dtype, output.shape) for output in outputs]
    inputs = [x for x in arguments if x.dtype.is_floating]
    gradients = {x.name: gradient for x, gradient in zip(
        inputs, tf.gradients(outputs, inputs, d_outputs)) if gradient is not None}
    kept = _read_by(gradients.values(), forward_operations, _views() if program else set())
    forward = _caller("forward", arguments, outputs + kept, program)
    backward = _caller("backward", kept + d_outputs, list(gradients.values()), program)

    def function(*own_arguments):
        # A function of the floats alone: seeds would be copied to the card, like its outputs.
        @tf.custom_gradient
        def compute(*own_inputs):
            floats = iter(own_inputs)
            tensors = forward([next(floats) if x.dtype.is_floating else x for x in own_arguments])
            own_outputs, own_kept = tensors[:len(outputs)], tensors[len(outputs):]

            def gradient(*own_d_outputs):
                # The gradient is a function, too: another graph, which takes these for arguments.
                # (tf.identity would, but 1.15 copies a bool to the host's memory for it.)
                captured = map(tf.get_default_graph().capture, (*own_kept, *own_d_outputs))
                d_inputs = dict(zip(gradients, backward(list(captured))))
                return [d_inputs.get(x.name) for x in inputs]
            return own_outputs, gradient

        own_inputs = [x for x in own_arguments if x.dtype.is_floating]
        return tf.nest.pack_sequence_as(result, tf.nest.flatten(compute(*own_inputs)))
    return function


def _read_by(gradients: Iterable[tf.Tensor], forward_operations: Set[tf.Operation],
             repeated: Container[tf.Operation]) -> List[tf.Tensor]:
    """The results of the forward pass from which the gradients, with some of it, are computed."""
    read: Dict[str, tf.Tensor] = {}
    seen, waiting = set(), [x.op for x in gradients]
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        for x in op.inputs:
            if x.op in repeated or not (
                    x.op in forward_operations or _is_shape_of(x, forward_operations)):
                waiting.append(x.op)
            elif x.op.type != "Const":
                read[x.name] = x
    return list(read.values())


def _is_shape_of(x: tf.Tensor, operations: Set[tf.Operation]) -> bool:
    """Whether `x` is the shape of an operation's result, so that the result is not needed."""
    return x.op.type in ("Shape", "ShapeN", "Size") and all(y.op in operations for y in x.op.inputs)


def _views() -> Set[tf.Operation]:
    """The operations of the current graph that only shape or cast its arguments."""
    views: Set[tf.Operation] = set()
    for op in tf.get_default_graph().get_operations():  # inputs come first
        if op.type in _VIEWS and all(x.op.type == "Placeholder" or x.op in views
                                     for x in op.inputs):
            views.add(op)
    return views


def _caller(scope: str, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor],
            program: Optional[str]) -> Callable[[Sequence[tf.Tensor]], List[tf.Tensor]]:
    """A function that computes the outputs from other inputs, in its caller's graph.

    It copies the operations between inputs and outputs into the name scope, or calls them as a
    function that XLA compiles.
    """
    names = {x.name: f"input_{index}" for index, x in enumerate(inputs)}
    computed = [x for x in outputs if x.name not in names]
    part = tf.GraphDef(versions=outputs[0].graph.graph_def_versions)
    part.node.extend(_copied_node(op, names) for op in _operations_between(names, computed))
    used = {name for node in part.node for name in node.input}
    read = [x for x in inputs if names[x.name] in used]

    def copied(*own_inputs: tf.Tensor) -> List[tf.Tensor]:
        return tf.import_graph_def(part, {names[x.name]: own for x, own in zip(read, own_inputs)},
                                   [x.name for x in computed], name=scope)

    compute = copied if program is None else called(
        copied, f"{program}_{scope}", [tf.TensorSpec(x.shape, x.dtype) for x in read], by_xla=True)

    def call(own_inputs: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        own = {x.name: own_x for x, own_x in zip(inputs, own_inputs)}
        results = compute(*[own[x.name] for x in read])
        own.update((x.name, own_x) for x, own_x in zip(computed, results))
        return [own[x.name] for x in outputs]
    return call


def called(function: Callable[..., List[tf.Tensor]], name: str, signature: List[tf.TensorSpec],
           *, by_xla: bool) -> Callable[..., List[tf.Tensor]]:
    """The function as one call in its caller's graph.

    It may update variables whose handles it gets.

    Args:
        by_xla: let XLA compile it for each shape; TensorFlow 1.15 does not compile updates.
    """
    function.__name__ = name  # XLA's program has it, too
    with tf.Graph().as_default():
        traced = _noinline_function(function, signature)

    attributes = {_MUST_COMPILE: tf.AttrValue(b=True)} if by_xla else {}
    has_state = any(spec.dtype == tf.resource for spec in signature)
    operation = tf.raw_ops.StatefulPartitionedCall if has_state else tf.raw_ops.PartitionedCall

    def call(*inputs: tf.Tensor) -> List[tf.Tensor]:
        # Not with traced(): in 1.15 its call would not have the attributes.
        with tf.get_default_graph()._attr_scope(attributes):
            return operation(args=list(inputs), Tout=[x.dtype for x in traced.outputs], f=traced,
                             config_proto=_AS_BUILT.SerializeToString())
    return call


def cast_together(tensors: Sequence[tf.Tensor], dtype: tf.DType) -> List[tf.Tensor]:
    """Casts all tensors of another type in one program of XLA.

    Gradients are cast one by one, so that `gradient_exchange.before_widening` sees their 16 bits.
    """
    @tf.custom_gradient
    def cast(*own):
        return _program(_cast, "cast", dtype, *map(_spec, own))(*own), lambda *d_values: [
            tf.cast(d_value, x.dtype) for d_value, x in zip(d_values, own)]

    others = [x for x in tensors if x.dtype != dtype]
    values = iter(cast(*others) if others else ())
    return [x if x.dtype == dtype else next(values) for x in tensors]


def add_together(sums: Sequence[Sequence[tf.Tensor]]) -> List[tf.Tensor]:
    """The sums of tensors of 16 or 32 bits, in float32, all in one program.

    A first tensor is added to the sum of the others. To add 16 bits to a total it moves 10 bytes for
    each value. TensorFlow's own kernels, a cast and a sum, move 18.
    """
    return _program(_add, "add", tuple(map(len, sums)), *(_spec(x) for parts in sums for x in parts))(
        *(x for parts in sums for x in parts))


def _cast(dtype: tf.DType, *tensors: tf.Tensor) -> List[tf.Tensor]:
    return [tf.cast(x, dtype) for x in tensors]


def _add(counts: Sequence[int], *tensors: tf.Tensor) -> List[tf.Tensor]:
    wide = iter([tf.cast(x, tf.float32) for x in tensors])
    return [next(wide) + functools.reduce(operator.add, itertools.islice(wide, count - 1))
            for count in counts]


def _spec(x: tf.Tensor) -> Tuple[Tuple[int, ...], tf.DType]:
    return tuple(x.shape.as_list()), x.dtype


@functools.lru_cache(maxsize=None)
def _program(function: Callable[..., List[tf.Tensor]], name: str, setting: Any,
             *specs: Tuple[Tuple[int, ...], tf.DType]) -> Callable[..., List[tf.Tensor]]:
    """A program for tensors of these shapes and types, which all layers and replicas share."""
    return called(functools.partial(function, setting), name,
                  [tf.TensorSpec(shape, own_dtype) for shape, own_dtype in specs], by_xla=True)


def _bits_as(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return x if x.dtype == dtype else tf.bitcast(x, dtype)


def _operations_between(inputs: Container[str], outputs: Iterable[tf.Tensor]
                        ) -> List[tf.Operation]:
    """The operations from the tensors named `inputs` to the outputs, in a fixed order."""
    operations, waiting = set(), [x.op for x in outputs]
    while waiting:
        op = waiting.pop()
        if op not in operations:
            operations.add(op)
            waiting += [x.op for x in op.inputs if x.name not in inputs]
    return sorted(operations, key=lambda op: op.name)


def _copied_node(op: tf.Operation, names: Dict[str, str]) -> Any:
    """The operation's NodeDef, with input `names[x.name]` instead of x."""
    node = tf.NodeDef()
    node.CopyFrom(op.node_def)
    # No control dependencies: a graph function waits for all of its arguments anyway.
    node.input[:] = [names.get(x.name, x.name) for x in op.inputs]
    # This would name a gradient of `tf.custom_gradient`, which holds tensors of op's graph.
    node.attr.pop("_gradient_op_type", None)
    return node


def _noinline_function(python_function: Callable[..., tf.Tensor],
                       signature: List[tf.TensorSpec]) -> Any:
    """A traced `tf.function` that the graph optimizer does not inline into its callers.

    TensorFlow 1.15 and 2.15 differ here.
    """
    attributes = {"_noinline": True}
    try:
        from tensorflow.python.eager.function import defun_with_attributes
    except ImportError:
        function = tf.function(python_function, input_signature=signature, autograph=False,
                               experimental_attributes=attributes)
    else:
        function = defun_with_attributes(python_function, signature, attributes,
                                         autograph=False)
    return function.get_concrete_function()


# --- Gradients that do not wait for a card ---
#
# TensorFlow's gradients of these functions compute with sizes on the card. The host waits for the
# result in the middle of a step, and the card afterwards for the host.


@tf.RegisterGradient("GatherWithSizesOnHost")
def _gradient_of_gather(op, d_rows):
    table, indices = op.inputs[:2]
    shape = tf.shape(table)
    return [tf.IndexedSlices(tf.reshape(d_rows, tf.concat([[-1], shape[1:]], 0)),
                             tf.reshape(indices, [-1]), shape), None, None]


def gather(table: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """tf.gather: the rows [..., D] of a table [V, D] at `indices` [...]; or values of a vector."""
    with tf.get_default_graph().gradient_override_map({"GatherV2": "GatherWithSizesOnHost"}):
        return tf.gather(table, indices)


def sum_over(x: tf.Tensor, axis: int) -> tf.Tensor:
    """tf.reduce_sum over one axis."""
    return tf.custom_gradient(lambda x: (tf.reduce_sum(x, axis), lambda d_sum: tf.broadcast_to(
        tf.expand_dims(d_sum, axis), tf.shape(x))))(x)


def max_over(x: tf.Tensor, axis: int) -> tf.Tensor:
    """tf.reduce_max over one axis; equal maxima share the gradient."""
    def compute(x):
        largest = tf.reduce_max(x, axis, keepdims=True)

        def gradient(d_max):
            is_largest = tf.cast(tf.equal(x, largest), x.dtype)
            count = tf.reduce_sum(is_largest, axis, keepdims=True)
            return is_largest / count * tf.expand_dims(d_max, axis)
        return tf.squeeze(largest, axis), gradient
    return tf.custom_gradient(compute)(x)
