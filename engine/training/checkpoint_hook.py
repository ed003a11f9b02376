"""Saves and evaluates the checkpoints of a training, and removes old ones."""

import os
from typing import Optional

import tensorflow.compat.v1 as tf

from engine import interruption
from engine.checkpoints import checkpoint_files, checkpoints
from engine.disk import scratch
from engine.errors import UserError
from engine.training.evaluations import Evaluations
from engine.workers.coordination import NO_PEERS, Peers


def recover(output_dir: str) -> Optional[checkpoints.Checkpoint]:
    """Cleans up after an interrupted run; returns its newest checkpoint.

    Removes damaged newer ones and rewrites the file `checkpoint`, so that Estimator starts from it.
    """
    scratch.check_owner()
    os.makedirs(output_dir, exist_ok=True)
    newest = checkpoints.latest(output_dir)
    if not newest and tf.train.get_checkpoint_state(output_dir):
        raise UserError(f"{output_dir}/checkpoint names checkpoints that are not there: put their files "
                        f"back ({checkpoint_files.PREFIX}-STEP.*), or remove it to start anew")
    if newest:
        names = checkpoint_files.list_checkpoints(output_dir)
        num_kept = names.index(os.path.basename(newest.path)) + 1
        checkpoint_files.remove(output_dir, names[num_kept:])
    return newest


class SaveHook(tf.train.SessionRunHook):
    """Saves a checkpoint every `every_steps` steps and at the end, but not before the first step.

    With `evaluations`, also saves and evaluates each step that is due. Stops the training on early
    stopping, and after the step in which `signals` received a signal. Only the chief of several
    workers saves and evaluates; all stop together.
    """

    def __init__(self, output_dir: str, every_steps: int, keep_checkpoint_max: int,
                 signals: interruption.InterruptLater, evaluations: Optional[Evaluations] = None,
                 peers: Peers = NO_PEERS):
        self._output_dir = output_dir
        self._every_steps = every_steps
        self._keep_checkpoint_max = keep_checkpoint_max
        self._signals = signals
        self._evaluations = evaluations
        self._peers = peers
        # The last step done, and the step of the newest checkpoint.
        self.step = self.saved_step = 0

    @property
    def keeper(self) -> str:
        """The place of the checkpoints, in words: the output directory, or the chief's machine."""
        return self._output_dir if self._peers.is_chief else self._peers.cluster.name(0)

    def kept(self) -> str:
        """Describes the last checkpoint, for an error message; only the chief knows it."""
        if not self._peers.is_chief:
            return f"{self.keeper} has the checkpoints"
        newest = checkpoints.latest(self._output_dir)
        return (f"{self.keeper} keeps step {newest.global_step}" if newest
                else "no checkpoint was saved before it")

    def begin(self) -> None:
        """Finds the global step in the graph."""
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session, coord) -> None:
        """Reads the first step; from then on, signals wait for the end of a step."""
        self._saver, = tf.get_collection(tf.GraphKeys.SAVERS)
        self._remove_surplus()
        self.step = self.saved_step = int(session.run(self._global_step))
        self._signals.hold()  # from now on, a signal must not lose the steps done

    def after_run(self, run_context, run_values) -> None:
        """Saves and evaluates if the step is due; stops after a signal or on early stopping."""
        # Counted here, because a fetch of the global step may run before or after its increment.
        self.step += 1
        if self.step % self._every_steps == 0:
            self._save(run_context.session)
        if self._evaluations and self._evaluations.is_due(self.step):
            self._save(run_context.session)
            if self._evaluate():
                run_context.request_stop()
        if self._signals.agreed:
            run_context.request_stop()

    def end(self, session) -> None:
        """Saves the last step; returns when all workers are done with theirs."""
        self._save(session)
        self._peers.wait("trained")

    def _save(self, session) -> None:
        if self.step == self.saved_step:
            return
        self.saved_step = self.step
        if self._peers.is_chief:
            name = checkpoints.checkpoint_name(self.step)
            checkpoint_files.save(self._saver, session, os.path.join(self._output_dir, name))
            self._remove_surplus()

    def _evaluate(self) -> bool:
        """Evaluates the checkpoint just saved; returns whether to stop the training early."""
        if self._peers.is_chief:
            path = os.path.join(self._output_dir, checkpoints.checkpoint_name(self.step))
            # If a signal interrupts the evaluation, the resumed run does it first.
            self._evaluations.run(checkpoints.describe(path),
                                  lambda count: self._signals.raise_if_received())
            self._remove_surplus()
        return self._evaluations.should_stop_early()

    def _remove_surplus(self) -> None:
        """Removes all checkpoints but the newest ones and the best, earlier processes' included."""
        best_step = self._evaluations and self._evaluations.best_step
        best = best_step and checkpoints.checkpoint_name(best_step)
        names = checkpoint_files.list_checkpoints(self._output_dir)
        surplus = [name for name in names[:-self._keep_checkpoint_max] if name != best]
        if surplus:
            checkpoint_files.remove(self._output_dir, surplus)
