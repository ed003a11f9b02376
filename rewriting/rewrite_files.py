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


class Done(NamedTuple):
    """The texts whose rewrites are written."""
    count: int
    digest: str  # of the texts


class Output(NamedTuple):
    """Where rewrites go."""
    done: Optional[Done]  # by an earlier run; None: nothing
    write: Callable[[str], Any]
    note: Callable[[Done], Any]  # hears now and then how far it is


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
        yield Output(None, sys.stdout.write, lambda done: sys.stdout.flush())
        return
    part, state_path = f"{path}.part", f"{path}.part.json"
    state = _state(state_path, part, identity)
    with open(part, "r+b" if state else "wb") as file:
        if state:
            file.truncate(state["bytes"])
            file.seek(state["bytes"])
            log.info(f"Going on with {part}: {state['done'][0]:,} texts are done")
        else:
            file.write(_HEADERS.get(form, "").encode("utf-8"))
        try:
            yield Output(Done(*state["done"]) if state else None,
                         lambda text: file.write(text.encode("utf-8")),
                         lambda done: _note(file, state_path, identity, done))
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
    """What an interrupted run has noted; None, and no such note is left, where it is of no use."""
    if not os.path.exists(state_path):
        return None
    state = files.read_json(state_path, "the state of an interrupted run")
    # Without its file, or with less in it, it is of a run that came to its end.
    is_there = os.path.exists(part) and os.path.getsize(part) >= state["bytes"]
    if is_there and state["identity"] == identity:
        return state
    if is_there:
        log.warn(f"{part} is of an interrupted run with other texts, phrases, model or flags: it "
                 "is written anew")
    os.remove(state_path)
    return None


def _note(file: IO[bytes], state_path: str, identity: str, done: Done) -> None:
    file.flush()
    os.fsync(file.fileno())
    files.write_json(state_path, {"identity": identity, "done": done, "bytes": file.tell()})
