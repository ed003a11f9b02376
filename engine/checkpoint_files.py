"""The files of checkpoints: which there are, whether they are whole, and how one is saved durably.

TensorFlow writes the values of a checkpoint into PREFIX.data-* and their checksums into
PREFIX.index. The file `checkpoint` of a directory lists its checkpoints.
"""

import contextlib
import functools
import glob
import os
import re
from typing import Dict, Iterator, List, Sequence, Tuple

import tensorflow.compat.v1 as tf
from google.protobuf import text_format
from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState

from engine import files, log
from engine.errors import UserError

PREFIX = "model.ckpt"  # of the checkpoints of a training, followed by "-" and the step
_STATE = "checkpoint"
_INDEX = re.compile(rf"({re.escape(PREFIX)}-(\d+))\.index")

_found: Dict[Tuple, str] = {}  # what `damage` said, by the state of the files


def names(directory: str) -> List[str]:
    """The names of a directory's checkpoints, oldest first; empty if it has none.

    Of the paths in the file `checkpoint` only the last part counts: a directory may be moved,
    and no path leads out of it. If the file is damaged, or its newest checkpoint is not there,
    they are those whose files are there, after a warning.
    """
    path = os.path.join(directory, _STATE)
    if not os.path.isfile(path):
        return []
    listed = _listed(path)
    if listed and exists(os.path.join(directory, listed[-1])):
        return listed
    found = [match for match in map(_INDEX.fullmatch, os.listdir(directory)) if match]
    found.sort(key=lambda match: int(match.group(2)))
    if found:
        _warn(f"{path} {'names a checkpoint that is not there' if listed else 'is damaged'}: the "
              f"checkpoints are taken to be those whose files are in {directory}")
    return [match.group(1) for match in found]


def _listed(path: str) -> List[str]:
    """The names in a file `checkpoint`, the newest last; empty if the file is damaged."""
    content = files.read_whole(path, "list of checkpoints")
    try:
        state = text_format.Parse(content.decode("utf-8"), CheckpointState())
    except (ValueError, text_format.ParseError):  # the former: not UTF-8
        return []
    paths = [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
    found = [os.path.basename(path) for path in paths]
    valid = [name for name in found if name and name.isprintable()]
    return list(dict.fromkeys(valid[::-1]))[::-1]  # a name counts where it stands last


def names_of_files(prefix: str) -> List[str]:
    """The names of a checkpoint's files."""
    return [os.path.basename(path) for path in _files_of(prefix)]


def exists(prefix: str) -> bool:
    """Whether there is an index, with which a checkpoint begins and ends to be there."""
    return os.path.isfile(f"{prefix}.index")


def write_list(directory: str, kept: Sequence[str]) -> None:
    """Writes the file `checkpoint`: these names, oldest first."""
    state = CheckpointState(model_checkpoint_path=kept[-1], all_model_checkpoint_paths=kept)
    files.write_text(os.path.join(directory, _STATE), text_format.MessageToString(state))


def save(saver: tf.train.Saver, session, prefix: str, earlier: Sequence[str]) -> None:
    """Saves a checkpoint, which is on disk before the file `checkpoint` names it.

    Args:
        earlier: the names of the directory's other checkpoints, oldest first.
    """
    directory, name = os.path.split(prefix)
    with files.beside(prefix) as own:
        draft = os.path.join(own, name)
        with writing(prefix):
            saver.save(session, draft, write_meta_graph=False, write_state=False)
        for path in _files_of(draft):  # the index last
            files.put(path, os.path.join(directory, os.path.basename(path)))
    _found[_state_of(prefix)] = ""
    write_list(directory, [*(other for other in earlier if other != name), name])


def remove(directory: str, surplus: Sequence[str], kept: Sequence[str]) -> None:
    """Removes checkpoints, and then their names from the file `checkpoint`.

    Not the other way round: a process that is killed in between would leave the files for ever.
    """
    for name in surplus:
        prefix = os.path.join(directory, name)
        # Without an index the rest is a leftover: see `remove_leftovers`.
        meta_graph = glob.glob(f"{glob.escape(prefix)}.meta")  # of other programs
        for path in sorted(_files_of(prefix) + meta_graph, reverse=True):
            os.remove(path)
    files.sync(directory)
    write_list(directory, kept)


def remove_leftovers(directory: str) -> None:
    """Finishes a removal that was interrupted: of listed checkpoints that have no index any more."""
    path = os.path.join(directory, _STATE)
    for name in _listed(path) if os.path.isfile(path) else []:
        prefix = os.path.join(directory, name)
        if name.startswith(f"{PREFIX}-") and not exists(prefix):
            for leftover in _files_of(prefix):
                os.remove(leftover)


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns TensorFlow's errors of the disk into an OSError that names `path`."""
    try:
        yield
    except tf.errors.OpError as error:
        number = files.number_of(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), path) from error


def damage(prefix: str) -> str:
    """What is wrong with a checkpoint's files, in a few words; empty if nothing is.

    Every value is read and compared with its checksum, once for a process and a state of the
    files; not what the process has saved itself.
    """
    state = _state_of(prefix)
    if state not in _found:
        _found[state] = _find_damage(prefix)
    return _found[state]


def _state_of(prefix: str) -> Tuple:
    """Differs if the files have changed."""
    return (prefix, *((path, os.path.getsize(path), os.stat(path).st_mtime_ns)
                      for path in _files_of(prefix)))


def _find_damage(prefix: str) -> str:
    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes, dtypes = (reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map())
        held = sum(os.path.getsize(path) for path in _files_of(prefix)
                   if not path.endswith(".index"))
        needed = sum(_num_bytes(shapes[name], dtypes[name]) for name in shapes)
        if held < needed:
            return f"cut short: its .data files have {held:,} bytes of {needed:,}"
        for name in shapes:
            reader.get_tensor(name)
    except Exception as error:
        # The reader's exceptions are of any class, and that of a disk's fault is no other one.
        if files.is_storage_error(error):
            raise UserError(f"{prefix} cannot be read: {_reason(error)}") from error
        return _reason(error)
    return ""


def _num_bytes(shape: Sequence[int], dtype: tf.DType) -> int:
    """Of a variable's values; 0 for texts, whose length is not known."""
    if dtype == tf.string:
        return 0
    # Python's integers: a product of NumPy's may wrap around.
    return functools.reduce(lambda product, size: product * size, shape, dtype.size)


def warn_of_damage(prefix: str, found: str, instead: str) -> None:
    """Warns, once, that a checkpoint is passed over."""
    _warn(f"{prefix} is damaged ({found}): {instead}")


@functools.lru_cache(maxsize=None)
def _warn(line: str) -> None:
    """Each warning once: the same files are looked at several times in a run."""
    log.warn(line)


def _files_of(prefix: str) -> List[str]:
    escaped = glob.escape(prefix)
    return sorted(glob.glob(f"{escaped}.index") + glob.glob(f"{escaped}.data-?????-of-?????"))


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
