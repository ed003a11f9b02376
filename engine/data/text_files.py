"""Streams the rows of text files, with checks: tab-separated lines, CSV and JSON lines.

Every row comes with its line number, from 1. The caller interprets it.
"""

import csv
import itertools
import json
import os
import re
import threading
from typing import (
    Any, BinaryIO, Callable, Dict, Iterator, List, NamedTuple, Optional, Pattern, Sequence, Tuple,
    Union)

from engine import log
from engine.disk import files, parts
from engine.disk.parts import ArrivingLines
from engine.errors import UserError

Path = Union[str, parts.Part]  # a file, or a part of one
Row = Tuple[int, List[str]]

# Extension of the file's name → format.
FORMATS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl"}

LINE_CHARACTERS = frozenset("\t\r\n")  # that end a column or a line
_AS_SPACES = str.maketrans(dict.fromkeys(LINE_CHARACTERS, " "))
# Byte order marks of a line: in concatenated files also a later one has them.
_MARKS = re.compile("\ufeff*")
MARKS_OF_COLUMNS = re.compile("(?:\ufeff+(?![ \t]))?")  # not one that is a column
OBJECT = re.compile(r'\s*\{\s*".*\}\s*')  # a line that seems to be one of JSON


class Unread(NamedTuple):
    """In the place of a row that cannot be read; false."""
    reason: str

    def __bool__(self) -> bool:
        return False


class OddRows:
    """Counts bad rows in the input of a command that answers row by row: it skips them, with a warning.

    Bad rows in training data, and a file without any valid row, stay errors.

    Attributes:
        first: the reason of the first, or "".

    Args:
        become: what happens to bad rows, for the warning: "have no prediction".
        skips_lines: whether a line that is not UTF-8 is a bad row (--skip_bad_lines), and not the
            end of the command.
    """

    def __init__(self, become: str, *, skips_lines: bool = False):
        self._become, self._count, self.first, self.skips_lines = become, 0, "", skips_lines
        self._lock = threading.Lock()  # one thread reads while another predicts

    def add(self, reason: Any) -> None:
        """Counts a row, and keeps the reason of the first."""
        with self._lock:
            self._count += 1
            self.first = self.first or str(reason)

    def report(self, num_rows: int, may_be_all: bool = False) -> None:
        """Warns once of all bad rows; an error if all of the `num_rows` are bad, and may not be."""
        if self._count and self._count >= num_rows and not may_be_all:
            raise UserError(self.first)
        if self._count:
            log.warn(f"{self._count:,} of {num_rows:,} {self._become}; the first: {self.first}")


def attempt(odd: Optional[OddRows], read: Callable[..., Any], *args: Any) -> Any:
    """Returns read(*args). After a UserError, `odd` counts the row, and it is returned as `Unread`.

    Without `odd` the error is raised.
    """
    try:
        return read(*args)
    except UserError as error:
        if odd is None:
            raise
        odd.add(error)
        return Unread(str(error))


def input_format(path: str) -> str:
    """The format of a file by its extension; other extensions mean tab-separated text."""
    form = FORMATS.get(os.path.splitext(path)[1].lower())
    if form:
        return form
    with files.open_regular(path, "file") as file:
        start = file.read(1024)
    if b"\0" in start or start.lstrip()[:1] in (b"{", b"["):
        raise UserError(f"{path} does not hold lines of text; if it holds one of these formats, "
                        f"its name must end in {', '.join(FORMATS)}")
    return "tsv"


def check_lines(path: str) -> None:
    """Raises a UserError for a file of CSV or JSON, or of TSV with columns, where each line is read as a text.

    Args:
        path: the name tells CSV, the first line of a file that is not compressed JSON and columns; "": no file.
    """
    name = path.lower()
    is_table = name.endswith((".csv", ".json", ".jsonl", ".csv.gz", ".json.gz", ".jsonl.gz"))
    if path and not (is_table or name.endswith(".gz")):
        odd = OddRows("", skips_lines=True)  # a line that is not UTF-8 is reported where it is read
        first = next((line or "" for _, line in lines(path, odd=odd)), "")
        is_table = bool(OBJECT.fullmatch(first)) or name.endswith(".tsv") and "\t" in first
    if is_table:
        raise UserError(f"--input_file={path}: each line is read as a text here, with the other columns, marks and names "
                        "of TSV, CSV or JSON; write the texts into a .txt file, one a line")


def output_format(path: Optional[str], given: Optional[str]) -> str:
    """The format of an output: `given`, else by the file's extension, else tsv; CSV and JSON can only be read."""
    extension = os.path.splitext(path or "")[1].lower()
    if extension in (".csv", ".json") and not given:
        raise UserError(f"{path}: the output is not written as {extension[1:].upper()}; name a .tsv or .jsonl file, "
                        "or set --format")
    return given or ("jsonl" if extension == ".jsonl" else "tsv")


def field(text: str) -> str:
    """The text as a column of TSV: with spaces for what ends a column or a line."""
    return text.translate(_AS_SPACES)


def tsv_rows(path: Path, odd: Optional[OddRows] = None) -> Iterator[Tuple[int, Union[List[str], Unread]]]:
    """Tab-separated fields. No quoting: quotes are text.

    Args:
        odd: see `lines`.
    """
    for line_number, line in lines(path, odd=odd):
        yield line_number, line if isinstance(line, Unread) else line.split("\t")


def csv_rows(path: Path) -> Iterator[Row]:
    """Comma-separated fields (RFC 4180); quoted ones may hold commas and line ends.

    The number of a row is that of its first line.
    """
    csv.field_size_limit(parts.LINE_BYTES)  # without its quote at the end, one would take all lines
    begun: List[int] = []  # the lines of the next row

    def texts() -> Iterator[str]:
        for line_number, line in lines(path, parts.CSV_ROWS):
            begun.append(line_number)
            yield line + "\n"

    try:
        for fields in csv.reader(texts(), strict=True):
            # The reader returns an empty line as no field at all.
            yield begun[0], fields or [""]
            begun.clear()
    except csv.Error as error:
        raise UserError(f"{path}, line {begun[0]}: this row is not CSV ({error}); quotes around a "
                        "field must be closed, those within it doubled, and lines end with \\n or "
                        "\\r\\n") from error


def json_rows(path: Path, names: Sequence[str], list_name: Optional[str] = None,
              odd: Optional[OddRows] = None) -> Iterator[Tuple[int, Union[List[str], Unread]]]:
    """The values of these keys in the object of each line; only `list_name` may be a list or
    an object."""
    def values_in(line_number: int, value: dict) -> List[str]:
        missing = next((name for name in names if name not in value), None)
        if missing is not None:
            raise UserError(f"{path}, line {line_number}: the object has no {missing!r}; it has "
                            f"{', '.join(map(repr, value)) or 'no keys'} (--text_column and the "
                            "like choose the keys to read)")
        where = f"{path}, line {line_number}"
        return [as_text(where, name, value[name], name == list_name) for name in names]

    return json_objects(path, odd, values_in)


def json_objects(path: Path, odd: Optional[OddRows] = None, read: Callable[[int, dict], Any]
                 = lambda line_number, value: value) -> Iterator[Tuple[int, Any]]:
    """read(line number, object) for each line that is not blank.

    Args:
        odd: counts bad lines, which come as `Unread`; see also `lines`.
    """
    def of_line(line_number: int, line: str) -> Any:
        return read(line_number, json_object(path, line_number, line))

    for line_number, line in lines(path, odd=odd):
        if isinstance(line, Unread):
            yield line_number, line
        elif line.strip():
            yield line_number, attempt(odd, of_line, line_number, line)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON; null stands for one that is missing")


def _object_of(entries: List[Tuple[str, Any]]) -> Dict[str, Any]:
    value = dict(entries)
    if len(value) < len(entries):
        names = [name for name, _ in entries]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return value


# Parses JSON. Raises a ValueError, also for a key twice in an object, or a RecursionError.
json_value = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object_of).decode


def json_object(path: str, line_number: int, line: str) -> dict:
    """The object that a line holds; raises a UserError if it is none."""
    try:
        value = json_value(line)
    except (ValueError, RecursionError) as error:
        reason = (f"{error.msg}, character {error.pos + 1}"
                  if isinstance(error, json.JSONDecodeError) else error)
        raise UserError(f"{path}, line {line_number}: not JSON ({reason}); each line must "
                        "be one object") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}, line {line_number}: a JSON {type(value).__name__}, and "
                        "each line must be one object")
    return value


def json_document(path: str, text: str) -> Any:
    """The value of a file whose text is one JSON document; raises a UserError if it is none."""
    try:
        return json_value(text)
    except (ValueError, RecursionError) as error:  # RecursionError: of lists within lists
        raise UserError(f"{path}: not JSON ({error})") from error


def whole_characters(text: str) -> str:
    """The text with U+FFFD instead of each unpaired surrogate, which UTF-8 cannot hold."""
    return files.HALF_CHARACTER.sub("\ufffd", text)


def as_text(where: str, name: str, value: Any, may_be_list: bool = False) -> Any:
    """The value of a key as a text; a list or an object of texts if it may be one. `where` begins a UserError."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if may_be_list and isinstance(value, dict):
        return {whole_characters(key): as_text(where, name, item) for key, item in value.items()}
    if may_be_list and isinstance(value, list):
        return [as_text(where, name, item) for item in value]
    raise UserError(f"{where}: {name!r} is {json.dumps(value)[:40]}, and it "
                    f"must be a text{', a number, a list or an object' if may_be_list else ' or a number'}")


def lines(path: Union[Path, ArrivingLines], records: str = parts.LINES, odd: Optional[OddRows] = None,
          marks: Pattern = _MARKS) -> Iterator[Tuple[int, Union[str, Unread]]]:
    """The number and the text of each line, without line ends and byte order marks.

    Args:
        path: a file, a part of one, or standard input.
        records: what a part of a file has whole; see `parts`.
        odd: counts the lines that are not UTF-8, if it skips lines; they come as `Unread`.
        marks: the byte order marks to leave out, also MARKS_OF_COLUMNS.
    """
    if isinstance(path, ArrivingLines):
        yield from lines_of(path, "standard input", odd, marks)
        return
    try:
        with files.open_regular(os.fspath(path), "file") as file:
            if isinstance(path, parts.Part):
                for line_number, line in parts.lines_in(file, path, records):
                    yield line_number, _decoded(odd, str(path), line_number, line, marks)
            else:
                yield from lines_of(file, path, odd, marks)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def lines_of(file: Union[BinaryIO, ArrivingLines], name: str, odd: Optional[OddRows] = None,
             marks: Pattern = _MARKS) -> Iterator[Tuple[int, Union[str, Unread]]]:
    """Like `lines`, for an open file of this name."""
    # Bytes: only "\n" ends a line, and other line ends of Unicode are text.
    for line_number in itertools.count(1):
        line = parts.read_line(file, name, line_number)
        if not line:
            return
        yield line_number, _decoded(odd, name, line_number, line, marks)


def _decoded(odd: Optional[OddRows], *line: Any) -> Union[str, Unread]:
    return attempt(odd, _decode, *line) if odd and odd.skips_lines else _decode(*line)


def _decode(path: str, line_number: int, line: bytes, marks: Pattern) -> str:
    if b"\0" in line or (line_number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}, line {line_number}: holds a NUL byte or the mark of UTF-16; "
                        "texts must be UTF-8: convert the file, for example with iconv")
    if line_number == 1 and b"\r" in line.rstrip(b"\r\n") and not line.endswith(b"\n"):
        raise UserError(f"{path}: lines end with \\r alone, as Excel for Mac may write them; convert the file, for example "
                        "with tr '\\r' '\\n'")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {line_number}: not UTF-8 ({error.reason}); convert the "
                        "file, for example with iconv") from error
    return text[marks.match(text).end():].rstrip("\r\n")
