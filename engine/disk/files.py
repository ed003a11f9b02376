"""Files that are written completely or not at all, and hashes of their content.

Published files are durable: first the content is synced to the disk, then the name, so that a
power cut leaves the old file or the new one, never half of one.
"""

import contextlib
import ctypes
import errno
import filecmp
import hashlib
import json
import math
import os
import pathlib
import re
import stat
import sys
from typing import Any, Dict, IO, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from engine import log
from engine.disk import scratch
from engine.errors import UserError

_READ_BYTES = 1 << 20
# The largest file of each kind that is read as a whole. JSON takes up to 100 times its size in memory.
_RECORD_BYTES = 1 << 24
VOCABULARY_BYTES = 1 << 26
DOCUMENT_BYTES = 1 << 30  # a data set that is one JSON value
# Disk errors, which are no bugs: full, read-only, forbidden, faulty.
_STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES,
                   errno.EPERM, errno.ESTALE)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux
# The errors of file systems that cannot sync a directory.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP)
# A half of a surrogate pair: JSON can spell one alone, and UTF-8 cannot hold it.
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
# Names of a process's open files, which a shell may have redirected.
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")
# The folders that this process writes into → their flags.
output_folders: Dict[str, str] = {}

# The directories that this process has created, parents first.
_made: List[pathlib.Path] = []


@contextlib.contextmanager
def atomic_path(path: str) -> Iterator[str]:
    """Yields a temporary path; on success its file replaces `path`, even a link."""
    with beside(path) as own:
        temporary = os.path.join(own, os.path.basename(path))
        yield temporary
        publish(temporary, path)


@contextlib.contextmanager
def atomic_folder(path: str, *, replaces: bool = True) -> Iterator[str]:
    """Yields an empty folder; it replaces `path`, or is removed on failure.

    Args:
        replaces: False: keeps a folder that is there.
    """
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with beside(path) as own:
        temporary = os.path.join(own, os.path.basename(path))
        os.mkdir(temporary)
        yield temporary
        sync_folder(temporary)
        if not (replaces and os.path.isdir(path) and _exchange(temporary, path)):
            _put(temporary, path, replaces)
        sync(os.path.dirname(path))


def _exchange(one: str, other: str) -> bool:
    """Swaps two folders in one step; False where the system or the disk cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return bool(rename) and rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _put(folder: str, path: str, replaces: bool) -> None:
    """Renames a folder to `path`. An error or a signal leaves the earlier folder there."""
    earlier = f"{folder}.earlier"
    try:
        if replaces and os.path.isdir(path):
            with contextlib.suppress(FileNotFoundError):  # another process is replacing it, too
                os.rename(path, earlier)
        os.rename(folder, path)
    except BaseException as error:
        is_there = os.path.isdir(path)  # another process has published it meanwhile
        if not is_there and os.path.lexists(earlier):
            os.rename(earlier, path)
        if not (is_there and isinstance(error, OSError)):
            raise


@contextlib.contextmanager
def beside(path: str) -> Iterator[str]:
    """A temporary folder in the directory of `path`; disk errors in it name `path` instead."""
    directory = os.path.dirname(path) or "."
    prefix = os.path.join(directory, scratch.PREFIX)
    with name_disk_errors(path, prefix), scratch.folder(directory) as own:
        yield own


def publish(temporary: str, path: str) -> None:
    """Renames a file to `path`, durably; replaces a file of that name."""
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
    """Syncs a folder and its content, recursively."""
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            sync(os.path.join(folder, name))
        sync(folder)


@contextlib.contextmanager
def name_disk_errors(path: str, temporary: Optional[str] = None) -> Iterator[None]:
    """Adds `path` to disk errors that name no file, or a path that begins with `temporary`.

    A failed write names no file; a failed opening does. TensorFlow's own error becomes an OSError if it names a path
    in `temporary`: after some of its errors, TensorFlow would begin a session anew.
    """
    try:
        yield
    except Exception as error:
        number = disk_errno(error)
        if number and isinstance(error, OSError):
            names = [str(name) for name in (error.filename, error.filename2) if name is not None]
            if not names or temporary and any(name.startswith(temporary) for name in names):
                error.filename = path
        elif number and temporary and temporary in str(error):
            raise OSError(number, os.strerror(number), path) from error
        raise


def disk_errno(error: Exception) -> Optional[int]:
    """errno of a disk error (full, read-only, faulty, not permitted); None for other errors.

    The exceptions of libraries such as TensorFlow hold the system's text for it.
    """
    if isinstance(error, OSError) and error.errno is not None:  # else it is what another process said
        return error.errno if error.errno in _STORAGE_ERRORS else None
    message = str(error)
    return next((number for number in _STORAGE_ERRORS if os.strerror(number) in message), None)


def check_output(path: Optional[str], flag: str, inputs: Sequence[Optional[str]]) -> None:
    """Raises a UserError if an output cannot be written, or is one of the inputs.

    Args:
        path: the output; None for standard output.
        flag: the flag that names it.
        inputs: the input files; None for missing ones.
    """
    if not path:
        return
    if os.path.isdir(path):
        raise UserError(f"{flag}={path} is a directory; name a file")
    make_directory(os.path.dirname(os.path.abspath(path)), f"{flag}: its directory")
    check_inputs(path, flag, inputs)


def check_inputs(path: str, flag: str, inputs: Sequence[Optional[str]]) -> None:
    """Raises a UserError if an output is one of the inputs. See `check_output`."""
    for other in filter(None, inputs):
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise UserError(f"{flag}: {path} is also an input; name another output")


def is_special(path: str) -> bool:
    """Whether the path is a device, a pipe or anything else but a regular file.

    Also true for aliases of open files, such as /dev/stdout.
    """
    is_open_file = os.path.abspath(path).startswith(_OPEN_FILES)
    return os.path.exists(path) and (is_open_file or not os.path.isfile(path))


@contextlib.contextmanager
def output(path: Optional[str]) -> Iterator[IO[str]]:
    """A text file that is published when complete; standard output without a path.

    Devices and pipes are written to directly.
    """
    if not path:
        with name_disk_errors("standard output"):
            yield sys.stdout
            sys.stdout.flush()
        return
    if is_special(path):
        with name_disk_errors(path), open(path, "a", encoding="utf-8") as file:  # honours >>
            yield file
        return
    write_to = os.path.realpath(path)  # keeps a link
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
    text = read_text(path, what)
    try:
        value = json.loads(text)
        if HALF_CHARACTER.search(json.dumps(value, ensure_ascii=False)):
            raise ValueError("it spells half a character, which UTF-8 cannot hold")
        return value
    except (ValueError, RecursionError) as error:  # the last: deep nesting
        raise UserError(f"{what} {path} is not valid JSON: {error}") from error


def read_record(path: str, what: str, types: Mapping[str, Union[Type, Tuple[Type, ...]]],
                defaults: Mapping[str, Any] = {}) -> Dict[str, Any]:
    """The object in a JSON file, with at least these entries, of these types. `what` begins errors.

    Entries that it lacks have their `defaults`: an earlier version did not write them.
    """
    record = read_json(path, what)
    if not isinstance(record, dict):
        raise UserError(f"{what} {path} is damaged: it holds no JSON object")
    record = {**defaults, **record}
    for name, its_types in types.items():
        value = record.get(name)
        if name not in record:
            raise UserError(f"{what} {path} is damaged: it lacks {name!r}")
        if not isinstance(value, its_types) or isinstance(value, bool) and its_types is int:
            raise UserError(f"{what} {path} is damaged: {name!r} is {json.dumps(value)[:40]}")
    return record


def require_file(path: str, what: str, max_bytes: float = math.inf) -> str:
    """Returns `path`; raises a UserError unless it is a readable regular file within `max_bytes`."""
    if not path:
        raise UserError(f"{what} is not given")
    with open_regular(path, what, max_bytes):
        return path


def read_whole(path: str, what: str, max_bytes: int = _RECORD_BYTES) -> bytes:
    """The content of a file; raises a UserError as `require_file` does."""
    with open_regular(path, what, max_bytes) as file:
        return file.read(max_bytes)


def read_text(path: str, what: str, max_bytes: int = _RECORD_BYTES) -> str:
    """The text of a file in UTF-8, without a byte order mark; raises a UserError as `read_whole` does."""
    try:
        return read_whole(path, what, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{what} {path} is not UTF-8 ({error}); convert the file, for example with "
                        "iconv") from error


def open_regular(path: str, what: str, max_bytes: float = math.inf) -> IO[bytes]:
    """Opens a regular file. A pipe would wait for a writer, and a device may be endless."""
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
        whole = pathlib.Path(path).absolute()
        _made.extend(folder for folder in (*reversed(whole.parents), whole) if not folder.exists())
        os.makedirs(path, exist_ok=True)
        with scratch.folder(path):
            pass
    except OSError as error:
        raise UserError(f"{what}={path} cannot be written to: {error.strerror}") from error
    output_folders[path] = what
    return path


def remove_empty_directories() -> None:
    """Removes what `make_directory` has created, but for what is in use."""
    while _made:
        with contextlib.suppress(OSError):
            _made.pop().rmdir()


@contextlib.contextmanager
def new_folder(path: str, flag: str) -> Iterator[str]:
    """`atomic_folder` for a user's path; raises a UserError unless it is new, empty or holds the same files already.

    Another content is found only at the end.
    """
    make_directory(os.path.dirname(os.path.abspath(path)), f"the folder of {flag}")
    refused = UserError(f"{flag}={path} is a file, a mount point or not empty; name a new folder")
    is_full = os.path.isdir(path) and bool(os.listdir(path))
    if os.path.exists(path) and (not os.path.isdir(path) or os.path.ismount(path)):
        raise refused
    if not is_full:
        with atomic_folder(path) as draft:
            yield draft
        return
    with beside(os.path.abspath(path)) as draft:
        yield draft
        if not _holds(path, draft):
            raise refused
    log.info(f"{path} is whole: nothing is left to do")


def _holds(path: str, draft: str) -> bool:
    """Whether a folder has the files of another one, with the same content."""
    names = [os.path.relpath(os.path.join(folder, name), draft) for folder, _, names in os.walk(draft)
             for name in names if not name.startswith(scratch.PREFIX)]
    return all(os.path.isfile(os.path.join(path, name)) and filecmp.cmp(
        os.path.join(path, name), os.path.join(draft, name), shallow=False) for name in names)


def state_of(path: str) -> List[int]:
    """Changes with a file: the times of its content and of its inode, and the inode's number.

    A program can set the first time as it likes, as archives do, but not the second.
    """
    status = os.stat(path)
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def hash_of_json(value: Any) -> str:
    """SHA-256 of a JSON value, in hex."""
    return hash_of(json.dumps(value).encode("utf-8"))


def hash_of(content: bytes) -> str:
    """SHA-256 of `content`, in hex."""
    return hashlib.sha256(content).hexdigest()


def hash_of_file(path: str) -> str:
    """SHA-256 of a file's content, in hex."""
    return digest_of(path).hexdigest()


def digest_of(path: str, num_bytes: float = math.inf) -> "hashlib._Hash":
    """SHA-256 of the first bytes of a file, to be continued."""
    digest = hashlib.sha256()
    with open_regular(path, "file") as file:
        for block in iter(lambda: file.read(int(min(_READ_BYTES, num_bytes - file.tell()))), b""):
            digest.update(block)
    return digest
