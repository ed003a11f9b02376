"""Plans the examples of each step: a function of seed, sizes and step alone.

It does not depend on the number of replicas: N replicas see the same examples as one replica
with N times the batch. Nor does it depend on interruptions: a resumed run sees the same
examples as an uninterrupted one. Pure NumPy.
"""

import collections
import itertools
from functools import lru_cache
from typing import Counter, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

# The number of batches per window, in which examples of similar length share a batch.
# A larger window wastes less on padding, and shuffles less.
WINDOW_BATCHES = 50
# A training sees at least so many windows: with fewer, it learns less (docs/results.md, "Short trainings").
_LEAST_WINDOWS = 50

_MAX_TRIES = 100  # places that are tried for an example that has to leave its batch


def window_batches(num_train_steps: int) -> int:
    """The number of batches per window of a training of so many steps; 1: random batches."""
    return min(WINDOW_BATCHES, max(1, num_train_steps // _LEAST_WINDOWS))


class Stretch(NamedTuple):
    """Consecutive steps with one global batch size; a resumed training may have another than before."""
    first_step: int
    num_seen: int  # examples of the steps before
    global_batch_size: int

    def seen_after(self, step: int) -> int:
        """The examples of the first `step` steps of the training."""
        return self.num_seen + (step - self.first_step) * self.global_batch_size

    def steps_to(self, num_seen: float) -> int:
        """The steps, from the training's start on, that see at most so many examples."""
        return self.first_step + int((num_seen - self.num_seen) // self.global_batch_size)

    def ends_epoch(self, step: int, num_examples: int) -> bool:
        """Whether an epoch ends after `step` steps: a batch that straddles two belongs to the later one."""
        epoch = -(-self.seen_after(step) // num_examples)
        return self.steps_to(epoch * num_examples) == step


class TrainingPlan:
    """An endless sequence of global batches over `len(lengths)` examples.

    The epochs form one stream, each with a permutation of its own: every example is seen
    once an epoch, and a batch may straddle two epochs. The stream is cut into windows of
    about `window_batches` batches that end where epochs end; in each window, examples of
    similar length are batched together and the batches are shuffled. With keys, examples also
    leave their batch for another one of the WINDOW_BATCHES around it.

    Args:
        lengths: the number of tokens of each example, [n].
        global_batch_size: examples of one step, over all replicas.
        seed: for the permutations; 0 to 2**32 - 1.
        keys: [n, k]; examples with a common key share a batch only if a window has no other place.
        window_batches: see `window_batches`.
    """

    def __init__(self, lengths: np.ndarray, global_batch_size: int, seed: int,
                 keys: Optional[np.ndarray] = None, window_batches: int = WINDOW_BATCHES):
        self._lengths = lengths
        self._keys = keys
        self._stretch = Stretch(0, 0, global_batch_size)
        self._earlier: Optional[TrainingPlan] = None  # of the steps before the stretch
        self._rest = np.array([], np.int32)  # see `resized`
        self._seed = seed
        self._window_batches = window_batches
        # Many consecutive steps use the same window and its permutations.
        self._window = lru_cache(maxsize=2)(self._window)
        self._permutation = lru_cache(maxsize=2)(self._permutation)

    def resized(self, first_step: int, global_batch_size: int) -> "TrainingPlan":
        """The same plan for the steps before `first_step`, and another global batch size from there on.

        Every example is still seen once an epoch: those of the window that is cut here which have not been
        seen come first.
        """
        plan = TrainingPlan(self._lengths, global_batch_size, self._seed, self._keys, self._window_batches)
        start, end = self._window_around(first_step)
        plan._earlier, plan._rest = self, self._window(start, end)[first_step - start:].ravel()
        plan._stretch = Stretch(first_step, self._stretch.seen_after(first_step), global_batch_size)
        return plan

    def global_batch(self, step: int) -> np.ndarray:
        """Indices of the examples of step `step` (from 0), [global_batch_size]."""
        if step < self._stretch.first_step:
            return self._earlier.global_batch(step)
        first_step, last_step = self._window_around(step)
        return self._window(first_step, last_step)[step - first_step]

    def _window_around(self, step: int) -> Tuple[int, int]:
        """First step of the window that `step` is in, and of the next window."""
        # The first epoch that begins after this step's batch; a batch that straddles two
        # epochs belongs to the later one.
        next_epoch = -(-self._stretch.seen_after(step + 1) // len(self._lengths))
        start, end = self._first_step_of(next_epoch - 1), self._first_step_of(next_epoch)
        batches = self._window_batches if self._keys is None else WINDOW_BATCHES
        num_windows = max(1, round((end - start) / batches))
        bounds = np.linspace(start, end, num_windows + 1).astype(np.int64)
        window = np.searchsorted(bounds, step, side="right") - 1
        return int(bounds[window]), int(bounds[window + 1])

    def _first_step_of(self, epoch: int) -> int:
        return max(self._stretch.first_step, self._stretch.steps_to(epoch * len(self._lengths)))

    def _window(self, first_step: int, last_step: int) -> np.ndarray:
        """The examples of a window, [last_step - first_step, global_batch_size]."""
        size = self._stretch.global_batch_size
        examples = self._stream(*map(self._stretch.seen_after, (first_step, last_step)))
        lengths, part = self._lengths[examples], len(examples)
        if self._keys is not None and self._window_batches < WINDOW_BATCHES:
            part = self._window_batches * size
        order = np.concatenate([start + np.argsort(lengths[start:start + part], kind="stable")
                                for start in range(0, len(examples), part)])
        batches = examples[order].reshape(-1, size)
        if self._keys is not None:
            _spread(batches, self._keys[batches])
        return np.random.RandomState([self._seed, 1, first_step]).permutation(batches)

    def _stream(self, start: int, end: int) -> np.ndarray:
        """Positions start..end of the epochs' permutations, one after the other."""
        n, offset = len(self._lengths), self._stretch.num_seen
        parts = [self._rest[start - offset:end - offset]]
        start += len(parts[0])
        if self._earlier and start < end:
            return np.concatenate([*parts, self._earlier._stream(start, end)])
        while start < end:
            epoch, offset = divmod(start, n)
            parts.append(self._permutation(epoch)[offset:offset + end - start])
            start += len(parts[-1])
        return np.concatenate(parts)

    def _permutation(self, epoch: int) -> np.ndarray:
        order = np.arange(len(self._lengths), dtype=np.int32)
        np.random.RandomState([self._seed, 0, epoch]).shuffle(order)
        return order


def _spread(batches: np.ndarray, keys: np.ndarray) -> None:
    """Swaps examples with a common key out of a batch, into the nearest batch that has no such key.

    Args:
        batches: the examples [b, size], changed in place.
        keys: each example's keys, [b, size, k].
    """
    keys_of = [[frozenset(example) for example in batch] for batch in keys.tolist()]
    counts: List[Counter[int]] = [
        collections.Counter(itertools.chain.from_iterable(batch)) for batch in keys_of]

    def places(batch: int, slot: int) -> Iterator[Tuple[int, int]]:
        leaving = keys_of[batch][slot]
        nearest = sorted(range(len(batches)), key=lambda other: abs(other - batch))[1:]
        for other in nearest:
            if not any(counts[other][key] for key in leaving):
                yield from ((other, (slot + more) % batches.shape[1])
                            for more in range(batches.shape[1]))

    def fits(batch: int, slot: int, place: Tuple[int, int]) -> bool:
        """Whether the example at the place has no key of the batch, once the slot's has left."""
        leaving = keys_of[batch][slot]
        return all(counts[batch][key] == (key in leaving) for key in keys_of[place[0]][place[1]])

    for batch, slot in np.ndindex(*batches.shape):
        if all(counts[batch][key] == 1 for key in keys_of[batch][slot]):
            continue
        tried = itertools.islice(places(batch, slot), _MAX_TRIES)
        place = next((place for place in tried if fits(batch, slot, place)), None)
        if place is None:
            continue
        other, its_slot = place
        leaving, coming = keys_of[batch][slot], keys_of[other][its_slot]
        for changed, less, more in ((batch, leaving, coming), (other, coming, leaving)):
            counts[changed].subtract(less)
            counts[changed].update(more)
        keys_of[batch][slot], keys_of[other][its_slot] = coming, leaving
        batches[batch, slot], batches[place] = batches[place], batches[batch, slot]


def inference_plan(padded_lengths: np.ndarray, tokens: int) -> List[np.ndarray]:
    """The examples of each batch: every one once, examples of similar length together, the longest first.

    The longest come first so that a batch that does not fit into memory fails at the start.

    Args:
        padded_lengths: the length of each example in a batch, [n].
        tokens: of a batch, padding included; the shorter the examples, the more of them share a batch.
    """
    order = np.argsort(-padded_lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        batches.append(order[start:start + max(1, tokens // padded_lengths[order[start]])])
        start += len(batches[-1])
    return batches
