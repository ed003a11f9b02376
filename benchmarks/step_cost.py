"""What a step asks of a card: operations to launch, multiply-adds, bytes to move. Needs no card.

  python -m benchmarks.step_cost                         # the tables of the pages, into results.md
  python -m benchmarks.page_tables                       # then rewrites the pages
  python -m benchmarks.step_cost --precision=float16     # one step, itemized

Counts the operations of the real graph with the sizes that they have in a step: what a card launches
a kernel for, the floating-point operations of matrix products (2 for a multiply-add), and the bytes
that the other operations read and write. A module that XLA compiles is one operation, which reads its
arguments, writes its results, and reads and writes variables as often as its body does. Caches are left
out. The time on a card is an estimate from these, not a measurement: each kernel takes as long as its
slowest part.
"""

import collections
import functools
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from benchmarks import report, step_graph
from benchmarks.step_graph import FINE_TUNING, PREDICTION, PRETRAINING, Workload

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function_def_to_graph, smart_cond

# What launches no kernel on a card: views, shapes, and what is there before the step. A variable that
# is assigned to takes the value's buffer over.
FREE = frozenset(
    "AssignVariableOp Const ExpandDims Identity IdentityN NoOp Placeholder PreventGradient "
    "ReadVariableOp Reshape Shape ShapeN Size Rank Squeeze StopGradient VarHandleOp VariableV2 Bitcast "
    "BroadcastGradientArgs Enter Exit LoopCond Merge NextIteration Switch TensorArrayV3 "
    "TensorArrayGatherV3 TensorArrayReadV3 TensorArrayScatterV3 TensorArrayWriteV3".split())
PRODUCTS = frozenset(("MatMul", "BatchMatMul", "BatchMatMulV2"))
_READS_PART = frozenset(("GatherV2", "Slice", "StridedSlice"))  # no more than they return
# How often an operation moves a variable: Adam reads m, v and the parameter and writes all three.
VARIABLES = {"ReadVariableOp": 1, "AssignVariableOp": 1, "AssignAddVariableOp": 2,
             "AssignSubVariableOp": 2, "ResourceApplyAdam": 6}
# TensorFlow's kernel splits a pack without a copy if all parts begin at a multiple of so many bytes.
_ALIGNMENT = 64
_HOST_ELEMENTS = 64  # no tensor of int32 with so few is on a card


class Cost(NamedTuple):
    """What one operation asks of a card."""
    kind: str  # the operation's type; that of a compiled module is its name
    function: str  # that it is part of; "" outside of functions
    flops: float  # of matrix products
    bytes: float  # read and written

    @property
    def is_product(self) -> bool:
        return self.kind in PRODUCTS


class Card(NamedTuple):
    """A card as it is sold."""
    name: str
    flops: Dict[str, float]  # peak of matrix products, operations/s, by precision
    memory: float  # bandwidth, bytes/s

    def seconds(self, costs: Iterable[Cost], precision: str) -> float:
        """A step, one kernel after another, each as long as its slowest part."""
        flops = PRODUCT_SHARE[precision] * self.flops[precision]
        memory = MEMORY_SHARE * self.memory
        return sum(max(LAUNCH_SECONDS, cost.flops / flops, cost.bytes / memory) for cost in costs)


LAUNCH_SECONDS = 5e-6
# What steps are assumed to reach of a card. Calibrated on one published cell: with them Google's graph pretrains BERT-base at 112 examples/s on
# a V100 in float32, where OneFlow's DLPerf report has 113. The share of the tensor cores is assumed:
# no published cell in 16 bits was counted.
MEMORY_SHARE = 0.9
PRODUCT_SHARE = {"float32": 0.9, "float16": 0.7, "bfloat16": 0.7}
CARDS = {card.name: card for card in (
    Card("P40", {"float32": 11.8e12}, 346e9),
    Card("P100", {"float32": 9.5e12}, 732e9),
    Card("V100", {"float32": 15.7e12, "float16": 125e12}, 900e9),
    # Their float32 is TF32.
    Card("A100", {"float32": 156e12, "float16": 312e12, "bfloat16": 312e12}, 1555e9),
    Card("H100", {"float32": 494e12, "float16": 989e12, "bfloat16": 989e12}, 3350e9))}


def costs_of(operations: Iterable[tf.Operation]) -> Dict[tf.Operation, List[Cost]]:
    """The costs of a graph's operations; of a call, of all that the function's body launches.

    The sizes of all inputs must be known; what functions return gets its size from their bodies.
    """
    operations = set(operations)
    graph = next(iter(operations)).graph
    library = {function.signature.name: function
               for function in graph.as_graph_def().library.function}
    known: Known = {}
    return {op: list(_costs([op], library, "", known))
            for op in graph.get_operations() if op in operations}


Known = Dict[str, Tuple[tf.TensorShape, Any]]  # a tensor's name -> its shape, and value if constant


def _costs(operations: Iterable[tf.Operation], library: Dict[str, Any], function: str, known: Known
           ) -> Iterator[Cost]:
    """`known` has the outputs of calls, whose shapes the graph does not have."""
    for op in operations:
        if "PartitionedCall" not in op.type:
            if _is_launched(op, known):
                yield _cost(op, function, known)
            continue
        definition = library[op.get_attr("f").name]
        body, outputs = _body(definition, op.inputs, known)
        known.update((x.name, (result.shape, smart_cond.smart_constant_value(result)
                               if result.dtype == tf.int32 else None))
                     for x, result in zip(op.outputs, outputs))
        name = _function_name(definition.signature.name)
        # A function runs its stateful operations, too, whether or not its results need them.
        used = step_graph.needed([*(x.op for x in outputs), *(
            x for x in body.get_operations() if x.op_def.is_stateful)])
        launched = [x for x in body.get_operations() if x in used]
        inside = _costs(launched, library, name, {})
        if _is_compiled(op, definition):
            yield Cost(name, name, sum(cost.flops for cost in inside), sum(
                _bytes(x, known) for x in (*op.inputs, *op.outputs)) + sum(map(_variable_bytes, launched)))
        else:
            yield from inside


def _body(definition: Any, inputs: Sequence[tf.Tensor], known: Known
          ) -> Tuple[tf.Graph, List[tf.Tensor]]:
    """A function's graph for inputs of these sizes, and its results.

    It has the functions of the calling graph, which its body may call. Where the inputs are handles, it
    has variables of the same shapes.
    """
    caller = inputs[0].graph
    copy = type(definition)()
    copy.CopyFrom(definition)
    for part in (*copy.arg_attr.values(), *copy.node_def):
        part.attr.pop("_output_shapes", None)
    with caller.as_default():
        graph_def, names = function_def_to_graph.function_def_to_graph_def(
            copy, input_shapes=[known.get(x.name, (x.shape,))[0] for x in inputs])
    graph_def.library.CopyFrom(caller.as_graph_def().library)
    for node, x in zip(graph_def.node, inputs):
        _, value = known.get(x.name, (None, None))
        if x.op.type == "VarHandleOp":
            node.CopyFrom(tf.NodeDef(name=node.name, op=x.op.type, attr={
                name: x.op.node_def.attr[name] for name in ("dtype", "shape")}))
        elif value is not None:  # a size, from which the body makes the shapes of its tensors
            node.CopyFrom(tf.NodeDef(name=node.name, op="Const", attr={
                "dtype": node.attr["dtype"],
                "value": tf.AttrValue(tensor=tf.make_tensor_proto(value))}))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    return graph, [graph.get_tensor_by_name(names[copy.ret[argument.name]])
                   for argument in copy.signature.output_arg]


def _function_name(name: str) -> str:
    """`encoder_layer`, or `encoder_layer, backward`, of the name in a graph's library."""
    backward = ", backward" if "backward" in name else ""
    return re.sub(r"^_*(inference|forward)?_*(backward)?_+|(_\d+)+$", "", name) + backward


def _is_launched(op: tf.Operation, known: Known) -> bool:
    if op.type in FREE or "CPU" in op.device.upper() or "Iterator" in op.type:
        return False
    if op.type == "SplitV" and not any(_bytes(x, known) % _ALIGNMENT for x in op.outputs[:-1]):
        return False
    return not op.outputs or not all(
        output.dtype.base_dtype == tf.int32 and _size(output, known) <= _HOST_ELEMENTS
        for output in op.outputs)


def _cost(op: tf.Operation, function: str, known: Known) -> Cost:
    if op.type == "TensorArrayConcatV3":  # of rows, whose size is known, or of their indices
        rows = op.outputs[0]
        return Cost(op.type, function, 0.0,
                    2 * _bytes(rows, known) if rows.shape.is_fully_defined() else 0)
    moved = sum(_bytes(x, known) for x in (*op.inputs, *op.outputs))
    flops = 0.0
    if op.type in PRODUCTS:
        flops = product_flops(op, lambda x: _shape(x, known).as_list())
    elif op.type in VARIABLES:
        moved += _variable_bytes(op)
    elif op.type in _READS_PART:
        moved = 2 * sum(_bytes(x, known) for x in op.outputs)
    elif op.type == "ZerosLike":
        moved /= 2
    return Cost(op.type, function, flops, moved)


def _variable_bytes(op: tf.Operation) -> float:
    """What an operation reads and writes of the variables whose handles it has."""
    if op.type not in VARIABLES:
        return 0.0
    shape, dtype = (op.inputs[0].op.get_attr(name) for name in ("shape", "dtype"))
    return VARIABLES[op.type] * tf.TensorShape(shape).num_elements() * dtype.size


def product_flops(op: tf.Operation, shape_of: Callable[[tf.Tensor], List[int]]) -> float:
    """Operations of a matrix product, 2 for a multiply-add."""
    rows, columns = shape_of(op.inputs[0])[-2:]
    transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    size = 1.0
    for extent in shape_of(op.outputs[0]):
        size *= extent
    return 2 * (rows if transposed else columns) * size


def _shape(tensor: tf.Tensor, known: Known) -> tf.TensorShape:
    shape = known[tensor.name][0] if tensor.name in known else tensor.shape
    if not shape.is_fully_defined():
        raise ValueError(f"{tensor.op.type} {tensor.name} has the unknown shape {shape}")
    return shape


def _size(tensor: tf.Tensor, known: Known) -> int:
    if tensor.op.type == "BroadcastGradientArgs":
        return 0  # axes, in the host's memory
    return _shape(tensor, known).num_elements()


def _bytes(tensor: tf.Tensor, known: Known) -> float:
    if tensor.dtype.base_dtype in (tf.resource, tf.string, tf.variant):
        return 0
    return _size(tensor, known) * tensor.dtype.base_dtype.size


def _is_compiled(op: tf.Operation, definition: Any) -> bool:
    return any(node.attr[name].b for node in (op.node_def, definition)
               for name in ("_XlaMustCompile", "_XlaCompile"))


# --- Tables --------------------------------------------------------------------------------

SIZES = {"base": (12, 768), "large": (24, 1024)}
# The steps of docs/results.md: the model, its workload, and what was published for it.
ROWS = (
    [("base", dict(batch_size=32, length=128, precision=precision), "")
     for precision in ("float32", "float16", "bfloat16")]
    + [(model, dict(batch_size=32, length=128, precision="float16", xla=True), "")
       for model in ("base", "large")]
    + [("base", dict(batch_size=32, length=128, precision="float16", xla=xla, micro_batches=count), "")
       for count, xla in ((2, False), (2, True), (4, True))]
    + [("base", dict(batch_size=256, length=16, precision="float16"), ""),
       ("base", dict(batch_size=8, length=512, precision="float16"), ""),
       *(("base", dict(batch_size=32, length=128, precision="float16", cards=2, xla=xla), "")
         for xla in (False, True)),
       ("base", dict(batch_size=64, length=128, precision="float16", task=PRETRAINING),
        "V100 183, with XLA 423"),
       ("large", dict(batch_size=64, length=128, precision="float16", task=PRETRAINING),
        "with XLA V100 168, A100 357"),
       *(("base", dict(batch_size=32, length=128, precision="float16", task=task, cards=cards), "")
         for task in (step_graph.TAGGING, step_graph.SIMILARITY) for cards in (1, 2)),
       ("base", dict(batch_size=32, length=128, precision="float16", task=step_graph.SIMILARITY,
                     xla=True), ""),
       *(("base", dict(batch_size=32, length=128, precision="float16", task=step_graph.CRF, xla=xla), "")
         for xla in (False, True)),
       ("base", dict(batch_size=128, length=128, precision="float16", task=PREDICTION), "")])
# The titles of the tables in benchmarks/results.md.
STEPS, PARTS, FROZEN = ("What a step asks of a card", "What a step asks of a card, by part",
                        "What a step asks of a card, with frozen layers")
PART = Workload(12, 768, 32, 128, precision="float16")  # the step whose parts are shown
FROZEN_LAYERS = (0, 6, 9, 12)


@functools.lru_cache(maxsize=None)
def step_costs(workload: Workload) -> List[Cost]:
    """The costs of the step's operations on the first card."""
    return [cost for op, costs in costs_of(step_graph.operations_of(workload)).items()
            if workload.cards == 1 or "GPU:0" in op.device.upper()
            for cost in costs * (workload.micro_batches - 1 if _is_in_loop(op) else 1)]


def _is_in_loop(op: tf.Operation) -> bool:
    """Whether the operation runs for each micro-batch but the first."""
    return op._get_control_flow_context() is not None


def figures(workload: Workload, costs: Sequence[Cost]) -> Dict[str, str]:
    """A row of the table."""
    moved = sum(cost.bytes for cost in costs if not cost.is_product)
    exchanges = sum(cost.kind == "NcclAllReduce" for cost in costs)
    examples = workload.batch_size * workload.micro_batches
    row = {"operations": f"{len(costs):,}", "all-reduces": str(exchanges or "–"),
           "TFLOP": f"{sum(cost.flops for cost in costs) / 1e12:.2f}", "GB": f"{moved / 1e9:.1f}"}
    for name in ("V100", "A100", "H100"):
        seconds = (CARDS[name].seconds(costs, workload.precision)
                   if workload.precision in CARDS[name].flops else None)
        row[f"{name}: ms, examples/s"] = (
            f"{1e3 * seconds:.1f}, {examples / seconds:,.0f}" if seconds else "–")
    return row


def describe(model: str, workload: Workload) -> str:
    """The workload in a table's first column."""
    parts = [f"BERT-{model}", workload.task, workload.precision,
             f"{workload.batch_size} × {workload.length}"]
    if workload.micro_batches > 1:
        parts.append(f"{workload.micro_batches} micro-batches")
    if workload.xla:
        parts.append("XLA")
    if workload.cards > 1:
        parts.append(f"one of {workload.cards} cards")
    if workload.freeze_layers:
        parts.append(f"{workload.freeze_layers} layers frozen")
    return ", ".join(parts)


def itemized(costs: Sequence[Cost], key: Callable[[Cost], str]) -> List[Dict[str, str]]:
    """Operations, TFLOP and GB by a property of the operations, most bytes first."""
    groups = collections.defaultdict(list)
    for cost in costs:
        groups[key(cost)].append(cost)
    return [{"": name or "outside of functions", "operations": f"{len(group):,}",
             "TFLOP": f"{sum(cost.flops for cost in group) / 1e12:.2f}",
             "GB, products included": f"{sum(cost.bytes for cost in group) / 1e9:.2f}"}
            for name, group in sorted(
                groups.items(), key=lambda item: -sum(cost.bytes for cost in item[1]))]


def append_tables() -> None:
    """Counts the steps of the pages' tables, and appends these to results.md."""
    rows = []
    for model, changes, published in ROWS:
        workload = Workload(*SIZES[model], **changes)
        rows.append({"step": describe(model, workload), **figures(workload, step_costs(workload)),
                     "published, examples/s": published})
    report.append(STEPS, rows)
    report.append(PARTS, itemized(step_costs(PART), lambda cost: cost.function))
    frozen = {count: step_costs(PART._replace(precision="float32", freeze_layers=count))
              for count in FROZEN_LAYERS}
    seconds = {count: CARDS["V100"].seconds(costs, "float32") for count, costs in frozen.items()}
    kept = ("operations", "TFLOP", "GB")
    report.append(FROZEN, [{
        "frozen layers": count,
        **{name: value for name, value in figures(PART, costs).items() if name in kept},
        "estimated speed of a V100": f"{seconds[0] / seconds[count]:.1f} ×"}
        for count, costs in frozen.items()])


def main() -> None:
    parser = report.parser_of(__doc__)
    parser.add_argument("--model", choices=sorted(SIZES), default="base")
    parser.add_argument("--task", choices=(FINE_TUNING, PRETRAINING, PREDICTION, step_graph.CRF),
                        default=FINE_TUNING)
    parser.add_argument("--precision", choices=("float32", "float16", "bfloat16"),
                        help="itemize one step in this precision")
    parser.add_argument("--transfer", choices=("float32", "float16"),
                        help="by default that of a training in this precision")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--xla", action="store_true")
    parser.add_argument("--freeze_layers", type=int, default=0)
    parser.add_argument("--micro_batches", type=int, default=1)
    args = parser.parse_args()
    if args.precision:
        workload = Workload(*SIZES[args.model], args.batch_size, args.length, args.task,
                            args.precision, args.transfer, args.xla, args.cards,
                            args.freeze_layers, args.micro_batches)
        costs = step_costs(workload)
        print(report.table([{"": describe(args.model, workload), **figures(workload, costs)}]))
        for key in ("function", "kind"):
            print("\n" + report.table(itemized(costs, lambda cost: getattr(cost, key))))
    else:
        append_tables()


if __name__ == "__main__":
    main()
