"""The order of the examples: every one once an epoch, and a function of seed, sizes and step."""

import numpy as np
import pytest

from engine.data.plan import WINDOW_BATCHES, TrainingPlan, window_batches


def lengths(n: int) -> np.ndarray:
    return np.random.RandomState(0).randint(1, 60, n)


@pytest.mark.parametrize("n, global_batch_size, epochs", [
    (8551, 32, 3), (8551, 8, 1), (96, 32, 2), (100, 7, 3), (5, 3, 3), (1, 16, 16), (10, 32, 32)])
def test_every_example_is_seen_once_an_epoch(n, global_batch_size, epochs):
    plan = TrainingPlan(lengths(n), global_batch_size, seed=3)
    steps = n * epochs // global_batch_size
    seen = np.zeros(n, int)
    for step in range(steps):
        batch = plan.global_batch(step)
        assert len(batch) == global_batch_size
        np.add.at(seen, batch, 1)
    unseen = n * epochs - steps * global_batch_size  # what does not fill a last batch
    assert seen.max() == epochs
    assert (epochs - seen).sum() == unseen


def test_a_step_does_not_depend_on_the_steps_asked_for_before():
    plan = TrainingPlan(lengths(1000), 16, seed=3)
    in_order = [plan.global_batch(step) for step in range(150)]
    for step in np.random.RandomState(1).permutation(150):
        fresh = TrainingPlan(lengths(1000), 16, seed=3)
        np.testing.assert_array_equal(fresh.global_batch(int(step)), in_order[step])


def test_seeds_and_epochs_differ():
    plan = TrainingPlan(lengths(320), 32, seed=3)
    other = TrainingPlan(lengths(320), 32, seed=4)
    assert not np.array_equal(plan.global_batch(0), other.global_batch(0))
    first, second = ([set(plan.global_batch(step)) for step in range(start, start + 10)]
                     for start in (0, 10))
    assert first != second


def test_examples_of_like_length_share_a_batch_and_batches_come_in_mixed_order():
    sizes = lengths(32 * WINDOW_BATCHES)
    plan = TrainingPlan(sizes, 32, seed=3)
    longest = np.array([sizes[plan.global_batch(step)].max() for step in range(WINDOW_BATCHES)])
    shortest = np.array([sizes[plan.global_batch(step)].min() for step in range(WINDOW_BATCHES)])
    assert (longest - shortest).max() <= 4
    assert not (np.diff(longest) >= 0).all()


def test_a_short_training_has_smaller_windows():
    assert [window_batches(steps) for steps in (1, 62, 190, 800, 2500, 10**6)] == [1, 1, 3, 16, 50, 50]
    sizes = lengths(32 * 40)
    batches = TrainingPlan(sizes, 32, seed=3, window_batches=1)
    drawn = np.concatenate([batches.global_batch(step) for step in range(40)])
    assert sorted(drawn) == list(range(32 * 40))
    assert (drawn != np.sort(drawn)).any()


def clashes(batch, keys) -> int:
    """The pairs of a batch's examples that have a key in common."""
    sets = [set(keys[example]) for example in batch]
    return sum(bool(one & other) for place, one in enumerate(sets) for other in sets[:place])


@pytest.mark.parametrize("n, size, num_keys", [(600, 16, 120), (1030, 8, 400), (40, 16, 25), (64, 8, 12)])
def test_examples_with_a_common_key_are_spread_over_the_batches_of_a_window(n, size, num_keys):
    random = np.random.RandomState(5)
    keys = random.randint(0, num_keys, [n, 2]).astype(np.uint64)
    keys[::3, 1] = n + np.arange(len(keys[::3]))  # a key that no other example has
    sizes, steps = lengths(n), 2 * n // size
    plain, spread = (TrainingPlan(sizes, size, seed=3, keys=each) for each in (None, keys))
    before, after = ([plan.global_batch(step) for step in range(steps)] for plan in (plain, spread))
    counts = [sum(clashes(batch, keys) for batch in batches) for batches in (before, after)]
    longest = [sum(sizes[batch].max() for batch in batches) for batches in (before, after)]
    if n > 100:
        assert counts[0] > 30 and counts[1] <= counts[0] * 0.05
        assert longest[1] < longest[0] * 1.25  # an example goes to a batch of nearly its length
    else:  # more examples of a key than batches: some must clash
        assert 0 < counts[1] < counts[0]
    again = TrainingPlan(sizes, size, seed=3, keys=keys)
    for step in random.permutation(steps)[:9]:
        np.testing.assert_array_equal(again.global_batch(int(step)), after[step])
