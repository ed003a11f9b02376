"""Classifiers of texts and regressions, as `kinds` serves them."""

from typing import Dict, Iterator, List

import numpy as np

from encoder import classifier
from tasks import model_folder
from tasks.data import encode_texts
from tasks.examples import Example
from tasks.kinds import Encoded, Model, Result
from tasks.label_types import Kind


def open_model(model_dir: str) -> Model:
    """See `kinds`."""
    model = model_folder.load(model_dir)
    kind = model.kind

    def encode(examples: List[Example]) -> Encoded:
        texts = encode_texts(examples, kind, model.encoding)
        return Encoded(
            texts.source(with_labels=False),
            lambda predictions: results(kind, texts.combined(predictions["logits"])),
            texts.num_cut)

    def describe_cut(num_cut: int, num_texts: int) -> str:
        encoding = model.encoding
        return encoding.long_texts.describe(num_cut, num_texts, encoding.max_seq_length)

    return Model(classifier.forward_of(model.config, kind.num_outputs), encode, model.takes_pairs,
                 ["label", *kind.labels], describe_cut)


def results(kind: Kind, logits: np.ndarray) -> Iterator[Result]:
    """What is predicted, from the logits, [n, outputs]."""
    scores = kind.scores(logits)
    for row, label in zip(scores, map(kind.format_label, kind.predicted_labels(scores))):
        shown = [f"{score:.9g}" for score in row] if kind.labels else []
        yield Result([label, *shown], _entry(kind, label, shown))


def _entry(kind: Kind, label: str, shown: List[str]) -> Dict[str, object]:
    if not kind.labels:
        return {"value": float(label)}
    return {"label": label, "probabilities": dict(zip(kind.labels, map(float, shown)))}
