"""Evaluates how well a model ranks the phrases of held-out slots, and predicts which phrases fit."""

import math
from typing import Any, Dict, List

import numpy as np

from engine import log
from engine.training import run_record
from rewriting import ranking
from rewriting.data import KIND, SlotSet
from rewriting.model import log_odds
from runs.head import Job, Measured, Predict
from tasks.head import write_predictions

PAIRWISE, LISTWISE = OBJECTIVES = ("pairwise", "listwise")
METRICS = ranking.METRICS


def measure(job: Job, slots: SlotSet, predict: Predict) -> Measured:
    """How well the phrases of slots are ranked, in all slots and in those of each category."""
    logits = predict(slots.pairs.source())["logits"]
    rows = per_category(slots, logits)
    return Measured(
        results_of(slots, logits, job.model.own.objective),
        {"num_slots": int(slots.is_ranked.sum()), "num_pairs": len(slots.pairs),
         "chance": ranking.chance(slots.num_phrases, slots.num_fitting), "per_category": rows},
        rows)


def write(job: Job, slots: SlotSet, suffix: str, predict: Predict) -> None:
    """Writes test_results.tsv and predict.txt: which phrases fit."""
    _warn_of_labels(job.settings.output_dir)
    write_predictions(job, predict(slots.pairs.source())["logits"], suffix, slots.is_readable)


def _warn_of_labels(output_dir: str) -> None:
    record = run_record.load(output_dir)
    if record and record.facts.get("--objective") == LISTWISE:
        log.warn("trained with --objective=listwise, the model ranks the phrases of a slot: compare "
                 "their probabilities in test_results.tsv; the labels in predict.txt mean little")


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


def _listwise_loss(slot_set: SlotSet, odds: np.ndarray) -> float:
    """The mean, over the ranked slots, of the softmax cross-entropy over their phrases."""
    largest = np.maximum.reduceat(odds, slot_set.starts)
    powers = np.exp(odds - np.repeat(largest, slot_set.num_phrases))
    losses = (np.log(np.add.reduceat(powers, slot_set.starts)) + largest
              - odds[slot_set.starts])
    return float(np.mean(losses[slot_set.is_ranked]))
