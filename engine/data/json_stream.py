"""Reads a JSON file of any size value by value, in the memory of its largest value.

The caller enters objects and arrays one after the other, and takes the values that it needs whole.
"""

import json
from typing import Any, IO, Iterator, NoReturn, Optional

from engine.errors import UserError

_READ_CHARACTERS = 1 << 20
# What is so close to the end of what is read may be a part of something that is not read yet.
_LONGEST_LITERAL = len("\\ud83d\\ude00")
_SPACE = " \t\n\r"


class JsonStream:
    """A position in a JSON file.

    Every method raises a UserError, with the line and the column, where the file is not JSON, or
    not what the caller expects.

    Args:
        path: of the file, in UTF-8; for messages.
        file: the open file.
    """

    def __init__(self, path: str, file: IO[str]):
        self._path = path
        self._file = file
        self._text = ""  # a part of the file
        self._position = 0  # of the next character in it
        self._lines_before = 0  # line ends before that part
        self._columns_before = 0  # characters between the last of these and that part
        self._is_complete = False  # whether that part reaches the end of the file
        self._decode = json.JSONDecoder().raw_decode

    def keys(self, what: str) -> Iterator[str]:
        """Enters an object: its keys, each of which the caller follows with reading its value.

        Args:
            what: names the object in messages.
        """
        self._pass("{", f"{what} must be a JSON object")
        for _ in self._entries("}"):
            if self._next() != '"':
                self._fail("a key must be a text in double quotes")
            key = self.value()
            self._pass(":", "a key must be followed by a colon")
            yield key

    def elements(self, what: str) -> Iterator[int]:
        """Enters an array: the numbers of its elements from 0; the caller reads each of them.

        Args:
            what: names the array in messages.
        """
        self._pass("[", f"{what} must be a JSON array")
        return self._entries("]")

    def value(self) -> Any:
        """Reads the next value as a whole."""
        self._next()
        while True:
            try:
                value, end = self._decode(self._text, self._position)
                # A number may go on: 1, 1.5, 1.5e-7.
                if self._is_complete or end < len(self._text) - _LONGEST_LITERAL:
                    self._position = end
                    return value
            except json.JSONDecodeError as error:
                if self._is_complete or not self._may_go_on(error):
                    self._fail(error.msg, error.pos)
            except RecursionError:
                self._fail("lists within lists, too many")
            except ValueError as error:  # a number with more digits than Python reads
                self._fail(str(error))
            self._more()

    def end(self) -> None:
        """Raises a UserError if anything follows."""
        if self._next():
            self._fail("something follows the end of the JSON value")

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        return (error.msg.startswith("Unterminated string")
                or error.pos > len(self._text) - _LONGEST_LITERAL)

    def _pass(self, character: str, otherwise: str) -> None:
        if self._next() != character:
            self._fail(otherwise)
        self._position += 1

    def _entries(self, end: str) -> Iterator[int]:
        """The numbers of the entries of an object or array, until its end has been passed."""
        number = 0
        while self._next() != end:
            if number:
                self._pass(",", f"expecting ',' or {end!r}")
                if self._next() == end:
                    self._fail("a comma before the end")
            yield number
            number += 1
        self._position += 1

    def _next(self) -> Optional[str]:
        """The next character that is no space; None at the end of the file."""
        while True:
            while self._position < len(self._text):
                if self._text[self._position] not in _SPACE:
                    return self._text[self._position]
                self._position += 1
            if not self._more():
                return None

    def _more(self) -> bool:
        """Reads on, as much again as is left; False at the end of the file."""
        if self._is_complete:
            return False
        passed = self._text[:self._position]
        self._lines_before += passed.count("\n")
        last_end = passed.rfind("\n")
        self._columns_before = (self._columns_before if last_end < 0 else 0) + (
            len(passed) - last_end - 1)
        left = self._text[self._position:]
        try:
            added = self._file.read(max(_READ_CHARACTERS, len(left)))
        except UnicodeDecodeError as error:
            raise UserError(f"{self._path}: not UTF-8 ({error.reason}); convert the file, for "
                            "example with iconv") from error
        self._text, self._position, self._is_complete = left + added, 0, not added
        return bool(added)

    def _fail(self, reason: str, position: Optional[int] = None) -> NoReturn:
        position = self._position if position is None else position
        before = self._text[:position]
        line = self._lines_before + before.count("\n") + 1
        last_end = before.rfind("\n")
        column = position - last_end + (self._columns_before if last_end < 0 else 0)
        raise UserError(f"{self._path}, line {line}, column {column}: {reason}")
