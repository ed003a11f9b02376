"""Batches made of what waits: one queue of requests for all sessions of a model."""

import collections
import itertools
import math
import threading
import time
from concurrent import futures
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from engine import inference
from engine.data.batches import Features, Source

# Records share a batch if the longer one's padded length is at most this many times the shorter's.
_SPREAD = 1.25

Run = Callable[[Features], Features]  # a batch → its predictions, each [b, ...]


class Overloaded(Exception):
    """The queue is full."""


class Late(Exception):
    """The answer took too long."""


class Gone(Exception):
    """The client has gone."""


class Closing(Exception):
    """No more requests are taken."""


class Deadline:
    """How long a client waits for requests: some seconds from now, or until `end`."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds
        self._future: Optional["futures.Future[Features]"] = None

    def end(self) -> None:
        """Makes `wait` raise `Gone`, in whichever thread it is."""
        self._end = -math.inf
        if self._future:
            self._future.cancel()

    def check(self) -> None:
        """Raises `Late`, or `Gone`, after the end."""
        if time.monotonic() > self._end:
            raise Gone if self._end == -math.inf else Late

    def wait(self, future: "futures.Future[Features]") -> Features:
        """The result of a request; at the end cancels it and raises `Late`, or `Gone`."""
        self._future = future  # before the time is read, so that `end` is not overlooked
        try:
            return future.result(max(0.0, self._end - time.monotonic()))
        except (futures.TimeoutError, futures.CancelledError):
            future.cancel()
            raise (Gone if self._end == -math.inf else Late) from None


class _Request:
    """A source whose records wait, or are predicted in any number of batches."""

    def __init__(self, source: Source):
        self.source = source
        self.lengths = source.padded_lengths().tolist()
        self.future: "futures.Future[Features]" = futures.Future()
        self.waiting_tokens = sum(self.lengths)
        self.parts: List[Tuple[np.ndarray, Features]] = []
        self.num_missing = len(self.lengths)
        self._unanswered = threading.Lock()  # taken by who answers: two batches may fail at a time

    def finish(self) -> None:
        """Hands over the predictions of all records, in their order."""
        predictions = inference.in_order(self.parts, len(self.lengths))
        if self._begin_answer():
            self.future.set_result(predictions)

    def fail(self, error: BaseException) -> None:
        """Hands over an error, unless it is over."""
        if self._begin_answer():
            self.future.set_exception(error)

    def _begin_answer(self) -> bool:
        return (self._unanswered.acquire(blocking=False)
                and self.future.set_running_or_notify_cancel())


class _Record(NamedTuple):
    number: int  # of all records, in the order of their arrival
    request: _Request
    index: int  # in the request's source


_Batch = Dict[_Request, List[int]]  # the indices of its records


class Batcher:
    """Predicts the records of many requests together.

    When a session is free, it takes the record that has waited longest, and with it those of
    similar length, up to `max_batch_tokens`; it never waits for more. If a batch fails, its
    requests are tried one by one: each has its own answer or its own error.

    A thread that asks for one record, and finds a session free, computes it itself: to wake another one up
    for it, and to be woken up, takes a part of a millisecond.

    Args:
        runs: a function for each step that may run at a time.
        max_batch_tokens: of a batch, padding included; a record that is longer is a batch, too.
        max_queued_tokens: that wait, padding included. A request with more is only taken if nothing
            else waits.
    """

    def __init__(self, runs: Sequence[Run], max_batch_tokens: int, max_queued_tokens: int):
        self._max_batch_tokens, self._max_queued_tokens = max_batch_tokens, max_queued_tokens
        self._waiting: Dict[int, Deque[_Record]] = {}  # by padded length; none is empty
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._is_closing = False
        self.queued_tokens = 0
        self._free = collections.deque(runs)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in runs]
        for thread in self._threads:
            thread.start()

    def predict(self, source: Source, deadline: Deadline) -> Features:
        """The predictions for all n records of a source, each [n, ...]; n > 0.

        Raises:
            Overloaded, Late, Gone, Closing: the request was not answered; or a session's exceptions.
        """
        with self._changed:
            run = None
            if len(source.lengths) == 1 and self._free and not self._waiting and not self._is_closing:
                run = self._free.popleft()
        if not run:
            return deadline.wait(self.submit(source))
        try:
            only = np.zeros(1, np.int64)
            predictions = run(source.fetch(only, source.padded_length(only)))
        finally:
            self._give_back(run)
        deadline.check()
        return predictions

    def submit(self, source: Source) -> "futures.Future[Features]":
        """The predictions for all n records of a source, each [n, ...], later; n > 0.

        Cancelling the future takes the request out of the queue. Its exceptions are a session's.

        Raises:
            Overloaded, Closing: the request is not taken.
        """
        request = _Request(source)
        with self._changed:
            if self._is_closing:
                raise Closing
            if self.queued_tokens and (
                    self.queued_tokens + request.waiting_tokens > self._max_queued_tokens):
                raise Overloaded
            self.queued_tokens += request.waiting_tokens
            for index, length in enumerate(request.lengths):
                self._waiting.setdefault(length, collections.deque()).append(
                    _Record(next(self._numbers), request, index))
            self._changed.notify(len(request.lengths))
        request.future.add_done_callback(lambda _: self._forget(request))
        return request.future

    def is_idle(self) -> bool:
        """Whether nothing waits or is computed."""
        with self._changed:
            return not self._waiting and len(self._free) == len(self._threads)

    def close(self) -> None:
        """Refuses further requests, and returns when those that wait are answered."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        with self._changed:
            self._changed.wait_for(lambda: len(self._free) == len(self._threads))

    def _give_back(self, run: Run) -> None:
        with self._changed:
            self._free.append(run)
            if self._waiting or self._is_closing:
                self._changed.notify_all()

    def _forget(self, request: _Request) -> None:
        """Takes what still waits of a request that is over out of account."""
        with self._changed:
            self.queued_tokens -= request.waiting_tokens
            request.waiting_tokens = 0

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting and self._free or self._is_closing and not self._waiting)
                if not self._waiting:
                    return
                run = self._free.popleft()
                batch, length = self._take()
            try:
                if batch:
                    self._predict(run, batch, length)
            finally:
                self._give_back(run)

    def _take(self) -> Tuple[_Batch, int]:
        """The next batch, without cancelled requests, and its length."""
        batch: _Batch = {}
        oldest = min(self._waiting, key=lambda length: self._waiting[length][0].number)
        size, longest = 0, 0
        for length in sorted(self._waiting, key=lambda length: abs(length - oldest)):
            if not oldest / _SPREAD <= length <= oldest * _SPREAD:
                continue
            longer, records = max(longest, length), self._waiting[length]
            while records and (not size or (size + 1) * longer <= self._max_batch_tokens):
                record = records.popleft()
                request = record.request
                tokens = min(length, request.waiting_tokens)  # none of a request that is over
                request.waiting_tokens -= tokens
                self.queued_tokens -= tokens
                if not request.future.done():
                    batch.setdefault(request, []).append(record.index)
                    size, longest = size + 1, longer
            if not records:
                del self._waiting[length]
        return batch, longest

    def _predict(self, run: Run, batch: _Batch, length: int) -> None:
        try:
            predictions = run(_features(batch, length))
        except Exception as error:  # one request's fault is not the others'
            for request, indices in batch.items():
                if len(batch) == 1:
                    request.fail(error)
                else:
                    self._predict(run, {request: indices}, length)
            return
        start = 0
        for request, indices in batch.items():
            rows = slice(start, start + len(indices))
            self._deliver(request, np.array(indices), {
                name: values[rows] for name, values in predictions.items()})
            start = rows.stop

    def _deliver(self, request: _Request, indices: np.ndarray, predictions: Features) -> None:
        with self._changed:
            request.parts.append((indices, predictions))
            request.num_missing -= len(indices)
            is_complete = not request.num_missing
        if is_complete:
            request.finish()


def _features(batch: _Batch, length: int) -> Features:
    parts = [request.source.fetch(np.array(indices), length)
             for request, indices in batch.items()]
    return parts[0] if len(parts) == 1 else {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
