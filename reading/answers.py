"""From the logits of a question's windows to its answers, best first.

The rules are those of Google's run_squad.py, so that predictions are the same. Padding is no
candidate there, either; here it does not displace another one.
"""

import dataclasses
import math
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from encoder import windows
from engine import log
from engine.settings import setting
from reading import scores
from reading.data import TokenizedQuestion, QuestionSet
from runs import squad_files
from runs.squad_files import Words
from tokenization import BasicTokenizer, BatchTokenizer

# The odds of a question to have no answer where no span is possible.
_LARGE_ODDS = 1000000.0


@dataclasses.dataclass(frozen=True)
class AnswerSettings:
    """Which answers are predicted, and how they are compared with the right ones."""
    topic = "Answers"
    n_best_size: int = setting(
        20, "Answers of a question in nbest_predictions.json, at most; also the number of starts "
        "and of ends that are considered in each window.", positive=True)
    max_answer_length: int = setting(
        30, "Longest answer in tokens.", positive=True)
    null_score_diff_threshold: float = setting(
        0.0, "With --version_2_with_negative: predict that there is no answer if the score of that "
        "exceeds the best answer's by more than this.")
    measure: str = setting(
        "squad", "How answers are compared: squad: by English words, as SQuAD's scripts do; cmrc: "
        "by Chinese characters, as that of CMRC 2018.", choices=tuple(scores.MEASURES))
    verbose_logging: bool = setting(
        False, "Log each answer that could not be cut out of its words.")


class Candidate(NamedTuple):
    """A possible answer."""
    text: str  # "" for none
    start_logit: float
    end_logit: float
    first_character: int = 0  # of the words in the context that it is cut out of


# Where no span is possible. The original predicts the word "empty".
NONE_POSSIBLE = Candidate("", 0.0, 0.0)


class Answers(NamedTuple):
    """The predicted answers to a question."""
    text: str  # "" if there is no answer
    candidates: Sequence[Candidate]  # best first
    null_odds: Optional[float]  # of having no answer; None if all questions have one

    def chosen(self) -> Tuple[Candidate, float]:
        """The candidate that is predicted, and its probability."""
        number = [candidate.text for candidate in self.candidates].index(self.text)
        return self.candidates[number], self._probabilities()[number]

    def n_best(self) -> List[Dict[str, object]]:
        """The candidates with their probabilities, as nbest_predictions.json has them."""
        return [{"text": candidate.text, "probability": probability,
                 "start_logit": candidate.start_logit, "end_logit": candidate.end_logit}
                for candidate, probability in zip(self.candidates, self._probabilities())]

    def _probabilities(self) -> List[float]:
        totals = [candidate.start_logit + candidate.end_logit for candidate in self.candidates]
        largest = max(totals)
        powers = [math.exp(total - largest) for total in totals]
        divisor = sum(powers)
        return [power / divisor for power in powers]


class _Span(NamedTuple):
    window: int
    start: int
    end: int
    start_logit: float
    end_logit: float


def find_all(questions: QuestionSet, part: slice, logits: Dict[str, np.ndarray],
             settings: AnswerSettings) -> Iterator[Tuple[TokenizedQuestion, Answers]]:
    """Each question of a part, and the answers that are found.

    Args:
        logits: "start_logits" and "end_logits" of the part's windows, [windows, tokens]; may be
            empty if there are none.
    """
    window = 0
    for number in range(part.start, part.stop):
        question = questions.question(number)
        start_logits, end_logits = (
            [logits[name][window + index, :len(ids)] for index, ids in enumerate(question.input_ids)]
            for name in ("start_logits", "end_logits"))
        window += len(question.input_ids)
        yield question, find(
            question, start_logits, end_logits, settings, questions.encoding.tokenizer,
            may_have_none=questions.settings.version_2_with_negative)


def find(question: TokenizedQuestion, start_logits: Sequence[np.ndarray],
         end_logits: Sequence[np.ndarray], settings: AnswerSettings, tokenizer: BatchTokenizer, *,
         may_have_none: bool) -> Answers:
    """The answers to a question.

    Args:
        start_logits, end_logits: of each window, float32 [tokens].
        may_have_none: whether questions may have no answer.
    """
    spans = _spans(question, start_logits, end_logits, settings)
    if may_have_none:  # [CLS] of the window in which that is least likely; of equals the first
        logits = [(float(start[0]), float(end[0])) for start, end in zip(start_logits, end_logits)]
        null = _Span(0, 0, 0, *min(logits, key=sum, default=(0.0, 0.0)))
        spans.append(null)
    spans.sort(key=lambda span: span.start_logit + span.end_logit, reverse=True)
    candidates = _candidates(spans, question, settings, tokenizer)
    if not may_have_none:
        candidates = candidates or [NONE_POSSIBLE]
        return Answers(candidates[0].text, candidates, None)
    if all(candidate.text for candidate in candidates):
        candidates.append(Candidate("", null.start_logit, null.end_logit))
    best = next((candidate for candidate in candidates if candidate.text), None)
    if not best:
        return Answers("", candidates, _LARGE_ODDS)
    odds = null.start_logit + null.end_logit - best.start_logit - best.end_logit
    has_none = odds > settings.null_score_diff_threshold
    return Answers("" if has_none else best.text, candidates, odds)


def _spans(question: TokenizedQuestion, start_logits: Sequence[np.ndarray],
           end_logits: Sequence[np.ndarray], settings: AnswerSettings) -> List[_Span]:
    """The spans of likely starts and ends that may be an answer, window by window."""
    most_context = windows.of_most_context(question.spans)
    offset, spans = question.query_length + 2, []
    for number, (first, length) in enumerate(zip(*question.spans)):
        starts = _likely(start_logits[number], settings.n_best_size)
        ends = _likely(end_logits[number], settings.n_best_size)
        # Only tokens of the context, and a start only in the window that sees most around it.
        starts = starts[(starts >= offset) & (starts < offset + length)]
        starts = starts[most_context[first + starts - offset] == number]
        ends = ends[(ends >= offset) & (ends < offset + length)]
        lengths = ends - starts[:, np.newaxis] + 1
        rows, columns = np.nonzero((lengths >= 1) & (lengths <= settings.max_answer_length))
        spans += map(_Span, [number] * len(rows), starts[rows].tolist(), ends[columns].tolist(),
                     start_logits[number][starts[rows]].tolist(),
                     end_logits[number][ends[columns]].tolist())
    return spans


def _likely(logits: np.ndarray, count: int) -> np.ndarray:
    """The positions of the largest logits, largest first, of equals the first one first."""
    return np.argsort(-logits, kind="stable")[:count]


def _candidates(spans: Sequence[_Span], question: TokenizedQuestion, settings: AnswerSettings,
                tokenizer: BatchTokenizer) -> List[Candidate]:
    """The best spans with different texts."""
    words, candidates = squad_files.words_of(question.context), {}
    for span in spans:
        if len(candidates) >= settings.n_best_size:
            break
        first, text = (_text_of(span, question, words, settings, tokenizer) if span.start
                       else (0, ""))
        if text not in candidates:
            candidates[text] = Candidate(text, span.start_logit, span.end_logit, first)
    return list(candidates.values())


def _text_of(span: _Span, question: TokenizedQuestion, words: Words, settings: AnswerSettings,
             tokenizer: BatchTokenizer) -> Tuple[int, str]:
    """The first character of the words that a span is in, and the text that it is of them."""
    ids = question.input_ids[span.window][span.start:span.end + 1].tolist()
    shift = int(question.spans.starts[span.window]) - question.query_length - 2
    first_word, last_word = question.token_words[[span.start + shift, span.end + shift]].tolist()
    pieces = " ".join(tokenizer.convert_ids_to_tokens(ids)).replace(" ##", "").replace("##", "")
    predicted = " ".join(pieces.split())
    within = " ".join(words.texts[first_word:last_word + 1])
    text = project(predicted, within, tokenizer.basic_tokenizer)
    if text is None and settings.verbose_logging:
        log.info(f"The answer {predicted!r} is not cut out of {within!r}")
    return int(words.starts[first_word]), within if text is None else text


def project(predicted: str, words: str, tokenizer: BasicTokenizer) -> Optional[str]:
    """The part of the words of a context that a prediction stands for; None if there is none.

    A prediction is lower-cased, perhaps without accents, and cut out of words such as "Smith's" or
    "(1895-1943).". The two texts are aligned character by character.

    Args:
        predicted: the predicted tokens, with a space between words.
        words: the words of the context that these tokens are of, with spaces between them.
        tokenizer: has made the tokens.
    """
    tokenized = " ".join(tokenizer.tokenize(words))
    start = tokenized.find(predicted)
    ends = (start, start + len(predicted) - 1)
    ours, theirs = ([place for place, character in enumerate(text) if character != " "]
                    for text in (words, tokenized))
    if len(ours) != len(theirs) or any(end not in theirs for end in ends):
        return None
    first, last = (ours[theirs.index(end)] for end in ends)
    return words[first:last + 1]
