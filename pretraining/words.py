"""Where the words of tokenized texts begin: a word is WordPieces, or ideographs that a segmenter finds."""

import functools
import logging
import re
import warnings
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np

from engine import log
from engine.errors import UserError
from tokenization import IDEOGRAPHS, BatchTokenizer

SEGMENTERS = JIEBA, SPACES = ("jieba", "spaces")
HELP = ("what finds the words of Chinese text, whose characters are a token each: the package jieba, or the spaces "
        "of a text that is segmented already; by default each character is a word")
_IDEOGRAPH = re.compile("([%s])" % "".join(f"{chr(first)}-{chr(last)}" for first, last in IDEOGRAPHS))
_FEW, _MOST = 0.05, 0.5  # of the tokens: so many ideographs without a segmenter are a warning, an error
_LONGEST_MEAN = 4  # ideographs in a word; Chinese has less than 2

WordsOf = Callable[[str], Iterable[str]]  # the parts of a text


def segmenter(name: Optional[str], *, do_whole_word_mask: bool) -> Optional[WordsOf]:
    """What divides texts into words, or without a name into characters; None if words do not matter."""
    if not do_whole_word_mask:
        if name:
            raise UserError(f"--word_segmenter={name} needs --do_whole_word_mask, which is not set")
        return None
    if name != JIEBA:
        return str.split if name == SPACES else iter
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old idioms in the package
            import jieba
    except ImportError as error:
        raise UserError("--word_segmenter=jieba needs the package jieba: pip install -r "
                        "pretraining/requirements.txt") from error
    jieba.setLogLevel(logging.WARNING)
    jieba.initialize()  # once, before the processes that share it
    return jieba.cut


@functools.lru_cache(maxsize=1)
def _piece_flags(tokenizer: BatchTokenizer) -> np.ndarray:
    """Whether each id continues a word (##...) instead of beginning one, bool [vocab size]."""
    flags = np.zeros(tokenizer.largest_id + 1, bool)
    flags[[index for token, index in tokenizer.vocab.items() if token.startswith("##")]] = True
    return flags


def find_starts(texts: Sequence[str], tokenizer: BatchTokenizer, words_of: WordsOf
                ) -> Tuple[np.ndarray, Dict[str, int]]:
    """Whether each token of some texts begins a word, bool [T]; and counts for `report`."""
    parts: List[str] = []
    follow: List[bool] = []  # whether a part is an ideograph after another one of its word
    for text in texts:
        in_words = (place > 0 and bool(_IDEOGRAPH.match(word[place - 1]))
                    for word in words_of(text) for place in range(len(word)) if _IDEOGRAPH.match(word[place]))
        for number, part in enumerate(_IDEOGRAPH.split(text)):
            parts.append(part)
            follow.append(number % 2 == 1 and next(in_words))
    ids, lengths = tokenizer.encode_batch(parts)  # ideographs stand alone: the ids are those of the texts
    starts = ~_piece_flags(tokenizer)[ids]
    starts[(np.cumsum(lengths) - lengths)[np.array(follow, bool) & (lengths > 0)]] = False
    return starts, {"words": int(starts.sum()), "several": int((starts[:-1] & ~starts[1:]).sum()),
                    "ideographs": sum(map(len, map(_IDEOGRAPH.findall, texts))), "joined": sum(follow)}


def report(counts: Dict[str, int], name: Optional[str]) -> None:
    """Logs how many words have several pieces; raises a UserError if the segmenter cannot be right."""
    ideographs, share = counts["ideographs"], counts["ideographs"] / max(1, counts["tokens"])
    if share > _FEW and not name:
        line = (f"--do_whole_word_mask: {share:.0%} of the tokens are Chinese characters, each a word of its own: "
                "--word_segmenter=jieba finds their words, and --word_segmenter=spaces takes those of a text that "
                "is segmented by spaces")
        if share > _MOST:
            raise UserError(line)
        log.warn(line)
    mean = ideographs / max(1, ideographs - counts["joined"])
    if name == SPACES and mean > _LONGEST_MEAN:
        raise UserError(f"--word_segmenter=spaces: between spaces stand {mean:.1f} Chinese characters on average, so "
                        "the text is not segmented; --word_segmenter=jieba finds its words")
    if name and not counts["joined"]:
        log.warn(f"--word_segmenter={name} finds no word of several Chinese characters: it changes nothing")
    line = f"whole words: {counts['several']:,} of {counts['words']:,} words have several tokens"
    if counts["several"]:
        log.info(f"{line} ({counts['several'] / counts['words']:.1%}), which are masked together")
    else:
        log.warn(f"{line}: --do_whole_word_mask changes nothing")
