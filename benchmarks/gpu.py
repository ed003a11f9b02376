"""Measures what is to know about cards, in stages, the most valuable first; called again, goes on.

  python -m benchmarks.gpu --minutes=9

As a stage ends, it writes <output_dir>/<stage>.json; a stage that has its result there is not run
again (remove the file to repeat it), and one that was refused or took too long comes last. A stage
starts only if all the time that it may take is left, so a call never ends in the middle of one. Then a
table of all results is printed and written to <output_dir>/results.md. --toy rehearses everything on
virtual CPU devices. Needs no network and no data.
"""

import argparse
import contextlib
import datetime
import functools
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from engine.devices import runtime  # before anything else that imports TensorFlow

from benchmarks import report
from benchmarks.gpu_stages import correctness, speed, tables
from benchmarks.gpu_stages.common import Machine
from benchmarks.gpu_stages.speed import Cell
from engine import interruption
from engine.devices import gpus
from engine.devices.precision import FLOAT16, PRECISIONS, TF32
from engine.disk import files
from engine.errors import UserError

SECONDS = 60  # that a stage may take, if it does not say so
TOY_SECONDS = 150
PLAIN, XLA, RECOMPUTE, PRIVATE = "", "xla", "recompute_layers", "private_threads"
# What a process must have in its environment before it looks for cards.
ENVIRONMENTS = {PRIVATE: {"TF_GPU_THREAD_MODE": "gpu_private"}}
FAILURES = ("failed", "refused")


class Stage(NamedTuple):
    """A measurement."""
    name: str
    run: Callable[[Machine], Dict[str, Any]]
    seconds: int = SECONDS
    # Stages in a row with the same one share a process, which saves their start; None: its own.
    process: Optional[str] = None
    aid: str = PLAIN


def stages(machine: Machine) -> List[Stage]:
    """All stages, the most valuable first."""
    unique: Dict[str, Stage] = {}
    for stage in _in_order(machine):
        unique.setdefault(stage.name, stage)
    return list(unique.values())


def _in_order(machine: Machine) -> List[Stage]:
    return [
        # CUDA may have to compile TensorFlow's kernels for the card.
        Stage("first-step", correctness.first_step, 480),
        Stage("placement", correctness.placement), Stage("trace", speed.trace),
        *_tables("large", 128, (FLOAT16, TF32)), *_tables("large", 128, (FLOAT16, TF32), XLA),
        *_tables("base", 16, (FLOAT16, TF32)), *_tables("base", 16, (FLOAT16,), XLA),
        *_scaling(machine.num_cards, [machine.num_cards]),
        Stage("equivalence", correctness.equivalence, 240),
        *_tables("base", 128, (FLOAT16, TF32)), *_tables("base", 128, (FLOAT16, TF32), XLA),
        *_tables("base", 128, (FLOAT16,), PRIVATE),
        *_largest("large", 128, (FLOAT16,)), Stage("evaluation", speed.evaluation),
        Stage("not-a-number", correctness.not_a_number),
        Stage("interruption", correctness.interruption), Stage("start-up", speed.start_up, 120),
        *[Stage(f"huggingface-{precision}", functools.partial(speed.huggingface, precision), 120)
          for precision in (FLOAT16, TF32)],
        *[stage for size in ("base", "large") for length in (128, 512)
          for aid in (PLAIN, XLA, RECOMPUTE) for stage in _tables(size, length, PRECISIONS, aid)],
        *_scaling(machine.num_cards, [count for count in (2, 4, 8) if count < machine.num_cards]),
        Stage("augmentation", speed.augmentation), Stage("distillation", speed.distillation),
        *[stage for aid in (PLAIN, RECOMPUTE) for length in (128, 512)
          for size in ("base", "large") for stage in _largest(size, length, PRECISIONS, aid)]]


def _tables(size: str, length: int, precisions: Sequence[str], aid: str = PLAIN) -> List[Stage]:
    return [Stage(f"pretraining-{cell.name}", functools.partial(speed.pretraining, cell),
                  240 if aid == XLA else SECONDS, f"pretraining {size} {length} {aid}", aid)
            for cell in (Cell(size, length, precision, aid) for precision in precisions)]


def _largest(size: str, length: int, precisions: Sequence[str], aid: str = PLAIN) -> List[Stage]:
    return [Stage(f"largest-batch-{cell.name}", functools.partial(speed.largest_batch, cell), 240)
            for cell in (Cell(size, length, precision, aid) for precision in precisions)]


def _scaling(num_cards: int, counts: Sequence[int]) -> List[Stage]:
    cells = [Cell(size, 128, precision, PLAIN, count) for count in counts if num_cards > 1
             for size in ("large", "base") for precision in (FLOAT16, TF32)]
    return [Stage(f"scaling-{cell.name}", functools.partial(speed.pretraining, cell),
                  process=f"scaling {cell.num_replicas}") for cell in cells]


def run_stages(args, machine: Machine) -> None:
    """Runs the stages without a result, then those that failed, as long as there is time."""
    end = time.time() + 60 * args.minutes
    results = {stage: read_result(args.output_dir, stage.name)
               for stage in chosen_stages(args, machine)}
    waiting = [stage for stage, result in results.items() if result is None]
    print(f"{len(waiting)} stages have no result yet", flush=True)
    waiting += [stage for stage, result in results.items() if result and has_failed(result)]
    while waiting:
        in_time = [stage for stage in waiting if time.time() + _limit(stage, machine) <= end]
        if not in_time:
            break
        group = list(itertools.takewhile(
            lambda stage: stage is in_time[0]
            or stage.process is not None and stage.process == in_time[0].process, in_time))
        for stage in run_process(args, group, machine, end):
            waiting.remove(stage)
    if waiting:
        longest = max(_limit(stage, machine) for stage in waiting)
        print(f"{len(waiting)} stages are left: the same command goes on with them "
              f"(--minutes of at least {longest / 60:g} has time for each)")


def _limit(stage: Stage, machine: Machine) -> int:
    return TOY_SECONDS if machine.toy else stage.seconds


def has_failed(result: Dict[str, Any]) -> bool:
    """Whether a stage has a reason in the place of its result."""
    return any(name in result for name in FAILURES)


def chosen_stages(args, machine: Machine) -> List[Stage]:
    """The stages whose names begin with one of --stages."""
    found = [stage for stage in stages(machine) if re.match(args.stages, stage.name)]
    if not found:
        raise UserError(f"--stages={args.stages} matches none of "
                        f"{', '.join(stage.name for stage in stages(machine))}")
    return found


def run_process(args, group: Sequence[Stage], machine: Machine, end: float) -> List[Stage]:
    """Runs stages in one process, until one has no result after its time, or there is no more time.

    Returns:
        The stages that have ended, with a result or a reason why they have none.
    """
    flags = [f"--{name}={getattr(args, name)}" for name in ("output_dir", "huggingface_python")]
    log_path = os.path.join(args.output_dir, group[0].name) + ".log"
    for stage in group:
        with contextlib.suppress(FileNotFoundError):
            os.remove(_result_file(args.output_dir, stage.name))
    ended = []
    with open(log_path, "w") as log:
        # A process group, so that all processes of the stages can be ended.
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu",
             f"--stage={','.join(stage.name for stage in group)}", *flags,
             *(["--toy"] if args.toy else [])],
            cwd=report.ROOT, stdout=log, stderr=log, preexec_fn=os.setpgrp,
            env={**os.environ, **ENVIRONMENTS.get(group[0].aid, {})})
        try:
            for stage in group:
                if ended and time.time() + _limit(stage, machine) > end:
                    break
                ended.append(stage)
                if not _await_result(args, stage, process, _limit(stage, machine), log_path):
                    break
        finally:
            _end(process)
    return ended


def _await_result(args, stage: Stage, process: subprocess.Popen, seconds: int,
                  log_path: str) -> bool:
    """Waits for a stage's result; writes why there is none, and returns False."""
    start = time.time()
    path = _result_file(args.output_dir, stage.name)
    while not os.path.exists(path) and process.poll() is None and time.time() < start + seconds:
        time.sleep(0.1)
    has_result = os.path.exists(path)
    if not has_result:
        status = process.poll()
        why = f"took longer than {seconds} s" if status is None else f"ended with status {status}"
        _write(args.output_dir, stage.name, {"failed": f"{why}: {_last_line(log_path)}"})
    result = json.dumps(read_result(args.output_dir, stage.name))
    print(f"{stage.name}: {time.time() - start:.0f} s: {result[:200]}", flush=True)
    return has_result


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
            result = by_name[name].run(machine)
        except UserError as error:  # such as a precision that this TensorFlow does not have
            result = {"refused": str(error)}
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


def find_machine(args) -> Machine:
    """Raises a UserError without a card, unless --toy asks for none."""
    if args.toy:
        return Machine(speed.TOY_CARDS, True, args.huggingface_python)
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
    parser.add_argument("--stage", help=argparse.SUPPRESS)  # a process of `run_process`
    args = parser.parse_args()
    args.output_dir = os.path.abspath(args.output_dir)
    if re.search(rf"-{XLA}\b", args.stage or ""):
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
    text = tables.text({stage.name: read_result(args.output_dir, stage.name)
                        for stage in stages(machine)})
    files.write_text(os.path.join(args.output_dir, "results.md"), text)
    print(text)


if __name__ == "__main__":
    main()
