"""SIGTERM and Ctrl-C: an exception at once, or a little later if work would be lost."""

import os
import signal
import sys
import threading
import weakref
from typing import Callable, Optional

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CHECK_SECONDS = 0.1


class Interrupted(KeyboardInterrupt):
    """The process received SIGTERM or SIGINT.

    Attributes:
        signal_number: the signal.
        said: what is done so far and how to resume, for the message; may be empty.
    """

    def __init__(self, signal_number: int, said: str = ""):
        super().__init__(signal_number, said)
        self.signal_number = signal_number
        self.said = said

    def __str__(self) -> str:
        name = signal.Signals(self.signal_number).name
        return f"interrupted by {name}" + (f": {self.said}" if self.said else "")


def end_while_loading() -> None:
    """Lets a signal end a command with a line and its status while it loads TensorFlow, say.

    `Raised` follows. The handlers of other programs that import this project stay as they are.
    """
    program = sys.argv[0]  # "-m" while the package of a module that is run is imported
    is_command = program == "-m" or (
        program != "-c" and os.path.dirname(os.path.abspath(program)) == _ROOT)
    if is_command and threading.current_thread() is threading.main_thread():
        for number, usual in zip(_SIGNALS, (signal.SIG_DFL, signal.default_int_handler)):
            if signal.getsignal(number) == usual:
                signal.signal(number, _end)


def _end(number: int, frame) -> None:
    os.write(sys.stderr.fileno(), f"{Interrupted(number, 'run the same command again')}\n".encode())
    os._exit(128 + number)


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


class Raised(_Handled):
    """A context in which the first signal raises `Interrupted`, which ends the process.

    Later signals are ignored, also after the context, so that the cleanup (temporary files,
    the message) is not interrupted itself. An exception raised in a destructor, or in library
    code that catches everything, is lost: it is raised again until it gets through. One raised
    within a function in C or a context of a library's may come out as another error: any error
    after a signal leaves the context as `Interrupted`.
    """

    def __init__(self):
        super().__init__()
        self._received: Optional[int] = None
        self._raised: Callable[[], Optional[Interrupted]] = lambda: None

    def __enter__(self) -> "Raised":
        self._handle(self._raise_first)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if isinstance(error, Interrupted):  # perhaps of `Deferred`
            self._ignore()
        elif self._received and isinstance(error, Exception):
            raise Interrupted(self._received) from error
        else:
            super().__exit__(kind, error, traceback)

    def _raise_first(self, number: int, frame) -> None:
        self._ignore()
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

    def _ignore(self) -> None:
        for number in self._earlier:
            signal.signal(number, signal.SIG_IGN)


class Deferred(_Handled):
    """A context in which signals are only recorded, once `hold` is called.

    Neither a step nor a checkpoint is interrupted, however many signals come; after a
    signal, neither is what follows the context. Outside the main thread nothing is recorded.

    Attributes:
        received: the first signal; None if there was none.
        agreed: whether to stop: if there was a signal or, with several workers, if all of them
            know of one.
    """

    is_shared = False  # whether several workers stop together, after `agree`

    def __init__(self):
        super().__init__()
        self.received: Optional[int] = None
        self._is_agreed = False

    def __exit__(self, *exception) -> None:
        if not self.received:
            super().__exit__(*exception)

    def hold(self) -> None:
        """From now on records signals; before, they have their usual effect."""
        self._handle(self._record)

    @property
    def agreed(self) -> bool:
        return self._is_agreed if self.is_shared else bool(self.received)

    def agree(self) -> None:
        """Says that all workers know of a signal that one of them has received."""
        self._is_agreed = True
        self.received = self.received or signal.SIGTERM

    def raise_if_received(self) -> None:
        """Raises Interrupted if a signal was recorded, for long tasks that can be interrupted."""
        if self.received:
            raise Interrupted(self.received)

    def _record(self, number: int, frame) -> None:
        # No message here: the handler may run while the thread is writing one.
        self.received = self.received or number
