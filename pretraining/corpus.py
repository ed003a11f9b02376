"""Sentences → token ids in flat arrays on disk: a corpus of any size in little memory."""

import collections
import functools
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from encoder import encoding
from engine import log
from engine.data import store
from engine.disk.parts import in_chunks
from engine.errors import UserError
from engine.progress import Counter
from pretraining import words, workers
from pretraining.texts import Sentence
from tokenization import BatchTokenizer

_CHUNK_CHARACTERS = 1 << 18  # of text that a process tokenizes at a time
# Of tokens that are [UNK]: in a vocabulary of another language or casing than the text, most are.
_UNKNOWN_ERROR = 0.5


class Corpus(NamedTuple):
    """A tokenized corpus, without sentences that have no tokens."""
    sentences: store.Store  # ids, ragged; document; label; starts of words, ragged, where they are needed
    documents: np.ndarray  # the first sentence of each; last, the number of all sentences

    @property
    def ids(self) -> np.ndarray:
        """The token ids of all sentences, one after the other."""
        return self.sentences.flat("ids")

    @property
    def ends(self) -> np.ndarray:
        """Where each sentence begins in `ids`, and the end: [number of sentences + 1]."""
        return self.sentences.offsets("ids")

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return len(self.documents) - 1

    def document_range(self, document: int) -> Tuple[int, int]:
        """A document's first sentence, and the first of the next document."""
        return int(self.documents[document]), int(self.documents[document + 1])


def tokenize(sentences: Iterable[Sentence], directory: str, tokenizer: BatchTokenizer,
             num_processes: int, words_of: Optional[words.WordsOf] = None) -> Tuple[Corpus, Dict[str, int]]:
    """Tokenizes sentences into a new store in `directory`; returns counts of its tokens and words, too.

    Args:
        words_of: finds the words of a text, whose beginnings are stored; None: they are not needed.
    """
    id_dtype = "uint16" if tokenizer.largest_id < 2 ** 16 else "uint32"
    columns = {"ids": store.Column(id_dtype, ragged=True),
               "document": store.Column("int64", ragged=False),
               "label": store.Column("uint8", ragged=False),
               **({"starts": store.Column("uint8", ragged=True)} if words_of else {})}
    sentence_chunks = in_chunks(sentences, _CHUNK_CHARACTERS, lambda sentence: len(sentence.text))
    encode = functools.partial(_encode, tokenizer=tokenizer, words_of=words_of)
    counts: Dict[str, int] = collections.Counter()

    def chunks() -> Iterator[store.Chunk]:
        with Counter("Tokenizing", unit="sentences") as counter:
            for chunk in workers.in_order(encode, sentence_chunks, num_processes):
                counts.update(chunk[encoding.COUNTS])
                counter.advance(len(chunk["document"]))
                yield chunk

    tokenized = store.open_or_build(directory, "sentences", {}, columns, chunks)
    if not len(tokenized):
        raise UserError("--input_file: there is no text in it")
    _check_unknown(counts)
    changes = np.flatnonzero(np.diff(tokenized.scalars("document"), prepend=-1))
    return Corpus(tokenized, np.append(changes, len(tokenized))), counts


def _encode(sentences: List[Sentence], tokenizer: BatchTokenizer,
            words_of: Optional[words.WordsOf]) -> store.Chunk:
    documents, texts, labels = zip(*sentences)
    ids, lengths = tokenizer.encode_batch(texts)
    kept = lengths > 0
    counts = encoding.TextCounts(tokenizer.vocab["[UNK]"])
    counts.add(texts, ids, lengths)
    chunk = {"ids": (ids, lengths[kept]), "document": np.array(documents, np.int64)[kept],
             "label": np.array(labels, np.uint8)[kept], **counts.take()}
    if words_of:
        starts, of_words = words.find_starts(texts, tokenizer, words_of)
        chunk["starts"] = starts.astype(np.uint8), lengths[kept]
        chunk[encoding.COUNTS].update(of_words)
    return chunk


def _check_unknown(counts: Dict[str, int]) -> None:
    unknown = encoding.describe_counts(counts)
    share = counts["unknown"] / max(counts["tokens"], 1)
    if share >= _UNKNOWN_ERROR:
        raise UserError(f"--vocab_file knows too little of the text: {100 * share:.3g}% of the tokens are "
                        "[UNK]; give a vocabulary for the text's language, with the right --do_lower_case, "
                        "or make one (docs/pretraining.md)")
    if unknown:
        log.warn(f"{unknown}: the vocabulary knows little of the text")
