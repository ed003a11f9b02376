"""Precision, recall and F1 of entities, equal to those of CoNLL-2000's and 2003's conlleval.

An entity is found if it is predicted with the same type, first and last word.
"""

import collections
from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from tagging.schemes import Entity


class Score(NamedTuple):
    """Counts of entities, and what follows from them; a share of nothing is 0, as in conlleval."""
    num_true: int
    num_predicted: int
    num_found: int  # both true and predicted

    @property
    def precision(self) -> float:
        """The share of the predicted entities that are true."""
        return self.num_found / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the true entities that are predicted."""
        return self.num_found / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def score(sentences: Iterable[Tuple[Sequence[Entity], Sequence[Entity]]],
          missed: Mapping[str, int]) -> Tuple[Score, Dict[str, Score]]:
    """The score over all entities (micro), and that of each type, in alphabetical order.

    Args:
        sentences: true and predicted entities of each sentence.
        missed: type → the number of true entities that no tags can spell.
    """
    true, predicted, both = (collections.Counter() for _ in range(3))
    true.update(missed)
    for expected, actual in sentences:
        true.update(entity.type for entity in expected)
        predicted.update(entity.type for entity in actual)
        both.update(entity.type for entity in set(expected) & set(actual))
    types: List[str] = sorted({*true, *predicted})
    return (Score(*(sum(counts.values()) for counts in (true, predicted, both))),
            {name: Score(true[name], predicted[name], both[name]) for name in types})
