"""Where the words of Chinese text begin, as jieba finds them. The package is optional."""

import logging
import re
from typing import Callable, List

import numpy as np

from engine.errors import UserError
from tokenization import IDEOGRAPHS

_CLASS = "".join(f"{chr(first)}-{chr(last)}" for first, last in IDEOGRAPHS)
_RUN = re.compile(f"[{_CLASS}]+|[^{_CLASS}]+")
_IDEOGRAPH = re.compile(f"[{_CLASS}]")


def runs(text: str) -> List[str]:
    """`text` split where ideographs begin and end; the parts have the same tokens as the text."""
    return _RUN.findall(text)


def is_run(part: str) -> bool:
    """Whether a part from `runs` consists of ideographs."""
    return bool(_IDEOGRAPH.match(part))


def load_segmenter() -> Callable[[str], np.ndarray]:
    """A function: run of ideographs -> whether a word begins at each one, bool [len(run)].

    Raises:
        UserError: jieba is not installed.
    """
    try:
        import jieba
    except ImportError as error:
        raise UserError("--chinese_whole_words needs the package jieba: pip install -r "
                        "pretraining/requirements.txt") from error
    jieba.setLogLevel(logging.WARNING)
    jieba.initialize()

    def word_starts(run: str) -> np.ndarray:
        starts = np.zeros(len(run), bool)
        lengths = [len(word) for word in jieba.cut(run)]
        starts[np.cumsum([0] + lengths[:-1])] = True
        return starts

    return word_starts
