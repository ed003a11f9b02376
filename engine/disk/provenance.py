"""The record NAME.json of an output NAME: what it was made from, and its content."""

import contextlib
import itertools
import json
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Union

from engine import log
from engine.disk import files, parts
from engine.errors import UserError

_HASH = re.compile("[0-9a-f]{64}")


class Source:
    """An input file, or a part of one, as a fact in the record of an output; compared by content.

    Args:
        whole: the records that a part has whole, see `parts`; default: by the name of the file.
    """

    def __init__(self, path: Union[str, parts.Part], whole: Optional[str] = None):
        self._path, self._whole, self._hash = path, whole, ""
        # The same size and state save reading the file.
        self._identity = [os.path.abspath(path), os.path.getsize(path), files.state_of(path)]
        self._range = [path.start, path.stop] if isinstance(path, parts.Part) else []

    def fact(self) -> List[Any]:
        """For a record: path, size, state, SHA-256 of the content; of a part also its range."""
        self._hash = self._hash or (parts.hash_of(self._path, self._whole) if self._range
                                    else files.hash_of_file(self._path))
        return [*self._identity, self._hash, *self._range]

    def difference(self, was: Any) -> str:
        """How it differs from what was recorded; empty if it does not."""
        path, size, state = self._identity
        if isinstance(was, list) and len(was) < 4:  # 1.0.0, which had no hash
            if was not in ([path, size, state[0]],
                           [os.path.splitext(path)[0], os.stat(path).st_mtime]):  # of a checkpoint
                return f"{path} has not the size and time that 1.0.0 recorded"
        elif isinstance(was, list) and was[:3] == self._identity and was[4:] in ([], self._range):
            self._hash = was[3]
        elif self.fact()[3] not in (was, hash_in(was)):
            return f"{path} has another content"
        return ""


def hash_in(fact: Any) -> Any:
    """The hash in a recorded `Source`; None in a record of 1.0.0."""
    return fact[3] if isinstance(fact, list) and len(fact) > 3 else None


def as_json(facts: Any) -> Any:
    """Facts as in a record."""
    return json.loads(json.dumps(facts, default=Source.fact))


def difference(record: Mapping[str, Any], facts: Mapping[str, Any]) -> Optional[str]:
    """The first fact that differs from a record, worded to follow "another"; None if none does."""
    # Those of pretraining.create_data stand among the record's other entries.
    earlier = record["facts"] if isinstance(record.get("facts"), dict) else record
    for name, now in sorted(facts.items()):
        how = change(earlier.get(name), now)
        if how:
            return name if _HASH.fullmatch(str(now)) else f"{name}: {how}"
    return None


def change(was: Any, now: Any) -> str:
    """How a fact differs from the recorded one: "was 1, now 2"; empty if it does not."""
    if isinstance(now, Source):
        return now.difference(was)
    if isinstance(was, list) and isinstance(now, list) and Source in map(type, now):
        return next(filter(None, itertools.starmap(change, itertools.zip_longest(was, now))), "")
    now = as_json(now)
    if was == now:
        return ""
    if isinstance(was, dict) and isinstance(now, dict):
        key = next(key for key in sorted({*was, *now}) if was.get(key) != now.get(key))
        return f"{key} {change(was.get(key), now.get(key))}"
    return f"was {log.brief(was)}, now {log.brief(now)}"


def content_hash(path: str, store_dir: str) -> str:
    """SHA-256 of a file's content, in hex, which `store_dir` remembers: a large file is read once."""
    memory_path = os.path.join(store_dir, "hashes.json")
    os.makedirs(store_dir, exist_ok=True)
    known: Dict[str, Any] = {}
    with contextlib.suppress(UserError):  # it only saves time: an unreadable cache counts as empty
        known = files.read_record(memory_path, "the memory", {})
    content = Source(path)
    name = log.visible(os.path.realpath(path))  # a link may lead to a name that is not UTF-8
    if content.difference(known.get(name)) or content.fact() != known.get(name):
        files.write_json(memory_path, {**known, name: content.fact()})
    return content.fact()[3]
