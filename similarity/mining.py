"""Hard negatives: documents that a model finds for an anchor and that are not its positives."""

import json
from typing import Callable, Dict, IO, Iterator, List, NamedTuple, Sequence, Set

import numpy as np

from encoder.label_types import LINE_CHARACTERS
from engine import log
from engine.data.chunks import in_chunks
from engine.errors import UserError
from engine.progress import Counter, counted
from similarity.files import Example, TextFile
from similarity.index import Index, digest_of
from similarity.nearest import nearest
from similarity.vectors import Encoder

_CHUNK_PAIRS = 1024


class Mining(NamedTuple):
    """Which documents are taken."""
    ranks: Sequence[int]  # the first and the last, from 1
    margin: float  # the least distance of a negative's score below that of the positive
    count: int  # of each pair


def mine(pairs: TextFile, index: Index, encoder: Encoder, mining: Mining, form: str,
         file: IO[str]) -> None:
    """Writes each pair with its negatives, as a file to train from; remembers a hash of each text.

    A document is no negative of an anchor that it equals, or whose positive it is in any pair. A
    pair for which there are too few negatives is left out, which the log says.

    Args:
        form: of the output, "tsv" or "jsonl".

    Raises:
        UserError: no pair has enough negatives; a text cannot be a column of TSV.
    """
    names = ["anchor", "positive", *(f"negative_{number}" for number in range(1, mining.count + 1))]
    write = _writer(names, form, file)
    positives: Dict[bytes, Set[bytes]] = {}
    num_pairs = num_written = 0
    for example in pairs.examples():
        num_pairs += 1
        positives.setdefault(digest_of(example.texts[0]), set()).add(digest_of(example.texts[1]))
    with Counter("Mining", unit="pairs", total=num_pairs, contents="texts") as counter:
        for chunk in in_chunks(pairs.examples(), _CHUNK_PAIRS):
            for example, negatives in zip(chunk, _negatives(
                    chunk, positives, index, encoder, mining, lambda num_texts: counter.advance(0, contents=num_texts))):
                if len(negatives) == mining.count:
                    write([*example.texts[:2], *negatives])
                    num_written += 1
            counter.advance(len(chunk))
    wanted = counted(mining.count, "negatives")
    if not num_written:
        raise UserError(f"{pairs.path}: no pair has {wanted} among the documents of ranks "
                        f"{mining.ranks[0]} to {mining.ranks[1]}; change --negative_ranks, "
                        "--negative_margin or --num_negatives, or give more --documents")
    if num_written < num_pairs:
        log.info(f"Left out {num_pairs - num_written:,} of {num_pairs:,} pairs, which have fewer "
                 f"than {wanted}")


def _negatives(chunk: List[Example], positives: Dict[bytes, Set[bytes]], index: Index,
               encoder: Encoder, mining: Mining, advance: Callable[[int], None]
               ) -> Iterator[List[str]]:
    """The negatives of each pair, the most similar first, at most as many as are wanted."""
    anchors = encoder.of_queries([example.texts[0] for example in chunk], advance)
    of_positives = encoder.of_texts([example.texts[1] for example in chunk], advance)
    limits = np.einsum("nd,nd->n", anchors, of_positives) - mining.margin
    first, last = mining.ranks
    scores, numbers = nearest(anchors, index.vectors, last)
    for example, limit, some_scores, some in zip(chunk, limits, scores, numbers):
        anchor = digest_of(example.texts[0])
        known, found = {anchor, *positives[anchor]}, []
        for number in some[first - 1:][some_scores[first - 1:] <= limit]:
            text = index.texts[number]
            if digest_of(text) not in known:
                known.add(digest_of(text))  # a document may occur twice
                found.append(text)
            if len(found) == mining.count:
                break
        yield found


def _writer(names: Sequence[str], form: str, file: IO[str]) -> Callable[[Sequence[str]], None]:
    if form == "tsv":
        file.write("\t".join(names) + "\n")

    def write(texts: Sequence[str]) -> None:
        if form == "jsonl":
            file.write(json.dumps(dict(zip(names, texts)), ensure_ascii=False) + "\n")
            return
        broken = next((text for text in texts if not LINE_CHARACTERS.isdisjoint(text)), None)
        if broken is not None:
            raise UserError(f"--output_file: {broken[:40]!r} has a tab or a line end, which TSV "
                            "cannot hold; name a .jsonl file")
        file.write("\t".join(texts) + "\n")

    return write
