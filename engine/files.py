"""Files that are written completely or not at all, and hashes of their content.

What is put in place is durable: synced to the disk before it gets its name, and the name
after that, so that a power cut leaves the old file or the new one, never half of one.
"""

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import sys
from typing import Any, Dict, IO, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from engine.errors import UserError

_READ_BYTES = 1 << 20
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

_worker = 0


def set_worker(index: int) -> None:
    """Makes temporary names differ from those of the other workers of a run, on any machine."""
    global _worker
    _worker = index


def process_number() -> int:
    """For temporary names: the process's id, which another machine's may have, too."""
    return os.getpid() + (_worker << 32)


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Yields a temporary path beside `path`; renamed to it on success, removed on failure."""
    temporary = f"{path}.tmp-{process_number()}"
    with naming(path, temporary):
        try:
            yield temporary
            put(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.remove(temporary)


@contextlib.contextmanager
def atomic_folder(path: str) -> Iterator[str]:
    """Yields an empty folder beside `path`; it replaces `path`, or is removed on failure.

    A folder that a killed process had moved away, and not replaced, gets its name back. The rest
    that killed processes left behind is removed after success.
    """
    path = os.path.abspath(path)
    temporary, replaced = (f"{path}.{state}-{process_number()}" for state in ("tmp", "old"))
    shutil.rmtree(temporary, ignore_errors=True)  # process ids are reused
    moved = [remnant for remnant in remnants(path) if ".old-" in os.path.basename(remnant)]
    if moved and not os.path.lexists(path):
        os.rename(moved[0], path)
    surplus = [temporary, replaced]
    try:
        os.makedirs(temporary)  # here: a signal may end this as soon as it exists
        with naming(path, temporary):
            yield temporary
            sync_folder(temporary)
        if os.path.isdir(path):
            shutil.rmtree(replaced, ignore_errors=True)
            os.rename(path, replaced)
        os.rename(temporary, path)
        sync(os.path.dirname(path))
        surplus += remnants(path)
    finally:
        if os.path.isdir(replaced) and not os.path.lexists(path):
            os.rename(replaced, path)  # interrupted between the two renames
        for folder in surplus:
            shutil.rmtree(folder, ignore_errors=True)


def remnants(path: str) -> List[str]:
    """The temporary folders of `path` that killed processes left behind, and running ones use."""
    parent, name = os.path.split(path)
    pattern = re.compile(re.escape(name) + r"\.(tmp|old)-\d+")
    return [os.path.join(parent, entry) for entry in sorted(os.listdir(parent))
            if pattern.fullmatch(entry)]


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
            if not names or temporary and names[-1].startswith(temporary):
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
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        if HALF_CHARACTER.search(json.dumps(value, ensure_ascii=False)):
            raise ValueError("it spells half a character, which UTF-8 cannot hold")
        return value
    except OSError as error:
        raise UserError(f"{what} {path}: {error.strerror}") from error
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


def require_file(path: str, what: str) -> str:
    """Returns `path`; raises a UserError unless it is a file that can be read."""
    if not path:
        raise UserError(f"{what} is not given")
    try:
        with open(path, "rb"):
            return path
    except OSError as error:
        raise UserError(f"{what} {path}: {error.strerror}") from error


def make_directory(path: str, what: str) -> str:
    """Creates `path` if it does not exist; raises a UserError if it is not writable."""
    probe = os.path.join(path, f".tmp-{process_number()}")
    try:
        os.makedirs(path, exist_ok=True)
        with open(probe, "w"):
            pass
        os.remove(probe)
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
    with open(path, "rb") as file:
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
