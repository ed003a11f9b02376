"""Which spans of a corpus make an example: the original's pairs, blocks, single sentences.

Here an example is only where its texts begin in the corpus and how long they are, so that a
hundred million examples can be drawn, kept on disk and shuffled before a token is copied.
"""

import dataclasses
from typing import Callable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from encoder.encoding import truncated_lengths
from engine import log
from engine.data import store
from engine.settings import setting
from pretraining import words
from pretraining.corpus import Corpus

_DRAWS_OF_ANOTHER_DOCUMENT = 10
_BLOCK_SENTENCES = 4096  # about as many as share a random state
_LEAST_LABELS = 0.05  # of each kind; the original's are 1 in half of the examples or more
MOST_POSITIONS = 2**16  # that the trainings store
SPAN = "span"  # the objective of labelled pairs; the others have sentences

COLUMNS = {"first_start": store.Column("int64", ragged=False),
           "first_length": store.Column("int32", ragged=False),
           "second_start": store.Column("int64", ragged=False),
           "second_length": store.Column("int32", ragged=False),
           "label": store.Column("uint8", ragged=False)}

# Beginning and end in the corpus of a first and a second text, and next_sentence_label.
_Spans = Tuple[int, int, int, int, int]


@dataclasses.dataclass(frozen=True)
class Settings:
    """All that determines the output, except the texts and the vocabulary."""
    topic = "Examples"
    do_lower_case: bool = setting(
        True, "lower-case the text and drop its accents, as uncased models need it")
    max_seq_length: int = setting(128, "most tokens of an example", between=(5, MOST_POSITIONS))
    max_predictions_per_seq: int = setting(20, "most masked tokens of an example", positive=True)
    masked_lm_prob: float = setting(0.15, "share of the tokens that is masked", between=(0, 1))
    short_seq_prob: float = setting(
        0.1, "share of the documents, or with mlm of the examples, that are made shorter than they could be",
        between=(0, 1))
    dupe_factor: int = setting(
        10, "passes over the corpus, each with other examples and masks", positive=True)
    random_seed: int = setting(12345, "seed of all random choices", between=(0, 2**32 - 1))
    do_whole_word_mask: bool = setting(False, "mask all WordPieces of a word or none")
    word_segmenter: Optional[str] = setting(
        None, f"with --do_whole_word_mask: {words.HELP}", choices=words.SEGMENTERS)
    objective: str = setting(
        "mlm_nsp", "mlm_nsp: masked tokens, and whether the second text follows the first; mlm: "
        f"masked tokens; {SPAN}, of lines label TAB anything TAB text TAB text: one span in the second text, as long "
        "as the first", choices=("mlm_nsp", "mlm", SPAN))
    one_sentence_per_example: bool = setting(
        False, "with mlm: each sentence is an example, instead of as much of a document as fits")


def warn_of_equal_labels(share: float, remedy: str) -> None:
    """Warns if so large or small a share of next_sentence_labels is 1 that nothing is learned from them."""
    if not _LEAST_LABELS <= share <= 1 - _LEAST_LABELS:
        log.warn(f"next_sentence_label is {share:.0f} in {max(share, 1 - share):.1%} of the examples: nothing is "
                 f"learned about next sentences; {remedy}")


class Block(NamedTuple):
    """Consecutive documents in one of the passes over the corpus."""
    number: int
    repetition: int
    documents: range


def blocks(corpus: Corpus, settings: Settings) -> Iterator[Block]:
    """All documents, `dupe_factor` times, in blocks that depend on the corpus alone."""
    num_documents = corpus.num_documents
    size = max(1, _BLOCK_SENTENCES * num_documents // len(corpus.sentences))
    for repetition in range(settings.dupe_factor):
        for number, start in enumerate(range(0, num_documents, size)):
            yield Block(number, repetition, range(start, min(start + size, num_documents)))


def draw(block: Block, corpus: Corpus, settings: Settings) -> store.Chunk:
    """The examples of a block, as the columns of a store."""
    random = np.random.RandomState([settings.random_seed, block.repetition, block.number])
    spans_of = _sentences if settings.one_sentence_per_example else _SPANS[settings.objective]
    limit = settings.max_seq_length - (2 if settings.objective == "mlm" else 3)  # [CLS] and [SEP]
    # Pairs and sentences that the user gives are not shortened.
    short_seq_prob = settings.short_seq_prob if spans_of in (_sentence_pairs, _blocks) else 0.0
    targets = _targets(random, limit, short_seq_prob)
    spans: List[_Spans] = []
    for document in block.documents:
        spans.extend(spans_of(corpus, document, targets, random))
    first_start, first_end, second_start, second_end, labels = np.array(
        spans, np.int64).reshape(-1, 5).T
    kept = truncated_lengths(first_end - first_start, second_end - second_start,
                             np.full(len(spans), limit))
    # Too long texts lose tokens at a random end, drawn for each token, as in the original.
    first_cut = random.binomial(first_end - first_start - kept[0], 0.5)
    second_cut = random.binomial(second_end - second_start - kept[1], 0.5)
    return {"first_start": first_start + first_cut, "first_length": kept[0],
            "second_start": second_start + second_cut, "second_length": kept[1], "label": labels}


def _integer(random: np.random.RandomState, first: int, last: int) -> int:
    """A random integer from `first` to `last`, both included."""
    return first + int(random.random_sample() * (last - first + 1))


def _targets(random: np.random.RandomState, limit: int, short_seq_prob: float) -> Iterator[int]:
    """Numbers of tokens to fill, one after the other: `limit`, or less with a probability."""
    while True:
        yield _integer(random, 2, limit) if random.random_sample() < short_seq_prob else limit


def _sentence_pairs(corpus: Corpus, document: int, targets: Iterator[int],
                    random: np.random.RandomState) -> Iterator[_Spans]:
    """The original's pairs: sentences of together one target's tokens, split in two.

    Half the time the second part is replaced by one from another document, and its sentences
    are used for the next example.
    """
    ends, target = corpus.ends, next(targets)
    start, last = corpus.document_range(document)
    while start < last:
        chunk_end = _fill(ends, start, last, target)
        middle = start + (_integer(random, 1, chunk_end - start - 1)
                          if chunk_end - start > 1 else 1)
        if chunk_end - start == 1 or random.random_sample() < 0.5:
            other_first, other_last = _another_document(corpus, document, random)
            second = _integer(random, other_first, other_last - 1)
            length = int(ends[middle] - ends[start])
            second_end = _fill(ends, second, other_last, target - length)
            yield (ends[start], ends[middle], ends[second], ends[second_end], 1)
            start = middle
        else:
            yield (ends[start], ends[middle], ends[middle], ends[chunk_end], 0)
            start = chunk_end


def _fill(ends: np.ndarray, start: int, last: int, target: int) -> int:
    """The end of the sentences from `start` on that have `target` tokens; at least one."""
    offset = np.searchsorted(ends[start:last + 1], ends[start] + target)
    return min(max(start + int(offset), start + 1), last)


def _another_document(corpus: Corpus, document: int,
                      random: np.random.RandomState) -> Tuple[int, int]:
    for _ in range(_DRAWS_OF_ANOTHER_DOCUMENT):
        other = _integer(random, 0, corpus.num_documents - 1)
        if other != document:
            break
    return corpus.document_range(other)


def _blocks(corpus: Corpus, document: int, targets: Iterator[int],
            random: np.random.RandomState) -> Iterator[_Spans]:
    """The document's tokens, cut into examples of one target's tokens each; the last one may be shorter.

    A target for the whole document would make more examples of it the shorter they are: a tenth of
    the documents would be a third of the examples.
    """
    first, last = corpus.document_range(document)
    start, end = int(corpus.ends[first]), int(corpus.ends[last])
    while start < end:
        stop = min(start + next(targets), end)
        yield (start, stop, 0, 0, 0)
        start = stop


def _sentences(corpus: Corpus, document: int, targets: Iterator[int],
               random: np.random.RandomState) -> Iterator[_Spans]:
    """Each sentence is an example."""
    next(targets)  # keeps the random stream of earlier releases
    first, last = corpus.document_range(document)
    ends = corpus.ends[first:last + 1]
    for start, end in zip(ends[:-1], ends[1:]):
        yield (start, end, 0, 0, 0)


def _labelled_pairs(corpus: Corpus, document: int, targets: Iterator[int],
                    random: np.random.RandomState) -> Iterator[_Spans]:
    """The pair, its second text cut to fit; no example unless that is longer than the first."""
    target, (first, last) = next(targets), corpus.document_range(document)
    if last - first < 2:
        return
    start, middle, end = (int(position) for position in corpus.ends[first:last + 1])
    end = min(end, start + target)
    if 1 < middle - start < end - middle:
        yield (start, middle, middle, end, int(corpus.sentences.scalars("label")[first]))


_SPANS: Mapping[str, Callable[..., Iterator[_Spans]]] = {
    "mlm_nsp": _sentence_pairs, "mlm": _blocks, SPAN: _labelled_pairs}
