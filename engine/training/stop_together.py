"""Stops all workers after the same step."""

from typing import Optional, Tuple

import tensorflow.compat.v1 as tf

from engine import interruption
from engine.errors import UserError
from engine.training.step_hook import Signals, mean_over_replicas
from engine.workers.cluster import PeerLost
from engine.workers.coordination import Peers

# The errors that TensorFlow raises when it notices the loss of a worker, among other occasions.
ERRORS_OF_LOSS = (tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError,
                  tf.errors.UnavailableError, tf.errors.UnknownError)


def mean_loss(loss: tf.Tensor) -> Tuple[tf.Tensor, Signals]:
    """The mean loss of a step, and the signals of all workers. Called in each replica.

    The signals travel with the loss: every worker learns of them after the same step.
    """
    here = tf.placeholder_with_default(0.0, [])
    means = mean_over_replicas(tf.stack([tf.cast(loss, tf.float32), here]))
    return means[0], Signals(here, means[1])


def explain(error: Optional[Exception], peers: Peers) -> None:
    """Ends the process with the name of the worker that is lost. Returns if there are no other workers.

    Raises:
        PeerLost: the lost worker is unknown.
    """
    if peers.others:
        peers.wait_for_notice()
        reason = "" if error is None else f" ({str(error).splitlines()[0][:200]})"
        raise PeerLost(f"TensorFlow has lost the connection to another worker{reason}; started again, "
                   "the same command goes on from the last checkpoint") from error


class OneSession(tf.train.SessionRunHook):
    """Ends the training if TensorFlow starts a new session, as it does after some errors and the loss of a worker.

    The new session would resume from the last checkpoint, with batches from the first step on, and with other
    workers at a later step.
    """

    def __init__(self, peers: Peers):
        self._peers = peers
        self._has_session = False

    def after_create_session(self, session, coord) -> None:
        """Raises a UserError the second time, or exits where there are other workers."""
        if self._has_session:
            explain(None, self._peers)
            raise UserError("TensorFlow has lost its session, as after an error of a disk or a network, and would begin "
                            "again in another order of the examples: the same command goes on from the last checkpoint")
        self._has_session = True


class SharedSignals(tf.train.SessionRunHook):
    """Has all workers stop after the same step when one of them has received a signal.

    Args:
        received: those of this worker.
        tensors: those of its first replica.
    """

    def __init__(self, received: interruption.InterruptLater, tensors: Signals):
        self._received = received
        self._tensors = tensors

    def before_run(self, run_context):
        """Sends a signal to the others."""
        return tf.train.SessionRunArgs(
            self._tensors.share, {self._tensors.here: float(bool(self._received.received))})

    def after_run(self, run_context, run_values) -> None:
        """Receives the others' signals."""
        if run_values.results > 0:
            self._received.agree()
