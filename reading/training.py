"""A training on questions: its facts, model and windows, for the engine."""

import dataclasses
import os
from typing import Any, Dict, NamedTuple, Type, get_type_hints

import numpy as np

from encoder import label_config, model_files
from encoder.encoding import Encoding
from engine import files
from engine.devices import Devices
from engine.errors import UserError
from engine.model import Forward
from engine.settings import Settings
from engine.training import run, throughput
from engine.training.evaluations import Evaluate
from engine.training.settings import RunSettings
from modeling import BertConfig
from reading import model
from reading.answers import AnswerSettings
from reading.data import QuestionSet, WindowSettings
from tasks import kinds

RESULTS = ("eval_results.txt", "eval_results.json")
PREDICTIONS = "predictions.json"
N_BEST = "nbest_predictions.json"
NULL_ODDS = "null_odds.json"


class Job(NamedTuple):
    """All that a run needs except its questions."""
    config: BertConfig
    encoding: Encoding
    devices: Devices
    settings: RunSettings
    windows: WindowSettings
    answers: AnswerSettings
    measure: str  # one of `evaluation.MEASURES`

    @property
    def forward(self) -> Forward:
        """The model and its loss."""
        return model.forward_of(self.config, self.encoding.max_seq_length)

    def facts(self) -> Dict[str, Any]:
        """What identifies the run: a resumed run must have the same facts."""
        return {"task": "reading comprehension",
                "model config": self.config.to_dict(),
                "vocabulary": self.encoding.vocab_hash,
                "casing (--do_lower_case)": self.encoding.do_lower_case,
                "--max_seq_length": self.encoding.max_seq_length}

    def save_description(self) -> None:
        """Writes what describes the model beside its checkpoints, for `reader.open_model`."""
        folder, encoding = self.settings.output_dir, self.encoding
        model_files.save(folder, self.config, encoding.vocab_file, encoding.do_lower_case)
        files.write_json(os.path.join(folder, label_config.FILE), {
            "kind": kinds.ANSWERS, "do_lower_case": encoding.do_lower_case,
            "max_seq_length": encoding.max_seq_length, "measure": self.measure,
            **dataclasses.asdict(self.windows),
            **dataclasses.asdict(self.answers)})


def train(job: Job, questions: QuestionSet, evaluate: Evaluate) -> None:
    """Trains for the epochs of the job's settings; resumes an earlier run.

    An example of the engine's is a window. An epoch has each of them once.

    Args:
        evaluate: evaluates a checkpoint on held-out questions; called only if the settings ask for
            evaluation during the training.

    Raises:
        UserError: the output directory belongs to another run, or the checkpoint to another model.
    """
    run.train(run.Run(
        facts={**job.facts(), "training data": questions.content_hash,
               **{f"--{name}": value for name, value in dataclasses.asdict(job.windows).items()}},
        settings=job.settings,
        devices=job.devices,
        num_examples=len(questions),
        forward=job.forward,
        make_source=questions.training_source,
        operations=_operations(job.config),
        evaluate=evaluate,
        save_description=job.save_description,
        result_files=(*RESULTS, PREDICTIONS, N_BEST, NULL_ODDS)))


def described(cls: Type[Settings], path: str) -> Settings:
    """The settings of a class that `Job.save_description` wrote.

    Raises:
        UserError: the file is damaged.
    """
    types = {name: (int, float) if kind is float else kind
             for name, kind in get_type_hints(cls).items()}
    record = files.read_record(path, "the model's description", types)
    for field in dataclasses.fields(cls):
        if field.metadata["positive"] and record[field.name] < 1:
            raise UserError(f"{path} is damaged: {field.name} is {record[field.name]}")
    return cls(**{name: record[name] for name in types})


def _operations(config: BertConfig) -> throughput.Operations:
    """The head reads all positions."""
    of_head = 2 * model.NUM_OUTPUTS * config.hidden_size  # for each token

    def operations(lengths: np.ndarray) -> float:
        return throughput.FORWARD_AND_BACKWARD * (
            throughput.encoder_forward(config, lengths) + of_head * float(np.sum(lengths)))
    return operations
