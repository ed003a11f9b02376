"""A file that is written in chunks over any number of runs, and published when complete.

Until then it is PATH.part, with a record beside it of its inputs and its progress. A process may
be killed at any moment: the next one resumes after the last recorded chunk.
"""

import contextlib
import json
import os
from typing import Any, Iterator, Mapping, Optional, Union

from engine import interruption, log
from engine.disk import files
from engine.errors import UserError

_RECORD_TYPES = {"facts": dict, "rows": int, "bytes": int}


class ResumableFile:
    """The file and its record.

    Args:
        path: the path of the complete file.
        facts: everything that determines the content, as JSON values with readable names.
        keep_record: True: the record stays at PATH.json, so the next run knows that the file is
            complete; a file with other facts or from elsewhere is an error. False: the record is
            at PATH.part.json and is removed when the file is complete; any other file at PATH is
            replaced.
        header: the beginning of the file.

    Attributes:
        num_rows: the number of rows of the input that are done.
        is_whole: whether the file is complete.

    Raises:
        UserError: with `keep_record`, the path holds something else.
    """

    def __init__(self, path: str, facts: Mapping[str, Any], *, keep_record: bool,
                 header: Union[str, bytes] = ""):
        if files.is_special(path):
            raise UserError(f"{path} is no regular file, and this output is resumed after an "
                            "interruption: name another file")
        if os.path.islink(path):
            path = os.path.realpath(path)  # keeps a link
        self.path = path
        self.partial_path = f"{path}.part"
        self.num_rows = 0
        self.is_whole = False
        self._num_bytes = 0
        self._facts = json.loads(json.dumps(facts))
        self._keep_record = keep_record
        self._header = _encoded(header)
        self._record_path = f"{path}.json" if keep_record else f"{self.partial_path}.json"
        if os.path.exists(self._record_path):
            self._resume(files.read_record(self._record_path, "the record", _RECORD_TYPES))
        elif keep_record and os.path.exists(path):
            raise UserError(f"{path} exists and was not written by this command; use another "
                            "--output_dir")

    def _resume(self, record: Mapping[str, Any]) -> None:
        difference = _difference(record["facts"], self._facts)
        if difference and self._keep_record:
            raise UserError(f"{self.path} was made with another {difference}; use another "
                            "--output_dir, or remove the file and its record .json")
        size = _size_of(self.partial_path)
        if difference:
            if size >= 0:
                log.warn(f"{self.partial_path} is from an interrupted run with another "
                         f"{difference}: it is written anew")
            os.remove(self._record_path)
            return
        # Without a kept record, a process that was killed just after publishing leaves a complete
        # file that nothing marks as such.
        self.is_whole = (self._keep_record and size < 0
                         and _size_of(self.path) == record["bytes"])
        if self.is_whole or size >= record["bytes"]:
            self.num_rows, self._num_bytes = record["rows"], record["bytes"]
        else:
            os.remove(self._record_path)  # the chunks that it describes are gone

    def append(self, chunk: Union[str, bytes], num_rows: int) -> None:
        """Writes the next chunk, text or bytes, made from `num_rows` rows; on disk when this returns.

        Signals wait until then, so that the record always holds `num_rows`.
        """
        with interruption.InterruptLater() as signals:
            signals.hold()
            content = _encoded(chunk)
            self._write(content if self.num_rows else self._header + content)
            self.num_rows += num_rows
            files.write_json(self._record_path, {
                "facts": self._facts, "rows": self.num_rows, "bytes": self._num_bytes})
        signals.raise_if_received()

    def _write(self, content: bytes) -> None:
        with files.name_disk_errors(self.path):
            if not self._num_bytes and os.path.lexists(self.partial_path):
                os.remove(self.partial_path)
            with open(self.partial_path, "r+b" if self._num_bytes else "xb") as file:
                file.truncate(self._num_bytes)  # drops what a killed process did not record
                file.seek(self._num_bytes)
                file.write(content)
            files.sync(self.partial_path)
        self._num_bytes += len(content)

    @contextlib.contextmanager
    def completing(self, rows: str) -> Iterator[None]:
        """The rest is appended in this context, whose end publishes the file.

        Args:
            rows: what the rows of the input are, to say how many are done.
        """
        if self.num_rows:
            log.info(f"Going on with {self.partial_path}: {self.num_rows:,} {rows} are done")
        try:
            yield
        except interruption.Interrupted as interrupted:
            interrupted.said = (f"{self.num_rows:,} {rows} are done; the same command goes on from "
                                "there")
            raise
        self.finish()

    def finish(self) -> None:
        """Publishes the file."""
        self._write(b"" if self.num_rows else self._header)
        files.publish(self.partial_path, self.path)
        self.is_whole = True
        if not self._keep_record and os.path.exists(self._record_path):
            os.remove(self._record_path)


def _encoded(content: Union[str, bytes]) -> bytes:
    return content.encode("utf-8") if isinstance(content, str) else content


def _difference(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Optional[str]:
    """The first fact that differs, with both values; None if none differs."""
    for name in sorted({*earlier, *now}):
        was, is_now = earlier.get(name), now.get(name)
        if was != is_now:
            return f"{name}: was {log.brief(was)}, now {log.brief(is_now)}"
    return None


def _size_of(path: str) -> int:
    """The size in bytes; -1 for a missing file, or a link, which this module never makes."""
    return os.path.getsize(path) if os.path.exists(path) and not os.path.islink(path) else -1
