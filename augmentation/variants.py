"""Variants of a text: some of its words replaced by others. Knows no model and no file.

TinyBERT's algorithm (Jiao et al. 2020, Algorithm 1): in each of N rounds every word that may
be replaced becomes, with probability p, one of its candidates, each as likely as the others.
"""

from typing import List, NamedTuple, Sequence

import numpy as np

from tokenization import BasicTokenizer

# Function words are kept: without "not" or "who" a text has another meaning.
STOP_WORDS = frozenset("""
    a an the this that these those
    i me my myself mine we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    one who whom whose which what where when why how
    am is are was were be been being have has had having do does did doing done
    can could will would shall should may might must ought need
    not no nor none never neither either both each every any some such same own other another
    and or but if then than because so as while until although though unless since whether
    of at by for with without about against between among into through during before after
    above below to from up down in out on off over under upon again further once here there
    all few more most much many less least only just too very also even still yet now
    s t d m o y ll re ve don ain aren couldn didn doesn hadn hasn haven isn mightn mustn needn
    shan shouldn wasn weren won wouldn
    的 地 得 了 着 过 吗 呢 吧 啊 是 有 在 和 与 及 或 但 而 且 也 都 就 又 还 才 很 更 最 太
    不 没 无 未 别 非 把 被 让 给 对 从 到 向 以 为 于 由 因 所 这 那 哪 其 之 者 我 你 您 他 她 它
    们 个 谁 什 么 怎 如 何 将 能 会 可 要 该 上 下 里 中 来 去
""".split())

_WORDS = BasicTokenizer(do_lower_case=False)


class Word(NamedTuple):
    """A word or a mark of a text."""
    text: str  # without characters that the tokenizer drops
    start: int  # its characters in the text are those from start up to end
    end: int

    @property
    def may_be_replaced(self) -> bool:
        """Whether it is made of letters and is not a stop word."""
        return self.text.isalpha() and self.text.lower() not in STOP_WORDS


def words_of(text: str) -> List[Word]:
    """The words and marks of a text as the model's tokenizer splits it, with their positions."""
    words, end = [], 0
    for word in _WORDS.tokenize(text):
        # Its characters follow one another in the text; between them may be some that the
        # tokenizer drops, which are in no word.
        start = end = text.index(word[0], end)
        for character in word:
            end = text.index(character, end) + 1
        words.append(Word(word, start, end))
    return words


def variants(text: str, words: Sequence[Word], candidates: Sequence[Sequence[str]], *,
             num_rounds: int, probability: float,
             generator: np.random.RandomState) -> List[str]:
    """The text itself and then its variants, without repetition: at most num_rounds + 1.

    Args:
        words: those that may be replaced, in the order of the text.
        candidates: for each of these words; a word without candidates is kept.
        generator: draws first which words are replaced in each round, then by which candidate.
    """
    shape = (num_rounds, len(words))
    replaced = generator.random_sample(shape) < probability
    counts = np.array([len(choices) for choices in candidates], np.int64)
    chosen = (generator.random_sample(shape) * counts).astype(np.int64)
    replaced &= counts > 0
    versions = {text: None}  # a dict keeps the order
    for round_replaced, round_chosen in zip(replaced, chosen):
        parts, end = [], 0
        for index in np.flatnonzero(round_replaced):
            word, candidate = words[index], candidates[index][round_chosen[index]]
            if word.text.istitle():
                candidate = candidate[:1].upper() + candidate[1:]
            parts += [text[end:word.start], candidate]
            end = word.end
        versions["".join(parts) + text[end:]] = None
    return list(versions)
