"""Processes that work on chunks in parallel, with the results in the order of the chunks."""

import collections
import concurrent.futures
import ctypes
import multiprocessing
import signal
from typing import Any, Callable, Iterable, Iterator

_CHUNKS_PER_PROCESS = 2  # in memory at a time: one in progress, one finished

_PR_SET_PDEATHSIG = 1  # of Linux' prctl

_function: Callable[[Any], Any]


def in_order(function: Callable[[Any], Any], chunks: Iterable[Any],
             num_processes: int) -> Iterator[Any]:
    """Yields `function(chunk)` for each chunk, computed by `num_processes` processes.

    The processes are forks: they share the memory that `function` refers to; only chunks and
    results are copied. The next chunk is read when there is room for its result.
    """
    if num_processes == 1:
        yield from map(function, chunks)
        return
    results = collections.deque()
    with concurrent.futures.ProcessPoolExecutor(
            num_processes, multiprocessing.get_context("fork"), _begin, (function,)) as executor:
        for chunk in chunks:
            results.append(executor.submit(_call, chunk))
            if len(results) >= _CHUNKS_PER_PROCESS * num_processes:
                yield results.popleft().result()
        while results:
            yield results.popleft().result()


def _begin(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    # The parent process alone decides what to do about signals.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # If the parent is killed, this process is killed too.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _call(chunk: Any) -> Any:
    return _function(chunk)
