"""Every N-th operation of the file layer on the disk fails, or the process is killed there.

  LD_PRELOAD=faulty_disk.so python tests/helpers/fault_scenario.py faulty_disk.so FOLDER

Prints, as JSON, what went wrong, the number of cases and how they ended. Each case is a fork of this
process, in a folder of its own, with files that an earlier run wrote.
"""

import collections
import ctypes
import errno
import json
import os
import re
import shutil
import signal
import sys
from typing import Dict

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from engine.data.store import Column, open_or_build  # noqa: E402
from engine.disk import files, scratch  # noqa: E402
from engine.disk.artifact import GrowingFile  # noqa: E402
from engine.errors import UserError  # noqa: E402

FAULTS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "killed": 0}
ROWS = [f"row {number}\n" for number in range(3)]
BEFORE = {"text.txt": "before", "folder/a.txt": "before", "copy.txt": "before"}
SOURCE = __file__
_STATE = r"\[\s+\d{19},\s+\d{19},\s+\d+\s+\]"  # of a file, in a record


def write_all(folder: str) -> None:
    """All that the file layer can put in place; a second time it goes on where it was."""
    files.write_text(f"{folder}/text.txt", "now")
    with files.atomic_folder(f"{folder}/folder") as draft:
        files.write_text(f"{draft}/a.txt", "now")
        os.mkdir(f"{draft}/inner")
        with open(f"{draft}/inner/b.txt", "w") as file:
            file.write("now")
    with files.atomic_path(f"{folder}/copy.txt") as temporary:
        shutil.copyfile(SOURCE, temporary)
    with GrowingFile(f"{folder}/rows.txt", {"seed": 1}).growing("rows") as rows:
        for number in range(rows.num_rows, len(ROWS)):
            rows.append(ROWS[number], 1)
    numbers(folder)


def numbers(folder: str) -> np.ndarray:
    """The values of a store, which is built if it is not there."""
    def chunks():
        yield {"ids": (np.arange(6), np.array([2, 4]))}
    return open_or_build(folder, "store", {}, {"ids": Column("uint16", ragged=True)},
                         chunks).flat("ids")


def content(folder: str) -> Dict[str, str]:
    """The files below a folder, without those that have a temporary name."""
    texts = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            relative = os.path.relpath(path, folder)
            if not any(mark in relative for mark in (scratch.PREFIX, ".part")):
                with open(path, "rb") as file:
                    texts[relative] = re.sub(_STATE, "0", file.read().decode("latin-1"))
    return texts


def prepare(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(f"{folder}/folder")
    for name, text in BEFORE.items():
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)


def in_a_fork(folder: str, library, number: int, fault: int) -> str:
    """Writes all; how the process ended: "", "killed", "one line", or what is wrong."""
    process = os.fork()
    if not process:
        scratch._remove_leftovers.cache_clear()  # as in a new process
        library.faults_arm(folder.encode(), b"", number, fault)
        try:
            write_all(folder)
        except OSError as error:
            named = str(error.filename or "").startswith(folder)
            os._exit(2 if files.disk_errno(error) and named else 3)
        except UserError as error:  # a file that cannot be read
            os._exit(2 if folder in str(error) else 3)
        except BaseException:
            os._exit(4)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"status {status}"
    return {0: "", 2: "one line", 3: "an error without its path"}.get(
        os.WEXITSTATUS(status), "another exception")


def wrong_afterwards(folder: str, ended: str, whole: Dict[str, str]) -> str:
    """Whether anything is neither what it was before nor what it shall be; empty if not."""
    texts = content(folder)
    for name, text in whole.items():
        allowed = (text, BEFORE.get(name))
        if texts.get(name) not in allowed and not (ended == "killed" and name.startswith("folder")
                                                   and name not in texts):
            # The record of a file that grows says how far it is.
            if name != "rows.txt.json":
                return f"{name} is {texts.get(name)!r}"
    left = [name for name in os.listdir(folder) if name.startswith(scratch.PREFIX)]
    return f"left {left}" if ended == "one line" and len(left) > 1 else ""


def main(path: str, folder: str) -> None:
    folder = os.path.realpath(folder)
    library = ctypes.CDLL(path)
    library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    prepare(folder)
    library.faults_arm(folder.encode(), b"", 0, 0)
    write_all(folder)
    total, whole = library.faults_count(), content(folder)
    library.faults_arm(b"", b"", 0, 0)
    wrong, counts = [], collections.Counter()
    for name, fault in FAULTS.items():
        for number in range(1, total + 1):
            prepare(folder)
            ended = in_a_fork(folder, library, number, fault)
            counts[ended] += 1
            problem = ended if ended not in ("", "killed", "one line") else wrong_afterwards(
                folder, ended, whole)
            if not problem:
                again = in_a_fork(folder, library, 0, 0)
                problem = again or ("" if content(folder) == whole else "it ends differently")
            if problem:
                wrong.append(f"{name} at operation {number}: {problem}")
    print(json.dumps({"wrong": wrong, "cases": len(FAULTS) * total, "ended": counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
