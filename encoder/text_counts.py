"""Counts the tokens of texts that the vocabulary knows, and the texts that are cut."""

import collections
import unicodedata
from typing import Any, Dict, List, Mapping, Sequence

import numpy as np

FACT = "texts"  # of a store

_WARNING = 0.05  # a larger share of one count in another makes a warning
_SHARES = (("unknown", "tokens", "of the tokens are [UNK]"),
           ("strange", "texts", "of the texts have no word that the vocabulary knows"),
           ("merged", "texts", "of the texts have the tokens of one with other words"))


class TextCounts:
    """Counts texts as they are tokenized; keeps `warnings` of them, for the report of a run."""

    def __init__(self, unknown_id: int):
        self._unknown_id, self._counts = unknown_id, collections.Counter()
        self.warnings: List[str] = []

    def add(self, texts: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> None:
        """Counts texts that are not blank.

        Args:
            ids: of all texts, concatenated, before any is cut.
            lengths: the number of ids of each text, [n].
        """
        num_known = np.concatenate([[0], np.cumsum(ids != self._unknown_id)])
        ends, content, start, num_merged = np.cumsum(lengths), ids.tobytes(), 0, 0
        first: Dict[bytes, str] = {}  # the text with these ids
        for text, end in zip(texts, (ids.itemsize * ends).tolist()):
            key, start = content[start:end], end
            other = first.setdefault(key, text)
            if key and other != text and _plain(other) != _plain(text):
                num_merged += 1
        num_blank = sum(not texts[index].strip() for index in np.flatnonzero(lengths == 0))
        num_strange = int((num_known[ends] == num_known[ends - lengths]).sum()) - num_blank
        self._counts.update(texts=len(texts) - num_blank, strange=num_strange, merged=num_merged,
                            tokens=len(ids), unknown=len(ids) - int(num_known[-1]))

    def add_rows(self, count: int, num_cut: int = 0, num_pairs: int = 0) -> None:
        """Counts rows, of which some do not fit into the model's input, and some are pairs of texts."""
        self._counts.update(rows=count, cut=int(num_cut), pairs=int(num_pairs))

    def take(self) -> Dict[str, Any]:
        """The counts since the last call, as facts of a store."""
        counts, self._counts = dict(self._counts), collections.Counter()
        return {FACT: counts}


def _plain(text: str) -> List[str]:
    """The words without the differences that models of lower-cased text ignore: capitals and accents."""
    return "".join(letter for letter in unicodedata.normalize("NFD", text.lower())
                   if unicodedata.category(letter) != "Mn").split()


def describe(counts: Mapping[str, int]) -> str:
    """What shares of the texts the vocabulary does not know or tell apart; "" if they are small."""
    return ", ".join(f"{100 * counts[part] / counts[whole]:.3g}% {what}" for part, whole, what in _SHARES
                     if counts.get(part, 0) > _WARNING * counts.get(whole, 0))
