"""Does a card train, is it right, and how fast is it? In stages, what matters most first.

  python -m benchmarks.gpu --minutes=9

The questions: does a step run; is it right beside the CPU; how fast is it in each precision, with and
without XLA; how fast is Hugging Face's model; where does a step's time go; then other sizes.

Each stage writes <output_dir>/<stage>.json, and the tables in <output_dir>/results.md are written
again. After an interruption the same command goes on: a stage that has its result is not run again
(remove the file to repeat it), and one that failed comes last. --toy rehearses everything on virtual
CPU devices. Needs no network and no data.
"""

import argparse
import contextlib
import datetime
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from engine.devices import runtime  # before anything else that imports TensorFlow

from benchmarks import report
from benchmarks.gpu_stages import correctness, speed, tables
from benchmarks.gpu_stages.common import Cell, Machine
from benchmarks.gpu_stages.speed import FINE_TUNING, PRETRAINING
from engine import interruption
from engine.devices import gpus, xla_tools
from engine.devices.devices import BFLOAT16, FLOAT16, FLOAT32, TF32
from engine.disk import files
from engine.errors import UserError

SECONDS = 120  # that a stage may take
# The first stage of a precision, since CUDA compiles TensorFlow's kernels for newer cards; one with XLA.
COMPILING_SECONDS = 240
LEAST_SECONDS = 45  # of the call's time, to start a stage
NARROW = (FLOAT16, BFLOAT16)


class Stage(NamedTuple):
    """A measurement."""
    name: str
    run: Callable[[Cell, Machine], Dict[str, Any]]
    cell: Cell
    seconds: int

    @property
    def process(self) -> Any:
        """Stages in a row with the same one share a process, which saves their start."""
        if self.run in (speed.training, correctness.right):
            return self.cell.xla, self.cell.num_cards, self.cell.replicas_per_card
        return self.name


def stages(machine: Machine) -> List[Stage]:
    """All stages, the most valuable first."""
    by_name: Dict[str, Stage] = {}
    for run, cell in _in_order(machine):
        name = cell.name if run == speed.training else f"{run.__name__}-{cell.name}"
        is_long = cell.xla or all(
            stage.cell.precision != cell.precision for stage in by_name.values())
        seconds = COMPILING_SECONDS if is_long else SECONDS
        by_name.setdefault(name, Stage(name, run, cell, seconds * (5 if machine.toy else 1)))
    return list(by_name.values())


def _in_order(machine: Machine) -> Iterator[Tuple[Callable[[Cell, Machine], Dict[str, Any]], Cell]]:
    def each(run, cell: Cell, precisions=NARROW):
        return [(run, cell._replace(precision=precision)) for precision in precisions]

    mini, base = Cell(FINE_TUNING, "mini", 64, FLOAT32), Cell(FINE_TUNING, "base", 128, FLOAT16)
    on_all = base._replace(num_cards=machine.num_cards)
    yield speed.training, mini
    yield from each(correctness.right, mini, (FLOAT32, *NARROW))
    yield from each(speed.training, base, (*NARROW, TF32))
    # One of each early: the first twelve stages may take all the time that there is.
    yield speed.peer, base
    yield speed.trace, base
    yield from each(correctness.right, mini._replace(xla=True))
    yield from each(speed.training, base._replace(xla=True), (*NARROW, TF32))
    if machine.num_cards > 1:
        for xla in (False, True):
            yield from each(speed.training, on_all._replace(xla=xla))
    yield from each(speed.peer, base)
    yield from ((speed.trace, on_all._replace(xla=xla)) for xla in (False, True))
    yield correctness.command, base
    yield correctness.right, mini._replace(replicas_per_card=2)
    for task, size, length in ((FINE_TUNING, "base", 16), (PRETRAINING, "large", 128),
                               (PRETRAINING, "base", 128), (FINE_TUNING, "base", 512)):
        for xla in (False, True):
            yield from each(speed.training, Cell(task, size, length, "", xla), (*NARROW, TF32))
    for count in (2, 4):
        if count < machine.num_cards:
            yield from each(speed.training, base._replace(num_cards=count))


def run_stages(args, machine: Machine) -> None:
    """Runs the stages without a result, then those that failed, as long as there is time."""
    end = time.time() + 60 * args.minutes
    results = {stage: read_result(args.output_dir, stage.name)
               for stage in stages(machine) if re.match(args.stages, stage.name)}
    waiting = [stage for stage, result in results.items() if result is None]
    print(f"{len(waiting)} stages have no result yet", flush=True)
    waiting += [stage for stage, result in results.items() if result and "failed" in result]
    if not machine.toy and any(stage.cell.xla for stage in waiting):
        try:
            xla_tools.check_here()
        except UserError as error:  # each of these stages would abort its process
            print(f"without the stages with XLA: {error}", flush=True)
            waiting = [stage for stage in waiting if not stage.cell.xla]
    while waiting and time.time() + LEAST_SECONDS <= end:
        group = list(itertools.takewhile(
            lambda stage: stage.process == waiting[0].process, waiting))
        ended = run_process(args, group, machine, end)
        # What would share the process of a stage that failed may fail like it.
        waiting = waiting[len(group):] + group[len(ended):]
    if waiting:
        print(f"{len(waiting)} stages are left: the same command goes on with them")


def run_process(args, group: Sequence[Stage], machine: Machine, end: float) -> List[Stage]:
    """Runs stages in one process, until one has no result after its time, or there is no more time.

    Returns those that have a result, or a reason why they have none.
    """
    log_path = os.path.join(args.output_dir, group[0].name) + ".log"
    for stage in group:
        with contextlib.suppress(FileNotFoundError):
            os.remove(_result_file(args.output_dir, stage.name))
    ended = []
    with open(log_path, "w") as log:
        # A process group, so that all processes of the stages can be ended.
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu",
             f"--stage={','.join(stage.name for stage in group)}",
             f"--output_dir={args.output_dir}", f"--huggingface_python={args.huggingface_python}",
             *["--toy"] * args.toy],
            cwd=report.ROOT, stdout=log, stderr=log, preexec_fn=os.setpgrp)
        try:
            for stage in group:
                has_result = _await_result(args, stage, process, end, log_path)
                write_tables(args, machine)
                if not has_result and time.time() >= end:
                    break
                ended.append(stage)
                if not has_result:
                    break
        finally:
            with contextlib.suppress(ProcessLookupError):  # all of them have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return ended


def _await_result(args, stage: Stage, process: subprocess.Popen, end: float, log_path: str) -> bool:
    """Waits for a stage's result. Without one, returns False, and writes why if there was time."""
    start = time.time()
    path, last = _result_file(args.output_dir, stage.name), min(start + stage.seconds, end)
    while not os.path.exists(path) and process.poll() is None and time.time() < last:
        time.sleep(0.1)
    has_result = os.path.exists(path)
    if not has_result and time.time() < end:
        status = process.poll()
        why = f"took longer than {stage.seconds} s" if status is None else f"ended with status {status}"
        _write(args.output_dir, stage.name, {"failed": f"{why}: {_last_line(log_path)}"})
    result = json.dumps(read_result(args.output_dir, stage.name) or "the time of this call has ended")
    print(f"{stage.name}: {time.time() - start:.0f} s: {result[:200]}", flush=True)
    return has_result


def _last_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def measure(args, machine: Machine) -> None:
    """Runs stages here, one after another, and writes the result of each."""
    by_name = {stage.name: stage for stage in stages(machine)}
    for name in args.stage.split(","):
        start = time.time()
        try:
            result = by_name[name].run(by_name[name].cell, machine)
        except UserError as error:  # such as a precision that this TensorFlow does not have
            result = {"failed": str(error)}
        for file_name, text in result.pop("files", {}).items():
            files.write_text(os.path.join(args.output_dir, file_name), text)
        _write(args.output_dir, name, {**result, "stage_seconds": time.time() - start})


def _write(output_dir: str, name: str, result: Dict[str, Any]) -> None:
    files.write_json(_result_file(output_dir, name), {
        **result, "cards": gpus.names(gpus.visible()), "machine": report.machine(),
        "tensorflow": runtime.tf.VERSION, "commit": report.commit(),
        "date": str(datetime.date.today())})


def _result_file(output_dir: str, name: str) -> str:
    return os.path.join(output_dir, name + ".json")


def read_result(output_dir: str, name: str) -> Optional[Dict[str, Any]]:
    """The result of a stage; None if it has none yet."""
    path = _result_file(output_dir, name)
    return files.read_json(path, "the result") if os.path.exists(path) else None


def write_tables(args, machine: Machine) -> str:
    """Writes results.md from all results; returns its text."""
    text = tables.text({stage.name: read_result(args.output_dir, stage.name)
                        for stage in stages(machine)})
    files.write_text(os.path.join(args.output_dir, "results.md"), text)
    return text


def find_machine(args) -> Machine:
    """Raises a UserError without a card, unless --toy asks for none."""
    if args.toy:
        return Machine(speed.TOY_CARDS, True, args.huggingface_python)
    gpus.check_seen()
    if not runtime.visible_gpu_count():
        raise UserError("no card is visible to TensorFlow; --toy rehearses on the CPU")
    return Machine(runtime.visible_gpu_count(), False, args.huggingface_python)


def main() -> None:
    parser = report.parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=9, help="that this call may take")
    parser.add_argument("--output_dir", type=os.path.abspath, default="benchmarks_gpu")
    parser.add_argument("--toy", action="store_true",
                        help="everything at toy size, on virtual CPU devices")
    parser.add_argument("--stages", default="", help="only those whose names begin with this "
                        "regular expression")
    parser.add_argument("--huggingface_python", default=sys.executable,
                        help="an interpreter that has torch and transformers; starts without "
                        f"{', '.join(speed.OURS)} and our folders in LD_LIBRARY_PATH")
    parser.add_argument("--stage", help=argparse.SUPPRESS)  # a process of `run_process`
    args = parser.parse_args()
    if re.search(r"-xla\b", args.stage or ""):
        runtime.prepare_xla()  # before TensorFlow looks for cards
    try:
        machine = find_machine(args)
        if args.stage:
            measure(args, machine)
            return
        files.make_directory(args.output_dir, "--output_dir")
        with interruption.InterruptNow():
            run_stages(args, machine)
    except UserError as error:
        parser.error(str(error))
    except interruption.Interrupted as interrupted:
        parser.exit(128 + interrupted.signal_number, f"{interrupted}\n")
    print(write_tables(args, machine))


if __name__ == "__main__":
    main()
