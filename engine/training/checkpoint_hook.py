"""Restores, saves and evaluates the checkpoints of a training, and removes old ones."""

import os
from typing import Callable, Iterable, Optional, Sequence, Tuple

import tensorflow.compat.v1 as tf

import multigpu_optimizer
import optimization
from replication import replica_copies
from engine import interruption, log
from engine.checkpoints import checkpoint_files, checkpoints
from engine.disk import scratch
from engine.errors import UserError
from engine.training.evaluations import Evaluations
from engine.training.settings import RunSettings
from engine.workers.coordination import Peers

# What a resumed training needs and its checkpoint lacks, by the ends of the variables' names → what that means.
_NOT_IN_A_RUN = {
    optimization.LossScale.NAMES:
        "has no loss scale, and float16 cannot begin in the middle of a run: resume it with the run's own "
        "--precision and --gradient_transfer",
    checkpoints.SLOT_SUFFIXES:
        "lacks moments of variables, as if they were frozen: resume it with the run's own --freeze_layers and "
        "--freeze_embeddings",
    (multigpu_optimizer.UPDATES,):
        "has no number of updates, and Adam's bias correction cannot begin in the middle of a run: resume it "
        "without --adam_bias_correction"}


def recover(output_dir: str) -> Optional[checkpoints.Checkpoint]:
    """Cleans up after an interrupted run; returns its newest checkpoint.

    Removes damaged newer ones, and values without an index, and rewrites the file `checkpoint`, so that Estimator
    starts from it.
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
    checkpoint_files.remove_unfinished(output_dir)
    return newest


class RestoreHook(tf.train.SessionRunHook):
    """Checks the model against the checkpoint it starts from, and makes what restores it, before the session is made.

    Args:
        earlier: the checkpoint of the training that is resumed; None: it starts from `initial_values`.
    """

    def __init__(self, initial_values: checkpoints.InitialValues,
                 earlier: Optional[checkpoints.Checkpoint]):
        self._initial_values = initial_values
        self._earlier = earlier

    def begin(self) -> None:
        """Takes the variables of the graph, and gives it a saver."""
        variables = tf.global_variables()
        if self._earlier:
            self._check_earlier(variables)
            log.info(f"Resuming from {self._earlier.describe()}")
        elif self._initial_values.checkpoint:
            self._report_warm_start()
        tf.get_collection_ref(tf.GraphKeys.SAVERS)[:] = [_Saver(variables)]
        _assign_copies(variables)

    def _check_earlier(self, variables: Sequence[tf.Variable]) -> None:
        """Raises a UserError if the earlier checkpoint is not of this training's model and optimizer."""
        missing = {variable.op.name for variable in variables}.difference(self._earlier.shapes)
        for names, why in _NOT_IN_A_RUN.items():
            if any(name.endswith(names) for name in missing):
                raise UserError(f"{self._earlier.describe()} {why}, or start a new one from it (--init_checkpoint)")
        checkpoints.check_matches(self._earlier, variables)

    def _report_warm_start(self) -> None:
        values, start = self._initial_values, self._initial_values.checkpoint
        log.info(f"Initialized {len(set(values.restored) - start.given.keys())} variables from {start.path}")
        if values.drawn:
            log.info(f"  not in the checkpoint, initialized at random: "
                     f"{', '.join(values.drawn)}")
        if values.unused():
            log.info(f"  in the checkpoint, not in the model: {', '.join(values.unused())}")


class _Saver(tf.train.Saver):
    """Saves and restores the first replica's variables.

    TensorFlow's own has a node, made in Python, for each copy of each variable.
    """

    def __init__(self, variables: Iterable[tf.Variable]):
        super().__init__({variable.op.name: _copies(variable)[0] for variable in variables},
                         sharded=True, max_to_keep=0, save_relative_paths=True)


def _assign_copies(variables: Sequence[tf.Variable]) -> None:
    """Fills the copies on other replicas, after variables are initialized or restored."""
    with tf.control_dependencies([variable.initializer for variable in tf.local_variables()]):
        # The initializers of tables are part of the local initialization.
        tf.get_collection_ref(tf.GraphKeys.TABLE_INITIALIZERS).extend(
            replica_copies.assignments(map(_copies, [*variables, *tf.local_variables()])))


def _copies(variable: tf.Variable) -> Tuple[tf.Variable, ...]:
    return tf.distribute.get_strategy().experimental_local_results(variable)


class SaveHook(tf.train.SessionRunHook):
    """Saves a checkpoint every --save_checkpoints_steps and at the end, but not before the first step.

    With `evaluations`, also saves and evaluates each step that `is_evaluated`. Stops the training on
    early stopping, and after the step in which `signals` received a signal. Only the chief of several
    workers saves and evaluates; all stop together. `replaced` is called when the first checkpoint is saved, which
    takes the place of earlier ones.
    """

    def __init__(self, settings: RunSettings, first_step: int, signals: interruption.InterruptLater,
                 evaluations: Optional[Evaluations], is_evaluated: Callable[[int], bool], peers: Peers,
                 replaced: Callable[[], None]):
        self._replaced: Optional[Callable[[], None]] = replaced
        self._output_dir = settings.output_dir
        self._every_steps = settings.training.save_checkpoints_steps
        self._keep_checkpoint_max = settings.training.keep_checkpoint_max
        self._signals = signals
        self._evaluations = evaluations
        self._is_evaluated = is_evaluated
        self._peers = peers
        # The last step done, and the step of the newest checkpoint.
        self.step = self.saved_step = first_step

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

    def after_create_session(self, session, coord) -> None:
        """From here on, signals wait for the end of a step."""
        self._saver, = tf.get_collection(tf.GraphKeys.SAVERS)
        self._signals.hold()  # from now on, a signal must not lose the steps done

    def after_run(self, run_context, run_values) -> None:
        """Saves and evaluates if the step is due; stops after a signal or on early stopping."""
        # Counted here, because a fetch of the global step may run before or after its increment.
        self.step += 1
        if self.step % self._every_steps == 0:
            self._save(run_context.session)
        if self._evaluations and self._is_evaluated(self.step):
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
            if self._replaced:
                self._replaced()
                self._replaced = None
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
