"""The report's sections on tagging: scores of each type of entities, and sentences with mistakes."""

from typing import Any, Dict, List, Sequence

from runs.capability import Measured
from runs.report_page import MarkedTexts, Part, class_scores
from tagging.evaluation import Found
from tagging.schemes import Entity

_MAX_SENTENCES = 20
_FIRST_WIDE = "\u2e80"  # from here on scripts are written without spaces


def page(measured: Measured) -> Dict[str, Any]:
    """The parts of the report on a dev set."""
    sentences = _sentences(measured.shown)
    return {
        "scores": class_scores([list(row.values())[:5] for row in measured.table]),
        "marked": MarkedTexts(
            "Sentences with mistakes", "Those with most mistakes first. Blue entities are right; "
            "orange ones are not found (true) or not there (predicted) with this type, begin and "
            "end.", sentences) if sentences else None}


def _sentences(shown: Found) -> List[Dict[str, List[Part]]]:
    """The sentences with most mistakes. They are read again: the store has only token ids."""
    pairs = list(zip(shown.true, shown.predicted))
    mistakes = [len(set(true) ^ set(predicted)) for true, predicted in pairs]
    worst = sorted(range(len(pairs)), key=lambda index: -mistakes[index])[:_MAX_SENTENCES]
    wanted = {index for index in worst if mistakes[index]}
    found: Dict[int, Dict[str, List[Part]]] = {}
    for index, sentence in enumerate(shown.file.sentences() if wanted else ()):
        if index in wanted:
            true, predicted = pairs[index]
            found[index] = {"True": parts(sentence.words, true, predicted),
                            "Predicted": parts(sentence.words, predicted, true)}
        if len(found) == len(wanted):
            break
    return [found[index] for index in worst if index in found]


def parts(words: Sequence[str], shown: Sequence[Entity], others: Sequence[Entity]) -> List[Part]:
    """A sentence in parts, each an entity or what is between two.

    Args:
        shown: the entities to show.
        others: those that they are compared with: one that is not among them is a mistake.
    """
    spaced, right, found, position = with_spaces(words), set(others), [], 0
    for entity in sorted(shown, key=lambda entity: entity.first):
        found.append(Part("".join(spaced[position:entity.first])))
        position = entity.last + 1
        found.append(Part("".join(spaced[entity.first:position]), entity.type, entity in right))
    found.append(Part("".join(spaced[position:])))
    return [part for part in found if part.text]


def with_spaces(words: Sequence[str]) -> List[str]:
    """The words of a running text, each with the space that follows it, if one does."""
    return [*(word + " " * (max(word[-1:], after[:1]) < _FIRST_WIDE)
              for word, after in zip(words, words[1:])), *words[-1:]]
