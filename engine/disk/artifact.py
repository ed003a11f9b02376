"""An output, what it was made from, and its state: missing, begun, whole, or what is wrong with it.

The record NAME.json beside an output NAME has its facts, which determine the content, and the content itself:
path, size, state and SHA-256, as `provenance.Source` has them. `Artifact.state` compares both with the disk.

A file that grows over several runs is NAME.part until it is complete, and its record counts the rows and bytes that
are done: a process may be killed at any moment, and the next one goes on after the last recorded chunk. A folder
has its facts in its name and its record inside.
"""

import contextlib
import hashlib
import json
import os
import zlib
from typing import Any, Collection, Dict, Iterator, Mapping, NamedTuple, Optional, Union

from engine import interruption, log
from engine.disk import files, provenance, scratch
from engine.disk.provenance import Source
from engine.errors import UserError

MISSING, BEGUN, WHOLE = "missing", "begun", "whole"
# Made from other facts, or with a record that cannot be read; without a record; other content than recorded.
OTHER, FOREIGN, DAMAGED = ODD = ("other", "foreign", "damaged")
_READ_BYTES = 1 << 22


class State(NamedTuple):
    """How an output stands."""
    name: str
    why: str = ""  # of the names in ODD, a sentence

    def __str__(self) -> str:
        return self.why or self.name


class Artifact:
    """A file that is made from facts.

    Args:
        path: its path; a link to it stays.
        facts: everything that determines the content, as JSON values with readable names, and `Source`s.
    """
    _types: Mapping[str, type] = {}  # of entries of its record

    def __init__(self, path: str, facts: Mapping[str, Any]):
        self.path = os.path.realpath(path) if os.path.islink(path) else path
        self.record_path = f"{self.path}.json"
        self.facts = facts

    def state(self) -> State:
        """How it stands now."""
        if not os.path.exists(self.path):
            return State(BEGUN if os.path.exists(f"{self.path}.part") else MISSING)
        if not os.path.exists(self.record_path):
            return State(FOREIGN, f"{self.path} has no record of what it was made from")
        try:
            record = self.record()
        except UserError as error:
            return State(OTHER, str(error))
        other = provenance.difference(record, self.facts)
        if other:
            return State(OTHER, f"{self.path} was made with another {other}")
        return State(WHOLE) if self._is_intact(record) else State(DAMAGED, f"{self.path} is not as it was written")

    def record(self) -> Dict[str, Any]:
        """Its record; raises a UserError if that is missing or damaged."""
        return files.read_record(self.record_path, "the record", self._types)

    def _is_intact(self, record: Dict[str, Any]) -> bool:
        """Whether it has the recorded content or, as 1.0.0 recorded none, the length."""
        if not os.path.isfile(self.path) or record.get("bytes") not in (None, os.path.getsize(self.path)):
            return False
        content, was = Source(self.path), record.get("content")
        if was and content.difference(was):
            return False
        if was and content.fact() != was:
            with contextlib.suppress(OSError):  # where nothing can be written, it is read each time
                files.write_json(self.record_path, {**record, "content": content.fact()})
        return True

    @contextlib.contextmanager
    def written(self, entries: Optional[Mapping[str, Any]] = None) -> Iterator[str]:
        """Yields a temporary path, which is published at the end. `entries`: see `described`."""
        with files.beside(self.path) as own:
            draft = os.path.join(own, os.path.basename(self.path))
            yield draft
            self._publish(draft, self.described(draft, entries))

    def _publish(self, draft: str, record: Dict[str, Any]) -> None:
        files.write_json(self.record_path, record)  # first: a file without one is from elsewhere
        files.publish(draft, self.path)
        record["content"][2] = files.state_of(self.path)  # the renaming has changed it
        files.write_json(self.record_path, record)

    def described(self, draft: str, entries: Optional[Mapping[str, Any]] = None, digest: str = "") -> Dict[str, Any]:
        """Its record, while it is in another file.

        Args:
            entries: those of the record but the content; default: the facts.
            digest: SHA-256 of the content, in hex, if it is known.
        """
        entries = {"facts": provenance.as_json(self.facts)} if entries is None else entries
        return {**entries, "content": [os.path.abspath(self.path), os.path.getsize(draft), files.state_of(draft),
                                       digest or files.hash_of_file(draft)]}


def is_needed(*outputs: Artifact, replaces: Collection[str] = (DAMAGED,)) -> bool:
    """Whether outputs that are made together must be made: they are not all whole.

    Args:
        replaces: the states in which an output that is there is made again.

    Raises:
        UserError: an output that is there has another state.
    """
    states = [output.state() for output in outputs]
    for output, state in zip(outputs, states):
        if state.why and state.name not in replaces:
            raise UserError(f"{state.why}; name another output, or remove {output.path} and {output.record_path}")
    for state in states:
        if state.why:
            log.warn(f"{state.why}: it is made again")
    for output, state in zip(outputs, states):
        if state.name not in (BEGUN, WHOLE):
            provenance.as_json(output.facts)  # sources are hashed before they are read
    return any(state.name != WHOLE for state in states)


@contextlib.contextmanager
def making(*outputs: Artifact, replaces: Collection[str] = (DAMAGED,)) -> Iterator[bool]:
    """A context in which no other process makes these outputs; yields `is_needed`."""
    paths, refused = [output.path for output in outputs], None
    with contextlib.ExitStack() as stack:
        try:
            for path in paths:
                folder, name = os.path.split(path)
                lock = os.path.join(folder, f".{name}.lock")  # hidden: a folder may be an input
                stack.enter_context(scratch.exclusive(lock, path))
        except OSError as error:  # on a read-only disk outputs can be whole
            refused = error
        must_make = is_needed(*outputs, replaces=replaces)
        if must_make and refused:
            raise refused
        if not must_make:
            log.info(f"{', '.join(paths)} {'is' if len(paths) == 1 else 'are'} whole: nothing is left to do")
        yield must_make


class Folder(Artifact):
    """A folder root/name-HASH, with a hash of its facts, so that it is never stale. It is never begun, either.

    Its record has its name, and a checksum of each file and of itself.
    """
    _types = {"checksum": int}

    def __init__(self, root: str, name: str, facts: Any, record_name: str):
        self._name = f"{name}-{key_of(facts)}"
        super().__init__(os.path.join(root, self._name), {})
        self.record_path = os.path.join(self.path, record_name)

    def _is_intact(self, record: Dict[str, Any]) -> bool:
        paths = {os.path.join(self.path, name): checksum for name, checksum in record["checksums"].items()}
        # 2.0.0 recorded no name. A record of other facts would come with the files that it describes.
        return record.get("name", self._name) == self._name and record.pop("checksum") == _checksum_of(record) and all(
            os.path.isfile(path) and _checksum_of_file(path) == checksum for path, checksum in paths.items())

    @contextlib.contextmanager
    def written(self, entries: Optional[Mapping[str, Any]] = None) -> Iterator[str]:
        """Yields a temporary folder, which is published at the end with a record of these entries."""
        # Another process may have made it since it was found missing: of the same facts, with the same bytes.
        with files.atomic_folder(self.path, replaces=os.path.exists(self.path)) as draft:
            yield draft
            record = {**(entries or {}), "name": self._name, "checksums": {
                name: _checksum_of_file(os.path.join(draft, name)) for name in sorted(os.listdir(draft))}}
            files.write_json(os.path.join(draft, os.path.basename(self.record_path)),
                             {**record, "checksum": _checksum_of(record)})


def key_of(facts: Any) -> str:
    """A hash of facts, for a name."""
    return files.hash_of(json.dumps(facts, sort_keys=True).encode("utf-8"))[:16]


def _checksum_of(record: Mapping[str, Any]) -> int:
    as_read = json.loads(json.dumps(record))  # tuples become lists, keys texts
    return zlib.crc32(json.dumps(as_read, sort_keys=True).encode("utf-8"))


def _checksum_of_file(path: str) -> int:
    checksum = 0
    with files.name_disk_errors(path), open(path, "rb") as file:
        for block in iter(lambda: file.read(_READ_BYTES), b""):
            checksum = zlib.crc32(block, checksum)
    return checksum


class GrowingFile(Artifact):
    """A file that is written in chunks, over any number of runs. Raises a UserError for a pipe or a device.

    Args:
        path, facts: see `Artifact`.
        header: the beginning of the file.

    Attributes:
        num_rows: the number of rows of the input that are done.
        is_whole: whether the file is complete.
    """
    _types = {"facts": dict, "rows": int, "bytes": int}

    def __init__(self, path: str, facts: Mapping[str, Any], header: Union[str, bytes] = ""):
        if files.is_special(path):
            raise UserError(f"{path} is no regular file, and this output is resumed after an "
                            "interruption: name another file")
        super().__init__(path, facts)
        self.num_rows, self.is_whole = 0, False
        self._part, self._header, self._num_bytes = f"{self.path}.part", _encoded(header), 0
        self._digest = hashlib.sha256()

    def state(self) -> State:
        """How it stands now: also begun if it grows in the place of a damaged file."""
        return super().state() if _size_of(self._part) < 0 else State(BEGUN)

    @contextlib.contextmanager
    def growing(self, rows: str, replaces: Collection[str] = (FOREIGN, DAMAGED)) -> Iterator["GrowingFile"]:
        """A context in which the rest is appended, and at whose end the file is published; see `making`.

        Args:
            rows: a word for the rows of the input, in the plural, such as "texts".
        """
        with making(self, replaces=replaces) as must_make:
            self.is_whole = not must_make
            if self.is_whole or self._continues():
                record = self.record()
                self.num_rows, self._num_bytes = record["rows"], record["bytes"]
            else:
                provenance.as_json(self.facts)  # as in `is_needed`
            if must_make and self.num_rows:
                log.info(f"Going on with {self._part}: {self.num_rows:,} {rows} are done")
            try:
                yield self
            except interruption.Interrupted as interrupted:
                interrupted.said = f"{self.num_rows:,} {rows} are done; the same command goes on from there"
                raise
            if must_make:
                self._write(b"" if self.num_rows else self._header)
                self._publish(self._part, self._described())

    def _continues(self) -> bool:
        """Whether the unfinished file matches its record; if so, cuts off what was never recorded.

        Raises a UserError if it is of other facts.
        """
        size = _size_of(self._part)
        if size < 0 or not os.path.exists(self.record_path):
            return False
        record = self.record()
        other = provenance.difference(record, self.facts)
        digest, content = files.digest_of(self._part, max(record["bytes"], 0)), record.get("content")
        if other:
            raise UserError(f"{self._part} is from an interrupted run with another {other}; go on with that, name another "
                            f"output, or remove {self._part}")
        if not 0 <= record["bytes"] <= size or isinstance(content, list) and content[3:] != [digest.hexdigest()]:
            log.warn(f"{self._part} is not as it was recorded: it is written anew")
            return False
        self._digest = digest
        os.truncate(self._part, record["bytes"])  # drops what a killed process did not record
        return True

    def append(self, chunk: Union[str, bytes], num_rows: int) -> None:
        """Writes the next chunk, text or bytes, made from `num_rows` rows; on disk when this returns.

        Signals wait until then, so that the record always holds `num_rows`.
        """
        with interruption.InterruptLater() as signals:
            signals.hold()
            content = _encoded(chunk)
            self._write(content if self.num_rows else self._header + content)
            self.num_rows += num_rows
            files.write_json(self.record_path, self._described())
        signals.raise_if_received()

    def _described(self) -> Dict[str, Any]:
        return self.described(self._part, {
            "facts": provenance.as_json(self.facts), "rows": self.num_rows, "bytes": self._num_bytes},
            self._digest.hexdigest())

    def _write(self, content: bytes) -> None:
        scratch.check_owner()
        with files.name_disk_errors(self.path):
            if not self._num_bytes:  # these files describe or hold other chunks
                for path in filter(os.path.lexists, (self.record_path, self._part)):
                    os.remove(path)
            elif _size_of(self._part) != self._num_bytes:  # on a disk without locks
                raise UserError(f"{self._part} was changed by another process; when it has ended, "
                                "run the same command again")
            with open(self._part, "ab" if self._num_bytes else "xb") as file:
                file.write(content)
            files.sync(self._part)
        self._num_bytes += len(content)
        self._digest.update(content)


def _encoded(content: Union[str, bytes]) -> bytes:
    return content.encode("utf-8") if isinstance(content, str) else content


def _size_of(path: str) -> int:
    """The size in bytes; -1 for a missing file, or a link, which this module never makes."""
    return os.path.getsize(path) if os.path.exists(path) and not os.path.islink(path) else -1
