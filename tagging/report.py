"""The report's sections on tagging: scores of each type of entities, and sentences with mistakes."""

import itertools
from typing import Dict, List, Sequence

from runs.capability import Measured
from runs.report_page import MarkedTexts, Part, Section, class_scores, items_at
from tagging.evaluation import Found
from tagging.schemes import Entity

_MAX_SENTENCES = 20
_FIRST_WIDE = "\u2e80"  # from here on scripts are written without spaces


def page(measured: Measured) -> List[Section]:
    """The sections on a dev set."""
    return [class_scores(itertools.islice(row.values(), 5) for row in measured.table),
            MarkedTexts("Sentences with mistakes", "Those with most mistakes first. Blue entities are "
                        "right; orange ones are not found (true) or not there (predicted) with this "
                        "type, begin and end.", _sentences(measured.shown))]


def _sentences(shown: Found) -> List[Dict[str, List[Part]]]:
    """The sentences with most mistakes. They are read again: the store has only token ids."""
    mistakes = [len(set(true) ^ set(predicted)) for true, predicted in zip(shown.true, shown.predicted)]
    worst = [index for index in sorted(range(len(mistakes)), key=lambda index: -mistakes[index])
             if mistakes[index]][:_MAX_SENTENCES]
    sentences = items_at(worst, shown.file.sentences())
    return [{"True": parts(sentences[index].words, shown.true[index], shown.predicted[index]),
             "Predicted": parts(sentences[index].words, shown.predicted[index], shown.true[index])}
            for index in worst]


def parts(words: Sequence[str], shown: Sequence[Entity], others: Sequence[Entity]) -> List[Part]:
    """A sentence in parts, each an entity or what is between two.

    Args:
        shown: the entities to show.
        others: those that they are compared with: one that is not among them is a mistake.
    """
    spaced, right, sentence, position = with_spaces(words), set(others), [], 0
    for entity in sorted(shown, key=lambda entity: entity.first):
        sentence.append(Part("".join(spaced[position:entity.first])))
        position = entity.last + 1
        sentence.append(Part("".join(spaced[entity.first:position]), entity.type, entity in right))
    return [part for part in (*sentence, Part("".join(spaced[position:]))) if part.text]


def with_spaces(words: Sequence[str]) -> List[str]:
    """The words of a running text, each with the space that follows it, if one does."""
    return [*(word + " " * (max(word[-1:], after[:1]) < _FIRST_WIDE)
              for word, after in zip(words, words[1:])), *words[-1:]]
