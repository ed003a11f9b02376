"""Several tries of a training in one command, with other seeds and learning rates.

Each try has a folder in `tries`, as if it were a command of its own. The best on the dev set becomes the
model of the output directory.
"""

import dataclasses
import fnmatch
import glob
import itertools
import math
import os
import shutil
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Type

import numpy as np
from absl import flags

from engine import log
from engine.checkpoints import checkpoint_files, checkpoints
from engine.disk import files
from engine.errors import UserError
from engine.progress import counted
from engine.settings import MAX_SEED, from_flags, recorded, setting
from engine.training import run_record
from runs import report, results
from runs.capability import Job, Measured, Sets, facts_of
from runs.report_page import Table

FOLDER = run_record.TRIES
ENSEMBLE = "ensemble.json"  # until version 1.0 it named tries that predicted together
_MOST_TRIES = 1000
_STALE = ("events.out.tfevents.*", "evaluations.json", ENSEMBLE)  # of an earlier best try


@dataclasses.dataclass(frozen=True)
class TrySettings:
    """Which tries to make."""
    topic = "Tries"
    seeds: Optional[str] = setting(
        None, "Seeds, separated by commas: a training with each, in tries/ in --output_dir; the best "
        "on the dev set becomes the model of --output_dir.")
    num_seeds: Optional[int] = setting(
        None, "Number of seeds to try, from --seed on, in the place of --seeds.",
        between=(1, _MOST_TRIES))
    learning_rates: Optional[str] = setting(
        None, "Learning rates to try, separated by commas; each with each seed.")


class Try(NamedTuple):
    """The values in which a try differs from the others."""
    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"lr-{self.learning_rate}_seed-{self.seed}"

    def job(self, job: Job) -> Job:
        """The job of the try alone."""
        settings = job.settings
        return job._replace(settings=settings._replace(
            training=dataclasses.replace(settings.training, **self._asdict()),
            output_dir=os.path.join(settings.output_dir, FOLDER, self.name)))


def of_flags(values: flags.FlagValues) -> Sequence[Try]:
    """The tries that the flags ask for; none for a single training."""
    given = [name for name in ("seeds", "num_seeds", "learning_rates")
             if name in values and values[name].value is not None]
    if not given:
        return []
    if not (values.do_train and values.do_eval):
        raise UserError(f"--{given[0]} needs --do_train and --do_eval: the dev set chooses the best try")
    for several, one in (("seeds", "seed"), ("seeds", "num_seeds"), ("learning_rates", "learning_rate")):
        if several in given and values[one].present:
            raise UserError(f"--{several} and --{one} exclude each other; give one of them")
    settings, rates = from_flags(values, TrySettings), [values.learning_rate]
    seeds = list(range(values.seed, values.seed + (settings.num_seeds or 1)))
    if settings.seeds is not None:
        seeds = _numbers("seeds", settings.seeds, int)
    if settings.learning_rates is not None:
        rates = _numbers("learning_rates", settings.learning_rates, float)
    if not 0 <= min(seeds) <= max(seeds) <= MAX_SEED:
        raise UserError(f"the seeds of the tries must be between 0 and {MAX_SEED}")
    if not all(0 < rate < math.inf for rate in rates):
        raise UserError(f"--learning_rates={settings.learning_rates}: must be numbers greater than 0")
    for name in ("seed", "learning_rate"):
        values[name].present += 1  # a given value wins over that of an earlier best try in run.json
    return [Try(*pair) for pair in itertools.product(rates, seeds)]


def _numbers(flag: str, text: str, number: Type) -> List[Any]:
    try:
        numbers = [number(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not 0 < len(set(numbers)) == len(numbers) <= _MOST_TRIES:
        kind = "whole numbers" if number is int else "numbers"
        raise UserError(f"--{flag}={log.brief(text)}: must be different {kind}, separated by commas")
    return numbers


def warn_of_ensemble(folder: str) -> None:
    """Warns that only the best try of a folder predicts, if version 1.0 predicted with several."""
    path = os.path.join(folder, ENSEMBLE)
    if os.path.exists(path):
        log.warn(f"{path} names several tries, and the best alone predicts: this version has no "
                 "ensembles")


def run(job: Job, sets: Sets, tries: Sequence[Try], carry_out: Callable[..., None]) -> None:
    """Makes the tries that are not done yet, and the best one the model of the output directory.

    Args:
        carry_out: (job, sets, scores of all tries) trains, measures, predicts and reports.

    Raises:
        UserError: the folder has another model or other tries.
    """
    output_dir = job.settings.output_dir
    if job.devices.peers.others:
        raise UserError("several tries run on one machine, and this run has several; give each try a "
                        "command of its own")
    folders = {one: one.job(job).settings.output_dir for one in tries}
    length = run_record.Record({}, recorded(job.settings.length))
    is_single = not os.path.isdir(os.path.join(output_dir, FOLDER)) or (  # or was trained further than the tries
        run_record.difference(output_dir, length) and not any(
            run_record.difference(folder, length) for folder in folders.values() if _has_results(folder)))
    if checkpoint_files.list_checkpoints(output_dir) and is_single:
        raise UserError(f"--output_dir={output_dir} has a model of a single training, which the best try "
                        "would replace; use another --output_dir")
    metric = job.settings.evaluation.metric_for_best or job.model.metrics()[0]
    # A search that is finished stays so, whatever the global batch; in another one the tries differ.
    any_batch = job.settings.training.allow_batch_change or all(map(_has_results, folders.values()))
    scores: Dict[Try, Dict[str, float]] = {}
    for folder in sorted(glob.glob(os.path.join(glob.escape(output_dir), FOLDER, run_record.TRY))):
        run_record.check_dev_set(folder, sets.dev[""].content_hash)
    for number, one in enumerate(tries, 1):
        if not _is_done(one.job(job), sets, any_batch):
            log.info(f"Try {number} of {len(tries)}: {folders[one]}")
            files.make_directory(folders[one], "--output_dir")
            carry_out(one.job(job), sets._replace(test={}))
        scores[one] = results.read(folders[one])
        best = max(scores, key=lambda one: _goodness(metric, scores[one][metric]))  # the first of a tie
        for worse in set(scores) - {best}:
            checkpoint_files.remove(folders[worse], checkpoint_files.list_checkpoints(folders[worse]))
    log.info(f"The best of {counted(len(tries), 'tries')} by {metric} is {best.name}: it becomes the "
             f"model of {output_dir}")
    if not checkpoint_files.list_checkpoints(folders[best]):
        log.info(f"The weights of {best.name} were removed by an earlier search: it is trained again")
        _is_done(best.job(job), sets, job.settings.training.allow_batch_change)  # refuses another global batch
        carry_out(best.job(job), sets._replace(test={}))
        scores[best] = results.read(folders[best])
    _warn_of_better(metric, scores[best][metric], folders)
    _publish(folders[best], job)
    carry_out(job, sets._replace(train=None), _summary(scores, folders))


def _warn_of_better(metric: str, best: float, folders: Mapping[Try, str]) -> None:
    """Warns of tries of earlier searches that are better than all of this one."""
    parent, of_this = os.path.dirname(next(iter(folders.values()))), set(map(os.path.basename, folders.values()))
    for name in sorted(set(fnmatch.filter(os.listdir(parent), run_record.TRY)) - of_this):
        folder = os.path.join(parent, name)
        value = results.read(folder).get(metric) if _has_results(folder) else None
        if value is not None and _goodness(metric, value) > _goodness(metric, best):
            log.warn(f"{folder}, of an earlier search, has {metric} {value:.4f}, and the best of this one {best:.4f}: name "
                     "its seed and rate, too, to keep the better model")


def _has_results(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, results.FILES[1]))


def _is_done(job: Job, sets: Sets, any_batch: bool) -> bool:
    folder, compared = job.settings.output_dir, job.settings.recorded()
    if not _has_results(folder):
        return False
    if any_batch:
        del compared["--gradient_accumulation_steps"]
    else:
        compared[run_record.GLOBAL_BATCH_SIZE] = job.settings.global_batch_size(job.devices.num_replicas)
    difference = run_record.difference(folder, run_record.Record(facts_of(job, sets.train), compared))
    if difference:
        other_batch = ("set --allow_batch_change to keep this try and make the others in steps of another size, or "
                       if difference.startswith(run_record.GLOBAL_BATCH_SIZE) else "")
        raise UserError(f"{folder} is a try with another {difference}; {other_batch}use another --output_dir")
    return True


def _goodness(metric: str, value: float) -> float:
    """The value of a metric, negated if lower is better; -inf for NaN."""
    return -math.inf if math.isnan(value) else -value if checkpoints.lower_is_better(metric) else value


def _publish(folder: str, job: Job) -> None:
    """Copies the model in a folder to the job's output directory, in the place of an earlier one."""
    target = job.settings.output_dir
    outdated = (*results.FILES, report.FILE, *job.model.prediction_files)
    stale = _STALE if _weights_in(target) == _weights_in(folder) else (*_STALE, *outdated)
    checkpoint_files.remove(target, checkpoint_files.list_checkpoints(target))
    for name in os.listdir(target):
        if any(fnmatch.fnmatch(name, pattern) for pattern in stale):
            os.remove(os.path.join(target, name))
    for name in sorted(os.listdir(folder)):  # an index after its data
        source = os.path.join(folder, name)
        if os.path.isfile(source) and not any(fnmatch.fnmatch(name, each) for each in outdated):
            with files.atomic_path(os.path.join(target, name)) as temporary:
                shutil.copyfile(source, temporary)


def _weights_in(folder: str) -> List[str]:
    """Hashes of the checkpoints' indices, which have checksums of all values."""
    return [files.hash_of_file(os.path.join(folder, f"{name}.index")) for name in checkpoint_files.list_checkpoints(folder)]


def _summary(scores: Mapping[Try, Mapping[str, float]], folders: Mapping[Try, str]) -> Measured:
    """Best, mean, deviation and worst of each metric over the tries, and a row for each try."""
    names = [name for name in results.distinct(next(iter(scores.values()))) if name != "global_step"]
    by_metric: Dict[str, Dict[str, float]] = {}
    for name in names:
        values = np.array([row[name] for row in scores.values()])
        ranked = sorted(values.tolist(), key=lambda value: _goodness(name, value))
        by_metric[name] = {
            "best": ranked[-1], "mean": float(values.mean()),
            "deviation": float(values.std(ddof=1)) if len(values) > 1 else 0.0, "worst": ranked[0]}
    warned = {one: run_record.load(folders[one]).warning for one in scores}
    rows = [{"try": one.name, "warning": "does not learn" if warned[one] else "none",
             **{name: scores[one][name] for name in names}} for one in scores]
    sections = [
        Table("Metrics of all tries", "Of each metric the best, the mean, the standard deviation and the worst.",
              ("metric", "best", "mean", "deviation", "worst"),
              [(name, *values.values()) for name, values in by_metric.items()]),
        Table("Tries", "Trainings with other seeds and learning rates, as the dev set judges them. The best is "
              "the model of this page. One that does not learn is no better than a constant prediction.",
              list(rows[0]), [list(row.values()) for row in rows])]
    figures = {f"{name}_{of}": value for name, values in by_metric.items() for of, value in values.items()}
    details = [{name: None if value != value else value for name, value in row.items()}
               for row in rows]
    return Measured(figures, {"tries": details}, shown=sections)
