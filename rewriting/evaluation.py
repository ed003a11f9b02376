"""Evaluates how well a model ranks the phrases of held-out slots, and predicts which phrases fit."""

import math
from typing import Any, ContextManager, Dict, List, Mapping, Optional

import numpy as np

from engine import inference, log
from engine.data.batches import Source
from engine.inference import Predictor
from engine.progress import Counter
from engine.training import run_record
from engine.training.evaluations import Evaluate
from rewriting import ranking
from rewriting.data import KIND, Sets, SlotSet
from rewriting.model import log_odds
from rewriting.training import LISTWISE
from tasks.evaluation import trained_checkpoint, write_predictions, write_results
from tasks.training import Job


def score(job: Job, sets: Sets, objective: str, predict_batch_size: int,
          predict_labels: str) -> None:
    """Ranks the phrases of the held-out sets and predicts those of the unlabelled one.

    Writes eval_results.txt and eval_results.json, and test_results.tsv and predict.txt.

    Args:
        predict_labels: one of `tasks.evaluation.LABEL_FORMS`.

    Raises:
        UserError: there is no trained model, or it does not match the job.
    """
    checkpoint = trained_checkpoint(job)
    log.info(f"Scoring with {checkpoint.path} (step {checkpoint.global_step})")
    any_set = next(iter([*sets.held_out.values(), sets.unlabelled]))
    with Predictor(job.forward, any_set.pairs.source(), job.devices) as predictor:
        predictor.restore(checkpoint)
        if sets.held_out:
            batch_size = job.settings.evaluation.eval_batch_size
            logits = {suffix: _logits(predictor, slot_set.pairs.source(), batch_size, "pairs")
                      for suffix, slot_set in sets.held_out.items()}
            _write_evaluation(job, sets.held_out, logits, objective, checkpoint.global_step)
        if sets.unlabelled:
            _warn_of_labels(job.settings.output_dir)
            logits = _logits(predictor, sets.unlabelled.pairs.source(), predict_batch_size, "texts")
            write_predictions(job, logits, predict_labels=predict_labels,
                              is_read=sets.unlabelled.is_readable)


def _warn_of_labels(output_dir: str) -> None:
    record = run_record.load(output_dir)
    if record and record.facts.get("--objective") == LISTWISE:
        log.warn("trained with --objective=listwise, the model ranks the phrases of a slot: compare "
                 "their probabilities in test_results.tsv; the labels in predict.txt mean little")


def _logits(predictor: Predictor, source: Source, per_replica_batch_size: int,
            unit: str) -> np.ndarray:
    with Counter("Scoring", unit=unit, total=len(source.lengths)) as counter:
        return predictor.predict(source, per_replica_batch_size, counter.advance)["logits"]


def _write_evaluation(job: Job, held_out: Mapping[str, SlotSet], logits: Mapping[str, np.ndarray],
                      objective: str, global_step: int) -> None:
    results, details = {}, {}
    for suffix, slot_set in held_out.items():
        found = results_of(slot_set, logits[suffix], objective)
        results.update({name + suffix: value for name, value in found.items()})
        details.update({"num_slots" + suffix: int(slot_set.is_ranked.sum()),
                        "num_pairs" + suffix: len(slot_set.pairs),
                        "chance" + suffix: ranking.chance(slot_set.num_phrases,
                                                          slot_set.num_fitting),
                        "per_category" + suffix: per_category(slot_set, logits[suffix])})
    results.setdefault("eval_loss", results.get("eval_loss_test"))
    write_results(job.settings.output_dir, results, details, global_step)
    for suffix in held_out:
        _log_table(details["per_category" + suffix])


def evaluator(job: Job, dev: Optional[SlotSet], objective: str) -> ContextManager[Evaluate]:
    """A function that evaluates checkpoints on the dev set."""
    return inference.evaluator(
        lambda checkpoint: job.forward, lambda: dev.pairs.source(), job.devices,
        job.settings.evaluation.eval_batch_size,
        lambda predictions: results_of(dev, predictions["logits"], objective))


def results_of(slot_set: SlotSet, logits: np.ndarray, objective: str) -> Dict[str, float]:
    """The metrics of a set: ranking.METRICS, the pairs' eval_accuracy, the objective's eval_loss.

    Args:
        logits: [pairs, 2].
    """
    odds, labels = log_odds(logits.astype(np.float64)), slot_set.labels
    if objective == LISTWISE:
        loss = _listwise_loss(slot_set, odds)
    else:
        loss = float(np.mean(KIND.losses(logits.astype(np.float64), labels)))
    return {"eval_accuracy": float(np.mean((odds > 0) == labels)), "eval_loss": loss,
            **ranking.evaluate(slot_set.num_phrases, slot_set.num_fitting, odds)}


def per_category(slot_set: SlotSet, logits: np.ndarray) -> List[Dict[str, Any]]:
    """The metrics of the slots of each category; no rows if no slot has one.

    The ranking is None where no slot of a category can be ranked.

    Args:
        logits: [pairs, 2].
    """
    categories = slot_set.categories
    if not any(categories):
        return []
    odds = log_odds(logits.astype(np.float64))
    is_right = (odds > 0) == slot_set.labels
    names, numbers = np.unique(categories, return_inverse=True)
    rows = []
    for number, name in enumerate(names.tolist()):
        slots = numbers == number
        pairs = np.repeat(slots, slot_set.num_phrases)
        found = ranking.evaluate(slot_set.num_phrases[slots], slot_set.num_fitting[slots],
                                 odds[pairs])
        rows.append({"category": name, "num_slots": int(slot_set.is_ranked[slots].sum()),
                     "num_pairs": int(pairs.sum()), "eval_accuracy": float(is_right[pairs].mean()),
                     **{metric: None if math.isnan(value) else value
                        for metric, value in found.items()}})
    return rows


def _log_table(rows: List[Dict[str, Any]]) -> None:
    """Logs a line for each row, below the names of the columns."""
    if not rows:
        return
    shown = [list(rows[0])] + [
        [f"{value:.3f}" if isinstance(value, float) else str(value) or "(none)"
         for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown)]
    for cells in shown:
        log.info("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())


def _listwise_loss(slot_set: SlotSet, odds: np.ndarray) -> float:
    """The mean, over the ranked slots, of the softmax cross-entropy over their phrases."""
    largest = np.maximum.reduceat(odds, slot_set.starts)
    powers = np.exp(odds - np.repeat(largest, slot_set.num_phrases))
    losses = (np.log(np.add.reduceat(powers, slot_set.starts)) + largest
              - odds[slot_set.starts])
    return float(np.mean(losses[slot_set.is_ranked]))
