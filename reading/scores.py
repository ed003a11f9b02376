"""The scores of a whole set, as the official scripts of SQuAD 1.1, SQuAD 2.0 and CMRC 2018 report them.

A few numbers are kept for each question.
"""

import array
from typing import Dict, Sequence, Tuple

import numpy as np

from reading.measures import Measure


class Scores:
    """Adds up how the predictions of a set agree with the right answers.

    Args:
        measure: compares a prediction with the right answers.
        may_have_none: whether questions may have no answer, as in SQuAD 2.0.
    """

    def __init__(self, measure: Measure, *, may_have_none: bool):
        self._measure = measure
        self._may_have_none = may_have_none
        self._exact = array.array("d")
        self._f1 = array.array("d")
        self._odds = array.array("d")
        self._has_answer = array.array("b")
        self._is_predicted = array.array("b")

    def add(self, prediction: str, answers: Sequence[str], null_odds: float = 0.0) -> None:
        """Adds a question.

        Args:
            prediction: "" for no answer.
            answers: the right ones; none if the question has no answer.
            null_odds: of having no answer, as predicted.
        """
        agreement = self._measure(prediction, answers)
        self._exact.append(agreement.exact)
        self._f1.append(agreement.f1)
        self._odds.append(null_odds)
        self._has_answer.append(bool(answers))
        self._is_predicted.append(bool(prediction))

    def results(self) -> Dict[str, float]:
        """The scores in percent, by the names of the official scripts.

        That are exact_match and f1, and, where questions may have no answer, exact, f1 and total,
        the same of those that have one (HasAns_) and of the others (NoAns_), and the best scores
        that the predictions would have if more of them were "", with the odds from which on.
        """
        if not self._may_have_none:
            return {"exact_match": _percent(self._exact), "f1": _percent(self._f1)}
        results = self._of(np.ones(len(self._f1), bool), "")
        has_answer = np.array(self._has_answer, bool)
        for name, chosen in (("HasAns_", has_answer), ("NoAns_", ~has_answer)):
            if chosen.any():
                results.update(self._of(chosen, name))
        for name, scores in (("exact", self._exact), ("f1", self._f1)):
            results[f"best_{name}"], results[f"best_{name}_thresh"] = self._best(scores)
        return results

    def _of(self, chosen: np.ndarray, prefix: str) -> Dict[str, float]:
        return {f"{prefix}exact": _percent(np.array(self._exact)[chosen]),
                f"{prefix}f1": _percent(np.array(self._f1)[chosen]),
                f"{prefix}total": int(chosen.sum())}

    def _best(self, scores: Sequence[float]) -> Tuple[float, float]:
        """The best score, in percent, and the odds above which it is predicted to have no answer.

        The questions are gone through from the lowest odds: each is answered from there on.
        """
        score = best = float(len(self._has_answer) - sum(self._has_answer))
        threshold = 0.0
        for number in np.argsort(self._odds, kind="stable").tolist():
            if self._has_answer[number]:
                score += scores[number]
            elif self._is_predicted[number]:
                score -= 1
            if score > best:
                best, threshold = score, self._odds[number]
        return 100.0 * best / len(scores), threshold


def _percent(scores: Sequence[float]) -> float:
    """The mean in percent, added up one by one as the official scripts do."""
    total = 0.0
    for score in scores:
        total += score
    return 100.0 * float(total) / len(scores)
