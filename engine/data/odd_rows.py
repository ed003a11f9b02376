"""Odd rows, which a command that answers row by row passes over and tells of.

Rows that are trained on, and a file without any row that can be read, stay errors.
"""

from typing import Any, Callable, Optional

from engine import log
from engine.errors import UserError


class OddRows:
    """Counts odd rows; `become` says in the warning what becomes of them: "have no prediction"."""

    def __init__(self, become: str):
        self._become, self._count, self.first = become, 0, ""

    def add(self, reason: Any) -> None:
        """Counts a row, and remembers what is wrong with the first."""
        self._count += 1
        self.first = self.first or str(reason)

    def report(self, num_rows: int) -> None:
        """Warns once of all of them; raises a UserError if all of the `num_rows` are odd."""
        if self._count and self._count >= num_rows:
            raise UserError(self.first)
        if self._count:
            log.warn(f"{self._count:,} of {num_rows:,} {self._become}; the first: {self.first}")


def attempt(odd: Optional[OddRows], otherwise: Any, read: Callable[..., Any], *given: Any) -> Any:
    """What `read` returns; where it raises a UserError that `odd` counts, if any, `otherwise`."""
    try:
        return read(*given)
    except UserError as error:
        if odd is None:
            raise
        odd.add(error)
        return otherwise
