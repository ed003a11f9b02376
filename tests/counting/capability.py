"""A made-up capability: it tells how many words a text has. CONTRIBUTING.md walks through it."""

import os
from typing import Any, Dict, List, Sequence

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from encoder import classifier
from encoder.encoding import Encoding, encode_texts_and_pairs
from encoder.model_files import ModelFiles
from engine.data import store, text_files
from engine.data.batches import Source, token_features
from engine.disk import files
from engine.model import Forward, Mode
from runs import results, sets
from runs.capability import (
    TEXT, Capability, Card, Encoded, Job, Measured, Predict, Reader, Result, Sets, Training)
from runs.rows import Example


class Texts:
    """Texts, tokenized, and how many words they have."""

    def __init__(self, texts: Sequence[str], encoding: Encoding):
        chunk = encode_texts_and_pairs(list(texts), [""] * len(texts), encoding)
        self.records, self.max_length = store.Records.of_chunk(chunk), encoding.max_seq_length
        self.counts = np.array([len(text.split()) for text in texts], np.float32)
        self.content_hash = files.hash_of("\n".join(texts).encode("utf-8"))

    def __len__(self) -> int:
        return len(self.counts)

    def source(self) -> Source:
        """Batches of input_ids, input_mask, segment_ids, and the counts as label_ids."""
        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            return {**token_features(self.records, indices, length),
                    "label_ids": self.counts[indices]}
        return Source(self.records.lengths("input_ids"), fetch, self.max_length)


class WordCounter(Capability):
    """A model that tells how many words a text has."""
    verb, unit, prediction_files = "Counting", "texts", ("counts.txt",)

    @classmethod
    def open(cls, trained: ModelFiles) -> "WordCounter":
        counter = cls(trained.config(), trained.encoding(trained.description()["max_seq_length"]))
        counter.require(trained.checkpoint, trained.flag)
        return counter

    def facts(self) -> Dict[str, Any]:
        return {"task": "counting", **self.encoder_facts()}

    def num_outputs(self) -> int:
        return 1

    def metrics(self) -> Sequence[str]:
        return ["eval_loss"]

    def load(self, job: Job, values: flags.FlagValues, training: Any = None) -> Sets:
        texts = {name: Texts([text for _, text in text_files.lines(
            sets.find(values, name, [".txt"]))], self.encoding) for name in sets.wanted(values)}
        train = texts.get("train")
        training = train and Training(len(train), train.content_hash, self.forward(), train.source)
        return Sets(training, *({"": texts[name]} if name in texts else {} for name in ("dev", "test")))

    def forward(self, *_: Any) -> Forward:
        """Features → the loss and `logits` [b, 1]: a regression on BERT's pooled output."""
        return classifier.forward_of(self.config, num_outputs=1)

    def measure(self, job: Job, held_out: Texts, predict: Predict) -> Measured:
        errors = predict(held_out.source())["logits"][:, 0] - held_out.counts
        return Measured({"eval_loss": float(np.mean(errors ** 2)),
                         "mean_error": float(np.mean(np.abs(errors)))})

    def write(self, job: Job, test: Texts, suffix: str, predict: Predict) -> None:
        results.write_lines(os.path.join(job.settings.output_dir, "counts.txt"),
                            map(str, predict(test.source())["logits"][:, 0]))

    def describe(self) -> Dict[str, Any]:
        return {"kind": "counts"}

    def outputs(self, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
        return {"count": self.forward()(inputs, mode).predictions["logits"][:, 0]}

    def card(self) -> Card:
        return Card("It tells how many words a text has", (),
                    "`input_ids`, `input_mask` and `segment_ids` of `[CLS] text [SEP]`",
                    "`count`, float32 `[batch]`")

    def reader(self) -> Reader:
        def encode(examples: List[Example]) -> Encoded:
            texts = Texts([example.texts[0] for example in examples], self.encoding)
            return Encoded(texts.source(), lambda predictions: (
                Result([f"{count:.3g}"], {"count": float(count)})
                for count in predictions["logits"][:, 0]))
        return Reader(self.forward(), encode, TEXT, ["count"], "counts the words of a text")
