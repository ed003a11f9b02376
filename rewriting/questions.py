"""Slots with the phrases to try in them, in files: JSON lines of ours, and bert-ad's lines.

A line of ours: {"before": ..., "clause": ..., "after": ..., "negatives": [...]}; what stands
before the slot, the clause that belongs there, what stands after it, and phrases that do not.
A line of bert-ad: label (1: it fits), number of the clause, phrase and text, with tabs
between them; in the text the slot is a run of “, as long as the phrase.
"""

import json
import os
import re
from typing import IO, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from engine.data import text_files
from engine.errors import UserError
from rewriting.clauses import Slot

BERT_AD_MARK = "“"
_RUN = re.compile(f"{BERT_AD_MARK}+")
_BERT_AD_BREAK = re.compile("[。！!？，：]")
EXTENSIONS = {"jsonl": ".jsonl", "bert-ad": ".tsv"}


class Question(NamedTuple):
    """A slot and phrases for it: which one belongs there?"""
    before: str
    after: str
    phrases: Tuple[str, ...]
    num_fitting: int  # 1, and the first phrase is the slot's own, or 0

    @classmethod
    def of_slot(cls, slot: Slot, negatives: Iterable[str]) -> "Question":
        return cls(slot.before, slot.after, (slot.clause, *negatives), 1)


def read_questions(path: str) -> Iterator[Question]:
    """Streams a file's questions; bert-ad's lines by the file's name, .tsv or .txt.

    Raises:
        UserError: with file and line number, for a line that is no question; also where the
            file holds none.
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in text_files.FORMATS or extension == ".csv":
        raise UserError(f"{path}: its name must end in .jsonl, or in .tsv or .txt for bert-ad's "
                        "lines")
    read = _ours if extension == ".jsonl" else _bert_ads
    count = 0
    for question in read(path):
        count += 1
        yield question
    if not count:
        raise UserError(f"{path} holds no slots")


def _ours(path: str) -> Iterator[Question]:
    for line_number, value in text_files.json_objects(path):
        texts = [value.get(name) for name in ("before", "clause", "after")]
        negatives = value.get("negatives", [])
        if not isinstance(negatives, list) or not all(
                isinstance(text, str) for text in texts + negatives):
            raise UserError(f"{path}, line {line_number}: not a slot with \"before\", \"clause\" "
                            "and \"after\", texts, and \"negatives\", a list of texts")
        before, clause, after, *negatives = map(text_files.whole_characters, texts + negatives)
        _check_phrases(path, line_number, (clause, *negatives))
        yield Question(before, after, (clause, *negatives), 1)


def _bert_ads(path: str) -> Iterator[Question]:
    """Lines of one slot that follow each other are one question."""
    question: Optional[Question] = None
    for line_number, line in text_files.lines(path):
        label, before, phrase, after = _parse_bert_ad(path, line_number, line.split("\t"))
        same = question and (question.before, question.after) == (before, after)
        if same and not (label and question.num_fitting):
            phrases = (phrase, *question.phrases) if label else (*question.phrases, phrase)
            question = Question(before, after, phrases, question.num_fitting + label)
            continue
        if question:
            yield question
        question = Question(before, after, (phrase,), label)
    if question:
        yield question


def _parse_bert_ad(path: str, line_number: int, fields: List[str]) -> Tuple[int, str, str, str]:
    """(label, what stands before the slot, the phrase, what stands after it)"""
    where = f"{path}, line {line_number}"
    if len(fields) not in (4, 5):  # the fifth is the whole text
        raise UserError(f"{where}: {len(fields)} columns, and bert-ad's lines have label, number "
                        "of the clause, phrase and text with the slot, separated by tabs")
    label, clause_number, phrase, text = fields[:4]
    if label not in ("0", "1") or not clause_number.isdecimal():
        raise UserError(f"{where}: label {label[:40]!r} and clause {clause_number[:40]!r}; they "
                        "must be 0 or 1, and a number from 0")
    _check_phrases(path, line_number, (phrase,))
    span = _find_slot(text, int(clause_number), len(phrase))
    if not span:
        raise UserError(f"{where}: the text has no slot in clause {clause_number}, a run of "
                        f"{BERT_AD_MARK} as long as the phrase")
    return int(label), text[:span[0]], phrase, text[span[1]:]


def _check_phrases(path: str, line_number: int, phrases: Sequence[str]) -> None:
    if not all(phrase.strip() for phrase in phrases):
        raise UserError(f"{path}, line {line_number}: a phrase is empty; remove it")


def _find_slot(text: str, clause_number: int, length: int) -> Optional[Tuple[int, int]]:
    """The run of marks in that clause, the longest, or else the text's only one.

    A quotation mark of the text's own may stand before the slot: `length` marks are it.
    """
    bounds = [0, *(match.end() for match in _BERT_AD_BREAK.finditer(text)), len(text) + 1]
    runs = [match.span() for match in _RUN.finditer(text)]
    if clause_number < len(bounds) - 1:
        first, last = bounds[clause_number:clause_number + 2]
        within = [run for run in runs if first <= run[0] < last]
        runs = within or runs
        if within:
            runs = [max(within, key=lambda run: run[1] - run[0])]
    if len(runs) != 1:
        return None
    start, end = runs[0]
    return max(start, end - max(length, 1)), end


def write_question(question: Question, form: str, file: IO[str]) -> bool:
    """Writes a question in a format of EXTENSIONS; False where that cannot hold it."""
    before, after, phrases = question.before, question.after, question.phrases
    if form == "jsonl":
        value = {"before": before, "clause": phrases[0], "after": after,
                 "negatives": list(phrases[1:])}
        file.write(json.dumps(value, ensure_ascii=False) + "\n")
        return True
    if any(mark in text for text in (before, after, *phrases) for mark in "\t\r\n"):
        return False
    if after.startswith(BERT_AD_MARK):
        return False  # it would be taken for a part of the slot
    clause_number = len(_BERT_AD_BREAK.findall(before))
    for label, phrase in zip([1] + [0] * len(phrases), phrases):
        masked = before + BERT_AD_MARK * len(phrase) + after
        file.write(f"{label}\t{clause_number}\t{phrase}\t{masked}\n")
    return True
