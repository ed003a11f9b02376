"""How well predicted answers agree with the right ones, and the scores of a whole set.

Both are those of the official scripts. SQuAD 1.1 and 2.0 compare English words; CMRC 2018 compares
Chinese characters and the words between them.
"""

import collections
import difflib
import re
import string
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from runs.capability import LEAST_JUDGED

_SHORT_CONTEXT = 64  # tokens; the table of scores has a row for each doubling
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")

# CMRC's. Its list has "……", too, which is no character and so never met.
_CMRC_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_HAN = re.compile("([\u4e00-\u9fa5])")

# The conventions of the Penn Treebank, which CMRC's script takes from NLTK: marks stand alone, and so
# do what is shortened ('s, n't), a full stop at the end, and a comma that no digit follows. Quotes
# are `` where they open and '' where they close.
_OPENING_QUOTE = re.compile(r'^"|(?<=^")"|(?<=[ ([{<])"')
_SEPARATE = r"""\.{2,} | `` | '' | [][(){}<>;@#$%&?!“‘«„»”’—–]
    | ,(?!\d) | \.(?=[])}>"'»”’\s]*$)"""
_MARK = rf"""{_SEPARATE} | '(?=\s|$|{_SEPARATE}) | (?:'(?:s|m|d|ll|re|ve)|n't)(?=\s|$|{_SEPARATE})
    | (?<!\w)'(?!(?:re|ve|ll|[mtsdn])\b)(?=\w)"""
_WORD_OR_MARK = re.compile(rf"(?: {_MARK} ) | (?: (?! {_MARK} ) \S )+", re.VERBOSE)


class Agreement(NamedTuple):
    """How a prediction agrees with the best of the right answers, from 0 to 1."""
    exact: float
    f1: float


# (prediction, the right answers) → how they agree. Without a right answer, "" is right.
Measure = Callable[[str, Sequence[str]], Agreement]


def squad(prediction: str, answers: Sequence[str]) -> Agreement:
    """SQuAD 1.1's: without case, punctuation and articles; the words that both have."""
    predicted, right = _english_words(prediction), [*map(_english_words, answers)] or [[]]
    return Agreement(float(predicted in right), max(
        _f1(sum((collections.Counter(predicted) & collections.Counter(words)).values()),
            predicted, words) for words in right))


def squad_2(prediction: str, answers: Sequence[str]) -> Agreement:
    """SQuAD 2.0's: as `squad`, but an answer without words counts as none."""
    right = [answer for answer in answers if _english_words(answer)]
    return squad(prediction, right) if right else _none(_english_words(prediction))


def cmrc(prediction: str, answers: Sequence[str]) -> Agreement:
    """CMRC 2018's: without case and punctuation; the longest run of segments that both have."""
    if not answers:
        return _none(prediction)
    bare, predicted = _without_cmrc_marks(prediction), _chinese_segments(prediction)
    right = [*map(_chinese_segments, answers)]
    return Agreement(
        float(bare in map(_without_cmrc_marks, answers)),
        max(_f1(difflib.SequenceMatcher(None, predicted, segments, autojunk=False)
                .find_longest_match(0, len(predicted), 0, len(segments)).size, predicted, segments)
            for segments in right))


def _none(prediction: Sequence[str]) -> Agreement:
    """The agreement with having no answer."""
    return Agreement(float(not prediction), float(not prediction))


def _english_words(text: str) -> List[str]:
    return _ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _f1(num_common: int, predicted: Sequence[str], right: Sequence[str]) -> float:
    if not num_common:
        return 0.0
    precision, recall = num_common / len(predicted), num_common / len(right)
    return 2 * precision * recall / (precision + recall)


def _without_cmrc_marks(text: str) -> str:
    return text.lower().strip().translate(_CMRC_PUNCTUATION)


def _chinese_segments(text: str) -> List[str]:
    """Chinese characters, and the words of what is between them."""
    segments = []
    for number, part in enumerate(_HAN.split(_without_cmrc_marks(text))):
        segments += [part] if number % 2 else treebank_words(part)
    return segments


def treebank_words(text: str) -> List[str]:
    """The words and marks of a lower-cased text, after the conventions of the Penn Treebank."""
    text = _OPENING_QUOTE.sub(" `` ", text).replace('"', " '' ")
    return _WORD_OR_MARK.findall(text)


# --measure → how answers are compared, if all questions have one, and if some have none.
MEASURES: Dict[str, Tuple[Measure, Measure]] = {"squad": (squad, squad_2), "cmrc": (cmrc, cmrc)}


class Answered(NamedTuple):
    """How a question was answered."""
    agreement: Agreement  # of the prediction with the right answers
    answers: Sequence[str]  # the right ones
    is_answered: bool  # whether one is predicted
    null_odds: float = 0.0  # of having no answer, as predicted
    num_tokens: int = 0  # of the context


def warning(questions: Sequence[Answered], compare: Measure) -> Optional[str]:
    """Says that the same answer to all questions would be as good; None if it would not."""
    reached = sum(question.agreement.f1 for question in questions)
    (most, _), = collections.Counter("".join(question.answers[:1]) for question in questions).most_common(1)
    bound = sum(compare(most, question.answers).f1 for question in questions)
    if reached > bound or len(questions) < LEAST_JUDGED:
        return None
    return (f"this model's F1 on the dev set is {100 * reached / len(questions):.4g}, and "
            f"{f'the answer {most[:40]!r}' if most else 'no answer'} to every question has "
            f"{100 * bound / len(questions):.4g}: it has learnt nothing that holds beyond the training set; try more "
            "steps, or look at the data, for answers that are mixed up")


def results(questions: Sequence[Answered], *, may_have_none: bool) -> Dict[str, float]:
    """The scores in percent, by the names of the official scripts.

    Without unanswerable questions these are exact_match and f1. With them: exact, f1 and total of all
    questions, of those that have an answer (HasAns_) and of those that have none (NoAns_); and the best
    scores that another threshold of the odds would give, with that threshold.
    """
    if not may_have_none:
        return dict(zip(("exact_match", "f1"), _percents(questions)))
    percents = {}
    for prefix, group in zip(("", "HasAns_", "NoAns_"), (questions, *_by_answer(questions))):
        if group:
            names = (f"{prefix}exact", f"{prefix}f1", f"{prefix}total")
            percents.update(zip(names, (*_percents(group), len(group))))
    for name in ("exact", "f1"):
        percents[f"best_{name}"], percents[f"best_{name}_thresh"] = _best(questions, name)
    return percents


def table(questions: Sequence[Answered], *, may_have_none: bool) -> List[Dict[str, Any]]:
    """The scores by length of the context, and of questions with an answer and without."""
    groups: Dict[str, Sequence[Answered]] = {}
    for question in sorted(questions, key=lambda question: question.num_tokens):
        length = max(_SHORT_CONTEXT, 1 << (question.num_tokens - 1).bit_length())
        groups.setdefault(f"up to {length:,} tokens", []).append(question)
    if may_have_none:
        groups["has an answer"], groups["has none"] = _by_answer(questions)
    return [{"context": name, "questions": len(group),
             **dict(zip(("exact match", "f1"), _percents(group)))}
            for name, group in groups.items() if group]


def _by_answer(questions: Sequence[Answered]) -> Tuple[List[Answered], List[Answered]]:
    return ([question for question in questions if question.answers],
            [question for question in questions if not question.answers])


def _percents(questions: Sequence[Answered]) -> Tuple[float, float]:
    """The means of the agreements in percent, added up one by one as the official scripts do."""
    exact, f1 = map(sum, zip(*(question.agreement for question in questions)))
    return 100.0 * exact / len(questions), 100.0 * f1 / len(questions)


def _best(questions: Sequence[Answered], name: str) -> Tuple[float, float]:
    """The best score, in percent, and the odds above which it is predicted to have no answer.

    The threshold rises from the lowest odds; each step answers one more question.
    """
    score = best = float(sum(not question.answers for question in questions))
    threshold = 0.0
    for question in sorted(questions, key=lambda question: question.null_odds):
        if question.answers:
            score += getattr(question.agreement, name)
        elif question.is_answered:
            score -= 1
        if score > best:
            best, threshold = score, question.null_odds
    return 100.0 * best / len(questions), threshold
