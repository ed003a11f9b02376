"""Google's interface for programs that import its `run_classifier`: processors and `model_fn`.

Names, arguments and results are Google's. The tasks are rows of the table, the model is
`encoder.classifier`, and the `model_fn` also works under MirroredStrategy. This project's own
commands use none of it.
"""

import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
import optimization
from encoder import classifier
from encoder.encoding import truncated_lengths
from engine.devices import runtime
from engine.model import Mode
from tasks.processors import DataProcessor, InputExample
from runs.rows import Split
from tasks.table import TASKS, Task

InputFn = Callable[..., tf.data.Dataset]


class PaddingInputExample:
    """Stands for no example, where a batch must have a fixed size."""


class InputFeatures:
    """The features of one example, each a list as long as the longest input."""

    def __init__(self, input_ids: List[int], input_mask: List[int], segment_ids: List[int],
                 label_id: int, is_real_example: bool = True):
        self.input_ids = input_ids
        self.input_mask = input_mask
        self.segment_ids = segment_ids
        self.label_id = label_id
        self.is_real_example = is_real_example


class _TableProcessor(DataProcessor):
    """A row of the task table as a data processor."""
    task: Task

    def get_train_examples(self, data_dir: str) -> List[InputExample]:
        return self._examples(data_dir, self.task.train, "train")

    def get_dev_examples(self, data_dir: str) -> List[InputExample]:
        return self._examples(data_dir, self.task.dev, "dev")

    def get_test_examples(self, data_dir: str) -> List[InputExample]:
        return self._examples(data_dir, self.task.test, "test")

    def get_labels(self) -> List[str]:
        return list(self.task.kind.labels)

    def _examples(self, data_dir: str, split: Split, set_type: str) -> List[InputExample]:
        return self._create_examples(self._read_tsv(os.path.join(data_dir, split.file)), set_type)

    def _create_examples(self, lines: Sequence[Sequence[str]],
                         set_type: str) -> List[InputExample]:
        """The examples in the rows of a file; users' subclasses call it.

        `set_type` is "train", "test", or anything else for a dev set. The examples of a test set
        have the first label.
        """
        split = {"train": self.task.train, "test": self.task.test}.get(set_type, self.task.dev)
        rows = list(enumerate(lines))[int(split.columns.header):]
        return [self._example(f"{set_type}-{self._name(index, fields)}", split, fields)
                for index, fields in rows if self._is_wanted(split, fields)]

    def _example(self, guid: str, split: Split, fields: Sequence[str]) -> InputExample:
        columns, aliases = split.columns, self.task.kind.aliases
        label = self.get_labels()[0] if columns.label is None else fields[columns.label]
        texts = [fields[position] for position in columns.texts]
        return InputExample(guid, *texts, label=aliases.get(label, label))

    def _name(self, index: int, fields: Sequence[str]) -> str:
        return str(index)

    def _is_wanted(self, split: Split, fields: Sequence[str]) -> bool:
        return True


class ColaProcessor(_TableProcessor):
    """CoLA: whether a sentence is acceptable."""
    task = TASKS["cola"]


class MrpcProcessor(_TableProcessor):
    """MRPC: whether two sentences say the same."""
    task = TASKS["mrpc"]


class MnliProcessor(_TableProcessor):
    """MultiNLI; its dev set is the matched one."""
    task = TASKS["mnli"]

    def get_dev_examples(self, data_dir: str) -> List[InputExample]:
        return self._examples(data_dir, self.task.dev, "dev_matched")

    def _name(self, index: int, fields: Sequence[str]) -> str:
        return fields[0]


class XnliProcessor(_TableProcessor):
    """XNLI in one language, Chinese unless `language` is set to another."""
    task = TASKS["xnli"]

    def __init__(self):
        self.language = "zh"

    def get_train_examples(self, data_dir: str) -> List[InputExample]:
        split = self.task.train
        file = split.file.replace(".zh.", f".{self.language}.")
        return self._examples(data_dir, split._replace(file=file), "train")

    def _is_wanted(self, split: Split, fields: Sequence[str]) -> bool:
        return not split.columns.only or fields[split.columns.only[0]] == self.language


def convert_single_example(ex_index: int, example: Union[InputExample, PaddingInputExample],
                           label_list: Sequence[str], max_seq_length: int,
                           tokenizer: Any) -> InputFeatures:
    """The features of one example, padded to `max_seq_length` with zeros.

    Args:
        ex_index: not used. (The original logs the first five examples.)
        tokenizer: has `tokenize` and `convert_tokens_to_ids`, as `tokenization.FullTokenizer`.

    Raises:
        KeyError: the example's label is not in `label_list`.
    """
    del ex_index
    if isinstance(example, PaddingInputExample):
        return InputFeatures(*([0] * max_seq_length for _ in range(3)), label_id=0,
                             is_real_example=False)
    tokens_a = tokenizer.tokenize(example.text_a)
    tokens_b = tokenizer.tokenize(example.text_b) if example.text_b else []
    kept_a, kept_b = truncated_lengths(
        np.array(len(tokens_a)), np.array(len(tokens_b)),
        np.array(max_seq_length - 2 - bool(tokens_b)))
    first = ["[CLS]", *tokens_a[:kept_a], "[SEP]"]
    second = [*tokens_b[:kept_b], "[SEP]"] if kept_b else []
    length = len(first) + len(second)
    padding = [0] * (max_seq_length - length)
    return InputFeatures(
        tokenizer.convert_tokens_to_ids(first + second) + padding,
        [1] * length + padding,
        [0] * len(first) + [1] * len(second) + padding,
        {label: index for index, label in enumerate(label_list)}[example.label])


def convert_examples_to_features(examples: Iterable[Any], label_list: Sequence[str],
                                 max_seq_length: int, tokenizer: Any) -> List[InputFeatures]:
    """`convert_single_example` of each example."""
    return [convert_single_example(index, example, label_list, max_seq_length, tokenizer)
            for index, example in enumerate(examples)]


def file_based_convert_examples_to_features(
        examples: Iterable[Any], label_list: Sequence[str], max_seq_length: int, tokenizer: Any,
        output_file: str) -> None:
    """Writes `convert_single_example` of each example into a TFRecord file."""
    with tf.python_io.TFRecordWriter(output_file) as writer:
        for index, example in enumerate(examples):
            features = convert_single_example(index, example, label_list, max_seq_length,
                                              tokenizer)
            columns = {"input_ids": features.input_ids, "input_mask": features.input_mask,
                       "segment_ids": features.segment_ids, "label_ids": [features.label_id],
                       "is_real_example": [int(features.is_real_example)]}
            writer.write(tf.train.Example(features=tf.train.Features(feature={
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in columns.items()})).SerializeToString())


def file_based_input_fn_builder(input_file: str, seq_length: int, is_training: bool,
                                drop_remainder: bool, batch_size: Optional[int] = None) -> InputFn:
    """An `input_fn` that reads a file of `file_based_convert_examples_to_features`.

    Its batches have `batch_size` examples, or else params["batch_size"], as the original's; under a
    strategy, that is for each replica.
    """
    form = {name: tf.FixedLenFeature(shape, tf.int64) for name, shape in (
        ("input_ids", [seq_length]), ("input_mask", [seq_length]), ("segment_ids", [seq_length]),
        ("label_ids", []), ("is_real_example", []))}

    def parse(record: tf.Tensor) -> Dict[str, tf.Tensor]:
        return {name: tf.cast(value, tf.int32)
                for name, value in tf.parse_single_example(record, form).items()}

    return _input_fn(lambda: tf.data.TFRecordDataset(input_file).map(parse), is_training,
                     drop_remainder, batch_size)


def input_fn_builder(features: Sequence[InputFeatures], seq_length: int, is_training: bool,
                     drop_remainder: bool, batch_size: Optional[int] = None) -> InputFn:
    """An `input_fn` of features in memory; see `file_based_input_fn_builder`."""
    names = {"input_ids": "input_ids", "input_mask": "input_mask", "segment_ids": "segment_ids",
             "label_ids": "label_id"}
    arrays = {name: np.array([getattr(each, attribute) for each in features], np.int32)
              for name, attribute in names.items()}
    del seq_length  # that of the features

    return _input_fn(lambda: tf.data.Dataset.from_tensor_slices(arrays), is_training,
                     drop_remainder, batch_size)


def _input_fn(examples_of: Callable[[], tf.data.Dataset], is_training: bool, drop_remainder: bool,
              batch_size: Optional[int]) -> InputFn:
    def input_fn(params: Optional[Dict[str, Any]] = None) -> tf.data.Dataset:
        examples = examples_of()
        if is_training:
            examples = examples.repeat().shuffle(100)
        size = params["batch_size"] if batch_size is None else batch_size
        return runtime.without_autotuning(examples.batch(size, drop_remainder))
    return input_fn


def create_model(bert_config: modeling.BertConfig, is_training: bool, input_ids: tf.Tensor,
                 input_mask: tf.Tensor, segment_ids: tf.Tensor, labels: tf.Tensor,
                 num_labels: int, use_one_hot_embeddings: bool
                 ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """The classifier: the mean loss, each example's [b], logits and probabilities [b, num_labels].

    Args:
        use_one_hot_embeddings: not used; it changes how TPUs look up rows, and no value.
    """
    del use_one_hot_embeddings
    outputs = classifier.forward_of(bert_config, num_labels)(
        {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids,
         "label_ids": labels}, Mode(is_training))
    logits = outputs.predictions["logits"]
    per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return outputs.loss, per_example_loss, logits, tf.nn.softmax(logits)


def model_fn_builder(bert_config: modeling.BertConfig, num_labels: int,
                     init_checkpoint: Optional[str], learning_rate: float,
                     num_train_steps: Optional[int], num_warmup_steps: Optional[int],
                     use_tpu: bool, use_one_hot_embeddings: bool) -> Callable:
    """A `model_fn` for tf.estimator.Estimator, with and without MirroredStrategy.

    Its features are those of `convert_single_example`, with label_ids; its predictions are
    "probabilities". Under a strategy, a step is that of one replica with the batches of all.

    Raises:
        ValueError: `use_tpu` is set.
    """
    if use_tpu:
        raise ValueError("use_tpu=True is not supported: this model runs on GPUs and CPUs")

    def model_fn(features, labels, mode, params):
        del labels, params
        label_ids = features["label_ids"]
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        loss, per_example_loss, logits, probabilities = create_model(
            bert_config, is_training, features["input_ids"], features["input_mask"],
            features["segment_ids"], label_ids, num_labels, use_one_hot_embeddings)
        if init_checkpoint:
            names, _ = modeling.get_assignment_map_from_checkpoint(
                tf.trainable_variables(), init_checkpoint)
            tf.train.init_from_checkpoint(init_checkpoint, names)
        if is_training:
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=(
                optimization.create_optimizer(
                    loss, learning_rate, num_train_steps, num_warmup_steps)))
        if mode == tf.estimator.ModeKeys.EVAL:
            is_real = features.get("is_real_example")
            weights = None if is_real is None else tf.cast(is_real, tf.float32)
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={
                "eval_accuracy": tf.metrics.accuracy(
                    label_ids, tf.argmax(logits, axis=-1), weights),
                "eval_loss": tf.metrics.mean(per_example_loss, weights)})
        return tf.estimator.EstimatorSpec(mode, predictions={"probabilities": probabilities})
    return model_fn
