"""An index: a folder with the texts of documents and their vectors, to search in.

texts.jsonl has a text a line, as a JSON string, and vectors.npy a row of float32 for each.
"""

import hashlib
import itertools
import json
import os
from typing import Iterator, Set

import numpy as np

from engine.data.store import array_header
from engine.disk import files, parts
from engine.disk.artifact import DAMAGED, WHOLE, GrowingFile
from engine.disk.parts import in_chunks
from engine.disk.provenance import Source, hash_in
from engine.errors import UserError
from engine.progress import Counter
from similarity.files import TextFile
from similarity.vectors import Encoder

_TEXTS, _VECTORS = "texts.jsonl", "vectors.npy"
_CHUNK_TEXTS = 4096


def documents_of(file: TextFile) -> Iterator[str]:
    """The documents of a file: the text of each line or, if an example has several texts, each
    positive and hard negative, once.
    """
    seen: Set[bytes] = set()
    for example in file.examples():
        if file.num_texts == 1:
            yield example.texts[0]
            continue
        for text in example.texts[1:]:
            digest = digest_of(text)
            if digest not in seen:
                seen.add(digest)
                yield text


def digest_of(text: str) -> bytes:
    """A hash in the place of a text, where many are remembered."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def is_there(folder: str) -> bool:
    """Whether a folder holds a complete index."""
    return os.path.exists(os.path.join(folder, _VECTORS))


def build(folder: str, file: TextFile, encoder: Encoder) -> None:
    """Writes the index of a file's documents; goes on where an interrupted run was.

    Raises:
        UserError: there is an index of other documents or another model; the file cannot be read.
        Interrupted: SIGTERM or Ctrl-C.
    """
    files.make_directory(folder, "--output_dir")
    facts = {"--documents": Source(file.path), "columns": file.facts()}
    with GrowingFile(os.path.join(folder, _TEXTS), facts).growing("documents", replaces=(DAMAGED,)) as texts:
        left = itertools.islice(documents_of(file), texts.num_rows, None)
        for chunk in in_chunks(() if texts.is_whole else left, _CHUNK_TEXTS):
            texts.append("".join(json.dumps(text, ensure_ascii=False) + "\n" for text in chunk),
                         len(chunk))
    total = texts.num_rows
    output = GrowingFile(os.path.join(folder, _VECTORS), {**facts, **encoder.model_facts()},
                         array_header(total, encoder.size))
    with output.growing(f"of {total:,} documents", replaces=(DAMAGED,)) as vectors:
        num_left = total - vectors.num_rows
        if not num_left:
            return
        left = itertools.islice(_Texts(texts.path), vectors.num_rows, None)
        with Counter("Encoding", unit="documents", total=num_left) as counter:
            # Whole chunks are appended: a resumed run computes the same batches, so the same
            # roundings.
            for chunk in in_chunks(left, _CHUNK_TEXTS):
                vectors.append(encoder.of_texts(chunk, counter.advance).tobytes(), len(chunk))
        encoder.report("the documents")


class _Texts:
    """The texts of a file with a JSON string a line; a UserError for a line without one."""

    def __init__(self, path: str):
        self._path = path
        self._file = files.open_regular(path, "texts")
        lines = (parts.read_line(self._file, path, number) for number in itertools.count(1))
        self._ends = np.cumsum(np.fromiter(map(len, itertools.takewhile(len, lines)), np.int64))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        if not 0 <= number < len(self):
            raise IndexError(number)
        start = int(self._ends[number - 1]) if number else 0
        self._file.seek(start)
        line = self._file.read(int(self._ends[number]) - start)
        try:
            text = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise UserError(f"{self._path}, line {number + 1} is damaged: {line[:40]!r} is no JSON "
                            "string; remove the folder and build the index again")
        return text


class Index:
    """A complete index.

    Attributes:
        vectors: float32 [m, D], mapped from the file.
        texts: of the documents, by their numbers from 0.
    """

    def __init__(self, folder: str, encoder: Encoder):
        if not is_there(folder):
            raise UserError(f"--output_dir={folder} holds no complete index; build it with "
                            "--documents")
        vectors = GrowingFile(os.path.join(folder, _VECTORS), encoder.model_facts())
        texts = GrowingFile(os.path.join(folder, _TEXTS), {})
        for state in (vectors.state(), texts.state()):
            if state.name != WHOLE:
                raise UserError(f"--output_dir={folder} is damaged, or the index of another model: {state}; give the "
                                "--model_dir and the flags that built it, or remove the folder and build it again")
        self.texts, shape = _Texts(texts.path), (vectors.record()["rows"], encoder.size)
        header = array_header(*shape)
        documents = {hash_in(each.record()["facts"].get("--documents")) for each in (vectors, texts)}
        if not (0 < shape[0] == len(self.texts) and len(documents) == 1
                and len(header) + 4 * shape[0] * shape[1] == os.path.getsize(vectors.path)):
            raise UserError(f"--output_dir={folder} is damaged: {_VECTORS} and {_TEXTS} are not as their records say, "
                            "or of different documents; remove the folder and build it again")
        self.vectors = np.memmap(vectors.path, np.float32, "r", len(header), shape)
