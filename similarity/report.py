"""The report's sections on similarity: how it is distributed, recall, and the pairs farthest off."""

from typing import Any, Dict, List

import numpy as np

from runs.capability import Measured
from runs.report_page import Mistake, Plot, Plots
from similarity.evaluation import Shown

_BINS = 40
_MAX_CHARACTERS = 1000  # of a text on the page


def page(measured: Measured) -> Dict[str, Any]:
    """The parts of the report on a dev set."""
    shown = measured.shown
    plots = [_distribution(shown)]
    if len(shown.recall) > 1:
        plots.append(Plot("Recall among the first", ("1", str(len(shown.recall))),
                          {"share of the positives": shown.recall}))
    return {"plots": Plots("Similarities", _note(shown), plots), "mistakes": _mistakes(shown)}


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


def _mistakes(shown: Shown) -> List[Mistake]:
    """The pairs farthest off. Their texts are read again: the store has only token ids."""
    wanted = {number for pair in shown.worst for number in (pair.first, pair.second)}
    texts: Dict[int, str] = {}
    for numbers, example in zip(shown.texts.numbers, shown.texts.file.examples()):
        texts.update((number, text[:_MAX_CHARACTERS])
                     for number, text in zip(numbers.tolist(), example.texts) if number in wanted)
        if len(texts) == len(wanted):
            break
    return [Mistake(texts[pair.first], texts[pair.second],
                    pair.label if isinstance(pair.label, str) else float(pair.label),
                    pair.similarity, None) for pair in shown.worst]
