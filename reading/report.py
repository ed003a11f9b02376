"""The report's sections on answers: scores by length of the context, and the worst mistakes."""

import itertools
from typing import Collection, Dict, List, NamedTuple, Sequence

from reading import data
from reading.answers import Candidate
from runs import squad_files
from runs.capability import Measured
from runs.report_page import Cell, MarkedTexts, Part, Section, Table
from runs.squad_files import Question

_MAX_MISSES = 20
_MARGIN = 500  # characters of the context around the answers


class Miss(NamedTuple):
    """A wrong answer."""
    question: str  # its id
    predicted: Candidate
    weight: float  # its probability, times the share that is wrong


class Shown(NamedTuple):
    """What the report needs of an evaluation."""
    path: str  # of the questions
    misses: Sequence[Miss]


def page(measured: Measured) -> List[Section]:
    """The sections on a dev set."""
    return [
        Table("Contexts", "Exact match and F1 in percent, by length of the context; where questions "
              "may have no answer, also of those that have one, and of the others.",
              ("Context", "Questions", "Exact match", "F1"),
              [[*values, Cell(f1, "bar", f1 / 100)] for *values, f1 in map(dict.values, measured.table)]),
        MarkedTexts("Wrong answers", "The most confident first. In the context, right answers are blue, "
                    "and what is predicted beside them is orange.", _examples(measured.shown))]


def _examples(shown: Shown) -> List[Dict[str, Sequence[Part]]]:
    """The worst answers. Their questions are read again: the store has only token ids."""
    worst = sorted(shown.misses, key=lambda miss: -miss.weight)[:_MAX_MISSES]
    predicted = {miss.question: miss.predicted for miss in worst}
    examples = {question.id: _example(paragraph.context, question, predicted[question.id])
                for paragraph in squad_files.paragraphs(shown.path)
                for question in paragraph.questions if question.id in predicted}
    return [examples[miss.question] for miss in worst]


def _example(context: str, question: Question, predicted: Candidate) -> Dict[str, Sequence[Part]]:
    texts = dict.fromkeys(answer.text for answer in question.answers)
    right = [place for answer in question.answers if data.points_at_text(answer, context)
             for place in range(answer.start, answer.start + len(answer.text))]
    start = context.find(predicted.text, predicted.first_character)
    end = start + len(predicted.text) if start >= 0 else start
    return {"Question": [Part(question.text)],
            "Answer": [Part(" / ".join(texts) or "none")],
            "Predicted": [Part(predicted.text or "none")],
            "Context": parts(context, right, range(start, end))}


def parts(context: str, right: Collection[int], predicted: Collection[int]) -> List[Part]:
    """The context around the answers, in parts: those that are right, predicted, both or neither.

    Args:
        right, predicted: the positions of the answers' characters.
    """
    marked = [*right, *predicted] or [0]
    first, end = max(0, min(marked) - _MARGIN), max(marked) + _MARGIN
    shown = [Part("... " * (first > 0))]
    for (is_right, is_predicted), places in itertools.groupby(
            range(first, min(end, len(context))),
            lambda place: (place in right, place in predicted)):
        marks = ["right"] * is_right + ["predicted"] * is_predicted
        shown.append(Part("".join(context[place] for place in places), ", ".join(marks), is_right))
    return [*shown, Part(" ..." * (end < len(context)))]
