"""Rewrites in files: three formats, and an output that is gone on with after an interruption."""

import contextlib
import json
import os
import re
import sys
from typing import Any, Callable, Dict, IO, Iterator, List, NamedTuple, Optional, Sequence

from engine import files, interruption, log
from rewriting.questions import BERT_AD_MARK
from rewriting.rewriter import Rewrite

_BREAKS = re.compile("[\t\r\n]")

# (number of the text, from 1; the text; its rewrites) -> lines
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
    """A tab or line end within a field would end it: it becomes a space."""
    return "".join("\t".join(_BREAKS.sub(" ", field) for field in row) + "\n" for row in rows)


class Output(NamedTuple):
    """Where rewrites go."""
    num_done: int  # texts whose rewrites are there already
    write: Callable[[str], Any]
    done: Callable[[int], Any]  # hears how many texts are done in all, now and then


@contextlib.contextmanager
def opened(path: Optional[str], form: str, identity: str) -> Iterator[Output]:
    """The output file, there only when it is whole; or standard output.

    What an interrupted run has written is in <path>.part, and <path>.part.json says how much
    of it is good: the next run with the same identity goes on from there.

    Args:
        identity: of all that shapes the output.
    """
    if not path:
        sys.stdout.write(_HEADERS.get(form, ""))
        yield Output(0, sys.stdout.write, lambda count: sys.stdout.flush())
        return
    files.make_directory(os.path.dirname(os.path.abspath(path)), "--output_file: its directory")
    part, state_path = f"{path}.part", f"{path}.part.json"
    state = _state(state_path, part, identity)
    with open(part, "r+b" if state else "wb") as file:
        if state:
            file.truncate(state["bytes"])
            file.seek(state["bytes"])
            log.info(f"Going on with {part}: {state['texts']:,} texts are done")
        else:
            file.write(_HEADERS.get(form, "").encode("utf-8"))
        try:
            yield Output(state["texts"] if state else 0,
                         lambda text: file.write(text.encode("utf-8")),
                         lambda count: _note(file, state_path, identity, count))
        except BaseException as error:
            if not os.path.exists(state_path):
                os.remove(part)  # there is nothing to go on with
            elif isinstance(error, interruption.Interrupted):
                log.info(f"{part} holds what is done; the same command goes on from there")
            raise
    os.replace(part, path)
    if os.path.exists(state_path):
        os.remove(state_path)


def _state(state_path: str, part: str, identity: str) -> Optional[dict]:
    if not (os.path.exists(state_path) and os.path.exists(part)):
        return None
    state = files.read_json(state_path, "the state of an interrupted run")
    if state["identity"] == identity:
        return state
    log.warn(f"{part} is of an interrupted run with other texts, phrases, model or flags: it is "
             "written anew")
    os.remove(state_path)
    return None


def _note(file: IO[bytes], state_path: str, identity: str, count: int) -> None:
    file.flush()
    os.fsync(file.fileno())
    files.write_json(state_path, {"identity": identity, "texts": count, "bytes": file.tell()})
