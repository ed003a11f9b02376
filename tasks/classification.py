"""Classifiers of texts and regressions, as `kinds` serves them."""

from typing import Dict, Iterator, List

import numpy as np

from encoder import classifier
from engine.errors import UserError
from tasks import capabilities, model_folder
from tasks.data import encode_texts
from tasks.examples import Example
from tasks.kinds import Encoded, Model, Result
from tasks.label_types import Kind


def open_model(model_dir: str) -> Model:
    """See `kinds`."""
    model = model_folder.load(model_dir)
    check_reads_texts(model_dir, model)
    kind = model.kind

    def encode(examples: List[Example]) -> Encoded:
        texts = encode_texts(examples, kind, model.encoding)
        return Encoded(
            texts.source(with_labels=False),
            lambda predictions: _results(kind, texts.combined(predictions["logits"])),
            texts.num_texts, texts.num_cut)

    def describe_cut(num_cut: int, num_texts: int) -> str:
        encoding = model.encoding
        return encoding.long_texts.describe(num_cut, num_texts, encoding.max_seq_length)

    return Model(classifier.forward_of(model.config, kind.num_outputs), encode, model.takes_pairs,
                 ["label", *kind.labels], describe_cut)


def check_reads_texts(model_dir: str, model: model_folder.TrainedModel) -> None:
    """Raises a UserError if the model in `model_dir` classifies something else than texts."""
    capability = capabilities.of_model(model.kind)
    if capability:
        raise UserError(f"--output_dir={model_dir} reads {capability.reading.examples}, not plain "
                        f"texts: predict with {capability.command} --do_predict")


def _results(kind: Kind, logits: np.ndarray) -> Iterator[Result]:
    """The results for texts, from their logits, [n, outputs]."""
    scores = kind.scores(logits)
    for row, label in zip(scores, map(kind.format_label, kind.predicted_labels(scores))):
        shown = [f"{score:.9g}" for score in row] if kind.labels else []
        yield Result([label, *shown], _entry(kind, label, shown))


def _entry(kind: Kind, label: str, shown: List[str]) -> Dict[str, object]:
    if not kind.labels:
        return {"value": float(label)}
    return {"label": label, "probabilities": dict(zip(kind.labels, map(float, shown)))}
