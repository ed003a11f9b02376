"""A user's text files as a stream of sentences.

It has one sentence a line and a blank line between documents; or, of pairs, one labelled pair of
texts a line, `label TAB anything TAB text TAB text`.
"""

import gzip
import os
import zlib
from typing import Iterable, Iterator, NamedTuple, Tuple

from engine.data import text_files
from engine.data.text_files import OddRows
from engine.disk import files, parts
from engine.errors import UserError

_PAIR_FIELDS = 4


class Sentence(NamedTuple):
    """The text of a line, or a part of that of a pair. The two texts of a pair make up a document."""
    document: int  # numbered from 0, with gaps for documents without text
    text: str
    label: int = 0  # of a pair


def read_sentences(paths: Iterable[text_files.Path], *, of_pairs: bool = False) -> Iterator[Sentence]:
    """The sentences of all files, one after the other; the end of a file ends a document."""
    document = 0
    for path in paths:
        for sentence in (_pairs if of_pairs else _lines)(path, document):
            yield sentence
            document = sentence.document
        document += 1


def read_lines(path: text_files.Path, records: str = parts.LINES) -> Iterator[Tuple[int, str]]:
    """The number and the text of each line of a file, which may be compressed with gzip.

    Args:
        records: see `text_files.lines`.
    """
    if not str(path).endswith(".gz"):
        yield from text_files.lines(path, records)
        return
    try:
        with files.open_regular(os.fspath(path), "file") as packed, gzip.open(packed) as file:
            yield from text_files.lines_of(file, path)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read as a gzip file: {error}") from error


def _lines(path: text_files.Path, document: int) -> Iterator[Sentence]:
    for _, line in read_lines(path, parts.DOCUMENTS):
        text = line.strip()
        if text:
            yield Sentence(document, text)
        else:
            document += 1


def _pairs(path: text_files.Path, document: int) -> Iterator[Sentence]:
    odd, count = OddRows("lines are left out"), 0
    for line_number, line in read_lines(path):
        if not line.strip():
            continue
        count += 1
        fields = line.split("\t", _PAIR_FIELDS - 1)
        if len(fields) < _PAIR_FIELDS or fields[0].strip() not in ("0", "1"):
            odd.add(f"{path}, line {line_number}: not a labelled pair: it must be 0 or 1, "
                    "anything, a text and a text, with tabs between them")
            continue
        for text in fields[2:]:
            yield Sentence(document, text.strip(), int(fields[0]))
        document += 1
    odd.report(count)
