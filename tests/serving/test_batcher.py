"""The batcher with functions that stand for sessions: they return a row's sum, or fail as told."""

import threading
from concurrent import futures

import numpy as np
import pytest

from engine.data.batches import Source
from serving.batcher import Batcher, Closing, Deadline, Late, Overloaded

SOON = 30.0  # seconds in which a test ends anyway
BAD = -1  # a token that no session takes


def source_of(*rows):
    """Records of these tokens."""
    def fetch(indices, length):
        return {"input_ids": np.array([list(rows[index]) + [0] * (length - len(rows[index]))
                                       for index in indices], np.int32)}
    return Source(np.array([len(row) for row in rows], np.int64), fetch, 64)


class Sessions:
    """Functions for a Batcher, and the shapes of the batches that they were called with.

    Attributes:
        go: they wait for this event.
    """

    def __init__(self):
        self.shapes, self.go, self.arrived = [], threading.Event(), threading.Semaphore(0)
        self.go.set()

    def run(self, features):
        ids = features["input_ids"]
        self.shapes.append(ids.shape)
        self.arrived.release()
        assert self.go.wait(SOON)
        if (ids == BAD).any():
            raise ValueError("a bad token")
        return {"sum": ids.sum(axis=1)}


def batcher_of(sessions, count=1, max_batch_tokens=64, max_queued_tokens=10000):
    return Batcher([sessions.run] * count, max_batch_tokens, max_queued_tokens)


def submit(batcher, *rows):
    return batcher.submit(source_of(*rows))


def sums(future):
    return Deadline(SOON).wait(future)["sum"].tolist()


def busy(batcher, sessions):
    """Occupies the only session until `sessions.go` is set."""
    sessions.go.clear()
    future = submit(batcher, [1])
    assert sessions.arrived.acquire(timeout=SOON)
    return future


def test_each_request_gets_its_own_records_in_order_whatever_shares_a_batch():
    sessions, random = Sessions(), np.random.RandomState(0)
    batcher = batcher_of(sessions, count=3)
    requests = [[random.randint(1, 9, random.randint(1, 60)).tolist()
                 for _ in range(random.randint(1, 20))] for _ in range(60)]
    answers = [None] * len(requests)

    def ask(number):
        answers[number] = sums(submit(batcher, *requests[number]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert answers == [[sum(row) for row in rows] for rows in requests]
    assert all(size * length <= 64 or size == 1 for size, length in sessions.shapes)
    batcher.close()
    assert batcher.queued_tokens == 0


def test_what_waits_shares_a_batch_with_records_of_similar_length_within_its_tokens():
    sessions = Sessions()
    batcher = batcher_of(sessions)
    first = busy(batcher, sessions)
    waiting = [submit(batcher, [1] * length) for length in (7, 30, 8, 5, 25, 6, 8, 8, 8, 8, 8)]
    sessions.go.set()
    for future in [first, *waiting]:
        sums(future)
    # The oldest is the one of 7 tokens: eight of its length are 64 tokens. Then comes 30 with 25.
    assert sessions.shapes == [(1, 8), (8, 8), (2, 32), (1, 8)]
    batcher.close()


def test_a_bad_request_fails_alone():
    sessions = Sessions()
    batcher = batcher_of(sessions)
    first = busy(batcher, sessions)
    good, bad, other = submit(batcher, [1, 2]), submit(batcher, [3], [BAD]), submit(batcher, [4], [5] * 40)
    sessions.go.set()
    assert (sums(first), sums(good), sums(other)) == ([1], [3], [4, 200])
    with pytest.raises(ValueError, match="a bad token"):
        sums(bad)
    batcher.close()


def test_late_and_cancelled_requests_are_not_computed():
    sessions = Sessions()
    batcher = batcher_of(sessions)
    first = busy(batcher, sessions)
    cancelled, good = submit(batcher, [2]), submit(batcher, [3])
    assert cancelled.cancel()
    with pytest.raises(Late):
        Deadline(0).wait(submit(batcher, [4]))
    sessions.go.set()
    assert (sums(first), sums(good)) == ([1], [3])
    assert sessions.shapes == [(1, 8), (1, 8)] and batcher.queued_tokens == 0
    batcher.close()


def test_a_full_queue_refuses_until_there_is_room():
    sessions = Sessions()
    batcher = batcher_of(sessions, max_queued_tokens=100)
    first = busy(batcher, sessions)
    large = submit(batcher, *[[1] * 8] * 20)  # more than the queue holds, and nothing else waits
    with pytest.raises(Overloaded):
        submit(batcher, [1])
    assert large.cancel() and batcher.queued_tokens == 0
    small = [submit(batcher, [1] * 8) for _ in range(12)]
    with pytest.raises(Overloaded):
        submit(batcher, [1])
    sessions.go.set()
    for future in [first, *small]:
        sums(future)
    assert batcher.queued_tokens == 0
    batcher.close()


def test_a_record_that_comes_alone_is_computed_by_the_thread_that_asks():
    sessions, threads = Sessions(), []
    batcher = Batcher([lambda features: threads.append(threading.get_ident()) or sessions.run(features)], 64, 100)
    own = threading.get_ident()
    assert batcher.predict(source_of([1, 2]), Deadline(SOON))["sum"].tolist() == [3]
    with pytest.raises(ValueError, match="a bad token"):
        batcher.predict(source_of([BAD]), Deadline(SOON))
    with pytest.raises(Late):
        batcher.predict(source_of([3]), Deadline(0))
    assert threads == [own] * 3
    assert batcher.predict(source_of([1, 2], [4]), Deadline(SOON))["sum"].tolist() == [3, 4]
    future = busy(batcher, sessions)
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(batcher.predict, source_of([5]), Deadline(SOON))
        sessions.go.set()
        assert waiting.result(SOON)["sum"].tolist() == [5] and future.result(SOON)
    assert own not in threads[3:]
    batcher.close()
    with pytest.raises(Closing):
        batcher.predict(source_of([1]), Deadline(SOON))
