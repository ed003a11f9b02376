"""A training command from its flags to its last file: train, evaluate, predict, export.

`run` is the `main` of every command that trains a model; what it trains is a `Capability`.
"""

import functools
import os
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple, Type

from absl import flags

from encoder import long_texts, model_files, model_flags, task_json
from engine import log, settings
from engine.checkpoints import checkpoints
from engine.checkpoints.checkpoints import Checkpoint
from engine.cli import device_flags
from engine.disk import files
from engine.errors import UserError
from engine.inference import PredictionSettings, Predictor
from engine.progress import Counter
from engine.training import run as training, run_record
from engine.training.evaluations import Evaluate
from engine.training.settings import EpochSchedule, define_run_flags, run_settings
from engine.workers.coordination import Peers
from runs import export, output_layer, prepared, report, results, tries
from runs.capability import Capability, Job, Measured, Predict, Sets, Training, facts_of

_WORK = ("do_train", "do_eval", "do_test", "do_predict")
_INPUTS = ("train_file", "dev_file", "test_file", "predict_file")


def define_flags(values: flags.FlagValues, *more: Type[settings.Settings]) -> None:
    """Defines the flags of every command with a head; `more`: classes of settings of this one."""
    export.define_flags(values)
    model_flags.define(values, "the model to start from")
    if "max_seq_length" not in values:
        model_flags.define_max_seq_length(values)
    define_run_flags(values, EpochSchedule)
    for cls in (*more, PredictionSettings, device_flags.DeviceSettings):
        settings.define_flags(values, cls)


def run(values: flags.FlagValues, kind: Type[Capability],
        model_of: Callable[[flags.FlagValues], Capability]) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask.

    Args:
        model_of: makes the model of the flags, of this kind; called before any file is written.
    """
    def prepare(values: flags.FlagValues, peers: Peers) -> Tuple[Job, Sets]:
        job = started(job_of(values, model_of(values), peers), is_training=values.do_train)
        return job, job.model.load(job, values)

    run_prepared(values, kind, prepare)


def run_prepared(values: flags.FlagValues, kind: Type[Capability],
                 prepare: Callable[[flags.FlagValues, Peers], Tuple[Job, Sets]]) -> None:
    """The same as `run`, with what makes the job and loads its sets."""
    names = [name for name in (*_WORK, "do_export") if name in values]
    if not any(values[name].value for name in names):
        raise UserError("nothing to do: set at least one of "
                        f"{', '.join(f'--{name}' for name in names)}; --help explains all flags")
    if "use_tpu" in values:
        device_flags.check_tpu(values)
    if "do_export" in values:
        export.check_flags(values)
    compare = None
    if any(values[name].value for name in names if name in _WORK):
        several, peers = tries.of_flags(values), device_flags.join_workers(values)
        run_record.keep_settings(values, peers)  # of a resumed training
        job, sets = prepare(values, peers)
        carry_out(job, sets, several)
        if "" in sets.dev:
            compare = functools.partial(prepared.agreement, job, sets.dev[""])
    if "do_export" in values and values.do_export:
        export.write(values, kind, compare)


def job_of(values: flags.FlagValues, model: Capability, peers: Peers) -> Job:
    """Checks the flags; makes the output directory only if they are correct."""
    prediction = settings.from_flags(values, PredictionSettings)
    model.check()
    devices = device_flags.find_devices(values, values.do_train, peers)
    device_flags.compare_workers(values, devices)
    run_of = run_settings(values, devices, model.config.num_hidden_layers, model.length,
                          model.metrics(), model.loss)
    for name in model.prediction_files:  # which are removed before a prediction reads its input
        files.check_inputs(os.path.join(run_of.output_dir, name), "--output_dir", [
            values[flag].value for flag in _INPUTS if flag in values])
    return Job(model, devices, run_of._replace(command_settings=model.settings), prediction.predict_batch_size)


def started(job: Job, *, is_training: bool, flag: str = "--init_checkpoint") -> Job:
    """The job with its starting model: the one to predict with or, in training, the one whose output layer it may keep.

    Raises a UserError if that model does something else, before texts are read.

    Args:
        flag: that names the model.
    """
    settings = job.settings
    is_new = settings.training.new_output_layer
    if not is_training:
        if is_new:
            raise UserError("--new_output_layer is for a training, and --do_train is not set")
        return job._replace(trained=trained_checkpoint(job, flag))
    resumed, initial = checkpoints.latest(settings.output_dir), settings.init_checkpoint
    if resumed:
        if output_layer.taken_over(job.model, resumed, "--output_dir", output_layer.OTHER_FOLDER).rows:
            raise UserError(f"--output_dir={resumed.path} has its labels in another order than this run: "
                            f"{output_layer.OTHER_FOLDER}")
    # A search that is resumed may have further tries, which start as the first ones did.
    if initial and (not resumed or os.path.isdir(os.path.join(settings.output_dir, tries.FOLDER))):
        initial = (output_layer.left_out(initial) if is_new else output_layer.taken_over(
            job.model, initial, flag, output_layer.NEW_LAYER))
        initial = model_files.with_pooler(initial, job.model.config)
    return job._replace(settings=settings._replace(init_checkpoint=initial))


def trained_checkpoint(job: Job, flag: str = "--init_checkpoint") -> Checkpoint:
    """The best or else the newest checkpoint of the output directory, or else what `flag` names.

    Raises:
        UserError: there is none, it belongs to another run, or it does not have the model's head.
    """
    output_dir = job.settings.output_dir
    run_record.check(output_dir, job.model.facts())
    best, initial = checkpoints.best(output_dir), job.settings.init_checkpoint
    checkpoint, flag = (best, "--output_dir") if best else (initial, flag)
    if not checkpoint:
        raise UserError(f"--output_dir={output_dir} has no trained model; train one (--do_train), or give one as {flag}")
    model_files.check_layers(checkpoint, job.model.config, flag)
    job.model.require(checkpoint, flag)
    return output_layer.taken_over(job.model, checkpoint, flag)


def carry_out(job: Job, sets: Sets, several: Sequence[tries.Try] = ()) -> None:
    """Trains, measures, predicts and reports.

    All sets are loaded before, so that no training ends in an error about a bad line.

    Args:
        several: the tries of the training; none for a single one.
    """
    start = job.settings.init_checkpoint
    if sets.train and start and job.devices.peers.is_chief and not checkpoints.latest(job.settings.output_dir):
        output_layer.warn_of_pairs(start, sets.train.description)
    with Predictor(lambda *inputs: job.model.forward(
            sets.held_out(), predictor.checkpoint)(*inputs), job.devices) as predictor:
        run_once = functools.partial(_carry_out, predictor)
        if several:
            tries.run(job, sets, several, run_once)
        else:
            run_once(job, sets)


def _carry_out(predictor: Predictor, job: Job, sets: Sets,
               of_tries: Optional[Measured] = None) -> None:
    """`of_tries`: the scores of all tries, if this is the best of several."""
    if sets.train:
        training.train(_run_of(job, sets, functools.partial(_evaluate, job, sets, predictor)))
    measured = _score(job, sets, predictor, of_tries) if sets.held_out() else None
    if sets.train or sets.dev:
        report.write(job, measured, of_tries)


def _run_of(job: Job, sets: Sets, evaluate: Evaluate) -> training.Run:
    data, dev = sets.train, sets.dev.get("")
    return training.Run(
        facts_of(job, data), job.settings, job.devices, data, config=job.model.config, evaluate=evaluate,
        dev_set=dev.content_hash if dev else None, save_description=lambda: _save_description(job, data),
        result_files=(*results.FILES, report.FILE, tries.ENSEMBLE, *job.model.prediction_files))


def _save_description(job: Job, data: Training) -> None:
    """Writes what describes a model beside its checkpoints, for `Capability.open`."""
    folder, encoding = job.settings.output_dir, job.model.encoding
    model_files.save(folder, job.model.config, encoding and encoding.vocab_file,
                     encoding and encoding.do_lower_case)
    entries = {**job.model.describe(), **data.description}
    if entries:
        cut = encoding.long_texts.facts()
        task_json.write(folder, {**entries, **({long_texts.ENTRY: cut} if cut else {})},
                        encoding.do_lower_case, encoding.max_seq_length)


def _evaluate(job: Job, sets: Sets, predictor: Predictor, checkpoint: Checkpoint,
              advance: Callable[[int], None]) -> Mapping[str, float]:
    """See `evaluations.Evaluate`."""
    predict = _predict(predictor, job, checkpoint, job.settings.evaluation.eval_batch_size, advance)
    return job.model.measure(job, sets.dev[""], predict).results


def _predict(predictor: Predictor, job: Job, checkpoint: Checkpoint, batch_size: Optional[int],
             advance: Callable[[int], None]) -> Predict:
    predictor.restore(checkpoint)
    return lambda source: predictor.predict(
        source._replace(dynamic_padding=job.settings.training.dynamic_padding), batch_size, advance)


def _score(job: Job, sets: Sets, predictor: Predictor,
           of_tries: Optional[Measured]) -> Optional[Measured]:
    """Measures the dev sets, and writes what is predicted for the test sets.

    Returns:
        What was measured of the first set.
    """
    model, checkpoint, first = job.model, job.trained or trained_checkpoint(job), None
    tries.warn_of_ensemble(job.settings.output_dir)
    # A set that is also a test set is measured when its predictions are written.
    dev_alone = {suffix: dev for suffix, dev in sets.dev.items() if dev is not sets.test.get(suffix)}
    log.info(f"{'Evaluating' if dev_alone else model.verb} with {checkpoint.describe()}")

    def visibly(verb: str, held_out: Any, batch_size: int, call: Callable, *more: Any) -> Optional[Measured]:
        with Counter(verb, unit=model.unit, total=len(held_out)) as counter:
            return call(job, held_out, *more, _predict(predictor, job, checkpoint, batch_size, counter.advance))

    batch_size = job.settings.evaluation.eval_batch_size
    measured = {suffix: visibly("Evaluating", dev, batch_size, model.measure)
                for suffix, dev in dev_alone.items()}
    if measured:
        first = _write_results(job, measured, checkpoint, of_tries)
        if sets.train and first.warning:
            _warn(job, first.warning)
    for suffix, test in sets.test.items():
        of_test = visibly(model.verb, test, job.predict_batch_size, model.write, suffix)
        if of_test and of_test.results:
            first = _write_results(job, {"": of_test}, checkpoint, of_tries)
    return first


def _warn(job: Job, warning: str) -> None:
    """Warns of a trained model, also in its record and report; the warning of the training goes first."""
    log.warn(warning)
    record = run_record.load(job.settings.output_dir)
    run_record.update(job.settings.output_dir, warning=record and record.warning or warning)


def _write_results(job: Job, measured: Mapping[str, Measured], checkpoint: Checkpoint,
                   of_tries: Optional[Measured]) -> Measured:
    """Writes the results of all sets; returns what was measured of the first, with all results."""
    scores, details = {}, {}
    for suffix, of_set in measured.items():
        scores.update({name + suffix: value for name, value in of_set.results.items()})
        details.update({name + suffix: value for name, value in of_set.details.items()})
    loss = job.model.loss
    if loss and scores:  # of a set with a suffix, if there is no other
        scores.setdefault(loss, next(iter(measured.values())).results[loss])
    record = run_record.load(job.settings.output_dir)
    if record and record.output_layer:
        details["output_layer_before_training"] = record.output_layer
    tables = [of_set.table for of_set in measured.values()]
    if of_tries:
        scores.update(of_tries.results)
        details.update(of_tries.details)
        tables.extend([dict(zip(table.columns, row)) for row in table.content] for table in of_tries.shown)
    scores = results.write(job.settings.output_dir, scores, details, checkpoint.global_step,
                           of_tries.results if of_tries else ())
    for table in tables:
        results.log_table(table)
    return next(iter(measured.values()))._replace(results=scores)
