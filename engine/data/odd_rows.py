"""Bad rows in the input of a command that answers row by row: it skips them, with a warning.

Bad rows in training data, and a file without any valid row, stay errors.
"""

import collections
import itertools
import threading
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, Optional

from engine import log
from engine.errors import UserError


class OddRows:
    """Counts bad rows.

    Attributes:
        first: the reason of the first, or "".
        reasons: why rows could not be read, in order, if the reasons are kept; the writer of a row
            takes its reason away.

    Args:
        become: tells, in the warning, what they become: "have no prediction".
        skips_lines: whether a line that is not UTF-8 is a bad row (--skip_bad_lines), and not the
            end of the command.
    """

    def __init__(self, become: str, *, keeps_reasons: bool = False, skips_lines: bool = False):
        self._become, self._count, self.first, self.skips_lines = become, 0, "", skips_lines
        self._lock = threading.Lock()  # one thread reads while another predicts
        self.reasons: Deque[str] = collections.deque(maxlen=None if keeps_reasons else 0)

    def add(self, reason: Any) -> None:
        """Counts a row, and keeps the reason of the first."""
        with self._lock:
            self._count += 1
            self.first = self.first or str(reason)

    def after(self, rows: Iterable[Any], num_done: int, unread: Any = None) -> Iterator[Any]:
        """The rows after the first `num_done`; the reasons of `unread` ones among those are dropped."""
        rows = iter(rows)
        for row in itertools.islice(rows, num_done):
            if row is unread:
                self.reasons.popleft()
        return rows

    def next_error(self) -> Dict[str, str]:
        """What the next unread row has in a file of JSON lines."""
        return {"error": self.reasons.popleft()}

    def report(self, num_rows: int, may_be_all: bool = False) -> None:
        """Warns once of all bad rows; raises a UserError if all of the `num_rows` are bad and may not be."""
        if self._count and self._count >= num_rows and not may_be_all:
            raise UserError(self.first)
        if self._count:
            log.warn(f"{self._count:,} of {num_rows:,} {self._become}; the first: {self.first}")


def attempt(odd: Optional[OddRows], otherwise: Any, read: Callable[..., Any], *args: Any) -> Any:
    """Returns read(*args). After a UserError, `odd` counts the row and `otherwise` is returned.

    Without `odd` the error is raised.
    """
    try:
        return read(*args)
    except UserError as error:
        if odd is None:
            raise
        odd.add(error)
        odd.reasons.append(str(error))
        return otherwise
