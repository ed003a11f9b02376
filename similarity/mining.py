"""Hard negatives: documents that a model finds for an anchor and that are not its positives."""

import collections
import dataclasses
import json
import re
from typing import Callable, Dict, IO, Iterator, List, Sequence, Set, Tuple

import numpy as np

from engine import log
from engine.data.text_files import LINE_CHARACTERS
from engine.disk.parts import in_chunks
from engine.errors import UserError
from engine.progress import Counter, counted
from engine.settings import setting
from runs.rows import Example
from similarity.files import TextFile
from similarity.index import Index, digest_of
from similarity.nearest import nearest
from similarity.vectors import Encoder

_CHUNK_PAIRS = 1024


@dataclasses.dataclass(frozen=True)
class MiningSettings:
    """Which hard negatives are taken."""
    topic = "Hard negatives"
    negative_ranks: str = setting("10-100", "With --mine_negatives: the ranks, from 1, of the "
                                  "documents to take, the first and the last.")
    num_negatives: int = setting(
        1, "With --mine_negatives: for each pair; one with fewer is left out.", positive=True)
    negative_margin: float = setting(
        0.0, "With --mine_negatives: how much lower than the positive's a negative's score is at "
        "least.", between=(0.0, 2.0))

    def __post_init__(self) -> None:
        self.ranks()

    def ranks(self) -> Tuple[int, int]:
        """The first and the last rank, from 1."""
        match = re.fullmatch(r"(\d+)-(\d+)", self.negative_ranks.strip())
        first, last = map(int, match.groups()) if match else (0, 0)
        if not 1 <= first <= last:
            raise UserError(f"--negative_ranks={self.negative_ranks}: must be two ranks, such as "
                            "10-100")
        return first, last


def mine(pairs: TextFile, index: Index, encoder: Encoder, settings: MiningSettings, form: str,
         file: IO[str]) -> None:
    """Writes each pair with its negatives, as a file to train from; remembers a hash of each text.

    A document is no negative of an anchor that it equals, or whose positive it is in any pair. A
    pair for which there are too few negatives is left out, which the log says.

    Args:
        form: of the output, "tsv" or "jsonl".

    Raises:
        UserError: no pair has enough negatives; a text cannot be a column of TSV.
    """
    count = settings.num_negatives
    names = ["anchor", "positive", *(f"negative_{number}" for number in range(1, count + 1))]
    if form == "tsv":
        file.write("\t".join(names) + "\n")
    positives: Dict[bytes, Set[bytes]] = collections.defaultdict(set)
    num_pairs = num_written = 0
    for example in pairs.examples():
        num_pairs += 1
        positives[digest_of(example.texts[0])].add(digest_of(example.texts[1]))
    with Counter("Mining", unit="pairs", total=num_pairs, contents="texts") as counter:
        for chunk in in_chunks(pairs.examples(), _CHUNK_PAIRS):
            for example, negatives in zip(chunk, _negatives(
                    chunk, positives, index, encoder, settings,
                    lambda num_texts: counter.advance(0, contents=num_texts))):
                if len(negatives) == count:
                    file.write(_line(names, [*example.texts[:2], *negatives], form))
                    num_written += 1
            counter.advance(len(chunk))
    if not num_written:
        raise UserError(f"{pairs.path}: no pair has {counted(count, 'negatives')} among the "
                        f"documents of --negative_ranks={settings.negative_ranks}; change these, "
                        "--negative_margin or --num_negatives, or give more --documents")
    if num_written < num_pairs:
        log.info(f"Left out {num_pairs - num_written:,} of {num_pairs:,} pairs, which have fewer "
                 f"than {counted(count, 'negatives')}")


def _negatives(chunk: List[Example], positives: Dict[bytes, Set[bytes]], index: Index,
               encoder: Encoder, settings: MiningSettings, advance: Callable[[int], None]
               ) -> Iterator[List[str]]:
    """The negatives of each pair, the most similar first, at most as many as are wanted."""
    anchors = encoder.of_texts([encoder.query_prefix + example.texts[0] for example in chunk], advance)
    of_positives = encoder.of_texts([example.texts[1] for example in chunk], advance)
    limits = np.einsum("nd,nd->n", anchors, of_positives) - settings.negative_margin
    first, last = settings.ranks()
    for example, limit, scores, numbers in zip(
            chunk, limits, *nearest(anchors, index.vectors, last)):
        anchor = digest_of(example.texts[0])
        excluded, negatives = {anchor, *positives[anchor]}, []
        for number in numbers[first - 1:][scores[first - 1:] <= limit]:
            text = index.texts[number]
            if digest_of(text) not in excluded:
                excluded.add(digest_of(text))  # a document may occur twice
                negatives.append(text)
            if len(negatives) == settings.num_negatives:
                break
        yield negatives


def _line(names: Sequence[str], texts: Sequence[str], form: str) -> str:
    if form == "jsonl":
        return json.dumps(dict(zip(names, texts)), ensure_ascii=False) + "\n"
    broken = next((text for text in texts if not LINE_CHARACTERS.isdisjoint(text)), None)
    if broken is not None:
        raise UserError(f"--output_file: {broken[:40]!r} has a tab or a line end, which TSV "
                        "cannot hold; name a .jsonl file")
    return "\t".join(texts) + "\n"
