"""Files that are written completely or not at all, and hashes of their content.

What is put in place is durable: synced to the disk before it gets its name, and the name
after that, so that a power cut leaves the old file or the new one, never half of one.
"""

import contextlib
import errno
import glob
import hashlib
import json
import math
import os
import re
import stat
import sys
from typing import Any, Dict, IO, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from engine import scratch
from engine.errors import UserError

_READ_BYTES = 1 << 20
# The largest file of each kind that is read as a whole. JSON takes up to 100 times its size in memory.
_RECORD_BYTES = 1 << 24
VOCABULARY_BYTES = 1 << 26
# Errors of the disk, not of the program: what it holds, whether it can be written, its faults.
_STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES,
                   errno.EPERM)
# What file systems answer that cannot sync a directory.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP)
# A half of a surrogate pair: JSON can spell one alone, and UTF-8 cannot hold it.
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
# Names that lead to open files of a process, where a shell has redirected them, too.
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")

Types = Union[Type, Tuple[Type, ...]]


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Yields a temporary path; what is there replaces `path` on success, also one that is a link."""
    with beside(path) as own:
        temporary = os.path.join(own, os.path.basename(path))
        yield temporary
        put(temporary, path)


@contextlib.contextmanager
def atomic_folder(path: str, *, replaces: bool = True) -> Iterator[str]:
    """Yields an empty folder; it replaces `path`, or is removed on failure.

    Args:
        replaces: False: a folder that another process has put there meanwhile stays.
    """
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with beside(path) as own:
        temporary = os.path.join(own, os.path.basename(path))
        os.mkdir(temporary)
        yield temporary
        sync_folder(temporary)
        if replaces and os.path.isdir(path):
            scratch.move_into(path, own)
        try:
            os.rename(temporary, path)
        except OSError:
            if replaces or not os.path.isdir(path):
                raise
        sync(os.path.dirname(path))


@contextlib.contextmanager
def beside(path: str) -> Iterator[str]:
    """A temporary folder in the directory of `path`, which errors of the disk name instead of it."""
    directory = os.path.dirname(path) or "."
    with naming(path, os.path.join(directory, scratch.PREFIX)), scratch.folder(directory) as own:
        yield own


def put(temporary: str, path: str) -> None:
    """Gives a file its name, durably; replaces another file of the name."""
    sync(temporary)
    os.replace(temporary, path)
    sync(os.path.dirname(path) or ".")


def sync(path: str) -> None:
    """Returns when a file's content, or the names in a directory, will survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not (os.path.isdir(path) and error.errno in _CANNOT_SYNC):
            raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """`sync` of a folder and all that is in it."""
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            sync(os.path.join(folder, name))
        sync(folder)


@contextlib.contextmanager
def naming(path: str, temporary: Optional[str] = None) -> Iterator[None]:
    """Names `path` in an error of the disk that names no file, or the temporary one, or one in it.

    A failed write, unlike a failed opening, does not say which file it was.
    """
    try:
        yield
    except OSError as error:
        if is_storage_error(error):
            names = [str(name) for name in (error.filename, error.filename2) if name is not None]
            if not names or temporary and any(name.startswith(temporary) for name in names):
                error.filename = path
        raise


def is_storage_error(error: Exception) -> bool:
    """Whether the disk is the reason (full, read-only, damaged, not permitted), not a bug."""
    return number_of(error) is not None


def number_of(error: Exception) -> Optional[int]:
    """The system's number of an error of the disk; None if it is another error.

    Other libraries' exceptions, such as TensorFlow's, hold the system's words for it.
    """
    if isinstance(error, OSError):
        return error.errno if error.errno in _STORAGE_ERRORS else None
    message = str(error)
    return next((number for number in _STORAGE_ERRORS if os.strerror(number) in message), None)


def check_output(path: Optional[str], flag: str, inputs: Sequence[Optional[str]]) -> None:
    """Raises a UserError if an output cannot be written, or is one of the inputs.

    Args:
        path: of the output; None for standard output.
        flag: the flag that names it.
        inputs: the files that are read; None for those that are not given.
    """
    if not path:
        return
    if os.path.isdir(path):
        raise UserError(f"{flag}={path} is a directory; name a file")
    make_directory(os.path.dirname(os.path.abspath(path)), f"{flag}: its directory")
    for other in filter(None, inputs):
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise UserError(f"{flag}={path} is the file that is read; name another one")


def is_special(path: str) -> bool:
    """Whether something other than a regular file, such as a device or a pipe, has this path.

    An open file of this process is special under its name as such, /dev/stdout for example.
    """
    is_open_file = os.path.abspath(path).startswith(_OPEN_FILES)
    return os.path.exists(path) and (is_open_file or not os.path.isfile(path))


@contextlib.contextmanager
def output(path: Optional[str]) -> Iterator[IO[str]]:
    """A text file, which gets its name when it is complete; standard output without a path.

    What is no regular file (a device, a pipe) is written to as it is.
    """
    if not path:
        with naming("standard output"):
            yield sys.stdout
            sys.stdout.flush()
        return
    if is_special(path):
        with naming(path), open(path, "a", encoding="utf-8") as file:  # as the shell's >> asks
            yield file
        return
    write_to = os.path.realpath(path)  # a link stays one
    with atomic_path(write_to) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file


def write_text(path: str, text: str) -> None:
    """Writes a text file in UTF-8, completely or not at all."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def write_json(path: str, value: Any) -> None:
    """Writes a JSON file, indented, completely or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str, what: str) -> Any:
    """The JSON value of a file; raises a UserError that begins with `what` if it has none."""
    content = read_whole(path, what)
    try:
        value = json.loads(content.decode("utf-8"))
        if HALF_CHARACTER.search(json.dumps(value, ensure_ascii=False)):
            raise ValueError("it spells half a character, which UTF-8 cannot hold")
        return value
    # JSONDecodeError, UnicodeDecodeError; lists within lists
    except (ValueError, RecursionError) as error:
        raise UserError(f"{what} {path} is not valid JSON: {error}") from error


def read_record(path: str, what: str, types: Mapping[str, Types]) -> Dict[str, Any]:
    """The object in a JSON file, which must have these entries, of these types; maybe more.

    Raises:
        UserError: begins with `what`; the file is damaged, or not what it should be.
    """
    record = read_json(path, what)
    if not isinstance(record, dict):
        raise UserError(f"{what} {path} is damaged: it holds no JSON object")
    for name, its_types in types.items():
        if name not in record:
            raise UserError(f"{what} {path} is damaged: it lacks {name!r}")
        if not isinstance(record[name], its_types) or (
                isinstance(record[name], bool) and its_types is int):
            raise UserError(f"{what} {path} is damaged: {name!r} is "
                            f"{json.dumps(record[name])[:40]}")
    return record


def find(patterns: str, flag: str) -> List[str]:
    """The files that comma-separated paths, patterns and directories match, each once.

    Raises:
        UserError: one of them names no file.
    """
    found = {}
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        # The name of an existing file may hold characters that are special in a pattern.
        paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        names = [name for path in paths for name in _files_at(path)]
        if not names:
            raise UserError(f"{flag}: {pattern} is no file, no directory with files and no "
                            "pattern that matches one")
        found.update(dict.fromkeys(names))
    if not found:
        raise UserError(f"{flag} names no file")
    return list(found)


def _files_at(path: str) -> List[str]:
    """The file itself, or all files below a directory in sorted order, without hidden ones."""
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, inner_folders, names in os.walk(path):
        inner_folders[:] = sorted(name for name in inner_folders if not name.startswith("."))
        found += [os.path.join(folder, name) for name in sorted(names) if not name.startswith(".")]
    return found


def require_file(path: str, what: str, max_bytes: float = math.inf) -> str:
    """Returns `path`; raises a UserError unless it is a regular file of that size that can be read."""
    if not path:
        raise UserError(f"{what} is not given")
    with open_regular(path, what, max_bytes):
        return path


def read_whole(path: str, what: str, max_bytes: int = _RECORD_BYTES) -> bytes:
    """The content of a file; raises a UserError as `require_file` does."""
    with open_regular(path, what, max_bytes) as file:
        return file.read(max_bytes)


def open_regular(path: str, what: str, max_bytes: float = math.inf) -> IO[bytes]:
    """Opens a file, but no pipe, which would wait for a writer, and no device, which may never end."""
    try:
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        status = os.fstat(file.fileno())
    except OSError as error:
        raise UserError(f"{what} {path}: {error.strerror}") from error
    if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
        return file
    file.close()
    raise UserError(f"{what} {path} has {status.st_size:,} bytes, and may have at most {max_bytes:,}"
                    if stat.S_ISREG(status.st_mode) else f"{what} {path} is no regular file")


def make_directory(path: str, what: str) -> str:
    """Creates `path` if it does not exist; raises a UserError if it is not writable."""
    try:
        os.makedirs(path, exist_ok=True)
        with scratch.folder(path):
            pass
    except FileExistsError as error:
        raise UserError(f"{what}={path} is a file, not a folder") from error
    except OSError as error:
        raise UserError(f"{what}={path} cannot be written to: {error.strerror}") from error
    return path


@contextlib.contextmanager
def new_folder(path: str, flag: str) -> Iterator[str]:
    """`atomic_folder` for a user's path; raises a UserError if it exists and is not empty."""
    if os.path.isdir(path) and os.listdir(path):
        raise UserError(f"{flag}={path} is not empty; name a new folder")
    parent = os.path.dirname(os.path.abspath(path))
    make_directory(parent, f"the folder of {flag}")
    if os.path.exists(path) and not os.path.isdir(path):
        raise UserError(f"{flag}={path} is a file; name a new folder")
    if os.path.ismount(path):
        raise UserError(f"{flag}={path} is a mount point, which a new folder cannot replace; name "
                        "a folder in it")
    with atomic_folder(path) as draft:
        yield draft


def hash_of(content: bytes) -> str:
    """SHA-256 of some bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def hash_of_file(path: str) -> str:
    """SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with open_regular(path, "file") as file:
        for block in iter(lambda: file.read(_READ_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()


def content_hash(path: str, memory_path: str) -> str:
    """SHA-256 of a file's content, in hex; remembered by path, size and modification time.

    Args:
        path: the file.
        memory_path: a JSON file with the hashes of earlier runs, so that a large file is
            read once.
    """
    status = os.stat(path)
    os.makedirs(os.path.dirname(memory_path), exist_ok=True)
    identity = [status.st_size, status.st_mtime_ns]
    known = _load_memory(memory_path)
    entry = known.get(os.path.realpath(path))
    if isinstance(entry, list) and len(entry) == 3 and entry[:2] == identity:
        return entry[2]
    digest = hash_of_file(path)
    known[os.path.realpath(path)] = identity + [digest]
    write_json(memory_path, known)
    return digest


def _load_memory(path: str) -> dict:
    # It only saves time: a memory that cannot be read is the same as none.
    try:
        known = read_json(path, "the memory")
    except UserError:
        known = None
    return known if isinstance(known, dict) else {}
