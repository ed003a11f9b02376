"""Measures what is to know about cards, in stages, the most valuable first; called again, goes on.

  python -m benchmarks.gpu --minutes=9

Each stage is a process of its own. As it ends, it writes <output_dir>/<stage>.json, beside its log;
a stage that has this file is not run again (remove the file to repeat it). A stage starts only if
all the time that it may take is left, so a call never ends in the middle of one. Then a table of
all results is printed and written to <output_dir>/results.md. --toy rehearses everything on virtual
CPU devices. Needs no network and no data.
"""

import argparse
import contextlib
import datetime
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from engine.devices import runtime  # before anything else that imports TensorFlow

from benchmarks import report
from benchmarks.gpu_stages import correctness, speed, tables
from benchmarks.gpu_stages.common import Machine
from benchmarks.gpu_stages.speed import Cell
from engine import interruption
from engine.devices import gpus
from engine.devices.precision import PRECISIONS
from engine.disk import files
from engine.errors import UserError

SECONDS = 120  # that a stage may take, if it does not say so
TOY_SECONDS = 150
TOY_CARDS = 2
PLAIN, XLA, RECOMPUTE = "", "xla", "recompute_layers"


class Stage(NamedTuple):
    """A measurement."""
    name: str
    run: Callable[[Machine], Dict[str, Any]]
    seconds: int = SECONDS


def stages(machine: Machine) -> List[Stage]:
    """All stages, the most valuable first."""
    first = [
        # CUDA may have to compile TensorFlow's kernels for the card.
        Stage("first-step", correctness.first_step, 480),
        Stage("placement", correctness.placement),
        Stage("equivalence", correctness.equivalence, 240),
        Stage("not-a-number", correctness.not_a_number),
        Stage("interruption", correctness.interruption)]
    return [*first, *_tables(PLAIN, 128), *_tables(PLAIN, 512),
            *[Stage(f"huggingface-{precision}", functools.partial(speed.huggingface, precision))
              for precision in PRECISIONS],
            Stage("start-up", speed.start_up), Stage("evaluation", speed.evaluation),
            Stage("augmentation", speed.augmentation), Stage("distillation", speed.distillation),
            *_scaling(machine.num_cards),
            *[stage for aid in (XLA, RECOMPUTE) for length in (128, 512)
              for stage in _tables(aid, length)],
            *[Stage(f"largest-batch-{cell.name}", functools.partial(speed.largest_batch, cell), 240)
              for aid in (PLAIN, RECOMPUTE) for length in (128, 512)
              for cell in _cells(aid, length)]]


def _cells(aid: str, length: int) -> List[Cell]:
    return [Cell(size, length, precision, aid)
            for size in ("base", "large") for precision in PRECISIONS]


def _tables(aid: str, length: int) -> List[Stage]:
    return [Stage(f"pretraining-{cell.name}", functools.partial(speed.pretraining, cell),
                  240 if aid == XLA else SECONDS) for cell in _cells(aid, length)]


def _scaling(num_cards: int) -> List[Stage]:
    counts = [count for count in (2, 4, 8, 16) if count <= num_cards]
    cells = [Cell(size, 128, precision, PLAIN, count) for count in counts
             for size in ("base", "large") for precision in PRECISIONS]
    return [Stage(f"scaling-{cell.name}", functools.partial(speed.pretraining, cell))
            for cell in cells]


def run_stages(args, machine: Machine) -> None:
    """Runs the stages without a result, as long as there is time for one."""
    end = time.time() + 60 * args.minutes
    waiting = [stage for stage in chosen_stages(args, machine)
               if not os.path.exists(_result_file(args.output_dir, stage.name))]
    print(f"{len(waiting)} stages have no result yet", flush=True)
    left_out = []
    for stage in waiting:
        seconds = TOY_SECONDS if machine.toy else stage.seconds
        if time.time() + seconds > end:
            left_out.append(stage)
            continue
        start = time.time()
        run_stage(args, stage, seconds)
        result = read_result(args.output_dir, stage.name)
        print(f"{stage.name}: {time.time() - start:.0f} s: {json.dumps(result)[:200]}", flush=True)
    if left_out:
        longest = max(TOY_SECONDS if machine.toy else stage.seconds for stage in left_out)
        print(f"{len(left_out)} stages are left: the same command goes on with them "
              f"(--minutes of at least {longest / 60:g} has time for each)")


def chosen_stages(args, machine: Machine) -> List[Stage]:
    """The stages whose names begin with one of --stages."""
    found = [stage for stage in stages(machine) if re.match(args.stages, stage.name)]
    if not found:
        raise UserError(f"--stages={args.stages} matches none of "
                        f"{', '.join(stage.name for stage in stages(machine))}")
    return found


def run_stage(args, stage: Stage, seconds: int) -> None:
    """Runs a stage in a process; if that writes no result, writes why."""
    flags = [f"--{name}={getattr(args, name)}" for name in ("output_dir", "huggingface_python")]
    path = os.path.join(args.output_dir, stage.name)
    with open(path + ".log", "w") as log:
        # A process group, so that all processes of the stage can be ended.
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu", f"--stage={stage.name}", *flags,
             *(["--toy"] if args.toy else [])],
            cwd=report.ROOT, stdout=log, stderr=log, preexec_fn=os.setpgrp)
        try:
            status: Optional[int] = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    if not os.path.exists(path + ".json"):
        why = f"took longer than {seconds} s" if status is None else f"ended with status {status}"
        _write(args.output_dir, stage.name, {"failed": f"{why}: {_last_line(path + '.log')}"})


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def measure(args, machine: Machine) -> None:
    """Runs one stage here and writes its result."""
    stage, = [stage for stage in stages(machine) if stage.name == args.stage]
    start = time.time()
    try:
        result = stage.run(machine)
    except UserError as error:  # such as a precision that this TensorFlow does not have
        result = {"refused": str(error)}
    _write(args.output_dir, stage.name, {**result, "stage_seconds": time.time() - start})


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


def find_machine(args) -> Machine:
    """Raises a UserError without a card, unless --toy asks for none."""
    if args.toy:
        return Machine(TOY_CARDS, True, args.huggingface_python)
    gpus.check_seen()
    count = runtime.visible_gpu_count()
    if not count:
        raise UserError("no card is visible to TensorFlow; --toy rehearses on the CPU")
    return Machine(count, False, args.huggingface_python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9, help="that this call may take")
    parser.add_argument("--output_dir", default="benchmarks_gpu")
    parser.add_argument("--toy", action="store_true",
                        help="everything at toy size, on virtual CPU devices")
    parser.add_argument("--stages", default="", help="only those whose names begin with this "
                        "regular expression")
    parser.add_argument("--huggingface_python", default=sys.executable,
                        help="an interpreter that has torch and transformers")
    parser.add_argument("--stage", help=argparse.SUPPRESS)  # a process of `run_stage`
    args = parser.parse_args()
    args.output_dir = os.path.abspath(args.output_dir)
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
    text = tables.text({stage.name: read_result(args.output_dir, stage.name)
                        for stage in stages(machine)})
    files.write_text(os.path.join(args.output_dir, "results.md"), text)
    print(text)


if __name__ == "__main__":
    main()
