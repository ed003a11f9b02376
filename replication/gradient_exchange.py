"""Exchanges gradients between replicas: each once, in few transfers, in one order everywhere.

Dense gradients are reduced in buckets, those of the last variables first, during the rest of the
backward pass. Of sparse gradients (word embeddings), replicas exchange the rows.

On one machine the strategy packs a bucket. Across machines TensorFlow would send each gradient on
its own, so a bucket is packed here; and rows are added up before the transfer, if that takes fewer
bytes.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import tensorflow.compat.v1 as tf

Gradient = Union[tf.Tensor, tf.IndexedSlices]

# Gradients are reduced in buckets of at least so many bytes. An all-reduce of this size among 8
# cards spends a third of its time on latency over NVLink, and 6% over PCIe 3.0 (as assumed in
# benchmarks/scaling.md). Larger buckets would start later, and the last one is never hidden.
BUCKET_BYTES = 8 * 2**20
# Smaller gradients (biases, normalizations: 124 of 201 in BERT-base) share one norm and one scaling.
SMALL_BYTES = 64 * 2**10
# TensorFlow splits a tensor without a copy if all parts begin at a multiple of so many bytes.
_ALIGNMENT = 64


class Exchange(NamedTuple):
    """A replica's gradients, ready to send; in a merge call, those of this process's replicas."""
    buckets: List[List[Tuple[tf.Tensor, tf.Variable]]]
    sparse: List[Tuple[tf.IndexedSlices, tf.Variable]]
    # Across machines: each bucket's gradients as one flat tensor; the variables whose rows were
    # added up, and the sum of the squares of these rows, for the norm.
    packs: List[tf.Tensor]
    added_up: List[tf.Variable]
    squares: List[tf.Tensor]

    def variables(self) -> List[tf.Variable]:
        """The variables, in the order of what `Received.unpack` returns."""
        return [variable for bucket in (*self.buckets, self.sparse) for _, variable in bucket]


class Received(NamedTuple):
    """The sums over all replicas, as received by one of them."""
    parts: List[Gradient]  # in float32; several gradients may share a flat tensor
    more_squares: List[tf.Tensor]  # sums of squares that the norm adds to the parts' own
    # Splits values of the parts' shapes, such as scaled parts, into one for each gradient.
    unpack: Callable[[Sequence[Gradient]], List[Gradient]]

    def norm(self) -> tf.Tensor:
        """The norm over all gradients; repeated rows count separately."""
        norm = tf.global_norm(self.parts)
        return tf.sqrt(tf.add_n([norm**2, *self.more_squares])) if self.more_squares else norm

    def in_known_shapes(self, variables: Sequence[tf.Variable]
                        ) -> Tuple[List[List[tf.Tensor]], Callable[..., Tuple["Received", tf.Tensor]]]:
        """The sums for a program, which would be compiled anew for each number of rows.

        Args:
            variables: see `Exchange.variables`.

        Returns:
            Lists of tensors of known shapes, and a function of them that the program calls: it returns these
            sums, all dense, and their norm.
        """
        rows = [part for part in self.parts if isinstance(part, tf.IndexedSlices)]
        dense = [before_widening(part) for part in self.parts if not isinstance(part, tf.IndexedSlices)]
        tables = [with_all_rows(part, variable)
                  for part, variable in zip(rows, variables[len(variables) - len(rows):])]
        squares = [2 * tf.nn.l2_loss(part.values) for part in rows] + self.more_squares

        def received(dense, tables, squares) -> Tuple[Received, tf.Tensor]:
            own = self._replace(parts=[tf.cast(part, tf.float32) for part in dense], more_squares=squares)
            return own._replace(parts=own.parts + tables), own.norm()
        return [dense, tables, squares], received


def prepare(pairs: Sequence[Tuple[Gradient, tf.Variable]], dtype: tf.DType,
            most_rows: Optional[int]) -> Exchange:
    """Prepares the gradients of a replica; called in each of them.

    Args:
        dtype: the type for the transfer.
        most_rows: the maximum rows of a sparse gradient of one replica in a step; None if
            unknown.
    """
    dense, sparse = ([pair for pair in pairs if isinstance(pair[0], tf.IndexedSlices) == wanted]
                     for wanted in (False, True))
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync == 1:
        return Exchange([dense], sparse, [], [], [])
    if not _spans_machines(strategy):
        return Exchange(_in_turn(_buckets(dense, dtype)), _cast(sparse, dtype), [], [], [])
    added_up, sparse = ([pair for pair in sparse
                         if _is_dense_smaller(pair[1], most_rows) == wanted]
                        for wanted in (True, False))
    squares = [_square_sum(rows.values) for rows, _ in added_up]
    # The variables of embeddings are the first ones.
    dense = [(with_all_rows(rows, variable), variable) for rows, variable in added_up] + dense
    buckets = _in_turn(_buckets(dense, dtype))
    sparse = [(_padded(rows, most_rows), variable) for rows, variable in sparse]
    return Exchange(
        buckets, _cast(sparse, dtype),
        packs=[_flat([gradient for gradient, _ in bucket]) for bucket in buckets],
        added_up=[variable for _, variable in added_up],
        squares=[tf.add_n(squares)] if squares else [])


def add_up(strategy: tf.distribute.Strategy, exchange: Exchange
           ) -> Tuple[Any, Callable[[Any], Received]]:
    """Adds up the gradients; called once for all replicas.

    Returns:
        Values, some with a component for each replica, and a function that each replica calls with its
        components.
    """
    if exchange.packs:
        return _across_machines(strategy, exchange)
    sums = (_in_one_memory(strategy, exchange) if _has_virtual_devices(strategy) else
            [total for bucket in exchange.buckets for total in
             strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, bucket)])
    rows = [strategy.experimental_local_results(gradient) for gradient, _ in exchange.sparse]

    def received(sums) -> Received:
        packed, unpack = _packed(sums)
        parts = [tf.cast(total, tf.float32) for total in packed] + [
            _joined(parts, tf.float32) for parts in rows]
        return Received(parts, [], unpack)

    return sums, received


def _has_virtual_devices(strategy: tf.distribute.Strategy) -> bool:
    """Whether several replicas are on the processor."""
    return strategy.num_replicas_in_sync > 1 and "CPU" in strategy.extended.worker_devices[0].upper()


def _in_one_memory(strategy: tf.distribute.Strategy, exchange: Exchange) -> List[tf.Tensor]:
    """The sums on the first device, from which the others read them: a node for each, not one more a replica."""
    with tf.device(strategy.extended.worker_devices[0]):
        return [tf.add_n(strategy.experimental_local_results(gradient))
                for bucket in exchange.buckets for gradient, _ in bucket]


def _across_machines(strategy, exchange: Exchange) -> Tuple[Any, Callable[[Any], Received]]:
    earlier: List[tf.Tensor] = []

    def summed(values, destination):
        # One after the other: NCCL needs the same order on all machines.
        with tf.control_dependencies(earlier):
            total, = strategy.extended.batch_reduce_to(
                tf.distribute.ReduceOp.SUM, [(values, destination)])
        earlier[:] = tf.nest.flatten(strategy.experimental_local_results(total),
                                     expand_composites=True)
        return total

    first = exchange.variables()[0]
    packs = [summed(pack, first) for pack in exchange.packs]
    rows = [summed(gradient, variable) for gradient, variable in exchange.sparse]
    squares = [summed(total, first) for total in exchange.squares]

    def received(sums) -> Received:
        packs, rows, squares = sums
        parts = [tf.cast(pack, tf.float32) for pack in packs]
        parts += [_joined([part], tf.float32) for part in rows]

        def unpack(parts):
            gradients = [gradient for pack, bucket in zip(parts, exchange.buckets)
                         for gradient in _split(pack, [variable.shape for _, variable in bucket])]
            return gradients + list(parts[len(packs):])
        if not squares:
            return Received(parts, [], unpack)
        added_up = [gradient for gradient, variable in zip(unpack(parts), exchange.variables())
                    if any(variable is other for other in exchange.added_up)]
        return Received(parts, [squares[0], -tf.add_n(list(map(_square_sum, added_up)))], unpack)

    return (packs, rows, squares), received


def _spans_machines(strategy: tf.distribute.Strategy) -> bool:
    return strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


def _is_dense_smaller(variable: tf.Variable, most_rows: Optional[int]) -> bool:
    """Whether a sum over replicas, as a dense gradient, takes fewer bytes than their rows.

    A ring of N replicas hands most_rows from each to N - 1 others; of a sum of V rows, it hands on
    2 * (N - 1) / N.
    """
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return most_rows is None or num_replicas * most_rows > 2 * variable.shape.as_list()[0]


def _padded(rows: tf.IndexedSlices, most_rows: int) -> tf.IndexedSlices:
    """Pads the rows with zeros: TensorFlow's gathering assumes the sizes of the first step."""
    missing = most_rows - tf.size(rows.indices)
    values = tf.pad(rows.values, [[0, missing]] + [[0, 0]] * (rows.values.shape.ndims - 1))
    indices = tf.pad(rows.indices, [[0, missing]])
    values.set_shape([most_rows] + rows.values.shape.as_list()[1:])
    indices.set_shape([most_rows])
    return tf.IndexedSlices(values, indices, rows.dense_shape)


def with_all_rows(gradient: Gradient, variable: tf.Variable) -> tf.Tensor:
    """A dense gradient: Adam moves every row of a variable, even one without a gradient."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])


def _square_sum(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(values))


def _cast(sparse: Sequence[Tuple[tf.IndexedSlices, tf.Variable]],
          dtype: tf.DType) -> List[Tuple[tf.IndexedSlices, tf.Variable]]:
    return [(_joined([rows], dtype), variable) for rows, variable in sparse]


def _packed(gradients: Sequence[tf.Tensor]
            ) -> Tuple[List[tf.Tensor], Callable[[Sequence[Gradient]], List[Gradient]]]:
    """Dense gradients, the small ones of each type in one flat tensor, and `Received.unpack`."""
    groups: Dict[Any, List[int]] = {}  # one of small gradients for each type, or of one gradient
    sources = [before_widening(gradient) for gradient in gradients]
    for index, source in enumerate(sources):
        is_small = 4 * source.shape.num_elements() <= SMALL_BYTES
        groups.setdefault(source.dtype if is_small else index, []).append(index)
    for group in groups.values():  # what breaks the alignment goes last
        group.sort(key=lambda index: 4 * sources[index].shape.num_elements() % _ALIGNMENT > 0)

    def unpack(parts):
        by_index = dict(enumerate(parts[len(groups):], len(gradients)))
        for part, group in zip(parts, groups.values()):
            shapes = [gradients[index].shape for index in group]
            by_index.update(zip(group, _split(part, shapes) if len(group) > 1 else [part]))
        return [by_index[index] for index in sorted(by_index)]

    return [_flat([sources[index] for index in group]) if len(group) > 1 else gradients[group[0]]
            for group in groups.values()], unpack


def _flat(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([x if x.shape.rank == 1 else tf.reshape(x, [-1]) for x in tensors], 0)


def _split(pack: tf.Tensor, shapes: Sequence[tf.TensorShape]) -> List[tf.Tensor]:
    parts = tf.split(pack, [shape.num_elements() for shape in shapes])
    return [part if shape.rank == 1 else tf.reshape(part, shape)
            for part, shape in zip(parts, shapes)]


def _buckets(pairs: Sequence[Tuple[tf.Tensor, tf.Variable]],
             dtype: tf.DType) -> List[List[Tuple[tf.Tensor, tf.Variable]]]:
    """Dense gradients, cast, with their variables in buckets, those of the last variables first.

    A model makes its variables from input to output; the backward pass runs in the opposite order.
    Gradients of one operation, such as those of a layer, come together and share a bucket. After a loop
    over micro-batches all come together: then there are two, one to pack while the other crosses.
    """
    least = BUCKET_BYTES
    if any(before_widening(gradient).op.type == "Exit" for gradient, _ in pairs):
        least = max(least, sum(variable.shape.num_elements() for _, variable in pairs) * dtype.size // 2)
    buckets, num_bytes, operation = [], least, None
    for gradient, variable in reversed(pairs):
        source, earlier = before_widening(gradient), operation
        operation = _origin(source)
        if num_bytes >= least and operation is not earlier:
            buckets.append([])
            num_bytes = 0
        buckets[-1].append((source if source.dtype == dtype else tf.cast(gradient, dtype),
                            variable))
        num_bytes += variable.shape.num_elements() * dtype.size
    # In forward order a head's small bias ends its bucket: aligned parts are split without a copy.
    return [bucket[::-1] for bucket in buckets]


def _origin(gradient: tf.Tensor) -> tf.Operation:
    """The operation that computes a gradient; of a sum over several passes, that of one of them."""
    op = before_widening(gradient).op
    return _origin(op.inputs[0]) if op.type == "AddN" else op


def before_widening(gradient: tf.Tensor) -> tf.Tensor:
    """The gradient before its cast to float32, if the forward pass casts each weight."""
    op = gradient.op
    if op.type == "Cast" and op.inputs[0].dtype.size < gradient.dtype.size:
        return op.inputs[0]
    return gradient


def _in_turn(buckets):
    """The buckets, each waiting for the gradients of the one before: one order on all replicas."""
    earlier = []
    for bucket in buckets:
        gradient, variable = bucket[0]
        with tf.control_dependencies(earlier):
            bucket[0] = tf.identity(gradient), variable
        earlier = [gradient for gradient, _ in bucket]
    return buckets


def _joined(parts: Sequence[tf.IndexedSlices], dtype: tf.DType) -> tf.IndexedSlices:
    """The rows of all parts, with values cast, on the current device."""
    return tf.IndexedSlices(tf.cast(tf.concat([part.values for part in parts], 0), dtype),
                            tf.concat([part.indices for part in parts], 0))
