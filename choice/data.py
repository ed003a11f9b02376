"""Questions, tokenized in a store: a record is a question, with a sequence for each of its choices."""

import functools
import pathlib
from typing import List, NamedTuple, Optional, Sequence

import numpy as np

from choice.files import ChoiceFile
from encoder.encoding import Encoding, encode_texts_and_pairs, open_or_tokenize
from engine.data import store
from engine.data.batches import Features, Source, token_features
from engine.disk import files, provenance
from engine.model import Baseline
from runs.rows import Example

_CHUNK_QUESTIONS = 1024


class ChoiceSet(NamedTuple):
    """The questions of a file. Made by `load`, or `encode` of questions in memory."""
    records: store.Records  # of each question, with the columns of `_encode`
    encoding: Encoding
    content_hash: str = ""  # identifies the file and what is read of it
    file: Optional[ChoiceFile] = None

    @property
    def counts(self) -> np.ndarray:
        """The choices of each question."""
        return self.records.lengths("lengths")

    def probabilities(self, logits: np.ndarray) -> List[np.ndarray]:
        """Those of each question's choices, from the logits of all choices, [n, 1]."""
        starts = self.records.offsets("lengths")[:-1]
        logits = logits[:, 0].astype(np.float64)
        powers = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), self.counts))
        return np.split(powers / np.repeat(np.add.reduceat(powers, starts), self.counts), starts[1:])

    def baseline(self) -> Baseline:
        """All choices alike."""
        counts = self.counts
        return Baseline("choosing at random", lambda indices: float(np.log(counts[indices]).mean()))

    def source(self) -> Source:
        """Batches of choices: input_ids, input_mask and segment_ids, int32 [b, t]."""
        records, lengths = self.records, self.records.flat("lengths")
        choices = store.Records.of_chunk({"input_ids": (records.flat("input_ids"), lengths),
                                          "first_segment_length": records.flat("first_segments")})
        return Source(lengths, functools.partial(token_features, choices), self.encoding.max_seq_length)

    def training_source(self) -> Source:
        """Batches of questions: the same features, [b, choices, t], and label_ids, int32 [b].

        A question with fewer choices than another one of the step has padding in the place of the others.
        """
        choices, counts, answers = self.source(), self.counts, self.records.scalars("answer")
        is_choice = np.arange(counts.max()) < counts[:, np.newaxis]
        places, encoded = np.zeros(is_choice.shape, np.int64), np.zeros(is_choice.shape, np.int64)
        places[is_choice], encoded[is_choice] = np.arange(len(choices.lengths)), choices.lengths
        places = np.where(is_choice, places, places[:, :1])  # padding is read as the first choice, which fits

        def fetch(indices: np.ndarray, *lengths: int) -> Features:
            count, length = counts[indices].max(), max(lengths)
            there = is_choice[indices, :count, np.newaxis].astype(np.int32)
            features = choices.fetch(places[indices, :count].ravel(), length)
            return {**{name: rows.reshape(*there.shape[:2], length) * there for name, rows in features.items()},
                    "label_ids": answers[indices]}

        return choices._replace(lengths=encoded.max(axis=1), fetch=fetch, fetch_for_step=fetch, encoded=encoded)


def load(file: ChoiceFile, encoding: Encoding, store_dir: str) -> ChoiceSet:
    """Opens the tokenized questions of a file; tokenizes them if the store does not have them yet."""
    content = [provenance.content_hash(file.path, store_dir), file.layout[:3], file.names, file.split, file.layout.answers]
    numbers, number = store.Column("int32", ragged=True), store.Column("int32", ragged=False)
    columns = {"input_ids": store.Column(encoding.id_dtype, ragged=True), "lengths": numbers,
               "first_segments": numbers, "num_left_out": number, "answer": number}

    records = open_or_tokenize(
        file.path, encoding, store_dir, f"choices-{pathlib.Path(file.path).stem}",
        {"content": content, **encoding.facts()}, columns, file.examples,
        lambda examples: _encode(examples, encoding), unit="questions", chunk_size=_CHUNK_QUESTIONS)
    return ChoiceSet(records, encoding, files.hash_of_json(content), file)


def encode(examples: Sequence[Example], encoding: Encoding) -> ChoiceSet:
    """Questions in memory, tokenized to be answered."""
    return ChoiceSet(store.Records.of_chunk(_encode(examples, encoding)), encoding)


def _encode(examples: Sequence[Example], encoding: Encoding) -> store.Chunk:
    """Records of questions, whose labels are the numbers of the right choices, if they are known."""
    counts = np.array([len(texts) - 1 for texts, _ in examples])
    chunk = encode_texts_and_pairs([texts[0] for texts, _ in examples for _ in texts[1:]],
                                   [choice for texts, _ in examples for choice in texts[1:]], encoding)
    (ids, lengths), starts = chunk["input_ids"], np.cumsum(counts) - counts
    return {"input_ids": (ids, np.add.reduceat(lengths, starts)), "lengths": (lengths, counts),
            "first_segments": (chunk["first_segment_length"], counts),
            "num_left_out": np.add.reduceat(chunk["num_left_out"], starts),
            "answer": np.array([label or 0 for _, label in examples], np.int32)}
