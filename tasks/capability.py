"""Classifiers and regressions of texts: see `runs.capability`."""

import functools
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Type

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from encoder import classifier, label_types, model_files
from encoder.encoding import Encoding
from encoder.label_types import Kind
from encoder.long_texts import WINDOWS
from encoder.model_files import ModelFiles
from engine import log
from engine.checkpoints import checkpoints
from engine.checkpoints.checkpoints import Checkpoint
from engine.errors import UserError
from engine.model import Baseline, FittedLayer, Forward, Mode
from engine.progress import counted
from engine.training import run_record
from modeling import BertConfig
from runs import columns, kinds, linear_probe, model_card, results, sets
from runs.capability import (
    PAIR, TEXT, Capability, Card, Encoded, Job, Measured, Predict, Reader, Result, Sets, Training)
from runs.report_page import Section
from runs.rows import Example, Split
from tasks import metrics, model_folder, report
from tasks.data import TextSet, TrainingSet, encode_texts, load_texts
from tasks.model_folder import INDEX, LABEL_FORMS, NAME, Classification

HELP_TOPIC = "Prediction"  # of the flags defined here
_FAR = 10.0  # labels whose mean or deviation differs so much are in another unit
_IMPOSSIBLE = -1e4  # the logit of a label that the model does not know
_MAX_COUNTED = 100_000  # examples whose labels are counted for the baseline


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flag of a command that writes predict.txt."""
    flags.DEFINE_enum("predict_labels", NAME, LABEL_FORMS, "What is in predict.txt: the names of "
                      "the labels, or their positions from 0, as in bert-ad's.",
                      flag_values=values)


class _Output(NamedTuple):
    """What an export gives for a kind of labels."""
    does: str  # for the model card, as `outputs`
    outputs: str
    of_logits: Callable[[tf.Tensor], Dict[str, tf.Tensor]]  # [batch, num_outputs] → outputs


_OUTPUTS: Mapping[Type[Kind], _Output] = {
    label_types.SingleLabel: _Output(
        "One of {count:,} labels",
        "`probabilities`, float32 `[batch, {count}]`, of the labels in the order above; "
        "`label_index`, int64 `[batch]`, the index of the likeliest label, from 0",
        lambda logits: {"probabilities": tf.nn.softmax(logits),
                        "label_index": tf.argmax(logits, axis=-1)}),
    label_types.MultiLabel: _Output(
        "Any number of {count:,} labels",
        "`probabilities`, float32 `[batch, {count}]`, an independent one for each label, in the "
        "order above; predicted are the labels with at least 0.5",
        lambda logits: {"probabilities": tf.sigmoid(logits)}),
    label_types.Regression: _Output(
        "A number", "`value`, float32 `[batch]`",
        lambda logits: {"value": tf.squeeze(logits, -1)})}


def does_of(kind: Kind) -> str:
    """What a classifier does, for `Reader.does`."""
    return f"chooses among {counted(len(kind.labels), 'labels')}" if kind.labels else "gives a number"


def results_of(kind: Kind, logits: np.ndarray) -> Iterator[Result]:
    """What is predicted, from the logits, [n, outputs]."""
    scores = kind.scores(logits)
    for row, label in zip(scores, map(kind.format_label, kind.predicted_labels(scores))):
        if kind.labels:
            shown = [f"{score:.9g}" for score in row]
            of_labels = list(zip(kind.labels, map(float, shown)))
            yield Result([label, *shown], {"label": label, "probabilities": dict(of_labels)}, scores=of_labels)
        else:
            yield Result([label], {"value": float(label)})


class Classifier(Capability):
    """A classifier or a regression of texts or pairs.

    Attributes:
        classification: what is classified.
    """
    verb, unit = "Predicting", "examples"
    prediction_files = ("test_results.tsv", "test_results_mm.tsv", "predict.txt", "predict_mm.txt")

    def __init__(self, classification: Classification, config: BertConfig, encoding: Encoding):
        super().__init__(config, encoding)
        self.classification = classification

    @property
    def kind(self) -> Kind:
        """Of the labels."""
        return self.classification.kind

    @classmethod
    def open(cls, trained: ModelFiles) -> "Classifier":
        """The model, of no task; a scorer is one, too."""
        classification, config, encoding = model_folder.load(trained)
        return kinds.class_of(classification.kind.name)(classification, config, encoding)

    def facts(self) -> Dict[str, Any]:
        kind = self.kind
        labels = [*kind.labels, f"separated by {kind.separator}"] if kind.separator else kind.labels
        return {"task": self.classification.task_name, "label set": labels,
                **self.encoder_facts(), "--long_texts": self.encoding.long_texts.facts()}

    def num_outputs(self) -> Optional[int]:
        return self.kind.num_outputs

    def labels_of(self, description: Mapping[str, Any], where: str) -> Sequence[str]:
        return label_types.of_description(description, where).labels

    def metrics(self) -> Sequence[str]:
        return [metric.name for metric in self.classification.task.metrics]

    def load(self, job: Job, values: flags.FlagValues,
             training: Optional[Callable[[Job, TrainingSet], Training]] = None) -> Sets:
        task, wanted, train = self.classification.task, sets.wanted(values), None
        if "train" in wanted:
            train = (training or training_of)(job, self._load(job, task.train))
            # Too few examples are reported before the other sets are read.
            if not checkpoints.latest(job.settings.output_dir):  # whose global batch may be another
                job.settings.length.schedule(
                    train.num_examples, job.settings.global_batch_size(job.devices.num_replicas))
        return Sets(
            train,
            self._load_with_mismatched(job, task.dev, task.mismatched_dev) if "dev" in wanted else {},
            self._load_with_mismatched(job, task.test, task.mismatched_test) if "test" in wanted else {})

    def _load(self, job: Job, split: Split) -> TextSet:
        return load_texts(split, self.classification.task.kind, self.encoding, job.settings.store_dir)

    def _load_with_mismatched(self, job: Job, split: Split, mismatched: Optional[Split]
                              ) -> Dict[str, TextSet]:
        texts = {"": self._load(job, split)}
        if mismatched and os.path.exists(mismatched.file):
            texts["_mm"] = self._load(job, mismatched)
        return texts

    def forward(self, sets: Sequence[TextSet] = (), checkpoint: Optional[Checkpoint] = None) -> Forward:
        """The classifier and its loss, in the unit of the labels that the checkpoint has learned."""
        return self.forward_of(model_folder.kind_of(checkpoint, self.kind) if checkpoint else self.kind)

    def forward_of(self, kind: Kind) -> Forward:
        """The classifier and its loss, for this kind of labels."""
        return classifier.forward_of(self.config, kind.num_outputs, mean=kind.mean,
                                     deviation=kind.deviation)

    def measure(self, job: Job, held_out: TextSet, predict: Predict) -> Measured:
        """The task's metrics, and precision, recall and F1 of each class."""
        kind, labels, known = held_out.kind, held_out.labels, self.kind.num_outputs
        logits = _logits(held_out, predict)
        is_known = np.ones(len(labels), bool)
        if kind.num_outputs > known:  # labels that the model never predicts
            is_known = labels < known if labels.ndim == 1 else ~labels[:, known:].any(axis=1)
            logits = np.pad(logits, ((0, 0), (0, kind.num_outputs - known)), constant_values=_IMPOSSIBLE)
        scores = kind.scores(logits)
        predicted = kind.predicted_labels(scores)
        losses = kind.losses(logits[is_known], labels[is_known])
        record = run_record.load(job.settings.output_dir)
        return Measured(
            metrics.evaluate(self.classification.task.metrics, labels, predicted, losses),
            {"num_examples": len(labels), "per_class": metrics.per_class(kind, labels, predicted),
             "confusion_matrix": metrics.confusion_matrix(kind, labels, predicted)},
            shown=report.Shown(kind, labels, predicted, kind.errors(scores, labels)),
            warning=metrics.warning(kind, labels[is_known], predicted[is_known], float(losses.mean()),
                                    was_fitted=bool(record and record.output_layer)))

    def write(self, job: Job, test: TextSet, suffix: str, predict: Predict) -> None:
        self.write_predictions(job, _logits(test, predict), suffix)

    def write_predictions(self, job: Job, logits: np.ndarray, suffix: str = "",
                          is_read: Optional[np.ndarray] = None) -> None:
        """Writes a line for each example, in the order of the input.

        test_results.tsv has the probabilities of the classes (or the number), predict.txt the
        predicted label (or the number).

        Args:
            logits: [n, outputs].
            suffix: of the files' names.
            is_read: whether an example has a prediction, or else empty fields, bool [n]; default: all.
        """
        kind, folder = self.kind, job.settings.output_dir
        scores = kind.scores(logits)
        is_read = np.ones(len(scores), bool) if is_read is None else is_read
        results.write_lines(
            os.path.join(folder, f"test_results{suffix}.tsv"),
            ("\t".join(f"{value:.9g}" if read else "" for value in row)
             for read, row in zip(is_read, scores)))
        are_numbered = self.classification.predict_labels == INDEX
        names = [str(index) for index in range(kind.num_outputs)] if are_numbered else None
        path = os.path.join(folder, f"predict{suffix}.txt")
        results.write_lines(path, (
            kind.format_label(label, names) if read else ""
            for read, label in zip(is_read, kind.predicted_labels(scores))))
        log.info(f"Predicted {len(logits):,} examples: {path}")

    def page(self, job: Job, measured: Measured) -> List[Section]:
        return report.page(self.classification, measured)

    def describe(self) -> Dict[str, Any]:
        """The labels; `training_of` adds what the training set determines."""
        return self.kind.describe()

    def outputs(self, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
        logits = self.forward()(inputs, mode).predictions["logits"]
        return _OUTPUTS[type(self.kind)].of_logits(logits)

    def card(self) -> Card:
        kind = self.kind
        does, outputs = (text.format(count=kind.num_outputs) for text in _OUTPUTS[type(kind)][:2])
        if self.encoding.long_texts.long_texts == WINDOWS:
            outputs += (". They are those of one window: a text that is too long is several inputs, "
                        "which the program below makes, combining their logits by their mean")
        return Card(
            f"{does}, for {'pairs of' if self.classification.takes_pairs else 'single'} texts",
            kind.labels, model_card.inputs(
                self, "`[CLS] text [SEP]`, or `[CLS] text [SEP] text [SEP]` for a pair,",
                "1 on the second text and its `[SEP]`, else 0"), outputs)

    def reader(self) -> Reader:
        kind, encoding = self.kind, self.encoding

        def encode(examples: List[Example]) -> Encoded:
            texts = encode_texts(examples, kind, encoding)
            return Encoded(
                texts.source(with_labels=False),
                lambda predictions: results_of(kind, texts.combined(predictions["logits"])),
                () if encoding.long_texts.long_texts == WINDOWS else texts.num_left_out)

        takes = PAIR if self.classification.takes_pairs else TEXT
        return Reader(self.forward(), encode, takes, ["label", *kind.labels], does_of(kind), read=functools.partial(
            columns.read_texts, takes_pairs=takes.pairs, trained=self.classification.trained_columns, kind=kind))


def training_of(job: Job, examples: TrainingSet) -> Training:
    """The training of a classifier on its labels."""
    kind = _learned_kind(job, examples)
    labels, remembered = kind.describe(), job.model.classification.trained_columns
    return Training(
        len(examples), examples.content_hash, job.model.forward_of(kind),
        functools.partial(examples.source, with_labels=True),
        facts={f"labels' {name}": labels[name] for name in ("mean", "deviation") if name in labels},
        description={**labels, "takes_pairs": examples.has_pairs,
                     **({model_folder.COLUMNS: remembered._asdict()} if remembered else {})},
        baseline=_baseline(examples), loss_unit=kind.deviation**2, fit=_fit(job, examples, kind))


def _fit(job: Job, examples: TrainingSet, kind: Kind) -> Callable[[float], Optional[FittedLayer]]:
    """Fits the classification layer to the pooled output of the training set or a sample of it."""
    def find() -> linear_probe.Sample:
        most = linear_probe.most_rows(kind.num_outputs)
        classes = examples.targets(slice(None)) if isinstance(kind, label_types.SingleLabel) else None
        indices = linear_probe.sample(len(examples), most, classes)
        labels = examples.targets(indices)
        return linear_probe.Sample(examples.source(with_labels=False), indices, lambda features: linear_probe.Rows(
            features, labels if kind.labels else (labels - kind.mean) / kind.deviation))

    return linear_probe.fitting(job, kind, "examples", find=find)


def _learned_kind(job: Job, examples: TrainingSet) -> Kind:
    """The kind of labels; of a regression, with the mean and deviation to learn.

    They are those of the training set, unless the training starts from an output layer.
    """
    kind = examples.kind
    if kind.labels:
        return kind

    def scale() -> List[float]:
        labels = examples.targets(slice(None)).astype(np.float64)
        if not np.ptp(labels):
            raise UserError(f"{job.model.classification.task.train.file}: every label is {labels[0]:g}, so there is "
                            "nothing to learn; is it the right column?")
        mean, deviation = float(labels.mean()), float(labels.std())
        start = checkpoints.latest(job.settings.output_dir) or job.settings.init_checkpoint
        if not (start and model_files.has_output_layer(start)):
            return [mean, deviation]
        learned = model_folder.kind_of(start, kind)
        if (abs(mean - learned.mean) > _FAR * learned.deviation
                or not 1 / _FAR < deviation / learned.deviation < _FAR):
            log.warn(f"the labels have the mean {mean:g} and the deviation {deviation:g}, and "
                     f"{start.path}, whose output layer is trained on, learned with {learned.mean:g} and "
                     f"{learned.deviation:g}: --new_output_layer learns a new one")
        return [learned.mean, learned.deviation]

    # Other workers do not have the chief's output directory.
    return label_types.Regression(*job.devices.peers.from_chief("labels to learn", scale))


def _baseline(examples: TrainingSet) -> Baseline:
    """Always predicting the frequencies of the labels; of numbers, their mean."""
    kind = examples.kind

    @functools.lru_cache(maxsize=None)
    def constant() -> np.ndarray:
        count = len(examples)
        return kind.best_constant(examples.targets(
            np.linspace(0, count - 1, min(count, _MAX_COUNTED)).astype(np.int64)))

    def loss(indices: np.ndarray) -> float:
        logits = np.broadcast_to(constant(), (len(indices), kind.num_outputs))
        return float(kind.losses(logits, examples.targets(indices)).mean())

    return Baseline("always predicting the labels' " + ("frequencies" if kind.labels else "mean"), loss)


def _logits(texts: TextSet, predict: Predict) -> np.ndarray:
    return texts.combined(predict(texts.source(with_labels=False))["logits"])
