"""What a trained model makes of a task's dev and test sets: scores and predictions, in files."""

import os
from typing import Callable, Dict, Iterable, Mapping

import numpy as np

from engine import checkpoints, files, log, run_record
from engine.errors import UserError
from engine.inference import Predictor
from tasks import classifier, metrics
from tasks.examples import TextSet
from tasks.finetuning import Data, Job
from tasks.table import Task

# The results that the original writes, in its order; ours follow.
_ORIGINAL_KEYS = ("eval_accuracy", "eval_loss", "global_step", "loss")

Logits = Callable[[TextSet, int], np.ndarray]  # (set, per-replica batch size) -> [n, classes]


def score(job: Job, data: Data) -> None:
    """Evaluates `data.dev` and predicts `data.test`, each where it holds sets.

    Raises:
        UserError: there is no trained model, or the one there is does not fit.
    """
    checkpoint = _trained_checkpoint(job)
    log.info(f"Scoring {checkpoint.path} (step {checkpoint.global_step})")
    any_set = next(iter({**data.dev, **data.test}.values()))
    with Predictor(job.forward, any_set.source(with_labels=False), job.devices) as predictor:
        predictor.restore(checkpoint)

        def logits(texts: TextSet, per_replica_batch_size: int) -> np.ndarray:
            source = texts.source(with_labels=False)
            return predictor.predict(source, per_replica_batch_size)["logits"]

        if data.dev:
            _evaluate(job, data.dev, logits, checkpoint.global_step)
        for suffix, texts in data.test.items():
            _predict(job, texts, logits, suffix)


def _trained_checkpoint(job: Job) -> checkpoints.Checkpoint:
    """The newest one of the output directory, or else the one given."""
    output_dir, given = job.settings.output_dir, job.settings.init_checkpoint
    run_record.check(output_dir, job.facts())
    checkpoint = checkpoints.latest(output_dir) or given
    if not checkpoint:
        raise UserError(f"--output_dir={output_dir} holds no trained model; train one "
                        "(--do_train), or give one as --init_checkpoint")
    if "output_weights" not in checkpoint.shapes:
        raise UserError(f"--init_checkpoint={checkpoint.path} has no classifier's head "
                        "(output_weights), as a model that is not fine-tuned; train it first "
                        "(--do_train), or give a fine-tuned one")
    return checkpoint


def _evaluate(job: Job, sets: Mapping[str, TextSet], logits: Logits, global_step: int) -> None:
    """Writes eval_results.txt: `name = value` lines."""
    results: Dict[str, float] = {}
    for suffix, texts in sets.items():
        scores = _scores(job.task, texts, logits(texts, job.settings.batch_sizes.evaluate))
        results.update({name + suffix: value for name, value in scores.items()})
    results.update(global_step=global_step, loss=results["eval_loss"])
    names = [name for name in _ORIGINAL_KEYS if name in results]
    names += sorted(set(results) - set(names))
    lines = [f"{name} = {results[name]}" for name in names]
    _write(job, "eval_results.txt", lines)
    log.info("***** Eval results *****")
    for line in lines:
        log.info(f"  {line}")


def _scores(task: Task, texts: TextSet, logits: np.ndarray) -> Dict[str, float]:
    if task.is_regression:
        predicted = logits[:, 0].astype(np.float64)
        losses = (predicted - texts.labels) ** 2
    else:
        predicted = logits.argmax(axis=1)
        losses = -classifier.log_probabilities(logits)[np.arange(len(texts)), texts.labels]
    return metrics.evaluate(task.metrics, texts.labels, predicted, losses)


def _predict(job: Job, texts: TextSet, logits: Logits, suffix: str) -> None:
    """Writes what the model predicts, in input order.

    test_results.tsv has a line of class probabilities (or one number) per example, and
    predict.txt a label (or the number).
    """
    values = logits(texts, job.settings.batch_sizes.predict)
    if job.task.is_regression:
        rows, answers = values, [f"{value:.9g}" for value in values[:, 0]]
    else:
        rows = np.exp(classifier.log_probabilities(values))
        answers = [job.task.labels[index] for index in values.argmax(axis=1)]
    _write(job, f"test_results{suffix}.tsv",
           ("\t".join(f"{value:.9g}" for value in row) for row in rows))
    _write(job, f"predict{suffix}.txt", answers)
    log.info(f"Predicted {len(texts):,} examples: {job.settings.output_dir}/predict{suffix}.txt")


def _write(job: Job, name: str, lines: Iterable[str]) -> None:
    files.write_text(os.path.join(job.settings.output_dir, name),
                     "".join(f"{line}\n" for line in lines))
