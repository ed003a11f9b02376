"""Checkpoints of a training: when one is written, and which are kept."""

import os
import re
import shutil
import time

import tensorflow.compat.v1 as tf

from engine import interruption


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


class SaveHook(tf.train.SessionRunHook):
    """Saves every `every_steps` steps and at the end, and not before the first step.

    Once `signals` has received one, the step that just ended is the last.
    """

    def __init__(self, output_dir: str, every_steps: int, keep_checkpoint_max: int,
                 signals: interruption.Deferred):
        self._output_dir = output_dir
        self._prefix = os.path.join(output_dir, "model.ckpt")
        self._every_steps = every_steps
        self._keep_checkpoint_max = keep_checkpoint_max
        self._signals = signals

    def begin(self) -> None:
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session, coord) -> None:
        self._saver, = tf.get_collection(tf.GraphKeys.SAVERS)
        self._remove_surplus()
        self._step = self.saved_step = int(session.run(self._global_step))
        self._signals.hold()  # from now on there is something to lose

    def after_run(self, run_context, run_values) -> None:
        # Counted here: fetched beside the train_op, the variable may be read before or
        # after the increment.
        self._step += 1
        if self._step % self._every_steps == 0:
            self._save(run_context.session)
        if self._signals.received:
            run_context.request_stop()

    def end(self, session) -> None:
        self._save(session)

    def _save(self, session) -> None:
        if self._step != self.saved_step:
            self._saver.save(session, self._prefix, global_step=self._step,
                             write_meta_graph=False)
            self.saved_step = self._step
            self._remove_surplus()

    def _remove_surplus(self) -> None:
        """Removes all but the newest, also what an earlier run kept more of.

        The saver would remove a checkpoint after it has struck it off its list: a process
        killed between the two would leave it for ever.
        """
        paths = self._saver.last_checkpoints
        kept = paths[-self._keep_checkpoint_max:]
        if kept == paths:
            return
        for path in paths[:-self._keep_checkpoint_max]:
            tf.train.remove_checkpoint(path)
        self._saver.set_last_checkpoints_with_time([(path, time.time()) for path in kept])
        # Relative, as the saver's, so that the directory can be moved.
        names = [os.path.relpath(path, self._output_dir) for path in kept]
        tf.train.update_checkpoint_state(os.path.abspath(self._output_dir), names[-1], names)
