"""How far a training is: by the examples seen, whatever the global batch of its steps.

A training that is resumed with another global batch trains what is left of its examples, and the
learning rate goes on from the share that is done.
"""

from typing import Sequence, Tuple, Union

import numpy as np
import tensorflow.compat.v1 as tf

from engine.data.batches import Source
from engine.data.plan import Stretch, TrainingPlan
from engine.training.settings import EpochSchedule, Schedule, StepSchedule


class Course:
    """A training from its first step to its last, with the global batches that it has had.

    Args:
        length: the length of the whole training. Steps are those of the first global batch.
        num_examples: the size of the training set.
        batches: the first step and the size of each global batch; the last is that of now.

    Attributes:
        num_train_examples: the examples of the whole training.
        last_step: the global step at which it ends.
        last: the stretch of the last global batch.
        nominal: the schedule of the learning rate, over the values of `place`.
        batches: as given.
    """

    def __init__(self, length: Union[EpochSchedule, StepSchedule], num_examples: int,
                 batches: Sequence[Tuple[int, int]]):
        self.batches = batches
        (_, size), *others = batches
        self.nominal = length.schedule(num_examples, size)
        self._num_examples = num_examples
        self.num_train_examples = length.num_examples(num_examples, size)
        self.last, self.last_step = Stretch(0, 0, size), self.nominal.num_train_steps
        # The learning rate's place in the nominal schedule at the last stretch's beginning, and a step's share.
        self._place, self._pace, self._warmup_end = 0.0, 1.0, self.nominal.warmup_steps
        for first_step, size in others:
            self._place += (first_step - self.last.first_step) * self._pace
            self.last = Stretch(first_step, self.last.seen_after(first_step), size)
            if first_step < self.last_step:  # it was not finished: less than a batch is a step, too
                self.last_step = max(first_step + 1, self.last.steps_to(self.num_train_examples))
                left = self.nominal.num_train_steps - self._place  # the nominal number of steps is rounded down
                self._pace = min(size / batches[0][1], left / (self.last_step - first_step))
                if self._place < self.nominal.warmup_steps:  # else the warm-up is over
                    self._warmup_end = round(first_step + (self.nominal.warmup_steps - self._place) / self._pace)
            else:
                self.last_step = first_step

    @property
    def is_changed(self) -> bool:
        """Whether the global batch has changed."""
        return len(self.batches) > 1

    @property
    def schedule(self) -> Schedule:
        """The last step, and the step at which the warm-up ends."""
        return Schedule(self.last_step, self._warmup_end)

    def share_after(self, step: int) -> float:
        """The share of the examples that are seen after `step` steps, a step of the last stretch."""
        return self.last.seen_after(step) / self.num_train_examples

    def plan(self, source: Source, seed: int, window_batches: int) -> TrainingPlan:
        """The examples of each step, also of those that are done."""
        (_, size), *others = self.batches
        plan = TrainingPlan(source.lengths, size, seed, source.keys, window_batches)
        for change in others:
            plan = plan.resized(*change)
        return plan

    def examples(self, plan: TrainingPlan) -> np.ndarray:
        """The numbers of the examples that the training sees."""
        if self.last.seen_after(self.last_step) >= self._num_examples:  # an epoch or more
            return np.arange(self._num_examples)
        return np.sort(np.concatenate(list(map(plan.global_batch, range(self.last_step)))))

    def place(self, step: tf.Tensor) -> tf.Tensor:
        """Where a step of the last stretch stands in the nominal schedule."""
        if not self.is_changed:
            return step
        return self._place + tf.cast(step - self.last.first_step, tf.float32) * self._pace

    def ends_epoch(self, step: int) -> bool:
        """Whether an epoch ends after so many steps, of the last stretch."""
        return step > self.last.first_step and self.last.ends_epoch(step, self._num_examples)
