"""Damaged files: does every command end in one line, or as if nothing had happened?

  python -m benchmarks.fuzz --work_dir=DIR --cases=2500

Each case copies the files of a command that succeeds (`benchmarks/fuzzing/toy_scenes.py`), damages one
of them at random, its bytes or what it holds by its format, or the value of a flag, and runs the
command. It must end within 60 seconds and 2 GB of resident memory, leave no temporary file, and

  refuse   with status 2 and one line, or
  succeed  and, where the file has checksums or can be made again, with the results that the undamaged
           files give.

A case that has run has a file in DIR; called again, the command goes on with the others. --only=N
runs case N again and leaves its files in DIR/case. Ends with status 1 if a case did anything else.
Each case is a fork of this process, which has TensorFlow loaded.
"""

import argparse
import filecmp
import functools
import itertools
import os
import random
import shutil
import sys
from typing import Any, Dict, Iterator, List, Sequence

from benchmarks import campaign, faulty_disk, report
from benchmarks.fuzzing import commands, mutations, scenes

FLAG_SHARE = 0.06  # of the cases damage a flag
# None leads to a folder that could be written outside of the case's own.
FLAG_VALUES = ("", "-1", "0", "1e30", "nan", "inf", "w1", "/proc/none", "/dev/null/x", "true",
               "9" * 25, "\udcff", "a,b", "./.", "--")
OTHER_BEST = "it does not count as the best"  # said of a checkpoint that is damaged
REFUSED, SAME, SUCCEEDED = "refused", "same results", "other input, succeeded"


class Fuzzer:
    """Runs cases on scenes, which it prepares in WORK_DIR/scenes."""

    def __init__(self, work_dir: str):
        self._work_dir = work_dir
        self._scenes = scenes.prepare(os.path.join(work_dir, "scenes"))
        self._expected: Dict[str, Dict[str, str]] = {}

    def case(self, number: int, seed: Any, keep: bool = False) -> Dict[str, Any]:
        """Runs a case. Its files are left in WORK_DIR/case if `keep`."""
        generator = random.Random(f"{seed}-{number}")
        scene = generator.choice(self._scenes)
        if scene.results and scene.name not in self._expected:
            self._expected[scene.name] = self._run_undamaged(scene)
        folder = self._copy(scene)
        return self._run(scene, folder, *self._damage(scene, folder, generator), keep)

    def each_file(self, name: str, parts: Sequence[str]) -> Iterator[Dict[str, Any]]:
        """Runs a scene with each file of its parts damaged, in the ways of `mutations.PLAIN` by turns."""
        scene = next(scene for scene in self._scenes if scene.name == name)
        self._expected[name] = self._run_undamaged(scene)
        paths = [path for part in parts
                 for path in _paths(scene.folder, os.path.join(scene.folder, part))]
        for path, (what, damage) in zip(paths, itertools.cycle(mutations.PLAIN.items())):
            folder, file = self._copy(scene), os.path.relpath(path, scene.folder)
            damage(os.path.join(folder, file))
            yield self._run(scene, folder, file, what, scene.arguments(folder))

    def _run(self, scene: scenes.Scene, folder: str, damaged: str, what: str,
             arguments: Sequence[str], keep: bool = False) -> Dict[str, Any]:
        ended = commands.run(scene.module, arguments, f"{folder}.log", cwd=folder)
        outcome = self._outcome(scene, folder, damaged, ended)
        result = {"scene": scene.name, "damaged": damaged, "what": what, "outcome": outcome,
                  "seconds": round(ended.seconds, 2), "peak": ended.peak}
        if is_wrong(result):
            result["log"] = ended.said[-5000:]
        if keep:
            print(ended.said)
        else:
            shutil.rmtree(folder)
        return result

    def check(self) -> None:
        """Ends the process if a command does not succeed on files without damage."""
        for scene in self._scenes:
            self._expected[scene.name] = self._run_undamaged(scene)

    def _damage(self, scene: scenes.Scene, folder: str, generator: random.Random):
        """Damages a flag or a file; returns its name, what was done, and the arguments."""
        arguments = scene.arguments(folder)
        if generator.random() < FLAG_SHARE:
            index = generator.randrange(len(arguments))
            name = arguments[index].split("=")[0]
            value = generator.choice(FLAG_VALUES)
            arguments[index] = f"{name}={value}"
            return name, repr(value), arguments
        path = generator.choice(_paths(folder, os.path.join(
            folder, generator.choice(scene.files))))
        return os.path.relpath(path, folder), mutations.mutate(path, generator), arguments

    def _outcome(self, scene: scenes.Scene, folder: str, damaged: str, ended: commands.Ended) -> str:
        left = [name for _, folders, names in os.walk(folder) for name in folders + names
                if faulty_disk.TEMPORARY.search(name)]
        if ended.wrong() or left:
            return ended.wrong() or f"left {left[0]}"
        if ended.status:
            return REFUSED
        if not damaged.startswith(scene.checked) or OTHER_BEST in ended.said:
            return SUCCEEDED
        for name, expected in self._expected[scene.name].items():
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                return f"no {name}"
            if not filecmp.cmp(path, expected, shallow=False):
                return f"other {name}"
        return SAME

    def _copy(self, scene: scenes.Scene) -> str:
        """The scene's files in a folder of always the same name, which is in some of them."""
        return scene.copy_to(os.path.join(self._work_dir, "case"))

    def _run_undamaged(self, scene: scenes.Scene) -> Dict[str, str]:
        """Checks that the command succeeds; returns paths of copies of its results."""
        folder = self._copy(scene)
        ended = commands.run(scene.module, scene.arguments(folder), f"{folder}.log", cwd=folder)
        if ended.status:
            sys.exit(f"{scene.name}: {ended.said}")
        kept = {}
        for name in scene.results:
            kept[name] = os.path.join(self._work_dir, "scenes",
                                      f"{scene.name}-{os.path.basename(name)}")
            shutil.copy(os.path.join(folder, name), kept[name])
        return kept


def _paths(folder: str, beginning: str) -> List[str]:
    """The files in a folder whose paths begin so."""
    return sorted(path for parent, _, names in os.walk(folder)
                  for path in (os.path.join(parent, name) for name in names)
                  if path.startswith(beginning))


def is_wrong(result: Dict[str, Any]) -> bool:
    """Whether a case did what none may do."""
    return result["outcome"] not in (REFUSED, SAME, SUCCEEDED)


def row(name: str, results: List[Dict[str, Any]]) -> Dict[str, str]:
    return {"command": name, "cases": str(len(results)),
            **{outcome: str(sum(result["outcome"] == outcome for result in results))
               for outcome in (REFUSED, SAME, SUCCEEDED)},
            "wrong": str(sum(map(is_wrong, results))),
            "longest, s": f"{max(result['seconds'] for result in results):.1f}",
            "most memory": f"{max(result['peak'] for result in results) / 1e9:.2f} GB"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work_dir", required=True)
    parser.add_argument("--cases", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    work_dir = os.path.abspath(args.work_dir)
    fuzzer = Fuzzer(work_dir)
    if args.only is not None:
        print(fuzzer.case(args.only, args.seed, keep=True))
        return
    fuzzer.check()
    results = campaign.results_of(work_dir, args.seed, args.cases,
                                  functools.partial(fuzzer.case, seed=args.seed))
    names = sorted({result["scene"] for result in results})
    report.append(
        "Damaged files and flags",
        [*(row(name, [result for result in results if result["scene"] == name]) for name in names),
         row("all", results)],
        command=f"python -m benchmarks.fuzz --cases={args.cases} --seed={args.seed}",
        versions=campaign.versions(results))
    sys.exit(any(map(is_wrong, results)))


if __name__ == "__main__":
    main()
