"""Slots with candidate phrases in files: JSON lines of our own, and bert-ad's lines.

Our lines: {"before": ..., "clause": ..., "after": ..., "negatives": [...]}: the text before the
slot, the clause that belongs there, the text after it, and phrases that do not belong there.
bert-ad's lines: label (1: it fits), number of the clause, phrase and text, separated by tabs;
in the text, the slot is a sequence of “ as long as the phrase.
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


class SlotExample(NamedTuple):
    """A slot and its candidate phrases."""
    before: str
    after: str
    phrases: Tuple[str, ...]
    num_fitting: int  # 1: the first phrase is the slot's own; 0: none fits

    @classmethod
    def of_slot(cls, slot: Slot, negatives: Iterable[str]) -> "SlotExample":
        """An example whose first phrase is the slot's own clause."""
        return cls(slot.before, slot.after, (slot.clause, *negatives), 1)


def read_slots(path: str) -> Iterator[SlotExample]:
    """Streams the slots of a file: .jsonl has our lines, .tsv and .txt have bert-ad's.

    Raises:
        UserError: with file and line number, for a line that is not a slot; also if the file
            holds none.
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in text_files.FORMATS or extension == ".csv":
        raise UserError(f"{path}: its name must end in .jsonl, or in .tsv or .txt for bert-ad's "
                        "lines")
    read = _ours if extension == ".jsonl" else _bert_ads
    count = 0
    for slot in read(path):
        count += 1
        yield slot
    if not count:
        raise UserError(f"{path} holds no slots")


def _ours(path: str) -> Iterator[SlotExample]:
    for line_number, value in text_files.json_objects(path):
        texts = [value.get(name) for name in ("before", "clause", "after")]
        negatives = value.get("negatives", [])
        if not isinstance(negatives, list) or not all(
                isinstance(text, str) for text in texts + negatives):
            raise UserError(f"{path}, line {line_number}: not a slot with \"before\", \"clause\" "
                            "and \"after\", texts, and \"negatives\", a list of texts")
        before, clause, after, *negatives = map(text_files.whole_characters, texts + negatives)
        _check_phrases(path, line_number, (clause, *negatives))
        yield SlotExample(before, after, (clause, *negatives), 1)


def _bert_ads(path: str) -> Iterator[SlotExample]:
    """Consecutive lines with the same slot become one."""
    slot: Optional[SlotExample] = None
    for line_number, line in text_files.lines(path):
        label, before, phrase, after = _parse_bert_ad(path, line_number, line.split("\t"))
        same = slot and (slot.before, slot.after) == (before, after)
        if same and not (label and slot.num_fitting):
            phrases = (phrase, *slot.phrases) if label else (*slot.phrases, phrase)
            slot = SlotExample(before, after, phrases, slot.num_fitting + label)
            continue
        if slot:
            yield slot
        slot = SlotExample(before, after, (phrase,), label)
    if slot:
        yield slot


def _parse_bert_ad(path: str, line_number: int, fields: List[str]) -> Tuple[int, str, str, str]:
    """(label, the text before the slot, the phrase, the text after the slot)"""
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
    """The start and end of the slot: the longest run of marks in that clause, or the only one.

    The text itself may have a quotation mark before the slot: only the last `length` marks are
    the slot.
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


def write_slot(slot: SlotExample, form: str, file: IO[str]) -> bool:
    """Writes a slot in a format of EXTENSIONS; returns False if the format cannot hold it."""
    before, after, phrases = slot.before, slot.after, slot.phrases
    if form == "jsonl":
        value = {"before": before, "clause": phrases[0], "after": after,
                 "negatives": list(phrases[1:])}
        file.write(json.dumps(value, ensure_ascii=False) + "\n")
        return True
    if any(mark in text for text in (before, after, *phrases) for mark in "\t\r\n"):
        return False
    if after.startswith(BERT_AD_MARK):
        return False  # the mark would be taken for a part of the slot
    clause_number = len(_BERT_AD_BREAK.findall(before))
    for label, phrase in zip([1] + [0] * len(phrases), phrases):
        masked = before + BERT_AD_MARK * len(phrase) + after
        file.write(f"{label}\t{clause_number}\t{phrase}\t{masked}\n")
    return True
