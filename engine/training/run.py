"""A training run from start to finish, for every training command.

Refuses the output directory of another run, resumes an interrupted run, finishes an interrupted
evaluation, removes results of earlier models, logs the devices, batch and schedule, writes the
run's record, and trains.
"""

import glob
import os
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from engine import log
from engine.checkpoints import checkpoints
from engine.devices import precision
from engine.errors import UserError
from engine.progress import counted
from engine.training import loop, run_record
from engine.training.evaluations import Evaluations, discard
from engine.training.loop import Run
from engine.training.settings import RunSettings


def train(run: Run) -> None:
    """Trains to the end of the run's schedule, from the newest checkpoint of its directory.

    All workers but the chief exit here, after the chief: the steps after a training, such as an
    evaluation, run on the chief alone.

    Raises:
        UserError: the output directory belongs to another run, or the checkpoint to another model.
        Interrupted: SIGTERM or Ctrl-C; a checkpoint was saved.
    """
    _train(run)
    run.devices.peers.wait_for_chief()


def find_trained(settings: RunSettings,
                 facts: Mapping[str, Any]) -> Tuple[checkpoints.Checkpoint, str]:
    """The best or else the newest checkpoint of the output directory, or else --init_checkpoint.

    Args:
        facts: as those of `Run`.

    Returns:
        The checkpoint, and the flag that names it.

    Raises:
        UserError: there is none, or it belongs to another run.
    """
    run_record.check(settings.output_dir, facts)
    trained = checkpoints.best(settings.output_dir)
    if trained:
        return trained, "--output_dir"
    if settings.init_checkpoint:
        return settings.init_checkpoint, "--init_checkpoint"
    raise UserError(f"--output_dir={settings.output_dir} has no trained model; train one "
                    "(--do_train), or give one as --init_checkpoint")


def _train(run: Run) -> None:
    settings, peers = run.settings, run.devices.peers
    output_dir, num_replicas = settings.output_dir, run.devices.num_replicas
    record = run_record.Record(run.facts, _recorded(settings, num_replicas))
    peers.compare("the training", {**run.facts, **record.settings})
    evaluations = None
    if settings.evaluation.during_training:
        evaluations = Evaluations(output_dir, settings.evaluation, run.evaluate, peers)
    if not run_record.check_training(
            output_dir, record, num_train_steps=run.schedule.num_train_steps,
            allow_batch_change=settings.training.allow_batch_change):
        if not run_record.load(output_dir):  # another program's folder
            run.save_description()
        _evaluate_newest(evaluations, output_dir)
        return
    if evaluations and evaluations.should_stop_early():
        return
    if not evaluations:
        discard(output_dir)
    _announce(run)
    _remove_results(output_dir, run.result_files)
    run.save_description()
    with run_record.recording(output_dir, record, peers.is_chief):
        loop.train(run, evaluations)


def _recorded(settings: RunSettings, num_replicas: int) -> Dict[str, Any]:
    return {run_record.GLOBAL_BATCH_SIZE: settings.global_batch_size(num_replicas),
            "number of replicas": num_replicas, **settings.recorded()}


def _evaluate_newest(evaluations: Optional[Evaluations], output_dir: str) -> None:
    """Evaluates the newest checkpoint, if an earlier process was killed before it could."""
    newest = checkpoints.latest(output_dir)
    if evaluations and evaluations.is_missing(newest.global_step):
        evaluations.run(newest)


def _announce(run: Run) -> None:
    settings, devices = run.settings, run.devices
    if settings.training.gradient_transfer == precision.FLOAT16 and devices.num_replicas == 1:
        log.warn("--gradient_transfer=float16 changes nothing: there is one replica")
    micro_batches = settings.training.gradient_accumulation_steps
    accumulated = f" x {micro_batches} accumulated" if micro_batches > 1 else ""
    global_batch_size = settings.global_batch_size(devices.num_replicas)
    log.info(f"Training on {devices.describe()}: {counted(devices.num_replicas, 'replicas')} x "
             f"{settings.training.train_batch_size}{accumulated} = "
             f"{counted(global_batch_size, 'examples')} per step; "
             f"{settings.length.describe(run.num_examples, global_batch_size)}")
    if devices.peers.others:
        log.info("Evaluations and predictions run on this worker, the chief, alone: they take little "
                 "of a training's time, and their results need not cross machines")


def _remove_results(output_dir: str, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        for path in glob.glob(os.path.join(glob.escape(output_dir), pattern)):
            log.info(f"Removing {path}: it was computed with an earlier model")
            os.remove(path)
