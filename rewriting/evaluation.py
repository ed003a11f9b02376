"""How well a model ranks the phrases of held-out slots, in numbers and on the report's page.

Phrases with equal scores are in random order: every metric is the mean over all these orders,
so that constant scores get exactly the result of chance.
"""

import math
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

from rewriting.data import KIND, SlotSet
from rewriting.slot_files import SlotExample, read_slots
from runs.capability import Measured, Predict
from runs.report_page import MarkedTexts, Part, Section, Table

_RECALLED = (1, 5, 10)
METRICS = ("mean_reciprocal_rank", "pair_accuracy",
           *(f"recall_at_{count}" for count in _RECALLED))
_RANKS = ("1", "2 – 5", "6 – 10", "more than 10")
_MAX_MISSES = 20  # in the report
_MAX_PHRASES = 5  # of a miss, that are ahead of the right one


class Shown(NamedTuple):
    """What the report shows."""
    slots: SlotSet
    scores: np.ndarray  # of each pair


def log_odds(logits: np.ndarray) -> np.ndarray:
    """The score of each pair, [n], from its logits, [n, 2]."""
    return logits[:, 1] - logits[:, 0]


def measure(slots: SlotSet, predict: Predict) -> Measured:
    """How well the phrases of slots are ranked, in all slots and in those of each category."""
    logits = predict(slots.pairs.source())["logits"]
    rows = per_category(slots, logits)
    return Measured(
        results_of(slots, logits),
        {"num_slots": int(slots.is_ranked.sum()), "num_pairs": len(slots.pairs),
         "chance": rank(slots.num_phrases, slots.num_fitting, np.zeros(len(slots.pairs))),
         "per_category": rows},
        rows, Shown(slots, log_odds(logits)))


def results_of(slots: SlotSet, logits: np.ndarray) -> Dict[str, float]:
    """The metrics of a set: METRICS, and the eval_accuracy and eval_loss of the pairs.

    Args:
        logits: [pairs, 2].
    """
    logits, labels = logits.astype(np.float64), slots.labels
    odds = log_odds(logits)
    return {"eval_accuracy": float(np.mean((odds > 0) == labels)),
            "eval_loss": float(np.mean(KIND.losses(logits, labels))),
            **rank(slots.num_phrases, slots.num_fitting, odds)}


def per_category(slots: SlotSet, logits: np.ndarray) -> List[Dict[str, Any]]:
    """The metrics of the slots of each category; no rows if no slot has one.

    The ranking is None where no slot of a category can be ranked.

    Args:
        logits: [pairs, 2].
    """
    categories, odds = slots.categories, log_odds(logits.astype(np.float64))
    is_right = (odds > 0) == slots.labels
    names, rows = np.unique(categories).tolist(), []
    for category in names if any(names) else ():
        chosen = categories == category
        pairs = np.repeat(chosen, slots.num_phrases)
        ranking = rank(slots.num_phrases[chosen], slots.num_fitting[chosen], odds[pairs])
        rows.append({"category": category, "num_slots": int(slots.is_ranked[chosen].sum()),
                     "num_pairs": int(pairs.sum()), "eval_accuracy": float(is_right[pairs].mean()),
                     **{metric: None if math.isnan(value) else value
                        for metric, value in ranking.items()}})
    return rows


def rank(num_phrases: np.ndarray, num_fitting: np.ndarray,
         scores: np.ndarray) -> Dict[str, float]:
    """METRICS over the slots with a phrase that fits and another one; NaN if there are none.

    `pair_accuracy` is the share of the other phrases that rank below the fitting one.

    Args:
        num_phrases: of each slot, [slots].
        num_fitting: 1 if the first phrase of a slot fits, otherwise 0, [slots].
        scores: of each phrase, slot after slot; higher is better, [phrases].
    """
    starts = np.cumsum(num_phrases) - num_phrases
    own = np.repeat(scores[starts], num_phrases)
    ranked = (num_fitting > 0) & (num_phrases > 1)
    if not ranked.any():
        return dict.fromkeys(METRICS, float("nan"))
    higher = np.add.reduceat((scores > own).astype(np.int64), starts)[ranked]
    equal = np.add.reduceat((scores == own).astype(np.int64), starts)[ranked]  # itself too
    others = num_phrases[ranked] - 1
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, num_phrases.max() + 1))])
    results = {
        "mean_reciprocal_rank": np.mean((harmonic[higher + equal] - harmonic[higher]) / equal),
        "pair_accuracy": np.sum(others - higher - (equal - 1) / 2) / np.sum(others)}
    for count in _RECALLED:
        results[f"recall_at_{count}"] = np.mean(np.clip(count - higher, 0, equal) / equal)
    return {name: float(value) for name, value in results.items()}


def page(measured: Measured) -> List[Section]:
    """The sections of the report on a ranking."""
    slots, scores = measured.shown.slots, measured.shown.scores
    own = np.repeat(scores[slots.starts], slots.num_phrases)
    ranks = np.add.reduceat((scores >= own).astype(np.int64), slots.starts)
    groups = np.searchsorted((1, 5, 10), ranks[slots.is_ranked])
    counts = np.bincount(groups, minlength=len(_RANKS)).tolist()
    worst = [slot for slot in np.argsort(-ranks, kind="stable").tolist()
             if slots.is_ranked[slot] and ranks[slot] > 1][:_MAX_MISSES]
    return [
        Table("Ranks", "Slots by the rank of their own phrase, which is behind those of equal score.",
              ("Rank", "Slots", "Share"),
              [(rank, count, count / sum(counts)) for rank, count in zip(_RANKS, counts)]),
        MarkedTexts("Misses", "The worst first. The slot's own phrase is blue, the first of those "
                    "ahead of it are orange, each with its score, the log-odds.",
                    _misses(measured.shown, worst))]


def _misses(shown: Shown, worst: Sequence[int]) -> List[Dict[str, List[Part]]]:
    """The slots of these numbers. They are read again: the store has only token ids."""
    pairs, misses = shown.slots.pairs, {}
    wanted, num_phrases = {pairs.slots[shown.slots.starts[slot]]: slot for slot in worst}, 0
    for row, example in enumerate(read_slots(shown.slots.path) if worst else ()):
        if row in wanted:
            of_slot = np.flatnonzero(pairs.slots == row)
            phrases = [example.phrases[number - num_phrases] for number in pairs.phrases[of_slot]]
            misses[wanted[row]] = _miss(example, phrases, shown.scores[of_slot])
        num_phrases += len(example.phrases)
    return [misses[slot] for slot in worst]


def _miss(slot: SlotExample, phrases: Sequence[str],
          scores: np.ndarray) -> Dict[str, List[Part]]:
    ahead = [number for number in np.argsort(-scores, kind="stable").tolist()
             if number and scores[number] >= scores[0]]

    def part(number: int) -> Part:
        return Part(phrases[number], f"{scores[number]:.2f}", number == 0)

    return {"Text": [Part(slot.before), part(0), Part(slot.after)],
            "Ahead": [shown for number in ahead[:_MAX_PHRASES]
                      for shown in (part(number), Part(" "))]}
