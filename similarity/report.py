"""The report's sections on similarity: how it is distributed, recall, and the pairs farthest off."""

from typing import Dict, List

import numpy as np

from runs.capability import Measured
from runs.report_page import MarkedTexts, Part, Plot, Plots, Section, items_at, number
from similarity.evaluation import Shown

_BINS = 40
_MAX_CHARACTERS = 1000  # of a text on the page


def page(measured: Measured) -> List[Section]:
    """The sections on a dev set."""
    shown = measured.shown
    plots = [_distribution(shown)]
    if len(shown.recall) > 1:
        plots.append(Plot("Recall among the first", ("1", str(len(shown.recall))),
                          {"share of the positives": shown.recall}))
    return [Plots("Similarities", _note(shown), plots),
            MarkedTexts("Mistakes", "The farthest off first.", _mistakes(shown))]


def _note(shown: Shown) -> str:
    if not shown.recall:
        return ("The cosines of the pairs whose score is more than half the largest, and of the "
                "others: the share of the pairs at each cosine.")
    return ("The cosines of anchors and their positives, of each anchor and the most similar text that "
            "is none of its positives, and of anchors and positives of different lines: the share of the "
            "pairs at each cosine.")


def _distribution(shown: Shown) -> Plot:
    kinds = {name: values for name, values in shown.similarities.items() if len(values)}
    low = np.floor(10 * min(values.min() for values in kinds.values())) / 10
    low = max(-1.0, min(float(low), 0.9))
    shares = {name: np.histogram(np.clip(values, low, 1), _BINS, (low, 1))[0] / len(values)
              for name, values in kinds.items()}
    return Plot("Distribution", (f"{low:.1f}", "1.0"), shares)


def _mistakes(shown: Shown) -> List[Dict[str, List[Part]]]:
    """The pairs farthest off. Their texts are read again: the store has only token ids."""
    numbers = shown.texts.numbers
    places = {number: tuple(np.argwhere(numbers == number)[0].tolist())
              for pair in shown.worst for number in (pair.first, pair.second)}
    examples = items_at({row for row, _ in places.values()}, shown.texts.file.examples())

    def text(number: int) -> List[Part]:
        row, column = places[number]
        return [Part(examples[row].texts[column][:_MAX_CHARACTERS])]

    return [{"Text": text(pair.first), "Second text": text(pair.second),
             "Label": [Part(number(pair.label))], "Predicted": [Part(number(pair.similarity))]}
            for pair in shown.worst]
