"""The report's sections on ranking: the ranks of the right phrases, and the worst misses."""

from typing import Any, Dict, List, Sequence

import numpy as np

from rewriting import slot_files
from rewriting.evaluation import Shown
from runs.head import Job, Measured
from runs.report_page import MarkedTexts, Part, Scores

_MAX_MISSES = 20
_MAX_PHRASES = 5  # that are ahead of the right one
_RANKS = ("1", "2 – 5", "6 – 10", "more than 10")


def page(job: Job, measured: Measured) -> Dict[str, Any]:
    """See `Head.page`."""
    del job
    slots, scores = measured.shown.slots, measured.shown.scores
    own = np.repeat(scores[slots.starts], slots.num_phrases)
    ranks = np.add.reduceat((scores >= own).astype(np.int64), slots.starts)
    groups = np.searchsorted((1, 5, 10), ranks[slots.is_ranked])
    counts = np.bincount(groups, minlength=len(_RANKS)).tolist()
    worst = [slot for slot in np.argsort(-ranks, kind="stable").tolist()
             if slots.is_ranked[slot] and ranks[slot] > 1][:_MAX_MISSES]
    return {
        "scores": Scores(
            "Ranks", "Slots by the rank of their own phrase, which is behind those of equal score.",
            ("Rank", "Slots", "Share"),
            [(rank, count, count / sum(counts)) for rank, count in zip(_RANKS, counts)]),
        "marked": MarkedTexts(
            "Misses", "The worst first. The slot's own phrase is blue, the first of those ahead of "
            "it are orange, each with its score, the log-odds.",
            _misses(measured.shown, worst)) if worst else None}


def _misses(shown: Shown, worst: Sequence[int]) -> List[Dict[str, List[Part]]]:
    """The slots of these numbers. They are read again: the store has only token ids."""
    pairs, found = shown.slots.pairs, {}
    wanted, num_phrases = {pairs.slots[shown.slots.starts[slot]]: slot for slot in worst}, 0
    for row, example in enumerate(slot_files.read_slots(shown.slots.path)):
        if row in wanted:
            of_slot = np.flatnonzero(pairs.slots == row)
            phrases = [example.phrases[number - num_phrases] for number in pairs.phrases[of_slot]]
            found[wanted[row]] = _miss(example, phrases, shown.scores[of_slot])
        num_phrases += len(example.phrases)
    return [found[slot] for slot in worst]


def _miss(slot: slot_files.SlotExample, phrases: Sequence[str],
          scores: np.ndarray) -> Dict[str, List[Part]]:
    ahead = [number for number in np.argsort(-scores, kind="stable").tolist()
             if number and scores[number] >= scores[0]]

    def part(number: int) -> Part:
        return Part(phrases[number], f"{scores[number]:.2f}", number == 0)

    return {"Text": [Part(slot.before), part(0), Part(slot.after)],
            "Ahead": [shown for number in ahead[:_MAX_PHRASES]
                      for shown in (part(number), Part(" "))]}
