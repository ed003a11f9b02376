"""The three stages of distillation as training runs: their models, features and facts."""

import dataclasses
from typing import Any, Dict, NamedTuple, Optional

import numpy as np

from distillation import model, teacher as teachers
from distillation.teacher import Teacher
from encoder import pretraining_tfrecords
from encoder.encoding import Encoding
from engine.data.batches import Features, Source, token_features
from engine.settings import REFUSED, setting
from modeling import BertConfig
from runs.capability import Capability, Job, Training
from tasks.capability import training_of

GENERAL, INTERMEDIATE, PREDICTION = STAGES = ("general", "intermediate", "prediction")


@dataclasses.dataclass(frozen=True)
class DistillationSettings:
    """What a student learns, and from whom."""
    topic = "Training"
    stage: Optional[str] = setting(
        None, "What the student learns: the teacher's embeddings, states and attention, without a "
        "task (general) or with one (intermediate); or the teacher's logits or vectors (prediction).",
        choices=STAGES, change=REFUSED)
    teacher: Optional[str] = setting(
        None, "Folder of the trained classifier or model for similarity, or its export; for "
        "--stage=general, of any model.")
    attention_loss: bool = setting(
        True, "Also learn the attention scores; both models then need the same number of heads.",
        change=REFUSED)
    temperature: float = setting(
        1.0, "Temperature of the softmax in the loss of --stage=prediction.", positive=True,
        change=REFUSED)
    label_weight: float = setting(
        0.0, "Weight, from 0 to 1, of the loss on the labels in --stage=prediction.",
        between=(0, 1), change=REFUSED)


class Distillation(NamedTuple):
    """The teacher, and how a student learns from it."""
    teacher: Teacher
    settings: DistillationSettings
    predict_batch_size: Optional[int]  # per replica, for the teacher's outputs

    def training(self, job: Job, examples: Any) -> Training:
        """The training of the student in a stage with a task.

        Args:
            examples: a set of the teacher's kind.
        """
        if self.teacher.outputs == "vectors":
            source = inputs = examples.source()
            training = Training(len(examples), examples.content_hash,
                                model.prediction(job.model.forward()), lambda: source)
        else:
            source, inputs = (examples.source(with_labels=labels) for labels in (True, False))
            training = training_of(job, examples)
            training = training._replace(
                forward=model.prediction(
                    training.forward, job.model.kind, temperature=self.settings.temperature,
                    label_weight=self.settings.label_weight, loss_unit=training.loss_unit),
                baseline=None)  # the stage's loss is not that of the labels
        if self.settings.stage == INTERMEDIATE:
            return training._replace(
                make_source=lambda: inputs, **self._learning_states(job.model.config))

        def with_outputs(source: Source, used: np.ndarray) -> Source:
            return teachers.with_outputs(
                self.teacher, source, inputs._replace(dynamic_padding=source.dynamic_padding), examples.store_name,
                job.devices, used=used, store_dir=job.settings.store_dir, per_replica_batch_size=self.predict_batch_size)

        return training._replace(
            make_source=lambda: source, complete=with_outputs, facts={**training.facts, "teacher": self.teacher.digest})

    def general_training(self, job: Job, texts: pretraining_tfrecords.Opened) -> Training:
        """The training of the student on texts without labels."""
        return Training(
            len(texts.records), texts.content_hash,
            make_source=lambda: source_of_texts(texts, job.model.encoding),
            **self._learning_states(job.model.config))

    def _learning_states(self, config: BertConfig) -> Dict[str, Any]:
        """The fields of a training without labels."""
        return {
            "forward": model.intermediate(config, self.teacher,
                                          attention=self.settings.attention_loss),
            "facts": {"teacher": self.teacher.digest}, "loss_unit": 1.0, "fit": None}


def source_of_texts(texts: pretraining_tfrecords.Opened, encoding: Encoding) -> Source:
    """Batches of input_ids, input_mask and segment_ids, the masked tokens restored."""
    records = texts.records

    def fetch(indices: np.ndarray, length: int) -> Features:
        features = token_features(records, indices, length)
        positions, counts = records.values("masked_lm_positions", indices)
        tokens, _ = records.values("masked_lm_ids", indices)
        features["input_ids"][np.repeat(np.arange(len(indices)), counts), positions] = tokens
        return features

    return Source(records.lengths("input_ids"), fetch, encoding.max_seq_length)


class GeneralStudent(Capability):
    """An encoder without a head: nothing of it is evaluated, and its folder describes no kind of model."""

    def facts(self) -> Dict[str, Any]:
        """The encoder."""
        facts = self.encoder_facts()
        return {"task": "general distillation", **{name: facts[name] for name in (
            "model config", "vocabulary", "--max_seq_length")}}
