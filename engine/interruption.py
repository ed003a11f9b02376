"""SIGTERM and Ctrl-C: an exception at once, or, where work would be lost, a little later."""

import signal
import threading
import weakref
from typing import Callable, Optional

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CHECK_SECONDS = 0.1


class Interrupted(KeyboardInterrupt):
    """The process was told to end.

    Attributes:
        signal_number: which signal told it.
        said: what is left, and how to go on; may be empty.
    """

    def __init__(self, signal_number: int, said: str = ""):
        super().__init__(signal_number, said)
        self.signal_number = signal_number
        self.said = said

    def __str__(self) -> str:
        name = signal.Signals(self.signal_number).name
        return f"interrupted by {name}" + (f": {self.said}" if self.said else "")


class _Handled:
    """Answers both signals with a method of its own, as long as it is entered."""

    def __init__(self):
        self._earlier = {}

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        self._earlier = {}

    def _handle(self, handler: Callable[[int, object], None]) -> None:
        # Python takes handlers of the main thread alone.
        if not self._earlier and threading.current_thread() is threading.main_thread():
            self._earlier = {number: signal.signal(number, handler) for number in _SIGNALS}


class Raised(_Handled):
    """A context in which the first signal raises `Interrupted`; the process is to end on it.

    Later ones do nothing, after the context, too: what is done about the first (temporary
    files are removed, a line is said) should end. What is raised within a destructor, or
    within library code that catches everything, is lost on the way: it is raised again.
    """

    def __init__(self):
        super().__init__()
        self._raised: Callable[[], Optional[Interrupted]] = lambda: None

    def __enter__(self) -> "Raised":
        self._handle(self._raise_first)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if isinstance(error, Interrupted):
            self._ignore()
        else:
            super().__exit__(kind, error, traceback)

    def _raise_first(self, number: int, frame) -> None:
        self._ignore()
        signal.signal(signal.SIGALRM, lambda *alarm: self._raise_if_lost(number))
        signal.setitimer(signal.ITIMER_REAL, _CHECK_SECONDS, _CHECK_SECONDS)
        self._raise_if_lost(number)

    def _raise_if_lost(self, number: int) -> None:
        # An exception that is on its way up, or is being handled, is referred to.
        if self._raised() is None:
            interrupted = Interrupted(number)
            self._raised = weakref.ref(interrupted)
            try:
                raise interrupted
            finally:
                del interrupted  # or its traceback's frame would keep it

    def _ignore(self) -> None:
        for number in self._earlier:
            signal.signal(number, signal.SIG_IGN)


class Deferred(_Handled):
    """A context in which signals are noted instead, after `hold` is called.

    Nothing else is done about them, however many come: neither a step nor a checkpoint
    is cut short, and, once there was one, neither is what follows the context. Outside
    the main thread it notes none.

    Attributes:
        received: the first signal; None while there is none.
    """

    def __init__(self):
        super().__init__()
        self.received: Optional[int] = None

    def __exit__(self, *exception) -> None:
        if not self.received:
            super().__exit__(*exception)

    def hold(self) -> None:
        self._handle(self._note)

    def raise_if_received(self) -> None:
        """For work that takes long and can be cut short after all."""
        if self.received:
            raise Interrupted(self.received)

    def _note(self, number: int, frame) -> None:
        # Nothing is said here: a handler runs amid whatever the thread was saying.
        self.received = self.received or number
