"""The head of classifiers and regressions of texts, as `runs` sees it: see `runs.head`."""

import functools
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from encoder import classifier, model_files
from encoder.long_texts import WINDOWS
from encoder.model_files import ModelFiles
from engine import log
from engine.checkpoints import checkpoints
from engine.checkpoints.checkpoints import Checkpoint
from engine.errors import UserError
from engine.model import Baseline, Forward, Mode
from runs import kinds, label_types, model_card, results, sets
from runs.head import (
    Card, Encoded, Head, Job, Measured, Model, Predict, Reader, Result, Sets, Training)
from runs.label_types import Kind
from runs.rows import Example, Split
from tasks import metrics, model_folder, report
from tasks.data import TextSet, TrainingSet, encode_texts, load_texts
from tasks.model_folder import INDEX, LABEL_FORMS, NAME

HELP_TOPIC = "Prediction"  # of the flags defined here
_FAR = 10.0  # labels whose mean or deviation differs so much are in another unit
_MAX_COUNTED = 100_000  # examples whose labels are counted for the baseline


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flag of a command that writes predict.txt."""
    flags.DEFINE_enum("predict_labels", NAME, LABEL_FORMS, "What is in predict.txt: the names of "
                      "the labels, or their positions from 0, as in bert-ad's.",
                      flag_values=values)


def _facts(model: Model) -> Dict[str, Any]:
    kind = model.own.kind
    labels = [*kind.labels, f"separated by {kind.separator}"] if kind.separator else kind.labels
    return {"task": model.own.task_name, "label set": labels,
            **model.encoder_facts(), "--long_texts": model.encoding.long_texts.facts()}


def _require(model: Model, checkpoint: Checkpoint, flag: str) -> None:
    model_files.require_classifier(checkpoint, flag)
    model_files.check_outputs(checkpoint, model.own.kind.num_outputs, flag)
    model_folder.check_labels_beside(checkpoint, model.own.kind, flag)


def load(job: Job, values: flags.FlagValues,
         training: Optional[Callable[[Job, TrainingSet], Training]] = None) -> Sets:
    """The sets of the job's task.

    Args:
        training: makes a training of the training set, by default `training_of`.

    Raises:
        UserError: a file does not have the task's columns and labels.
    """
    task, wanted, train = job.model.own.task, sets.wanted(values), None
    if "train" in wanted:
        train = (training or training_of)(job, _load(job, task.train))
        # Too few examples are reported before the other sets are read.
        job.settings.schedule(train.num_examples, job.devices.num_replicas)
    return Sets(
        train,
        _load_with_mismatched(job, task.dev, task.mismatched_dev) if "dev" in wanted else {},
        _load_with_mismatched(job, task.test, task.mismatched_test) if "test" in wanted else {})


def _load(job: Job, split: Split) -> TextSet:
    own, settings = job.model.own, job.settings
    return load_texts(own.task, split, own.data_dir, job.model.encoding, settings.store_dir,
                      dynamic_padding=settings.training.dynamic_padding)


def _load_with_mismatched(job: Job, split: Split,
                          mismatched: Optional[Split]) -> Dict[str, TextSet]:
    found = {"": _load(job, split)}
    if mismatched and os.path.exists(os.path.join(job.model.own.data_dir, mismatched.file)):
        found["_mm"] = _load(job, mismatched)
    return found


def training_of(job: Job, examples: TrainingSet) -> Training:
    """The training of a classifier on its labels."""
    kind = _learned_kind(job, examples)
    labels = label_types.to_json(kind)
    return Training(
        len(examples), examples.content_hash, _forward_of(job.model, kind),
        functools.partial(examples.source, with_labels=True),
        facts={f"labels' {name}": labels[name] for name in ("mean", "deviation") if name in labels},
        description={
            **labels, **model_folder.entries(examples.has_pairs, job.model.own.trained_columns)},
        baseline=_baseline(examples), loss_unit=kind.deviation**2)


def _learned_kind(job: Job, examples: TrainingSet) -> Kind:
    """The kind of labels; of a regression, with the mean and deviation to learn.

    They are those of the training set, unless the training starts from an output layer.

    Raises:
        UserError: all labels of a regression are equal.
    """
    kind = examples.kind
    if kind.labels:
        return kind

    def scale() -> List[float]:
        labels = examples.targets(slice(None)).astype(np.float64)
        if not np.ptp(labels):
            raise UserError(f"{job.model.own.task.train.file}: every label is {labels[0]:g}, so there is "
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
                     f"{learned.deviation:g}: to learn a new layer, start from a model without one")
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


def forward_of(model: Model, _: Sequence[TextSet] = (),
               checkpoint: Optional[Checkpoint] = None) -> Forward:
    """The classifier and its loss; see `runs.head.Head.forward`."""
    kind = model.own.kind
    return _forward_of(model, model_folder.kind_of(checkpoint, kind) if checkpoint else kind)


def _forward_of(model: Model, kind: Kind) -> Forward:
    return classifier.forward_of(model.config, kind.num_outputs, mean=kind.mean, deviation=kind.deviation)


def _logits(texts: TextSet, predict: Predict) -> np.ndarray:
    return texts.combined(predict(texts.source(with_labels=False))["logits"])


def _measure(job: Job, texts: TextSet, predict: Predict) -> Measured:
    task, kind, labels = job.model.own.task, job.model.own.kind, texts.labels
    logits = _logits(texts, predict)
    scores = kind.scores(logits)
    predicted = kind.predicted_labels(scores)
    per_class = metrics.per_class(kind, labels, predicted)
    confusion = metrics.confusion_matrix(kind, labels, predicted)
    return Measured(
        metrics.evaluate(task.metrics, labels, predicted, kind.losses(logits, labels)),
        {"num_examples": len(labels), "per_class": per_class, "confusion_matrix": confusion},
        shown=report.Shown(labels, predicted, kind.errors(scores, labels), per_class, confusion))


def _write(job: Job, texts: TextSet, suffix: str, predict: Predict) -> None:
    write_predictions(job, _logits(texts, predict), suffix)


def write_predictions(job: Job, logits: np.ndarray, suffix: str = "",
                      is_read: Optional[np.ndarray] = None) -> None:
    """Writes a line for each example, in the order of the input.

    test_results.tsv has the probabilities of the classes (or the number), predict.txt the
    predicted label (or the number).

    Args:
        logits: [n, outputs].
        suffix: of the files' names.
        is_read: whether an example has a prediction, or else empty fields, bool [n]; default: all.
    """
    own, folder = job.model.own, job.settings.output_dir
    scores = own.kind.scores(logits)
    is_read = np.ones(len(scores), bool) if is_read is None else is_read
    results.write_lines(
        os.path.join(folder, f"test_results{suffix}.tsv"),
        ("\t".join(f"{value:.9g}" if read else "" for value in row)
         for read, row in zip(is_read, scores)))
    names = [str(index) for index in range(own.kind.num_outputs)]
    path = os.path.join(folder, f"predict{suffix}.txt")
    results.write_lines(path, (
        own.kind.format_label(label, names if own.predict_labels == INDEX else None) if read else ""
        for read, label in zip(is_read, own.kind.predicted_labels(scores))))
    log.info(f"Predicted {len(logits):,} examples: {path}")


def _describe(own: model_folder.Classification) -> Dict[str, Any]:
    return label_types.to_json(own.kind)


def _open(trained: ModelFiles) -> Model:
    return model_folder.load(trained.path, trained.flag)


class _Output(NamedTuple):
    """What an export gives for a kind of labels."""
    does: str  # for the model card, as `outputs`
    outputs: str
    of_logits: Callable[[tf.Tensor], Dict[str, tf.Tensor]]  # [batch, num_outputs] → outputs


_CLASS = _Output(
    "One of {count:,} labels",
    "`probabilities`, float32 `[batch, {count}]`, of the labels in the order above; "
    "`label_index`, int64 `[batch]`, the index of the likeliest label, from 0",
    lambda logits: {"probabilities": tf.nn.softmax(logits),
                    "label_index": tf.argmax(logits, axis=-1)})
_OUTPUTS: Mapping[str, _Output] = {
    label_types.SingleLabel.name: _CLASS,
    label_types.Scorer.name: _CLASS._replace(does="Whether a phrase fits a slot of a text"),
    label_types.MultiLabel.name: _Output(
        "Any number of {count:,} labels",
        "`probabilities`, float32 `[batch, {count}]`, an independent one for each label, in the "
        "order above; predicted are the labels with at least 0.5",
        lambda logits: {"probabilities": tf.sigmoid(logits)}),
    label_types.Regression.name: _Output(
        "A number", "`value`, float32 `[batch]`",
        lambda logits: {"value": tf.squeeze(logits, -1)})}


def _outputs(model: Model, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
    logits = forward_of(model)(inputs, mode).predictions["logits"]
    return _OUTPUTS[model.own.kind.name].of_logits(logits)


class Reading(NamedTuple):
    """What a classifier reads, in words, for its model card."""
    examples: str
    tokens: str
    second_segment: str  # where segment_ids are 1
    outputs: str  # what to say of them in addition, or ""
    command: str  # of this project that reads the export


_TEXTS = Reading(
    "single texts", "`[CLS] text [SEP]`, or `[CLS] text [SEP] text [SEP]` for a pair,",
    "the second text and its `[SEP]`", "", model_card.PREDICT.format(input="texts.txt"))


def card(model: Model, reading: Reading = _TEXTS) -> Card:
    """See `Head.card`."""
    kind, encoding = model.own.kind, model.encoding
    head_of_kind = kinds.head_of(kind.name)
    if reading is _TEXTS and head_of_kind is not HEAD:
        return head_of_kind.card(model)
    if reading is _TEXTS and model.own.takes_pairs:
        reading = _TEXTS._replace(examples="pairs of texts")
    of_window = "" if encoding.long_texts.long_texts != WINDOWS else (
        ". They are those of one window: a text that is too long is several inputs, which the "
        "program below makes, combining their logits by their mean")
    does, outputs = (text.format(count=kind.num_outputs) for text in _OUTPUTS[kind.name][:2])
    return Card(
        f"{does}, for {reading.examples}", kind.labels,
        f"""\
{reading.tokens} as WordPiece ids of `assets.extra/vocab.txt`, at most {encoding.max_seq_length} of them, {model_card.casing(model)}.
Inputs, all int32 `[batch, length]`: `input_ids`, padded with 0; `input_mask`, 1 on ids and 0 on
padding; `segment_ids`, 1 on {reading.second_segment}, else 0.""",
        outputs + reading.outputs + of_window, reading.command)


def _reader(model: Model) -> Reader:
    kind, encoding = model.own.kind, model.encoding

    def encode(examples: List[Example]) -> Encoded:
        texts = encode_texts(examples, kind, encoding)
        return Encoded(
            texts.source(with_labels=False),
            lambda predictions: results_of(kind, texts.combined(predictions["logits"])),
            () if encoding.long_texts.long_texts == WINDOWS else texts.num_left_out)

    return Reader(forward_of(model), encode, model.own.takes_pairs, ["label", *kind.labels],
                  model.own.trained_columns)


def results_of(kind: Kind, logits: np.ndarray) -> Iterator[Result]:
    """What is predicted, from the logits, [n, outputs]."""
    scores = kind.scores(logits)
    for row, label in zip(scores, map(kind.format_label, kind.predicted_labels(scores))):
        shown = [f"{score:.9g}" for score in row] if kind.labels else []
        yield Result([label, *shown], _entry(kind, label, shown))


def _entry(kind: Kind, label: str, shown: Sequence[str]) -> Dict[str, object]:
    if not kind.labels:
        return {"value": float(label)}
    return {"label": label, "probabilities": dict(zip(kind.labels, map(float, shown)))}


HEAD = Head(
    "Predicting", "examples",
    facts=_facts, require=_require, load=load, forward=forward_of, measure=_measure, write=_write,
    prediction_files=["test_results*.tsv", "predict*.txt"], describe=_describe, open=_open,
    outputs=_outputs, card=card, reader=_reader, page=report.page,
    num_outputs=lambda own: own.kind.num_outputs,
    metrics=lambda own: [metric.name for metric in own.task.metrics])
