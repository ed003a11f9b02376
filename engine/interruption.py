"""SIGTERM and Ctrl-C: raise an exception, at once or after unfinished work."""

import signal
import threading
import weakref
from typing import Callable, Optional

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CHECK_SECONDS = 0.1


class Interrupted(KeyboardInterrupt):
    """The process received SIGTERM or SIGINT.

    Attributes:
        signal_number: the signal.
        said: the progress and how to resume, for the message; may be empty.
    """

    def __init__(self, signal_number: int, said: str = ""):
        super().__init__(signal_number, said)
        self.signal_number = signal_number
        self.said = said

    def __str__(self) -> str:
        name = signal.Signals(self.signal_number).name
        return f"interrupted by {name}" + (f": {self.said}" if self.said else "")


class _Handled:
    """A context that handles both signals itself."""

    def __init__(self):
        self._earlier = {}

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        self._earlier = {}

    def _handle(self, handler: Callable[[int, object], None]) -> None:
        # Python lets only the main thread set handlers.
        if not self._earlier and threading.current_thread() is threading.main_thread():
            self._earlier = {number: signal.signal(number, handler) for number in _SIGNALS}


class InterruptNow(_Handled):
    """A context in which the first signal raises `Interrupted`, which ends the process.

    Later signals do nothing, also after the context, so that they do not interrupt the cleanup
    (temporary files, the message). They keep their handler: Python reports a signal that arrived
    just before it came to be ignored. A destructor, or library code that catches everything, may
    swallow the exception: it is raised again until it gets through. C functions and library
    contexts may turn it into another error: after a signal, any error leaves the context as
    `Interrupted`.
    """

    def __init__(self):
        super().__init__()
        self._received: Optional[int] = None
        self._raised: Callable[[], Optional[Interrupted]] = lambda: None

    def __enter__(self) -> "InterruptNow":
        self._handle(self._raise_first)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if isinstance(error, Interrupted):  # perhaps of `InterruptLater`
            self._received = error.signal_number
        elif self._received and isinstance(error, Exception):
            raise Interrupted(self._received) from error
        else:
            super().__exit__(kind, error, traceback)

    def _raise_first(self, number: int, frame) -> None:
        if self._received:
            return
        self._received = number
        signal.signal(signal.SIGALRM, lambda *alarm: self._raise_if_lost(number))
        signal.setitimer(signal.ITIMER_REAL, _CHECK_SECONDS, _CHECK_SECONDS)
        self._raise_if_lost(number)

    def _raise_if_lost(self, number: int) -> None:
        # While the exception propagates or is handled, something still refers to it.
        if self._raised() is None:
            interrupted = Interrupted(number)
            self._raised = weakref.ref(interrupted)
            try:
                raise interrupted
            finally:
                del interrupted  # or its traceback's frame would keep it


class InterruptLater(_Handled):
    """A context that only records signals once `hold` is called.

    Signals, however many, interrupt neither a step nor a checkpoint; after the first, they do not
    interrupt the code that follows the context either. Records nothing outside the main thread.

    Attributes:
        received: the first signal; None if there was none.
        agreed: whether to stop: after a signal or, with several workers, once all of them know
            of it.
    """

    def __init__(self, is_shared: bool = False):  # several workers stop together, after `agree`
        super().__init__()
        self._is_shared = is_shared
        self.received: Optional[int] = None
        self.agreed = False

    def __exit__(self, *exception) -> None:
        if not self.received:
            super().__exit__(*exception)

    def hold(self) -> None:
        """Starts to record signals; until then, they have their usual effect."""
        self._handle(self._record)

    def agree(self) -> None:
        """Notes that all workers know of a signal to one of them."""
        self.agreed = True
        self.received = self.received or signal.SIGTERM

    def raise_if_received(self) -> None:
        """Raises Interrupted if a signal was recorded, for long tasks that can be interrupted."""
        if self.received:
            raise Interrupted(self.received)

    def _record(self, number: int, frame) -> None:
        # No message here: the handler may run while the thread is writing one.
        self.received = self.received or number
        self.agreed = self.agreed or not self._is_shared
