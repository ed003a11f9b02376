"""Evaluates a trained model on a task's dev set and predicts its test set; writes the results."""

import math
import os
from typing import (
    Any, Callable, ContextManager, Dict, Iterable, List, Mapping, NamedTuple, Optional)

import numpy as np
from absl import flags

from encoder import model_files
from engine import checkpoints, files, inference, log
from engine.inference import Predictor
from engine.progress import Counter
from engine.training import run, summaries
from engine.training.evaluations import Evaluate
from tasks import metrics, model_folder
from tasks.data import TextSet
from tasks.table import Task
from tasks.training import Data, Job

# The results that Google's run_classifier writes, in its order; the others follow.
_ORIGINAL_KEYS = ("eval_accuracy", "eval_loss", "global_step", "loss")

# What stands for a label in predict.txt.
NAME, INDEX = LABEL_FORMS = ("name", "index")

# (set, per-replica batch size) -> [texts, classes]
Logits = Callable[[TextSet, int], np.ndarray]


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flag of a command that writes predict.txt."""
    flags.DEFINE_enum("predict_labels", NAME, LABEL_FORMS, "What is in predict.txt: the names of "
                      "the labels, or their positions from 0, as in bert-ad's.",
                      flag_values=values)


class Evaluation(NamedTuple):
    """The evaluation of a model on the dev set."""
    results: Dict[str, float]  # in the order of eval_results.txt
    labels: np.ndarray  # [n] or [n, classes], see label_types
    predicted: np.ndarray  # like `labels`
    errors: np.ndarray  # [n], see `Kind.errors`
    per_class: List[Dict[str, Any]]
    confusion_matrix: List[List[int]]


def score(job: Job, data: Data, predict_batch_size: int = 1,
          predict_labels: str = NAME) -> Optional[Evaluation]:
    """Evaluates the sets of `data.dev` and predicts those of `data.test`.

    Args:
        predict_labels: one of LABEL_FORMS.

    Returns:
        The evaluation of the dev set (not of the mismatched one); None without a dev set.

    Raises:
        UserError: there is no trained model, or it does not match the job.
    """
    checkpoint = trained_checkpoint(job)
    log.info(f"Predicting with {checkpoint.path} (step {checkpoint.global_step})")
    any_set = next(iter({**data.dev, **data.test}.values()))
    with Predictor(job.forward, any_set.source(with_labels=False), job.devices) as predictor:
        predictor.restore(checkpoint)

        def logits(texts: TextSet, per_replica_batch_size: int) -> np.ndarray:
            source = texts.source(with_labels=False)
            with Counter("Predicting", unit="examples", total=len(texts)) as counter:
                return texts.combined(predictor.predict(
                    source, per_replica_batch_size, counter.advance)["logits"])

        evaluation = None
        if data.dev:
            evaluation = _evaluate(job, data.dev, logits, checkpoint.global_step)
        for suffix, texts in data.test.items():
            write_predictions(job, logits(texts, predict_batch_size), suffix, predict_labels)
        return evaluation


def evaluator(job: Job, dev: Mapping[str, TextSet]) -> ContextManager[Evaluate]:
    """A function that evaluates checkpoints on the dev set (not on the mismatched one)."""
    return inference.evaluator(
        lambda checkpoint: job.forward, lambda: dev[""].source(with_labels=False), job.devices,
        job.settings.evaluation.eval_batch_size,
        lambda predictions: _evaluation(
            job.task, dev[""], dev[""].combined(predictions["logits"])).results)


def trained_checkpoint(job: Job) -> checkpoints.Checkpoint:
    """The best or else the newest checkpoint of the output directory, or else --init_checkpoint.

    Raises:
        UserError: there is none, it belongs to another run, or it has no classifier.
    """
    checkpoint, flag = run.find_trained(job.settings, job.facts())
    model_files.require_classifier(checkpoint, flag)
    model_files.check_outputs(checkpoint, job.task.kind.num_outputs, flag)
    model_files.check_layers(checkpoint, job.config, flag)
    known = model_folder.labels_beside(checkpoint, flag)
    if known:
        model_folder.check_labels(known, job.task.kind, checkpoint.path, flag)
    return checkpoint


def _evaluate(job: Job, sets: Mapping[str, TextSet], logits: Logits,
              global_step: int) -> Evaluation:
    """Evaluates the sets and writes eval_results.txt and eval_results.json."""
    evaluations = {
        suffix: _evaluation(job.task, texts, logits(texts, job.settings.evaluation.eval_batch_size))
        for suffix, texts in sets.items()}
    results, details = {}, {}
    for suffix, evaluation in evaluations.items():
        results.update({name + suffix: value for name, value in evaluation.results.items()})
        details.update({"num_examples" + suffix: len(evaluation.errors),
                        "per_class" + suffix: evaluation.per_class,
                        "confusion_matrix" + suffix: evaluation.confusion_matrix})
    results = write_results(job.settings.output_dir, results, details, global_step)
    return evaluations[""]._replace(results=results)


def write_results(output_dir: str, scores: Mapping[str, float], details: Mapping[str, Any],
                  global_step: int) -> Dict[str, float]:
    """Writes and logs the metrics of a model, as lines `name = value` and as JSON.

    Args:
        scores: metric → value; must have "eval_loss".
        details: JSON values for eval_results.json alone.

    Returns:
        The scores in the order of eval_results.txt.
    """
    results = dict(scores, global_step=global_step, loss=scores["eval_loss"])
    names = [name for name in _ORIGINAL_KEYS if name in results]
    results = {name: results[name] for name in names + sorted(set(results) - set(names))}
    files.write_text(os.path.join(output_dir, "eval_results.txt"),
                     "".join(f"{name} = {value}\n" for name, value in results.items()))
    # A correlation can be NaN, which JSON does not have.
    figures = {name: value if math.isfinite(value) else None for name, value in results.items()}
    files.write_json(os.path.join(output_dir, "eval_results.json"), {**figures, **details})
    summaries.write_evaluation(output_dir, results, global_step)
    log.results(results)
    return results


def _evaluation(task: Task, texts: TextSet, logits: np.ndarray) -> Evaluation:
    kind, labels = task.kind, texts.labels
    scores = kind.scores(logits)
    predicted = kind.predicted_labels(scores)
    return Evaluation(
        metrics.evaluate(task.metrics, labels, predicted, kind.losses(logits, labels)),
        labels, predicted, kind.errors(scores, labels),
        metrics.per_class(kind, labels, predicted),
        metrics.confusion_matrix(kind, labels, predicted))


def write_predictions(job: Job, logits: np.ndarray, suffix: str = "",
                      predict_labels: str = NAME, is_read: Optional[np.ndarray] = None) -> None:
    """Writes a line for each example, in the order of the input.

    test_results.tsv has the probabilities of the classes (or the number), predict.txt the
    predicted label (or the number).

    Args:
        logits: [n, outputs].
        suffix: of the files' names.
        predict_labels: one of LABEL_FORMS.
        is_read: whether an example has a prediction, or else empty fields, bool [n]; default: all.
    """
    kind = job.task.kind
    scores = kind.scores(logits)
    is_read = np.ones(len(scores), bool) if is_read is None else is_read
    _write(job, f"test_results{suffix}.tsv",
           ("\t".join(f"{value:.9g}" if read else "" for value in row)
            for read, row in zip(is_read, scores)))
    shown = kind.format_index if predict_labels == INDEX else kind.format_label
    _write(job, f"predict{suffix}.txt", (
        shown(label) if read else "" for read, label in zip(
            is_read, kind.predicted_labels(scores))))
    log.info(f"Predicted {len(logits):,} examples: {job.settings.output_dir}/predict{suffix}.txt")


def _write(job: Job, name: str, lines: Iterable[str]) -> None:
    files.write_text(os.path.join(job.settings.output_dir, name),
                     "".join(f"{line}\n" for line in lines))
