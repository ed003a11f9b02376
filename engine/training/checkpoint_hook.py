"""Checkpoints of a training: when one is written and evaluated, and which are kept."""

import os
import re
import shutil
import time
from typing import Callable, List, Optional, Sequence

import tensorflow.compat.v1 as tf

from engine import checkpoints, interruption
from engine.training.evaluations import Evaluations


# Of files.atomic_path; of TensorFlow's state file, checkpoint files and directories for them.
_TEMPORARY = re.compile(r".*\.tmp-\d+|checkpoint\.tmp[0-9a-f]+|.*\.tempstate\d+"
                        r"|model\.ckpt-\d+_temp(_[0-9a-f]+)?")
_DATA = re.compile(r"(model\.ckpt-\d+)\.data-\d{5}-of-\d{5}")


def remove_remnants(output_dir: str) -> None:
    """Removes what a training that was killed was about to write there, or to remove."""
    names = set(os.listdir(output_dir))
    for name in names:
        # A checkpoint's data is there before its index, and after it: alone it is none.
        data = _DATA.fullmatch(name)
        if _TEMPORARY.fullmatch(name) or (data and data.group(1) + ".index" not in names):
            path = os.path.join(output_dir, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def restore_only(variables: Sequence[tf.Variable], *,
                 and_initialize: Sequence[tf.Variable]) -> None:
    """Makes this graph's saver, which saves all variables, restore from checkpoints with fewer."""
    saver, = tf.get_collection(tf.GraphKeys.SAVERS)
    partial = tf.train.Saver(variables)
    initialize = tf.variables_initializer(and_initialize)

    def restore(session, path):
        partial.restore(session, path)
        session.run(initialize)
    saver.restore = restore


class SaveHook(tf.train.SessionRunHook):
    """Saves every `every_steps` steps and at the end, and not before the first step.

    Where there are `evaluations`, each step for which `is_evaluated` is saved and evaluated.
    The training ends where they lost their patience, or with the step in which `signals`
    received one.
    """

    def __init__(self, output_dir: str, every_steps: int, keep_checkpoint_max: int,
                 signals: interruption.Deferred, evaluations: Optional[Evaluations] = None,
                 is_evaluated: Callable[[int], bool] = lambda step: False):
        self._output_dir = output_dir
        self._prefix = os.path.join(output_dir, checkpoints.PREFIX)
        self._every_steps = every_steps
        self._keep_checkpoint_max = keep_checkpoint_max
        self._signals = signals
        self._evaluations = evaluations
        self._is_evaluated = is_evaluated
        self.step = self.saved_step = 0  # done so far; of the newest checkpoint

    def begin(self) -> None:
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session, coord) -> None:
        self._saver, = tf.get_collection(tf.GraphKeys.SAVERS)
        self._remove_surplus()
        self.step = self.saved_step = int(session.run(self._global_step))
        self._signals.hold()  # from now on there is something to lose

    def after_run(self, run_context, run_values) -> None:
        # Counted here: fetched beside the train_op, the variable may be read before or
        # after the increment.
        self.step += 1
        if self.step % self._every_steps == 0:
            self._save(run_context.session)
        if self._is_evaluated(self.step):
            self._save(run_context.session)
            if self._evaluate():
                run_context.request_stop()
        if self._signals.received:
            run_context.request_stop()

    def end(self, session) -> None:
        self._save(session)

    def _save(self, session) -> None:
        if self.step != self.saved_step:
            self._saver.save(session, self._prefix, global_step=self.step,
                             write_meta_graph=False)
            self.saved_step = self.step
            self._remove_surplus()

    def _evaluate(self) -> bool:
        """Evaluates what was just saved; returns whether the training is to end."""
        path = os.path.join(self._output_dir, checkpoints.name_of(self.step))
        # An evaluation that a signal cuts short is made up for when the run goes on.
        self._evaluations.run(checkpoints.open_checkpoint(path),
                              lambda count: self._signals.raise_if_received())
        self._remove_surplus()
        return self._evaluations.is_patience_used_up()

    def _remove_surplus(self) -> None:
        """Removes all but the newest and the best, also what an earlier run kept more of.

        The saver would remove a checkpoint after it has struck it off its list: a process
        killed between the two would leave it for ever.
        """
        paths = self._saver.last_checkpoints
        surplus = self._surplus(paths)
        if not surplus:
            return
        for path in surplus:
            tf.train.remove_checkpoint(path)
        kept = [path for path in paths if path not in surplus]
        self._saver.set_last_checkpoints_with_time([(path, time.time()) for path in kept])
        # Relative, as the saver's, so that the directory can be moved.
        names = [os.path.relpath(path, self._output_dir) for path in kept]
        tf.train.update_checkpoint_state(os.path.abspath(self._output_dir), names[-1], names)

    def _surplus(self, paths: List[str]) -> List[str]:
        best_step = self._evaluations and self._evaluations.best_step
        best = best_step and checkpoints.name_of(best_step)
        return [path for path in paths[:-self._keep_checkpoint_max]
                if os.path.basename(path) != best]
