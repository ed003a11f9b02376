"""Checkpoint files: lists, verifies, saves and removes them.

TensorFlow writes the values of a checkpoint into PREFIX.data-* and their shapes and checksums into
PREFIX.index. The file `checkpoint` of a directory is written for other programs: what counts here are
the files themselves.

An index is read without TensorFlow, whose reader ends the process at a wrong shape. It is a table of
LevelDB: blocks of rows, a block with the places of these blocks, and a footer with the place of that
one.
"""

import contextlib
import functools
import glob
import os
import re
import struct
from typing import Dict, Iterator, List, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf import message
from tensorflow.core.protobuf import tensor_bundle_pb2

from engine import log
from engine.disk import files, scratch
from engine.errors import UserError

PREFIX = "model.ckpt"  # a training's checkpoints are PREFIX-STEP
_INDEX = re.compile(rf"({re.escape(PREFIX)}-(\d+))\.index")

Entry = tensor_bundle_pb2.BundleEntryProto

_FOOTER_BYTES = 48
_INDEX_BYTES = 1 << 22  # the largest index: some 40,000 variables
_LONGEST_NAME = 1 << 10
_MOST_DIMENSIONS = 254  # TensorFlow's
# Of other types the reader would make objects, of whatever bytes.
_TEXT, *_NUMBERS = (tf.as_dtype(name).as_datatype_enum for name in (
    "string", "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128"))

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
        saver.save(session, draft, write_meta_graph=False, write_state=False)
        scratch.check_owner()
        for path in files_of(draft):  # the index last
            files.publish(path, os.path.join(directory, os.path.basename(path)))
    _damages[_state_of(prefix)] = ""
    write_list(directory)


def remove(directory: str, names: Sequence[str]) -> None:
    """Removes checkpoints, and before it their names from the file `checkpoint`."""
    write_list(directory, without=names)
    for name in names:
        prefix = os.path.join(directory, name)
        meta_graph = glob.glob(f"{glob.escape(prefix)}.meta")  # other programs write it
        for path in meta_graph + files_of(prefix):  # the index last: until then it is listed
            os.remove(path)
    files.sync(directory)


def remove_unfinished(directory: str) -> None:
    """Removes values of checkpoints that have no index: their process was killed before it wrote that."""
    for path in glob.glob(os.path.join(glob.escape(directory), f"{PREFIX}-*.data-?????-of-?????")):
        if not exists(path.rpartition(".data-")[0]):
            log.info(f"Removing {path}: its checkpoint was never finished")
            os.remove(path)


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
    """The sizes and states of a checkpoint's files."""
    return (prefix, *((path, os.path.getsize(path), *files.state_of(path))
                      for path in files_of(prefix) if os.path.exists(path)))  # not a link to itself


def _find_damage(prefix: str) -> str:
    try:
        entries = read_index(f"{prefix}.index")
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


def read_index(path: str) -> Dict[str, Entry]:
    """The dtype, shape and size of each variable, by its name; without texts, which no model reads."""
    content = files.read_whole(path, "the index", _INDEX_BYTES)
    try:
        _, _, *place, _ = _varints(content[-_FOOTER_BYTES:], 0, 4)
        entries = {name.decode("utf-8", "replace"): Entry.FromString(value)
                   for _, block in _rows(content, *place)
                   for name, value in _rows(content, *_varints(block, 0, 2)[:2])}
    except (IndexError, ValueError, struct.error, message.DecodeError) as error:
        raise UserError(f"{path} is no index of a checkpoint") from error
    del entries[""]  # it describes the table itself
    for name, entry in entries.items():
        _check(entry, f"{path}: {name}")
    return {name: entry for name, entry in entries.items() if entry.dtype != _TEXT}


def _check(entry: Entry, where: str) -> None:
    shape = np.array([dimension.size for dimension in entry.shape.dim])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if ((shape < 0).any() or len(shape) > _MOST_DIMENSIONS or np.maximum(shape, 1.0).prod() >= 2**63
            or entry.dtype not in (_TEXT, *_NUMBERS) or entry.slices or entry.size > memory):
        raise UserError(f"{where} is no whole array of numbers that this machine could hold: type "
                        f"{entry.dtype}, {entry.size:,} bytes, shape {shape.tolist()}")


def _rows(content: bytes, offset: int, size: int) -> Iterator[Tuple[bytes, bytes]]:
    """The names and values of a block. A name begins as the one before; only the rest is written."""
    block, compression = content[offset:offset + size], content[offset + size]
    count, = struct.unpack("<I", block[-4:])
    end = size - 4 * count - 4
    starts = set(struct.unpack(f"<{count}I", block[end:-4]))  # the rows at which a search begins
    name, position = b"", 0
    while position < end:
        starts.discard(position)
        shared, own, length, position = _varints(block, position, 3)
        if shared + own > _LONGEST_NAME:
            raise ValueError
        name = name[:shared] + block[position:position + own]
        position += own + length
        yield name, block[position - length:position]
    if compression or starts:
        raise ValueError


def _varints(content: bytes, position: int, count: int) -> Tuple[int, ...]:
    """`count` numbers, in LevelDB's variable lengths, and the position after them."""
    numbers = []
    for _ in range(count):
        number = shift = 0
        while content[position] > 127 and shift < 63:
            number |= (content[position] & 127) << shift
            position, shift = position + 1, shift + 7
        numbers.append(number | content[position] << shift)
        position += 1
    return (*numbers, position)
