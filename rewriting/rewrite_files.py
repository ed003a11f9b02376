"""Rewrites in files: three formats, and an output that is resumed after an interruption."""

import json
import re
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from engine import log
from engine.disk.resumable_file import ResumableFile
from rewriting.rewriter import Rewrite
from rewriting.slot_files import BERT_AD_MARK

_BREAKS = re.compile("[\t\r\n]")

# (number of the text, from 1; the text; its rewrites) → lines
Formatter = Callable[[int, str, Sequence[Rewrite]], str]


def _tsv(number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
    return _lines([str(number), _number(rewrite.probability), rewrite.slot.clause, rewrite.phrase,
                   rewrite.text] for rewrite in rewrites)


def _bert_ad(number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
    return _lines([_number(rewrite.probability), rewrite.phrase,
                   rewrite.slot.filled(BERT_AD_MARK * len(rewrite.phrase))]
                  for rewrite in rewrites)


def _jsonl(number: int, text: str, rewrites: Sequence[Rewrite]) -> str:
    return json.dumps({"text": text, "rewrites": [
        {"probability": float(_number(rewrite.probability)), "before": rewrite.slot.before,
         "clause": rewrite.slot.clause, "after": rewrite.slot.after, "phrase": rewrite.phrase,
         "text": rewrite.text} for rewrite in rewrites]}, ensure_ascii=False) + "\n"


FORMATS: Dict[str, Formatter] = {"tsv": _tsv, "jsonl": _jsonl, "bert-ad": _bert_ad}
_HEADERS = {"tsv": "number\tprobability\tclause\tphrase\ttext\n"}


def _number(probability: float) -> str:
    return f"{probability:.6g}"


def _lines(rows: Iterator[List[str]]) -> str:
    """Tab-separated lines; a tab or line end within a field becomes a space."""
    return "".join("\t".join(_BREAKS.sub(" ", field) for field in row) + "\n" for row in rows)


class StandardOutput:
    """Standard output, with the methods of a `ResumableFile`; no later run can resume it."""

    def __init__(self, header: str):
        self.num_rows, self.digest = 0, ""
        sys.stdout.write(header)

    def append(self, text: str, num_rows: int, digest: str) -> None:
        """Writes the lines that `num_rows` more texts have become."""
        sys.stdout.write(text)
        sys.stdout.flush()
        self.num_rows += num_rows

    def finish(self) -> None:
        """Nothing is left to do."""


Output = Union[ResumableFile, StandardOutput]


def open_output(path: Optional[str], form: str, facts: Mapping[str, Any]) -> Output:
    """The output file, or standard output without a path.

    Args:
        form: one of FORMATS.
        facts: everything that determines the content; see `ResumableFile`.
    """
    header = _HEADERS.get(form, "")
    if not path:
        return StandardOutput(header)
    output = ResumableFile(path, facts, keep_record=False, header=header)
    if output.num_rows:
        log.info(f"Going on with {output.partial_path}: {output.num_rows:,} texts are done")
    return output
