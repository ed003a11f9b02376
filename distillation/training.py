"""The three stages of distillation as training runs: their models, features and facts."""

import json
from typing import Any, Dict, NamedTuple

from distillation import data, model, teacher
from distillation.student import LayerMap
from distillation.teacher import Teacher
from encoder import model_files, pretraining_tfrecords
from encoder.encoding import Encoding
from engine.data.batches import Source
from engine.devices.devices import Devices
from engine.disk import files
from engine.model import Forward
from engine.training import run, throughput
from engine.training.settings import RunSettings
from modeling import BertConfig
from runs.head import Job, Training
from tasks import head
from tasks.data import TrainingSet

GENERAL, INTERMEDIATE, PREDICTION = STAGES = ("general", "intermediate", "prediction")


class Distillation(NamedTuple):
    """A stage, the teacher and the settings of the losses."""
    stage: str
    teacher: Teacher
    layer_map: LayerMap
    attention_loss: bool
    temperature: float
    label_weight: float
    predict_batch_size: int  # per replica, for the teacher's outputs

    def facts(self) -> Dict[str, Any]:
        """What identifies the run, in addition to the job's facts."""
        stage_facts = (
            {"--temperature": self.temperature, "--label_weight": self.label_weight}
            if self.stage == PREDICTION else
            {"--layer_map": self.layer_map, "--attention_loss": self.attention_loss})
        return {"--stage": self.stage, "teacher": self.teacher.digest, **stage_facts}

    def states_forward(self, config: BertConfig) -> Forward:
        """The student and its loss against the teacher's states and attention."""
        return model.intermediate(config, self.teacher, self.layer_map,
                                  attention=self.attention_loss)

    def training(self, job: Job, examples: TrainingSet) -> Training:
        """The training of the student in a stage with a task."""
        config, forward = job.model.config, head.forward_of(job.model)
        if self.stage == INTERMEDIATE:
            forward = self.states_forward(config)
        else:
            forward = model.prediction(forward, job.model.own.kind, temperature=self.temperature,
                                       label_weight=self.label_weight)
        return head.training_of(job, examples)._replace(
            forward=forward, make_source=lambda: self.source(job, examples), facts=self.facts(),
            operations=self.operations(config))

    def operations(self, config: BertConfig) -> throughput.Operations:
        """Of a student's training; without labels, the teacher infers beside it."""
        if self.stage == PREDICTION:
            return throughput.classifier(config)
        return lambda lengths: (
            throughput.FORWARD_AND_BACKWARD * throughput.encoder_forward(config, lengths)
            + throughput.encoder_forward(self.teacher.config, lengths))

    def source(self, job: Job, examples: TrainingSet) -> Source:
        """The features that the stage's model needs."""
        if self.stage == INTERMEDIATE:
            return examples.source(with_labels=False)
        return teacher.with_outputs(
            self.teacher, examples, job.devices, store_dir=job.settings.store_dir,
            per_replica_batch_size=self.predict_batch_size)


def train_in_general(distillation: Distillation, texts: pretraining_tfrecords.Opened,
                     config: BertConfig, encoding: Encoding, devices: Devices,
                     settings: RunSettings) -> None:
    """Trains a student on texts without labels.

    Args:
        config: of the student.

    Raises:
        UserError: the output directory belongs to another run, or the checkpoint to another model.
    """
    digest = files.hash_of(json.dumps(texts.hashes).encode("utf-8"))
    dynamic_padding = settings.training.dynamic_padding
    run.train(run.Run(
        facts={"task": "general distillation", "model config": config.to_dict(),
               "vocabulary": encoding.vocab_hash, "--max_seq_length": encoding.max_seq_length,
               "training data": digest, **distillation.facts()},
        settings=settings,
        devices=devices,
        num_examples=len(texts.records),
        forward=distillation.states_forward(config),
        operations=distillation.operations(config),
        make_source=lambda: data.source(texts, encoding, dynamic_padding=dynamic_padding),
        save_description=lambda: model_files.save(
            settings.output_dir, config, encoding.vocab_file, encoding.do_lower_case)))
