"""A file that is written piece by piece over any number of runs, and there only when it is whole.

Beside it is a record of what it is made of and how far it is: a process that is killed at
any moment leaves a beginning that the next one goes on from.
"""

import glob
import json
import os
from typing import Any, Mapping

from engine import files
from engine.errors import UserError


class GrowingFile:
    """The file and its record.

    Args:
        path: of the file when it is whole.
        facts: everything that shapes its content, in JSON values under names for people.

    Attributes:
        num_rows: of the input, whose output the file holds.
        is_whole: nothing is left to write.

    Raises:
        UserError: the path holds something else.
    """

    def __init__(self, path: str, facts: Mapping[str, Any]):
        self.path = path
        self._partial = f"{path}.part"
        self._record = f"{path}.json"
        self._facts = json.loads(json.dumps(facts))
        self.num_rows = self._num_bytes = 0
        self.is_whole = False
        for leftover in glob.glob(f"{glob.escape(self._record)}.tmp-*"):  # of a killed process
            os.remove(leftover)
        if os.path.exists(self._record):
            self._go_on(files.read_json(self._record, "the record"))
        elif os.path.exists(path):
            raise UserError(f"{path} is there and was not written by this command; use another "
                            "--output_dir")

    def _go_on(self, record: Mapping[str, Any]) -> None:
        for name in sorted({*self._facts, *record["facts"]}):
            earlier, now = record["facts"].get(name), self._facts.get(name)
            if earlier != now:
                raise UserError(f"{self.path} was made with another {name}: {_brief(earlier)} "
                                f"there, {_brief(now)} now; use another --output_dir, or remove "
                                "the file and its record .json")
        size = _size_of(self._partial)
        # Between its renaming and its last record a file is whole, too.
        self.is_whole = size < 0 and _size_of(self.path) == record["bytes"]
        if self.is_whole or size >= record["bytes"]:
            self.num_rows, self._num_bytes = record["rows"], record["bytes"]

    def append(self, text: str, num_rows: int) -> None:
        """Writes the next piece, which comes of so many more rows; it is safe when this returns."""
        content = text.encode("utf-8")
        with open(self._partial, "r+b" if self._num_bytes else "wb") as file:
            file.truncate(self._num_bytes)  # what a killed process had not recorded yet
            file.seek(self._num_bytes)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._num_bytes += len(content)
        self.num_rows += num_rows
        files.write_json(self._record, {
            "facts": self._facts, "rows": self.num_rows, "bytes": self._num_bytes})

    def finish(self) -> None:
        """Gives the file its name."""
        if _size_of(self._partial) > self._num_bytes:
            os.truncate(self._partial, self._num_bytes)
        os.replace(self._partial, self.path)
        self.is_whole = True


def _size_of(path: str) -> int:
    """In bytes; -1 where there is no such file."""
    return os.path.getsize(path) if os.path.exists(path) else -1


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
