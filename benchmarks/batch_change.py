"""Trainings that go on with another global batch: what they see of their sets, and where their rate ends.

  python -m benchmarks.batch_change [classification] [tagging] [pretraining]

Toys of classification, tagging and pretraining begin with each of five batches (replicas × examples), are
killed by SIGKILL at a third and at two thirds, and go on with each of the others by `--allow_batch_change`.
Counted are the examples of the steps that were trained; a row is printed for each training. The program
ends where one has not seen each example once an epoch (but for what does not fill a step), where its rate
does not fall towards 0, or where it is trained further, once it is finished, by a larger or a smaller batch.
"""

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import numpy as np

from benchmarks import report
from engine.checkpoints import checkpoints
from engine.data import batches
from engine.training import checkpoint_hook, run_record
from engine.training.summaries import read_history

sys.path[:0] = [os.path.join(report.ROOT, "tests"), os.path.join(report.ROOT, "tests", "helpers")]

import processes  # noqa: E402
import toy_runs  # noqa: E402
from commands import run_here  # noqa: E402
from conftest import write_tiny_model  # noqa: E402

Row = Dict[str, Any]
Batch = Tuple[int, int]  # replicas, examples of each
KINDS = {"classification": "run_classifier", "tagging": "tagging.run --crf", "pretraining": "pretraining.run"}
BATCHES = [(1, 8), (2, 4), (2, 8), (1, 4), (4, 8)]
OTHERS = [(1, 2), (2, 32)]  # smaller and larger than all of them
EXAMPLES, EPOCHS, RATE, WARMUP = 80, 4, 1e-3, 0.1
SEEN = "seen.jsonl"  # in an output folder: [step, numbers of its examples], as a command has computed it
_KILLED = "import sys; from benchmarks import batch_change; batch_change.run_killed(*sys.argv[1:])"


def run(name: str, flags: Row, batch: Batch, saved: Callable[[int], None] = lambda step: None) -> str:
    """Runs a command with a batch, notes the examples of its steps; returns what it says.

    Args:
        saved: called after each checkpoint.
    """
    share, save = batches.training_share, checkpoint_hook.SaveHook._save

    def noted_share(source, plan, replicas, size, step):
        with open(os.path.join(flags["output_dir"], SEEN), "a") as file:
            file.write(json.dumps([int(step), plan.global_batch(step).tolist()]) + "\n")
        return share(source, plan, replicas, size, step)

    def noted_save(self, session):
        save(self, session)
        saved(self.step)

    replicas, each = batch
    batches.training_share, checkpoint_hook.SaveHook._save = noted_share, noted_save
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            run_here({**flags, "num_cpu_replicas": replicas, "train_batch_size": each}, toy_runs.module_of(name))
    finally:
        batches.training_share, checkpoint_hook.SaveHook._save = share, save
    return said.getvalue()


def run_killed(name: str, step: str, batch: str, flags: str) -> None:
    """Runs a command in a process, this one, that is killed when it has saved a step."""
    run(name, json.loads(flags), json.loads(batch), lambda saved: (
        os.kill(os.getpid(), signal.SIGKILL) if saved == int(step) else None))


def counts_in(folder: str) -> np.ndarray:
    """How often the training in a folder has seen each example, up to its newest checkpoint."""
    with open(os.path.join(folder, SEEN)) as file:
        steps = dict(map(json.loads, file))  # of a step that came twice, what it was the second time
    last = checkpoints.latest(folder).global_step
    sizes = run_record.load(folder).batches or [[0, len(steps[0])]]
    for (first, of_step), (end, _) in zip(sizes, [*sizes[1:], (last, 0)]):
        assert {len(steps[step]) for step in range(first, end)} <= {of_step}, "as run.json says"
    return np.bincount(np.concatenate([steps[step] for step in range(last)]), minlength=EXAMPLES)


def resumed(name: str, flags: Row, before: Batch, now: Batch) -> Row:
    """Goes on in a folder with another batch, and looks at what has become of it."""
    folder, (old, new) = flags["output_dir"], map(np.prod, (before, now))
    begun = checkpoints.latest(folder).global_step
    said = run(name, {**flags, "allow_batch_change": True}, now)
    assert old == new or "before the change of the global batch" in said, said
    closing = [line for line in said.splitlines() if line.startswith("step ")][-1]
    counts, rates = counts_in(folder), read_history(folder)["learning_rate"]
    last, last_rate = rates[-1]
    assert counts.max() == EPOCHS and EPOCHS * EXAMPLES - counts.sum() == (EPOCHS * EXAMPLES - begun * old) % new
    assert last == checkpoints.latest(folder).global_step and closing.startswith(f"step {last}/{last}: "), closing
    assert 0 < last_rate < 2 * RATE * new / EXAMPLES / EPOCHS, last_rate
    later = [rate for step, rate in rates if step > begun]
    assert later == sorted(later, reverse=True), "the warm-up is over"
    for other in OTHERS:
        assert f"already trained to step {last} of {last}" in run(name, flags, other)
    return {"begun with": " × ".join(map(str, before)), "killed at": begun,
            "went on with": " × ".join(map(str, now)), "steps": last, "examples seen": counts.sum(),
            "epochs": f"{counts.sum() / EXAMPLES:g}", "last rate": f"{last_rate:.2e}",
            "closing line": re.match(r".*lr [^,]+", closing).group()}


def rows_of(kind: str, base: Path) -> Iterator[Row]:
    """The trainings of a kind."""
    name, folder = KINDS[kind], str(base / "killed")
    flags = {**toy_runs.flags_of(name, base, write_tiny_model(base, num_hidden_layers=1)),
             "store_dir": base / "store", "learning_rate": RATE, "output_dir": folder, "crf": None}
    for before in BATCHES:
        steps = int(EPOCHS * EXAMPLES // np.prod(before))
        third = steps // 3
        flags.update(dict(num_train_steps=steps, num_warmup_steps=int(WARMUP * steps)) if "num_train_steps" in flags
                     else dict(num_train_epochs=EPOCHS, warmup_proportion=WARMUP), save_checkpoints_steps=third)
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        for killed_at in (third, 2 * third):
            words = name, str(killed_at), json.dumps(before), json.dumps(flags, default=str)
            ended = processes.run(["-c", _KILLED, *words])
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            for now in (other for other in BATCHES if other != before):
                shutil.rmtree(base / "resumed", ignore_errors=True)
                shutil.copytree(folder, base / "resumed")
                copy = {**flags, "output_dir": str(base / "resumed")}
                row = {"training": kind, **resumed(name, copy, before, now)}
                print(*row.values(), sep=" | ", flush=True)
                yield row


def summary(rows: Sequence[Row]) -> Iterator[Row]:
    """A row for each batch that a training began with, with a column for each with which it went on."""
    columns = [" × ".join(map(str, batch)) for batch in BATCHES]
    for (kind, begun), group in itertools.groupby(rows, key=lambda row: [row["training"], row["begun with"]]):
        cells = {column: [] for column in columns}
        for row in group:
            cells[row["went on with"]].append(f"{row['examples seen']} in {row['steps']} steps, {row['last rate']}")
        yield {"training": kind, "begun with": begun, **{
            f"then {column}": "; ".join(cell) or "–" for column, cell in cells.items()}}


def main() -> None:
    parser = report.parser_of(__doc__)
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], help="default: all")
    rows: List[Row] = []
    for kind in parser.parse_args().kinds or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            rows.extend(rows_of(kind, Path(folder)))
    report.append("Another global batch", list(summary(rows)))


if __name__ == "__main__":
    main()
