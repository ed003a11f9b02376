"""What XLA's programs of a training step read and write, counted in the code that it makes.

  python -m benchmarks.xla_modules [--model=large --task=pretraining --batch_size=64]

Trains one step of a BERT of two layers, with texts of 128 tokens in float32 and --xla, on the CPU, and
reads XLA's optimized code (HLO). A kernel is a fusion, a product or another instruction that touches
memory; it reads its operands once and writes its result once. Beside it the floor: as if all that
lies between products were one kernel, which reads what products and arguments bring and writes what
products and the results need. XLA fuses for the CPU here. For a card it would, besides, put kernels
with the same inputs into one, and reduce without a second pass over partial sums.

A second table estimates the whole step in float16 as `benchmarks.step_cost` does: once with the arguments and
results of each program alone, which is the least, and once with what its kernels move here. In float16, layers
move half of that.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

from benchmarks import report, step_cost, step_graph
from benchmarks.step_graph import FINE_TUNING, PRETRAINING, Workload

_LAYERS = 2  # that are compiled and counted
_UPDATE = "optimizer_update"
_RUN = "--run"  # the process that XLA writes its code for
# What no kernel is launched for.
_FREE = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"))
_ALIASES = frozenset(("bitcast", "get-tuple-element"))
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "f16": 2, "bf16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4,
          "u32": 4, "f64": 8, "s64": 8, "u64": 8}
_INSTRUCTION = re.compile(r"\s+(ROOT )?(\S+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)(?:,|$)")


class Instruction(NamedTuple):
    """A line of a program's entry computation."""
    name: str
    kind: str
    bytes: int  # of its result
    operands: Tuple[str, ...]
    is_root: bool


class Traffic(NamedTuple):
    """What a program moves, in bytes."""
    kernels: int
    products: float  # read and written by matrix products
    others: float
    floor: float  # of the others


def instructions(text: str) -> List[Instruction]:
    """The entry computation of a module's text."""
    entry = text[text.index("\nENTRY "):].split("\n}")[0]
    found = [_INSTRUCTION.match(line) for line in entry.splitlines()[2:]]
    return [Instruction(name, kind, _bytes_of(shape),
                        tuple(re.sub(r"/\*.*?\*/", "", operands).split(", ")), bool(root))
            for root, name, shape, kind, operands in (match.groups() for match in found if match)]


def _bytes_of(shape: str) -> int:
    total = 0
    for dtype, extents in re.findall(r"(\w+)\[([\d,]*)\]", shape):
        size = _BYTES[dtype]
        for extent in filter(None, extents.split(",")):
            size *= int(extent)
        total += size
    return total


def traffic(code: List[Instruction]) -> Traffic:
    """Counts the kernels of a program and what they move."""
    known = {each.name: each for each in code}

    def source(name: str) -> Instruction:
        while known[name].kind in _ALIASES:
            name = known[name].operands[0]
        return known[name]

    def inputs(each: Instruction) -> Dict[str, int]:
        return {source(name).name: known[name].bytes for name in each.operands
                if source(name).kind != "constant"}

    kernels = [each for each in code if each.kind not in _FREE]
    moved = {each.name: each.bytes + sum(inputs(each).values()) for each in kernels}
    products = [each for each in kernels if _is_product(each)]
    others = [each for each in kernels if not _is_product(each)]
    made_by_others: Set[str] = {each.name for each in others}
    read = {name: size for each in others for name, size in inputs(each).items()
            if name not in made_by_others}
    root = next(each for each in code if each.is_root)
    needed = [inputs(each) for each in products] + [inputs(root) if root.kind == "tuple" else {}]
    written = {name: size for some in needed for name, size in some.items() if name in made_by_others}
    return Traffic(len(kernels), sum(moved[each.name] for each in products),
                   sum(moved[each.name] for each in others),
                   sum(read.values()) + sum(written.values()))


def _is_product(each: Instruction) -> bool:
    return each.kind in ("dot", "custom-call")


def _train_one_step(workload: Workload) -> None:
    from engine.devices import runtime
    from engine.devices.devices import Devices
    import tensorflow.compat.v1 as tf
    with tf.Graph().as_default():
        strategy = Devices(("/cpu:0",), "CPU", "one_device", tf.ConfigProto()).strategy()
        with strategy.scope():
            results = strategy.experimental_local_results(runtime.run_on_replicas(
                strategy, lambda: step_graph.train_op(workload, {
                    name: tf.ones(x.shape, x.dtype)
                    for name, x in step_graph.features_of(workload).items()})))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run([getattr(result, "op", result) for result in results])


def _programs(folder: str) -> List[Tuple[str, Traffic]]:
    """Each with the name that the project gives it, in the order of their compilation."""
    found = []
    for path in sorted(glob.glob(f"{folder}/*.cpu_after_optimizations.txt")):
        name = re.search(r"inference_(.*?)_\d+__", path).group(1)
        with open(path, encoding="utf-8") as file:
            found.append((name, traffic(instructions("\n" + file.read()))))
    return found


def whole_step(layers: int, small: Workload, programs: List[Tuple[str, Traffic]]) -> Iterator[Dict[str, str]]:
    """A row for each card: the time of the step in float16, without and with what is counted in its programs."""
    small = small._replace(precision="float16")
    whole = small._replace(layers=layers)
    compiled = {(cost.kind, cost.flops): cost for cost in _costs(small) if cost.kind == cost.function}
    assert len(compiled) == len(programs)
    inside = dict(zip(sorted(compiled), (found for _, found in sorted(
        programs, key=lambda item: (item[0], item[1].products)))))
    costs = _costs(whole)
    for card in (step_cost.CARDS[name] for name in ("V100", "A100", "H100")):
        rates, seconds = card.rates(whole.precision), 0.0
        for cost in costs:
            key = cost.kind, cost.flops
            if key not in inside:
                seconds += card.seconds([cost], whole.precision)
                continue
            found = inside[key]
            # Weights and moments are of 32 bits, and as many as the gradients that the update reads.
            share = cost.bytes / compiled[key].bytes if cost.kind == _UPDATE else 0.5
            seconds += max(found.kernels * step_cost.LAUNCH_SECONDS,
                           rates.seconds(cost.flops, share * found.products) + share * found.others / rates.memory)
        yield {"card": card.name, **{name: f"{1e3 * time:.1f}, {whole.batch_size / time:,.0f}" for name, time in (
            ("least: ms, examples/s", card.seconds(costs, whole.precision)),
            ("as counted: ms, examples/s", seconds))}}


def _costs(workload: Workload) -> List[step_cost.Cost]:
    return step_cost.step_costs(workload, step_graph.operations_of(workload))


def main() -> None:
    """Prints a row for each program, and the estimates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(step_cost.SIZES), default="base")
    parser.add_argument("--task", choices=(FINE_TUNING, PRETRAINING), default=FINE_TUNING)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument(_RUN, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    layers, hidden = step_cost.SIZES[args.model]
    workload = Workload(_LAYERS, hidden, args.batch_size, 128, args.task, xla=True)
    if args.run:
        _train_one_step(workload)
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_as_text"}
        subprocess.run([sys.executable, "-m", "benchmarks.xla_modules", *sys.argv[1:], _RUN], env=environment,
                       cwd=report.ROOT, check=True, stderr=subprocess.DEVNULL)
        programs = _programs(folder)
    print(step_cost.table([{
        "program": name.replace("_", " "), "kernels": f"{found.kernels}",
        "MB of products": f"{found.products / 1e6:,.0f}", "MB of others": f"{found.others / 1e6:,.0f}",
        "floor": f"{found.floor / 1e6:,.0f}"} for name, found in programs]))
    print("\n" + step_cost.table(list(whole_step(layers, workload, programs))))


if __name__ == "__main__":
    main()
