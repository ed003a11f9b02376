"""Damage and faults at random: does every command end in one line, or as if nothing had happened?

Each case copies the files of a command that succeeds (`fuzz_scenes.py`), and runs it after or under one
kind of trouble:

  file    a file that it reads is damaged, its bytes or what it holds by its format
  flag    a flag has another value
  disk    an operation on the disk fails with ENOSPC or EIO, or kills the process (by a C compiler)
  signal  it gets SIGKILL, SIGTERM or SIGSTOP after a random time; SIGCONT follows the last

It must end within 60 seconds and 2 GB of resident memory, and, if it is not killed, succeed or
refuse with status 2 and one line. After damage it leaves no temporary file; where the damaged file has
checksums or can be made again, its results are those of the undamaged files. After a fault the same
command must succeed and leave the files of an undisturbed run, alike in every byte unless two undisturbed
runs already differ in them.
"""

import collections
import errno
import functools
import os
import random
import re
import signal
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import faulty_disk
import fuzz_mutations
import fuzz_scenes
from engine.disk import files, scratch
from fuzz_scenes import Ended, Scene

FILE, FLAG, DISK, SIGNAL = KINDS = "file", "flag", "disk", "signal"
SHARES = (60, 6, 20, 14)  # of the kinds
# None leads to a folder that could be written outside of the case's own.
FLAG_VALUES = ("", "-1", "0", "1e30", "nan", "inf", "w1", "/proc/none", "/dev/null/x", "true",
               "9" * 25, "\udcff", "a,b", "./.", "--")
DISK_FAULTS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "kill": 0}
NEED_NO_ROOM = ("open", "remove")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
# Statuses. A command that has not yet loaded its handler ends as any program does after SIGTERM.
KILLED = {"kill": (-signal.SIGKILL,), "SIGKILL": (-signal.SIGKILL,),
          "SIGTERM": (-signal.SIGTERM, 128 + signal.SIGTERM)}
LEAVE_NOTHING = ("ENOSPC", "SIGTERM", "SIGSTOP")  # EIO keeps files from being removed, too
OTHER_BEST = "it does not count as the best"  # said of a checkpoint that is damaged
REFUSED, SAME, SUCCEEDED, WENT_ON = OUTCOMES = (
    "refused", "same results", "other input, succeeded", "went on")
# Names that differ from process to process, or with the moment of a fault: SIGTERM saves.
_OF_PROCESS = re.compile(
    r"(\.bert-tmp-|_temp_?|\.tempstate|tfevents\.|\.part-)[^/]*|model\.ckpt-\d.*")
# Hashes of the files that were read since it could be read itself; which checkpoints are kept.
_OF_MOMENT = ("hashes.json", "checkpoint")


class Undisturbed(NamedTuple):
    """What undisturbed runs of a scene do and leave."""
    contents: Dict[str, str]  # hashes of the files, by path
    alike: Set[str]  # the files that two runs leave alike
    seconds: float
    operations: Dict[str, List[int]]  # on the disk: the places of each kind on each file, from 1 on


class Campaign:
    """Runs cases on scenes, which it prepares in WORK_DIR/scenes.

    Args:
        library: that of `faulty_disk`; None: no faults of the disk.
    """

    def __init__(self, work_dir: str, library: Optional[str] = None):
        self._work_dir, self._library = work_dir, library
        self.scenes = {scene.name: scene
                       for scene in fuzz_scenes.make(os.path.join(work_dir, "scenes"))}
        self.folder = os.path.join(work_dir, "case")  # a name that is in some of the files

    def case(self, number: int, seed: Any) -> Dict[str, Any]:
        """Runs a case, and leaves its files in WORK_DIR/case."""
        generator = random.Random(f"{seed}-{number}")
        scene = self.scenes[generator.choice(sorted(self.scenes))]
        kind, = generator.choices(KINDS, SHARES)
        if kind == SIGNAL or kind == DISK and self._library:
            return self._faulty_case(scene, kind, generator)
        if scene.results:
            self.undisturbed(scene.name)  # it needs the folder
        scene.copy_to(self.folder)
        arguments = scene.arguments(self.folder)
        if kind == FLAG:
            index, value = generator.randrange(len(arguments)), generator.choice(FLAG_VALUES)
            name, what = arguments[index].split("=")[0], repr(value)
            arguments[index] = f"{name}={value}"
        else:
            path = generator.choice(paths(f"{self.folder}/{generator.choice(scene.files)}"))
            name, what = os.path.relpath(path, self.folder), fuzz_mutations.mutate(path, generator)
        return self.run_damaged(scene, kind, name, what, arguments)

    @functools.lru_cache(maxsize=None)  # noqa: B019 (one campaign a process)
    def undisturbed(self, name: str) -> Undisturbed:
        """Runs a scene twice, which must succeed."""
        scene, left, operations = self.scenes[name], [], []
        for is_logged in (True, False):
            scene.copy_to(self.folder)
            if is_logged:
                ended, operations = self._run_on_faulty_disk(scene, 0, 0)
            else:  # as long as a run takes without the library
                ended = scene.run(self.folder)
            assert ended.status == 0, f"{scene.name}: {ended.said}"
            left.append(_contents(self.folder))
        places = collections.defaultdict(list)
        for place, (operation, path, _) in enumerate(operations, 1):
            path = _OF_PROCESS.sub("*", os.path.relpath(path, self.folder))
            places[f"{operation} {path}"].append(place)
        alike = {path for path, content in left[0].items()
                 if content == left[1].get(path) and not path.endswith(_OF_MOMENT)}
        return Undisturbed(left[0], alike, ended.seconds, dict(places))

    def run_damaged(self, scene: Scene, kind: str, name: str, what: str,
                    arguments: Sequence[str]) -> Dict[str, Any]:
        """Runs a scene whose files or arguments are damaged, in WORK_DIR/case."""
        ended, outcome = scene.run(self.folder, arguments), SUCCEEDED
        if ended.status:
            outcome = REFUSED
        elif name.startswith(scene.checked) and OTHER_BEST not in ended.said:
            expected, contents = self.undisturbed(scene.name).contents, _contents(self.folder)
            outcome = next((f"other {each}" for each in scene.results
                            if contents.get(each) != expected[each]), SAME)
        outcome = ended.wrong() or self._left() or outcome
        return _result(scene, kind, f"{name}: {what}", outcome, ended)

    def _faulty_case(self, scene: Scene, kind: str, generator: random.Random) -> Dict[str, Any]:
        undisturbed = self.undisturbed(scene.name)
        scene.copy_to(self.folder)
        if kind == DISK:
            what = generator.choice(sorted(undisturbed.operations))
            fault = generator.choice([name for name in sorted(DISK_FAULTS)
                                      if name != "ENOSPC" or not what.startswith(NEED_NO_ROOM)])
            ended, _ = self._run_on_faulty_disk(
                scene, generator.choice(undisturbed.operations[what]), DISK_FAULTS[fault])
        else:
            number, seconds = generator.choice(SIGNALS), generator.random() * undisturbed.seconds
            what, fault = f"after {seconds:.1f} s", number.name
            ended = scene.run(self.folder, strike=(seconds, number))
        wrong = "" if ended.status in KILLED.get(fault, ()) else ended.wrong()
        if not wrong:
            again = scene.run(self.folder)
            wrong = (again.wrong() or again.status and f"again: status {again.status}"
                     or self._difference(undisturbed) or fault in LEAVE_NOTHING and self._left())
            ended = ended._replace(said=f"{ended.said}\n--- again\n{again.said}")
        return _result(scene, kind, f"{what}: {fault}", wrong or WENT_ON, ended)

    def _difference(self, undisturbed: Undisturbed) -> str:
        """How the folder differs from that of an undisturbed run; "" if it does not."""
        contents, expected = _contents(self.folder), undisturbed.contents
        names = {name for name in set(contents) ^ set(expected) if not _OF_PROCESS.search(name)}
        differing = sorted(names | {name for name in undisturbed.alike & set(contents)
                                    if contents[name] != expected[name]})
        return f"{differing[0]} differs" if differing else ""

    def _left(self) -> str:
        left = [name for name in _contents(self.folder) if scratch.PREFIX in name]
        return f"left {left[0]}" if left else ""

    def _run_on_faulty_disk(self, scene: Scene, place: int, error: int
                            ) -> Tuple[Ended, List[Sequence[str]]]:
        """Has the operation at a place fail, none if it is 0; returns all operations besides."""
        if not self._library:
            return scene.run(self.folder), []
        log = os.path.join(self._work_dir, "operations")
        files.write_text(log, "")
        ended = scene.run(self.folder, library=self._library, before=f"""library = ctypes.CDLL({self._library!r})
library.faults_log({log.encode()})
library.faults_arm({self.folder.encode()}, b"", ctypes.c_long({place}), {error})""")
        return ended, faulty_disk.read_log(log)


def _result(scene: Scene, kind: str, what: str, outcome: str, ended: Ended) -> Dict[str, Any]:
    return {"scene": scene.name, "kind": kind, "what": what, "outcome": outcome,
            "seconds": round(ended.seconds, 2), "peak": ended.peak,
            **({} if outcome in OUTCOMES else {"log": ended.said[-8000:]})}


def paths(beginning: str) -> List[str]:
    """The files whose paths begin so."""
    everything = (os.path.join(parent, name)
                  for parent, _, names in os.walk(os.path.dirname(beginning)) for name in names)
    return sorted(path for path in everything if path.startswith(beginning))


def _contents(folder: str) -> Dict[str, str]:
    """The hash of each file below a folder."""
    return {os.path.relpath(path, folder): files.hash_of_file(path) for path in paths(f"{folder}/")}
