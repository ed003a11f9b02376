"""Where the workers of a run write: into the output directory, only the chief does.

Every other worker has a temporary folder. It initially holds the files that the chief's training
starts from: links to them if the output directory is on a shared disk, otherwise copies. On each disk,
one worker builds the stores that all its workers read. To find out which disks are shared, each worker
creates a file and checks which others it can see.
"""

import base64
import contextlib
import os
import tempfile
import uuid
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

from engine.checkpoints import checkpoint_files, checkpoints
from engine.disk import files, scratch
from engine.workers.coordination import NO_PEERS, Peers

LOCK = f"{scratch.PREFIX}training.lock"  # held by the process that trains in an output directory
RUN_RECORD = "run.json"  # the record of a training, in its output directory
_CHUNK_BYTES = 1 << 22

# Directory → the builder there. Global, because the code that opens a store has only its path and
# knows nothing of workers.
_builders: Dict[str, Tuple[Peers, int]] = {}


def find_builder(directory: str, peers: Peers) -> None:
    """Finds out which worker builds in a directory: the first one of those that share it.

    Called by all workers.
    """
    if not peers.others:
        return
    with _token(directory) as own:
        tokens = peers.gather("token", own)
        seen = [os.path.exists(os.path.join(directory, name)) for name in tokens]
        peers.wait("tokens seen")
    _builders[os.path.abspath(directory)] = peers, seen.index(True)


def build_once(path: str, facts: Mapping[str, Any], build: Callable[[], None]) -> None:
    """Calls `build`, which creates `path` if missing: first on the builder, then on the others.

    Called by all workers, if `find_builder` was called for the directory.
    """
    peers, builder = _builders.get(os.path.dirname(os.path.abspath(path)), (NO_PEERS, 0))
    peers.compare("the data", {"data": facts})
    is_builder = peers.cluster.index == builder
    if is_builder:
        build()
    peers.wait(f"built {os.path.basename(path)}")
    if not is_builder:
        build()


def output_directory(path: str, peers: Peers, *, is_training: bool) -> str:
    """Makes --output_dir; another worker than the chief gets a folder of its own instead.

    A training keeps other trainings out of it until the command ends.
    """
    if peers.is_chief:
        files.make_directory(path, "--output_dir")
        if is_training:
            _keep(scratch.exclusive(os.path.join(path, LOCK), f"--output_dir={path}"), peers)
    if not peers.others:
        return path
    with _token(path) if peers.is_chief else contextlib.nullcontext() as token:
        token, names = peers.from_chief("state", lambda: [token, _state(path)])
        sees = peers.gather("sees state", os.path.exists(os.path.join(path, token)))
    folder = path if peers.is_chief else _keep(scratch.folder(tempfile.gettempdir()), peers)
    has_files = peers.is_chief or sees[peers.cluster.index]  # the chief's own are never written
    for name in map(os.path.basename, names):
        original, own = (os.path.join(directory, name) for directory in (path, folder))
        if has_files and not peers.is_chief:
            os.symlink(os.path.abspath(original), own)
        if not all(sees):
            _broadcast(original, os.devnull if has_files else own, peers)
    if not peers.is_chief and checkpoint_files.list_checkpoints(folder):
        checkpoint_files.write_list(folder)
    return folder


@contextlib.contextmanager
def _token(directory: str) -> Iterator[str]:
    """Yields the unique name of a temporary file in a directory."""
    name = f".worker-{uuid.uuid4().hex}"
    path = os.path.join(directory, name)
    with open(path, "x"):
        pass
    try:
        yield name
    finally:
        os.remove(path)


def _keep(context: Any, peers: Peers) -> Any:
    """Enters a context until this worker ends."""
    at_end = contextlib.ExitStack()
    peers.at_end(at_end.close)
    return at_end.enter_context(context)


def _state(directory: str) -> List[str]:
    """The names of the files that a training starts from."""
    newest = checkpoints.latest(directory)
    names = [RUN_RECORD] if os.path.exists(os.path.join(directory, RUN_RECORD)) else []
    paths = checkpoint_files.files_of(newest.path) if newest else []
    return names + [os.path.basename(path) for path in paths]


def _broadcast(path: str, target: str, peers: Peers) -> None:
    """Copies a file of the chief to every worker's `target`, in parts, each when all have received the one before."""
    with files.open_regular(path, "file") if peers.is_chief else contextlib.nullcontext() as file, \
            open(target, "wb") as copy:
        part = None
        while part != b"":
            part = base64.b64decode(peers.from_chief(
                "file", lambda: base64.b64encode(file.read(_CHUNK_BYTES)).decode("ascii")))
            peers.wait("file received")
            copy.write(part)
