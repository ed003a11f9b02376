"""A training run from start to finish, for every training command.

Refuses the output directory of another run, resumes an interrupted run, finishes an interrupted
evaluation, removes results of earlier models, logs the devices, batch and schedule, writes the
run's record, and trains.
"""

import base64
import os
from typing import Any, Dict, Optional

import numpy as np

from engine import log
from engine.checkpoints import checkpoints
from engine.errors import UserError
from engine.model import FittedLayer
from engine.progress import counted
from engine.settings import recorded
from engine.training import checkpoint_hook, loop, run_record
from engine.training.evaluations import Evaluations
from engine.training.loop import Run


def train(run: Run) -> None:
    """Trains to the end of the run's schedule, from the newest checkpoint of its directory.

    All workers but the chief exit here, after the chief: the steps after a training, such as an
    evaluation, run on the chief alone.
    """
    settings, peers, output_dir = run.settings, run.devices.peers, run.settings.output_dir
    # Whether the folder is this run's, and with which batches it came how far.
    run = run._replace(batches=run_record.batches(output_dir, run.global_batch_size))
    run = run._replace(window_batches=peers.from_chief(run_record.WINDOW_BATCHES, lambda: run_record.window_batches(
        output_dir, run.schedule.num_train_steps)))
    record = run_record.Record(run.facts, {
        run_record.GLOBAL_BATCH_SIZE: run.global_batch_size,
        run_record.WINDOW_BATCHES: run.window_batches,
        "number of replicas": run.devices.num_replicas, **settings.recorded()})
    peers.compare("the training", {**run.facts, **record.settings})
    run_record.check(output_dir, run.facts)
    # The evaluation that an earlier process owes, after which the training may be over.
    evaluations = None
    if settings.evaluation.during_training:
        if checkpoints.read_evaluations(output_dir)["evaluations"]:
            run_record.check_dev_set(output_dir, run.dev_set)
        evaluations = Evaluations(output_dir, settings.evaluation, run.evaluate, peers)
        evaluations.catch_up(run.is_evaluated)
    if not (_is_finished(run) or evaluations and evaluations.should_stop_early()):
        if run.global_batch_size < run.data.least_batch:
            raise UserError(f"--train_batch_size={settings.training.train_batch_size}: a step with one example has "
                            "nothing to compare it with; the larger the batch, the more each example learns from")
        # The steps that are left may have another global batch, and the schedule another end.
        run = run._replace(batches=peers.from_chief("resumed", lambda: run_record.resume(
            output_dir, record, run.course, settings.training.allow_batch_change)))
        _announce(run)
        run.save_description()
        resumed = checkpoints.latest(output_dir) and run_record.load(output_dir)
        run = run._replace(output_layer=_output_layer(run),
                           replaced=lambda: _remove_results(run, with_evaluations=evaluations is None))
        record = record._replace(
            warning=resumed and resumed.warning or None, batches=run.batches if run.course.is_changed else None,
            compiled_lengths=resumed.compiled_lengths if resumed else None, dev_set=run.dev_set,
            output_layer=resumed.output_layer if resumed else run.output_layer and run.output_layer.summary)
        # From the first step to the last checkpoint.
        with run_record.recording(output_dir, record, peers.is_chief):
            loop.take_steps(run, evaluations)
    peers.wait_for_chief()


def _is_finished(run: Run) -> bool:
    """Whether no step is left, with the global batches that the run has had; completes its folder then."""
    output_dir, last_step = run.settings.output_dir, run.schedule.num_train_steps
    newest, record = checkpoints.latest(output_dir), run_record.load(output_dir)
    if not newest or newest.global_step < last_step:
        return False
    length = record and run_record.difference(output_dir, record._replace(
        facts={}, settings=recorded(run.settings.length)))
    # With another length the last step is of no training: the batches that the run has had are of its own length.
    of_all = f" of {last_step}" if newest.global_step == last_step and not length else ""
    log.info(f"{output_dir} is already trained to step {newest.global_step}{of_all}: nothing is left "
             "to train" + (f" ({length})" if length else ""))
    given = {name: value for name, value in run.settings.recorded().items() if value is not None}
    changes = run_record.changed(record.settings, given) if record else {}
    for name in sorted(changes.keys() - recorded(run.settings.length).keys() - {"--gradient_accumulation_steps"}):
        log.warn(f"{name} has no effect, since nothing is left to train: {changes[name]}")
    if not record:  # another program's folder
        run.save_description()
    elif run.devices.peers.is_chief:
        checkpoint_hook.recover(output_dir)  # the disk may have failed after the last step
    return True


def _output_layer(run: Run) -> Optional[FittedLayer]:
    """The output layer that the chief fits, on all workers; None if there is none, or the run is resumed."""
    if run.settings.training.fit_output_layer is True and not run.data.fit:
        log.warn("--fit_output_layer has no effect on this kind of training, which has no layer that can be fitted")

    def fit() -> Optional[Dict[str, Any]]:
        is_new = run.data.fit and not checkpoints.latest(run.settings.output_dir)
        layer = run.data.fit(run.settings.training.learning_rate) if is_new else None
        return layer and {"summary": layer.summary, "values": {
            name: [value.shape, base64.b64encode(value.tobytes()).decode("ascii")]
            for name, value in layer.values.items()}}

    sent = run.devices.peers.from_chief("output layer", fit)
    return sent and FittedLayer({
        name: np.frombuffer(base64.b64decode(data), np.float32).reshape(shape)
        for name, (shape, data) in sent["values"].items()}, sent["summary"])


def _announce(run: Run) -> None:
    settings, devices, schedule = run.settings.training, run.devices, run.schedule
    micro_batches = settings.gradient_accumulation_steps
    accumulated = f" x {micro_batches} accumulated" if micro_batches > 1 else ""
    course, num_examples = run.course, run.data.num_examples
    reached = float(f"{course.num_train_examples / num_examples:.3g}")
    epochs = getattr(run.settings.length, "num_train_epochs", reached)
    steps = f"{counted(schedule.num_train_steps, 'steps')}, {schedule.warmup_steps:,} of them warm-up"
    if course.is_changed:
        done = course.share_after(course.last.first_step)
        left = schedule.num_train_steps - course.last.first_step
        steps += (f": {done:.1%} of the examples in {counted(course.last.first_step, 'steps')} before the "
                  f"change of the global batch, {1 - done:.1%} in {counted(left, 'steps')} from there on")
    log.info(f"Training on {devices.describe()}: {counted(devices.num_replicas, 'replicas')} x "
             f"{settings.train_batch_size}{accumulated} = "
             f"{counted(run.global_batch_size, 'examples')} per step; "
             f"{counted(num_examples, 'examples')} x {counted(epochs, 'epochs')} = {steps}")
    if schedule.warmup_steps >= schedule.num_train_steps and devices.peers.is_chief:
        flag = "num_warmup_steps" if hasattr(run.settings.length, "num_warmup_steps") else "warmup_proportion"
        log.warn(f"the warm-up takes {schedule.warmup_steps:,} steps and the training {schedule.num_train_steps:,}: "
                 f"the learning rate only rises, to {schedule.num_train_steps / schedule.warmup_steps:.2g} of "
                 f"--learning_rate; lower --{flag}")


def _remove_results(run: Run, with_evaluations: bool) -> None:
    """Removes what an earlier model has predicted, and its scores.

    Args:
        with_evaluations: also those of an earlier training, so that the newest checkpoint counts as the best.
    """
    output_dir = run.settings.output_dir
    evaluations = os.path.join(output_dir, checkpoints.EVALUATIONS)
    if with_evaluations and os.path.exists(evaluations):
        log.warn(f"the run in {output_dir} is resumed without evaluations during training: its "
                 "newest checkpoint will be used instead of the best one so far")
        os.remove(evaluations)
    for path in (os.path.join(output_dir, name) for name in run.result_files):
        if os.path.exists(path):
            log.info(f"Removing {path}: it was computed with an earlier model")
            os.remove(path)
