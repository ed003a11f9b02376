"""The scores of a whole set, as the official scripts of SQuAD 1.1, SQuAD 2.0 and CMRC 2018 report them.

A few numbers are kept for each question.
"""

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from reading.measures import Agreement

_SHORT_CONTEXT = 64  # tokens; the table of scores has a row for each doubling


class Answered(NamedTuple):
    """How a question was answered."""
    agreement: Agreement  # of the prediction with the right answers
    has_answer: bool
    is_answered: bool  # whether one is predicted
    null_odds: float = 0.0  # of having no answer, as predicted
    num_tokens: int = 0  # of the context


def results(questions: Sequence[Answered], *, may_have_none: bool) -> Dict[str, float]:
    """The scores in percent, by the names of the official scripts.

    That are exact_match and f1, and, where questions may have no answer, exact, f1 and total,
    the same of those that have one (HasAns_) and of the others (NoAns_), and the best scores
    that the predictions would have if more of them were "", with the odds from which on.
    """
    if not may_have_none:
        exact, f1 = _percents(questions)
        return {"exact_match": exact, "f1": f1}
    found = {}
    for prefix, some in zip(("", "HasAns_", "NoAns_"), (questions, *_by_answer(questions))):
        if some:
            exact, f1 = _percents(some)
            found.update({f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": len(some)})
    for name in ("exact", "f1"):
        found[f"best_{name}"], found[f"best_{name}_thresh"] = _best(questions, name)
    return found


def table(questions: Sequence[Answered], *, may_have_none: bool) -> List[Dict[str, Any]]:
    """The scores by length of the context, and of questions with an answer and without."""
    groups: Dict[str, Sequence[Answered]] = {}
    for question in sorted(questions, key=lambda question: question.num_tokens):
        length = max(_SHORT_CONTEXT, 1 << (question.num_tokens - 1).bit_length())
        groups.setdefault(f"up to {length:,} tokens", []).append(question)
    if may_have_none:
        groups["has an answer"], groups["has none"] = _by_answer(questions)
    return [{"context": name, "questions": len(some),
             **dict(zip(("exact match", "f1"), _percents(some)))}
            for name, some in groups.items() if some]


def _by_answer(questions: Sequence[Answered]) -> Tuple[List[Answered], List[Answered]]:
    return ([question for question in questions if question.has_answer],
            [question for question in questions if not question.has_answer])


def _percents(questions: Sequence[Answered]) -> Tuple[float, float]:
    """The means of the agreements in percent, added up one by one as the official scripts do."""
    exact, f1 = map(sum, zip(*(question.agreement for question in questions)))
    return 100.0 * exact / len(questions), 100.0 * f1 / len(questions)


def _best(questions: Sequence[Answered], name: str) -> Tuple[float, float]:
    """The best score, in percent, and the odds above which it is predicted to have no answer.

    The questions are gone through from the lowest odds: each is answered from there on.
    """
    score = best = float(sum(not question.has_answer for question in questions))
    threshold = 0.0
    for question in sorted(questions, key=lambda question: question.null_odds):
        if question.has_answer:
            score += getattr(question.agreement, name)
        elif question.is_answered:
            score -= 1
        if score > best:
            best, threshold = score, question.null_odds
    return 100.0 * best / len(questions), threshold
