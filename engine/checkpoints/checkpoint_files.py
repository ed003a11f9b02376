"""Checkpoint files: lists, verifies, saves and removes them.

TensorFlow writes the values of a checkpoint into PREFIX.data-* and their checksums into
PREFIX.index. The file `checkpoint` of a directory is written for other programs: what counts here are
the files themselves.
"""

import contextlib
import functools
import glob
import os
import re
from typing import Dict, Iterator, List, Sequence, Tuple

import tensorflow.compat.v1 as tf

from engine import log
from engine.checkpoints import checkpoint_index
from engine.disk import files
from engine.errors import UserError

PREFIX = "model.ckpt"  # of the checkpoints of a training, followed by "-" and the step
_INDEX = re.compile(rf"({re.escape(PREFIX)}-(\d+))\.index")

_damages: Dict[Tuple, str] = {}  # results of `damage`, by the state of the files


def list_checkpoints(directory: str) -> List[str]:
    """The names of a directory's checkpoints, oldest first; empty if it has none."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    matches = [match for match in map(_INDEX.fullmatch, names) if match]
    return [match.group(1) for match in sorted(matches, key=lambda match: int(match.group(2)))]


def exists(prefix: str) -> bool:
    """Whether a checkpoint has its index, the last file saved."""
    return os.path.lexists(f"{prefix}.index")


def write_list(directory: str, without: Sequence[str] = ()) -> None:
    """Writes the file `checkpoint`, from which Estimator and other programs know the newest one.

    Without any checkpoint, removes it.
    """
    names = [name for name in list_checkpoints(directory) if name not in without]
    path = os.path.join(directory, "checkpoint")
    if not names:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        return
    files.write_text(path, "".join(
        [f'model_checkpoint_path: "{names[-1]}"\n',
         *(f'all_model_checkpoint_paths: "{name}"\n' for name in names)]))


def save(saver: tf.train.Saver, session, prefix: str) -> None:
    """Saves a checkpoint to disk, and then its name in the file `checkpoint`."""
    directory, name = os.path.split(prefix)
    with files.beside(prefix) as own:
        draft = os.path.join(own, name)
        with writing(prefix):
            saver.save(session, draft, write_meta_graph=False, write_state=False)
        for path in files_of(draft):  # the index last
            files.publish(path, os.path.join(directory, os.path.basename(path)))
    _damages[_state_of(prefix)] = ""
    write_list(directory)


def remove(directory: str, names: Sequence[str]) -> None:
    """Removes checkpoints, and before it their names from the file `checkpoint`."""
    write_list(directory, without=names)
    for name in names:
        prefix = os.path.join(directory, name)
        meta_graph = glob.glob(f"{glob.escape(prefix)}.meta")  # of other programs
        for path in meta_graph + files_of(prefix):  # the index last: until then it is listed
            os.remove(path)
    files.sync(directory)


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns TensorFlow's errors of the disk into an OSError that names `path`."""
    try:
        yield
    except tf.errors.OpError as error:
        number = files.disk_errno(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), path) from error


@contextlib.contextmanager
def reading(prefix: str) -> Iterator[None]:
    """Turns any error of reading a checkpoint that was whole, and no longer is, into a UserError."""
    try:
        yield
    except Exception as error:
        if not damage(prefix):
            raise
        raise UserError(f"{prefix} was removed or changed after it had been found ({damage(prefix)}): "
                        "run the same command again") from error


def damage(prefix: str) -> str:
    """Describes damage to a checkpoint's files; empty if they are whole.

    Compares every value with its checksum, once per process and state of the files. Trusts
    checkpoints that this process has saved.
    """
    state = _state_of(prefix)
    if state not in _damages:
        _damages[state] = _find_damage(prefix)
    return _damages[state]


def _state_of(prefix: str) -> Tuple:
    """The sizes and modification times of a checkpoint's files."""
    return (prefix, *((path, os.path.getsize(path), os.stat(path).st_mtime_ns)
                      for path in files_of(prefix) if os.path.exists(path)))  # not a link to itself


def _find_damage(prefix: str) -> str:
    try:
        entries = checkpoint_index.read(f"{prefix}.index")
        held = sum(os.path.getsize(files.require_file(path, "its file"))
                   for path in files_of(prefix)[:-1])
        needed = sum(entry.size for entry in entries.values())
        if held < needed:
            return f"cut short: its .data files have {held:,} bytes of {needed:,}"
        reader = tf.train.load_checkpoint(prefix)
        for name in entries:
            reader.get_tensor(name)
    except Exception as error:
        # The reader raises exceptions of any class, for a disk fault too.
        if files.disk_errno(error):
            raise UserError(f"{prefix} cannot be read: {_reason(error)}") from error
        return _reason(error)
    return ""


@functools.lru_cache(maxsize=None)
def warn_once(line: str) -> None:
    """Prints each warning once, although a run checks the same files several times."""
    log.warn(line)


def files_of(prefix: str) -> List[str]:
    """The paths of a checkpoint's files; the index is the last one."""
    escaped = glob.escape(prefix)
    return sorted(glob.glob(f"{escaped}.index") + glob.glob(f"{escaped}.data-?????-of-?????"))


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
