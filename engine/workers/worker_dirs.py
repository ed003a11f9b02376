"""The folders of a run's workers. Only the chief writes into the output directory.

Another worker has a folder of its own for as long as it runs, which begins with what the chief's
training starts from: links to its files where the output directory is on a disk that both have, or
else copies.
"""

import base64
import contextlib
import os
import tempfile
from typing import List

from engine.checkpoints import checkpoint_files, checkpoints
from engine.disk import files, scratch
from engine.workers import build_once
from engine.workers.coordination import Peers

RUN_RECORD = "run.json"  # of a training, in its output directory
_CHUNK_BYTES = 1 << 22


def output_directory(path: str, us: Peers) -> str:
    """Makes --output_dir; another worker than the chief gets a folder of its own instead.

    Raises:
        UserError: it cannot be written to.
    """
    if not us.is_chief:
        return _receive(path, us)
    files.make_directory(path, "--output_dir")
    if us.others:
        _hand_out(path, us)
    return path


def _state(directory: str) -> List[str]:
    """The names of the files that a training starts from."""
    newest = checkpoints.latest(directory)
    names = [RUN_RECORD] if os.path.exists(os.path.join(directory, RUN_RECORD)) else []
    paths = checkpoint_files.files_of(newest.path) if newest else []
    return names + [os.path.basename(path) for path in paths]


def _hand_out(directory: str, us: Peers) -> None:
    names = _state(directory)
    with build_once.token(directory) as token:
        us.say("state", {"token": token, "names": names})
        sees = {index: us.hear(index, "sees state") for index in us.others}
    for index, is_shared in sees.items():
        if not is_shared:
            for name in names:
                _send_file(os.path.join(directory, name), index, us)


def _receive(directory: str, us: Peers) -> str:
    at_end = contextlib.ExitStack()
    folder = at_end.enter_context(scratch.folder(tempfile.gettempdir()))
    us.at_end(at_end.close)
    state = us.hear(0, "state")
    is_shared = os.path.exists(os.path.join(directory, state["token"]))
    us.say("sees state", is_shared, to=0)
    for name in map(os.path.basename, state["names"]):
        if is_shared:
            os.symlink(os.path.abspath(os.path.join(directory, name)), os.path.join(folder, name))
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
