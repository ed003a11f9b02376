"""The folders of a run's workers. Only the chief writes into the output directory.

Every other worker has a temporary folder. It initially holds the files that the chief's training
starts from: links to them if the output directory is on a shared disk, otherwise copies.
"""

import base64
import contextlib
import os
import tempfile
from typing import List, Optional

from engine.checkpoints import checkpoint_files, checkpoints
from engine.disk import files, locks, scratch
from engine.workers import build_once
from engine.workers.coordination import Peers

LOCK = f"{scratch.PREFIX}training.lock"  # of the process that trains in an output directory
RUN_RECORD = "run.json"  # of a training, in its output directory
_CHUNK_BYTES = 1 << 22


def output_directory(path: str, us: Peers, *, is_training: bool) -> str:
    """Makes --output_dir; another worker than the chief gets a folder of its own instead.

    A training keeps other trainings out of it until the command ends.
    """
    if us.is_chief:
        files.make_directory(path, "--output_dir")
    if us.is_chief and is_training:
        at_end = contextlib.ExitStack()
        at_end.enter_context(locks.exclusive(os.path.join(path, LOCK), f"--output_dir={path}"))
        us.at_end(at_end.close)
    if not us.others:
        return path
    with build_once.token(path) if us.is_chief else contextlib.nullcontext() as token:
        token, names = us.from_chief("state", lambda: [token, _state(path)])
        sees = us.gather("sees state", os.path.exists(os.path.join(path, token)))
    if not us.is_chief:
        return _own_folder(names, path if sees[us.cluster.index] else None, us)
    for index in us.others:
        for name in () if sees[index] else names:
            _send_file(os.path.join(path, name), index, us)
    return path


def _state(directory: str) -> List[str]:
    """The names of the files that a training starts from."""
    newest = checkpoints.latest(directory)
    names = [RUN_RECORD] if os.path.exists(os.path.join(directory, RUN_RECORD)) else []
    paths = checkpoint_files.files_of(newest.path) if newest else []
    return names + [os.path.basename(path) for path in paths]


def _own_folder(names: List[str], shared: Optional[str], us: Peers) -> str:
    """A folder with these files: links to those in a shared directory, or copies of the chief's."""
    at_end = contextlib.ExitStack()
    folder = at_end.enter_context(scratch.folder(tempfile.gettempdir()))
    us.at_end(at_end.close)
    for name in map(os.path.basename, names):
        if shared:
            os.symlink(os.path.abspath(os.path.join(shared, name)), os.path.join(folder, name))
        else:
            _receive_file(os.path.join(folder, name), us)
    if checkpoint_files.list_checkpoints(folder):
        checkpoint_files.write_list(folder)
    return folder


def _send_file(path: str, index: int, us: Peers) -> None:
    """Sends a file in parts, each when the one before has been written; the last one is empty."""
    with files.open_regular(path, "file") as file:
        part = None
        while part != b"":
            part = file.read(_CHUNK_BYTES)
            us.say("file", base64.b64encode(part).decode("ascii"), to=index)
            us.hear(index, "file written")


def _receive_file(path: str, us: Peers) -> None:
    with open(path, "wb") as file:
        part = None
        while part != b"":
            part = base64.b64decode(us.hear(0, "file"))
            file.write(part)
            us.say("file written", None, to=0)
