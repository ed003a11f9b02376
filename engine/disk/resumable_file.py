"""A file that is written in chunks over any number of runs, and published when complete.

Until then it is PATH.part. PATH.json records its inputs and its progress, and stays: a process may be
killed at any moment; the next one resumes after the last recorded chunk, or finds the file complete.
While it lives, it locks the file.
"""

import contextlib
import hashlib
import io
import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Union

import numpy as np

from engine import interruption, log
from engine.disk import files, provenance, scratch
from engine.errors import UserError

_RECORD_TYPES = {"facts": dict, "rows": int, "bytes": int}


def array_header(num_rows: int, width: int) -> bytes:
    """What precedes the values [rows, width], float32, in NumPy's format, which `np.load` reads."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {
        "descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (num_rows, width)})
    return header.getvalue()


def record_of(path: str) -> Dict[str, Any]:
    """The record of a file: "facts", "rows" and "bytes"; raises a UserError if it is damaged.

    Since 1.1 also "content", the fact of these bytes (`provenance.Source`); until they are all, its
    state is 0.
    """
    try:
        return files.read_record(f"{path}.json", "the record", _RECORD_TYPES)
    except UserError as error:
        raise UserError(f"{error}; remove it with {path}, and build them again") from error


class ResumableFile:
    """The file and its record. Locked until it is published, or this object is gone.

    Args:
        path: the path of the complete file.
        facts: everything that determines the content, as JSON values with readable names. An
            unfinished file with other facts is replaced, and so is a file from elsewhere.
        header: the beginning of the file.

    Attributes:
        num_rows: the number of rows of the input that are done.
        is_whole: whether the file is complete.
        record_path: the path of the record.

    Raises:
        UserError: the path is no regular file, or a complete one with other facts; its record is
            damaged; another process writes it.
    """

    def __init__(self, path: str, facts: Mapping[str, Any], *, header: Union[str, bytes] = ""):
        if files.is_special(path):
            raise UserError(f"{path} is no regular file, and this output is resumed after an "
                            "interruption: name another file")
        self.path = path = os.path.realpath(path) if os.path.islink(path) else path  # keeps a link
        self.partial_path, self.record_path = f"{path}.part", f"{path}.json"
        self.num_rows = 0
        self.is_whole = False
        self._num_bytes = 0
        self._facts = facts
        self._digest = hashlib.sha256()
        self._header = _encoded(header)
        with contextlib.ExitStack() as lock:
            lock.enter_context(files.written_alone(path))
            if os.path.exists(self.record_path):
                self._resume(record_of(path))
            if not self.is_whole:
                self._facts = provenance.as_json(facts)
            self._lock = lock.pop_all()

    def _resume(self, record: Mapping[str, Any]) -> None:
        difference = provenance.difference(record, self._facts)
        size = _size_of(self.partial_path)
        self.is_whole = not difference and size < 0 and provenance.is_intact(self.path, record)
        if difference and size < 0 and os.path.exists(self.path):
            raise UserError(f"{self.path} was made with another {difference}; name another output, or "
                            f"remove it with its record {self.record_path}")
        if difference:
            log.warn(f"{self.partial_path} is from an interrupted run with another {difference}: it is "
                     "written anew")
        elif self.is_whole or self._take_up(size, record):
            self.num_rows, self._num_bytes = record["rows"], record["bytes"]
        elif size >= 0 or os.path.exists(self.path):
            log.warn(f"{self.path if size < 0 else self.partial_path} is not as it was recorded: it is "
                     "written anew")

    def _take_up(self, size: int, record: Mapping[str, Any]) -> bool:
        """Continues the unfinished file, if it begins with what is recorded."""
        if not 0 <= record["bytes"] <= size:
            return False
        digest, content = files.digest_of(self.partial_path, record["bytes"]), record.get("content")
        if isinstance(content, list) and content[3:] != [digest.hexdigest()]:
            return False
        self._digest = digest
        os.truncate(self.partial_path, record["bytes"])  # drops what a killed process did not record
        return True

    def append(self, chunk: Union[str, bytes], num_rows: int) -> None:
        """Writes the next chunk, text or bytes, made from `num_rows` rows; on disk when this returns.

        Signals wait until then, so that the record always holds `num_rows`.
        """
        with interruption.InterruptLater() as signals:
            signals.hold()
            content = _encoded(chunk)
            self._write(content if self.num_rows else self._header + content)
            self.num_rows += num_rows
            self._write_record()
        signals.raise_if_received()

    def _write_record(self, state: Any = 0) -> None:
        files.write_json(self.record_path, {
            "facts": self._facts, "rows": self.num_rows, "bytes": self._num_bytes, "content": [
                os.path.abspath(self.path), self._num_bytes, state, self._digest.hexdigest()]})

    def _write(self, content: bytes) -> None:
        scratch.check_owner()
        with files.name_disk_errors(self.path):
            if not self._num_bytes:  # these files describe or hold other chunks
                for path in filter(os.path.lexists, (self.record_path, self.partial_path)):
                    os.remove(path)
            elif _size_of(self.partial_path) != self._num_bytes:  # on a disk without locks
                raise UserError(f"{self.partial_path} was changed by another process; when it has ended, "
                                "run the same command again")
            with open(self.partial_path, "ab" if self._num_bytes else "xb") as file:
                file.write(content)
            files.sync(self.partial_path)
        self._num_bytes += len(content)
        self._digest.update(content)

    @contextlib.contextmanager
    def completing(self, rows: str) -> Iterator[None]:
        """A context in which the rest is appended; its end publishes the file.

        Args:
            rows: a word for the rows of the input, in the plural, such as "texts".
        """
        if self.is_whole:
            log.info(f"{self.path} is whole: nothing is left to do")
        elif self.num_rows:
            log.info(f"Going on with {self.partial_path}: {self.num_rows:,} {rows} are done")
        with self._lock:
            try:
                yield
            except interruption.Interrupted as interrupted:
                interrupted.said = (f"{self.num_rows:,} {rows} are done; the same command goes on from "
                                    "there")
                raise
            if not self.is_whole:
                self.finish()

    def finish(self) -> None:
        """Publishes the file."""
        with self._lock:
            self._write(b"" if self.num_rows else self._header)
            files.publish(self.partial_path, self.path)
            self._write_record(files.state_of(self.path))
            self.is_whole = True


@contextlib.contextmanager
def opened(path: Optional[str], facts: Optional[Mapping[str, Any]], header: str, rows: str
           ) -> Iterator[Tuple[int, Callable[[str, int], None]]]:
    """An output of text that is resumed if it has facts; without, it is written in one run.

    Args:
        path: the file; None for standard output.
        facts, header: see `ResumableFile`.
        rows: see `ResumableFile.completing`.

    Returns:
        The number of rows that are done, and append(lines, number of rows).
    """
    if facts is None:
        with files.output(path) as file:
            file.write(header)
            yield 0, lambda lines, num_rows: print(lines, end="", file=file, flush=True)
        return
    output = ResumableFile(path, facts, header=header)
    with output.completing(rows):
        yield output.num_rows, output.append


def _encoded(content: Union[str, bytes]) -> bytes:
    return content.encode("utf-8") if isinstance(content, str) else content


def _size_of(path: str) -> int:
    """The size in bytes; -1 for a missing file, or a link, which this module never makes."""
    return os.path.getsize(path) if os.path.exists(path) and not os.path.islink(path) else -1
