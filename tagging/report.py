"""The report's sections on tagging: scores of each type of entities, and sentences with mistakes."""

from typing import Any, Dict, List, Sequence

from runs.head import Job, Measured
from runs.report_page import MarkedTexts, Part, class_scores
from tagging.evaluation import Found
from tagging.schemes import Entity

_MAX_SENTENCES = 20
_MAX_WORDS = 200  # of a sentence on the page
_FIRST_WIDE = 0x2E80  # from here on scripts are written without spaces


def page(job: Job, measured: Measured) -> Dict[str, Any]:
    """See `Head.page`."""
    del job
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
    right, found, position = set(others), [], 0
    num_words = min(len(words), _MAX_WORDS)
    for entity in sorted(shown, key=lambda entity: entity.first):
        if entity.first >= num_words:
            break
        found.append(Part(text_of(words, position, entity.first)))
        found.append(Part(text_of(words, entity.first, entity.last + 1), entity.type,
                          entity in right))
        position = entity.last + 1
    rest = text_of(words, position, max(num_words, position))
    found.append(Part(rest + (" ..." if num_words < len(words) else "")))
    return [part for part in found if part.text]


def text_of(words: Sequence[str], first: int, end: int) -> str:
    """Words as running text, with the space that follows them, if one does."""
    return "".join(word + ("" if index + 1 == len(words) or _are_joined(word, words[index + 1])
                           else " ")
                   for index, word in enumerate(words[first:end], first))


def _are_joined(word: str, following: str) -> bool:
    # A word between tabs may be empty.
    return any(ord(char) >= _FIRST_WIDE for char in word[-1:] + following[:1])
