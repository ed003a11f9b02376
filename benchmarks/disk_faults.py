"""Each operation on the disk fails, or is a command's last one: is anything lost?

  python -m benchmarks.disk_faults --work_dir=DIR

A command (`benchmarks/fuzzing/toy_scenes.py`) that reads and writes below a folder is run once and its
operations there are logged: opening, creating, writing, syncing, renaming and removing. In each case
one of them fails with ENOSPC or EIO, or the process is killed there: every kind on every file once,
the three faults in turn, and 30 operations at random. A command that is not killed must end with
status 2 and one line, or succeed, if it can do without.

The same command without a fault must then succeed and leave the files that an undisturbed run leaves,
alike in every byte, unless two undisturbed runs already differ in them. (After a kill, and after an
EIO, which also keeps files from being removed, some may be left under a temporary name; and hashes.json
may hold other hashes, which only save reading files again.) And what could a power cut lose of files
that are in place? The log of the undisturbed run tells.

Needs a C compiler. A case that has run has a file in DIR; called again, this goes on with the
others. Each case is a fork of this process. Ends with status 1 if anything was lost.
"""

import argparse
import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import random
import re
import signal
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Set, Tuple

from benchmarks import campaign, faulty_disk, report
from benchmarks.fuzzing import commands, scenes

SCENES = ("creating data", "making slots", "exporting", "augmenting", "own data", "pretraining.run",
          "distillation.run --stage=prediction", "rewriting.run", "rewriting")
RANDOM_CASES = 30
FAULTS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "kill": 0}
# The end of a name that is another one in each process.
_OF_PROCESS = re.compile(
    r"(\.bert-tmp-|_temp_?|\.tempstate|tfevents\.|\.part-)[^/]*")
_CURVES = "tfevents"  # each process writes its own, as it goes on
_HASHES = "hashes.json"  # of the files that were read since it could be read itself
KILLED, REFUSED, SUCCEEDED, MISSED = "killed", "one line", "did without", "did not come to it"


class Target(NamedTuple):
    """An operation: the n-th of those whose paths contain a text."""
    what: str
    match: str
    n: int


class Trial:
    """A command, and what its undisturbed runs do and leave.

    Attributes:
        name: the scene's.
        targets: the first operation of each kind on each file.
        power_losses: what a power cut could lose.
    """

    def __init__(self, scene: scenes.Scene, work_dir: str, library: ctypes.CDLL):
        self.name = scene.name
        self._scene = scene
        self._work_dir = work_dir
        self._library = library
        left = []
        for _ in range(2):
            scene.copy_to(self._folder)
            ended, operations = self._run_logged(functools.partial(self._arm, "", 0, 0))
            if ended.status:
                sys.exit(f"{scene.name}: {ended.said}")
            left.append(_contents(self._folder))
        self._expected = left[0]
        self._alike = {name for name in left[0] if left[0][name] == left[1].get(name)
                       and not name.endswith((_CURVES, _HASHES))}
        self._whats = [_what(operation, self._folder) for operation in operations]
        self.power_losses = faulty_disk.lost_by_a_power_cut(operations)
        self.targets = _first_of_each_kind(operations, self._folder)

    def case(self, number: int) -> Dict[str, Any]:
        """Runs a case: each target in turn, then operations at random."""
        generator = random.Random(f"{self.name}-{number}")
        if number < len(self.targets):
            target = self.targets[number]
        else:
            n = generator.randrange(len(self._whats)) + 1
            target = Target(self._whats[n - 1], "", n)
        # Opening for reading and removing need no room.
        faults = sorted(set(FAULTS) - (
            {"ENOSPC"} if target.what.startswith(("open", "remove")) else set()))
        fault = faults[number % len(faults)]
        self._scene.copy_to(self._folder)
        first, operations = self._run_logged(functools.partial(
            self._arm, target.match, target.n, FAULTS[fault]))
        struck = sum(target.match in operation.path for operation in operations) >= target.n
        result = {"scene": self.name, "what": target.what, "fault": fault}
        was_killed = fault == "kill" and first.status == -signal.SIGKILL
        wrong = "" if was_killed else first.wrong()
        log = first.said
        if not wrong:
            result["ended"] = (KILLED if was_killed else REFUSED if first.status
                               else SUCCEEDED if struck else MISSED)
            again = self._run(lambda: None)
            log += f"\n--- again\n{again.said}"
            wrong = (f"again: status {again.status}" if again.status
                     else self._difference(may_leave=fault != "ENOSPC"))
        return {**result, "wrong": wrong, **({"log": log[-8000:]} if wrong else {})}

    @property
    def _folder(self) -> str:
        return os.path.join(self._work_dir, "case")

    def _run(self, before: Callable[[], None]) -> commands.Ended:
        return commands.run(self._scene.module, self._scene.arguments(self._folder),
                            os.path.join(self._work_dir, "said.log"), cwd=self._folder, before=before)

    def _run_logged(self, arm: Callable[[], None]
                    ) -> Tuple[commands.Ended, List[faulty_disk.Operation]]:
        log = os.path.join(self._work_dir, "operations")
        with contextlib.suppress(FileNotFoundError):
            os.remove(log)

        def before() -> None:
            self._library.faults_log(log.encode())
            arm()

        return self._run(before), faulty_disk.read_log(log)

    def _arm(self, match: str, n: int, error: int) -> None:
        self._library.faults_arm(self._folder.encode(), match.encode(), ctypes.c_long(n), error)

    def _difference(self, may_leave: bool) -> str:
        """How the folder differs from that of an undisturbed run; "" if it does not.

        Args:
            may_leave: whether files may be left under temporary names.
        """
        found = {name: content for name, content in _contents(self._folder).items()
                 if not (may_leave and _OF_PROCESS.search(name))}
        names = sorted(set(found) ^ set(self._expected))
        if names:
            return f"{names[0]} is {'new' if names[0] in found else 'missing'}"
        differing = sorted(name for name in self._alike if found[name] != self._expected[name])
        return f"{differing[0]} differs" if differing else ""


def _what(operation: faulty_disk.Operation, folder: str) -> str:
    name = _OF_PROCESS.sub(r"\1*", os.path.relpath(operation.path, folder))
    return f"{operation.kind} {name}"


def _first_of_each_kind(operations: List[faulty_disk.Operation], folder: str) -> List[Target]:
    targets: List[Target] = []
    seen: Set[str] = set()
    for index, operation in enumerate(operations):
        path, what = operation.path, _what(operation, folder)
        if what not in seen:
            seen.add(what)
            random_part = _OF_PROCESS.search(path)
            match = path[:random_part.end(1)] if random_part else path
            n = sum(match in earlier.path for earlier in operations[:index + 1])
            targets.append(Target(what, match, n))
    return sorted(targets)  # threads make the order differ from run to run


def _contents(folder: str) -> Dict[str, str]:
    """The hash of each file below a folder; all curves of a folder are one."""
    hashes = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                relative = os.path.relpath(path, folder)
                hashes[re.sub(rf"({_CURVES})\..*", r"\1", relative)] = (
                    hashlib.sha256(file.read()).hexdigest())
    return hashes


def row(name: str, results: List[Dict[str, Any]], power_losses: int) -> Dict[str, str]:
    return {"command": name, "cases": str(len(results)),
            **{ended: str(sum(result.get("ended") == ended for result in results))
               for ended in (KILLED, REFUSED, SUCCEEDED, MISSED)},
            "wrong": str(sum(bool(result["wrong"]) for result in results)),
            "lost by a power cut": str(power_losses)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work_dir", required=True)
    args = parser.parse_args()
    work_dir = os.path.realpath(args.work_dir)
    os.makedirs(work_dir, exist_ok=True)
    path = faulty_disk.library(work_dir)
    if not path:
        sys.exit("this needs a C compiler")
    if os.environ.get("LD_PRELOAD") != path:
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.disk_faults", *sys.argv[1:]],
                  {**os.environ, "LD_PRELOAD": path})
    rows, all_results, lost = [], [], False
    found = {scene.name: scene for scene in scenes.prepare(os.path.join(work_dir, "scenes"))}
    for scene in map(found.__getitem__, SCENES):
        trial = Trial(scene, work_dir, ctypes.CDLL(path))
        results = campaign.results_of(work_dir, scene.name.replace(" ", "-"),
                                      len(trial.targets) + RANDOM_CASES, trial.case)
        all_results += results
        rows.append(row(scene.name, results, len(trial.power_losses)))
        print(trial.power_losses, flush=True)
        lost = lost or bool(trial.power_losses) or any(result["wrong"] for result in results)
    report.append(
        "Faults of the disk", rows, command="python -m benchmarks.disk_faults",
        versions=campaign.versions(all_results))
    sys.exit(lost)


if __name__ == "__main__":
    main()
