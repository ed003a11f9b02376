"""Slots with candidate phrases in files: JSON lines of our own, and bert-ad's lines.

Our lines: {"before": ..., "clause": ..., "after": ..., "negatives": [...]}: the text before the
slot, the clause that belongs there, the text after it, and phrases that do not belong there.
bert-ad's lines: label (1: it fits), number of the clause, phrase and text, separated by tabs;
in the text, the slot is a sequence of “ as long as the phrase. The whole text may follow.
Either may have a category: "category", or a sixth column.

To be scored, phrases need no labels: {"before": ..., "after": ..., "phrases": [...]}, or lines of
bert-ad's without the first column; for `runs.predict`, a phrase and a text whose slot is [MASK] or
bert-ad's sequence.
"""

import json
import os
import re
from typing import Any, Dict, IO, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from engine.data import text_files
from engine.data.text_files import LINE_CHARACTERS, OddRows, attempt
from engine.errors import UserError

BERT_AD_MARK = "“"
_RUN = re.compile(f"{BERT_AD_MARK}+")
_MASKS = re.compile(r"\[MASK\](?:\s*\[MASK\])*")
_BERT_AD_BREAK = re.compile("[。！!？，：]")
EXTENSIONS = {"jsonl": ".jsonl", "bert-ad": ".tsv"}
_FIVE_COLUMNS = ("; of bert_worker_mask_lm_validset.py's five columns the last two are scored: "
                 "cut -f4,5 FILE | python -m runs.predict --output_dir=MODEL")


class SlotExample(NamedTuple):
    """A slot and its candidate phrases."""
    before: str
    after: str
    phrases: Tuple[str, ...]
    num_fitting: int  # 1: the first phrase is the slot's own; 0: none fits
    category: str = ""  # that results are also reported by; empty: none


UNREAD = SlotExample("", "", ("",), 0)  # stands for a line to be scored that is no slot


def read_slots(path: str, *, labelled: bool = True,
               odd: Optional[OddRows] = None) -> Iterator[SlotExample]:
    """Streams the slots of a file: .jsonl has our lines, .tsv and .txt have bert-ad's.

    Args:
        labelled: False for lines to be scored: their phrases come as they stand, without labels.
        odd: counts lines that are no slot, which come as UNREAD; without it, they are errors.
    """
    extension = os.path.splitext(path)[1].lower()
    if extension not in (".jsonl", ".tsv", ".txt"):
        raise UserError(f"{path}: its name must end in .jsonl, or in .tsv or .txt for bert-ad's "
                        "lines")
    slots = _bert_ads(path, labelled, odd)
    if extension == ".jsonl":
        slots = (slot or UNREAD for _, slot in text_files.json_objects(
            path, odd, lambda number, value: _our_slot(f"{path}, line {number}", value, labelled)))
    first = next(slots, None)
    if first is None:
        raise UserError(f"{path} holds no slots")
    yield first
    yield from slots


def _our_slot(where: str, value: Dict[str, Any], labelled: bool) -> SlotExample:
    own = [value.get("clause")] if labelled or "phrases" not in value else []
    others = value.get("negatives", []) if own else value["phrases"]
    phrases = own + others if isinstance(others, list) else [None]
    texts = [value.get("before"), value.get("after"), value.get("category", ""), *phrases]
    if not phrases or not all(isinstance(text, str) for text in texts):
        scored = "" if labelled else ", or instead of these two \"phrases\", a list of texts"
        raise UserError(f"{where}: not a slot with \"before\", \"clause\" "
                        f"and \"after\", texts, and \"negatives\", a list of texts{scored}; "
                        "a \"category\" is a text")
    before, after, category, *phrases = map(text_files.whole_characters, texts)
    if labelled:
        _check_phrases(where, phrases)
    return SlotExample(before, after, tuple(phrases), int(labelled), category)


def _bert_ads(path: str, labelled: bool, odd: Optional[OddRows]) -> Iterator[SlotExample]:
    """Consecutive lines with the same slot are one, unless they are to be scored."""
    slot: Optional[SlotExample] = None
    for line_number, line in text_files.lines(path):
        fields = line.split("\t")
        if not labelled and len(fields) == 3:
            fields = ["0", *fields]
        parsed = attempt(odd, _parse_bert_ad, f"{path}, line {line_number}", fields) or UNREAD
        if not labelled:
            yield parsed._replace(num_fitting=0)
            continue
        merged = slot and _merged(slot, parsed)
        if slot and not merged:
            yield slot
        slot = merged or parsed
    if slot:
        yield slot


def _merged(slot: SlotExample, line: SlotExample) -> Optional[SlotExample]:
    """The slot with the phrase of a line; None if the line has another slot."""
    if line._replace(phrases=slot.phrases, num_fitting=slot.num_fitting) != slot or (
            line.num_fitting and slot.num_fitting):
        return None
    phrases = line.phrases + slot.phrases if line.num_fitting else slot.phrases + line.phrases
    return slot._replace(phrases=phrases, num_fitting=slot.num_fitting + line.num_fitting)


def _parse_bert_ad(where: str, fields: List[str]) -> SlotExample:
    if not 4 <= len(fields) <= 6:  # the fifth is the whole text
        raise UserError(f"{where}: {len(fields)} columns, and bert-ad's lines have label, number "
                        "of the clause, phrase and text with the slot, separated by tabs")
    label, clause_number, phrase, text = fields[:4]
    if label not in ("0", "1") or not clause_number.isdecimal():
        raise UserError(f"{where}: label {label[:40]!r} and clause {clause_number[:40]!r}; they "
                        "must be 0 or 1, and a number from 0"
                        + (_FIVE_COLUMNS if len(fields) == 5 else ""))
    _check_phrases(where, (phrase,))
    span = _find_slot(text, len(phrase), int(clause_number))
    if not span:
        raise UserError(f"{where}: the text has no slot in clause {clause_number}, a run of "
                        f"{BERT_AD_MARK} as long as the phrase")
    return SlotExample(text[:span[0]], text[span[1]:], (phrase,), int(label), "".join(fields[5:]))


def _check_phrases(where: str, phrases: Sequence[str]) -> None:
    if not all(phrase.strip() for phrase in phrases):
        raise UserError(f"{where}: a phrase is empty; remove it")


def slot_of(phrase: str, text: str) -> Optional[SlotExample]:
    """A phrase in the slot of a text: its [MASK], or else its sequence of “; None without one."""
    masks = [match.span() for match in _MASKS.finditer(text)]
    span = _find_slot(text, len(phrase)) if not masks else masks[0] if len(masks) == 1 else None
    return SlotExample(text[:span[0]], text[span[1]:], (phrase,), 0) if span else None


def _find_slot(text: str, length: int,
               clause_number: Optional[int] = None) -> Optional[Tuple[int, int]]:
    """The start and end of the slot: the longest run of marks in that clause, or the only one.

    The text itself may have a quotation mark before the slot: only the last `length` marks are
    the slot.
    """
    bounds = [0, *(match.end() for match in _BERT_AD_BREAK.finditer(text)), len(text) + 1]
    runs = [match.span() for match in _RUN.finditer(text)]
    if clause_number is not None and clause_number < len(bounds) - 1:
        first, last = bounds[clause_number:clause_number + 2]
        within = [run for run in runs if first <= run[0] < last]
        runs = [max(within, key=lambda run: run[1] - run[0])] if within else runs
    if len(runs) != 1:
        return None
    start, end = runs[0]
    return max(start, end - max(length, 1)), end


def write_slot(slot: SlotExample, form: str, file: IO[str]) -> bool:
    """Writes a slot in a format of EXTENSIONS; returns False if the format cannot hold it."""
    before, after, phrases = slot.before, slot.after, slot.phrases
    if form == "jsonl":
        value = {"before": before, "clause": phrases[0], "after": after, "negatives": phrases[1:],
                 **({"category": slot.category} if slot.category else {})}
        file.write(json.dumps(value, ensure_ascii=False) + "\n")
        return True
    texts = "".join((before, after, slot.category, *phrases))
    if after.startswith(BERT_AD_MARK) or not LINE_CHARACTERS.isdisjoint(texts):  # the mark would be a part of the slot
        return False
    clause_number = len(_BERT_AD_BREAK.findall(before))
    more = f"\t{before}{phrases[0]}{after}\t{slot.category}" if slot.category else ""
    for label, phrase in zip([1] + [0] * len(phrases), phrases):
        masked = before + BERT_AD_MARK * len(phrase) + after
        file.write(f"{label}\t{clause_number}\t{phrase}\t{masked}{more}\n")
    return True
