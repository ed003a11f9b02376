"""A pretraining run: its facts, model and examples, for the engine."""

from typing import Any, Dict, NamedTuple, Optional

import numpy as np

from encoder import model_files
from engine import log
from engine.devices import Devices
from engine.training import run, throughput
from engine.training.evaluations import Evaluate
from engine.training.settings import RunSettings
from modeling import BertConfig
from pretraining import model
from pretraining.data import RecordSet

RESULTS = "eval_results.txt"


class Vocabulary(NamedTuple):
    """The vocabulary of a model, for whoever uses the model next."""
    file: str
    do_lower_case: bool


class Job(NamedTuple):
    """All that a run needs except its examples."""
    config: BertConfig
    vocabulary: Optional[Vocabulary]  # None if it is not known
    devices: Devices
    settings: RunSettings
    max_eval_steps: Optional[int]

    def facts(self) -> Dict[str, Any]:
        """What identifies the run: a resumed run must have the same facts."""
        return {"task": "pretraining", "model config": self.config.to_dict()}


def train(job: Job, records: RecordSet, evaluate: Optional[Evaluate]) -> None:
    """Trains for the steps of the job's settings; resumes an earlier run.

    Args:
        evaluate: evaluates a checkpoint on held-out examples; needed if the settings ask for
            evaluation during the training.

    Raises:
        UserError: the output directory belongs to another run, or the checkpoint to another model.
    """
    if not records.has_next_sentences:
        log.info("All examples have the same next_sentence_label: only masked tokens are learned")
    run.train(run.Run(
        facts={**job.facts(), "--max_seq_length": records.max_seq_length,
               "training data": records.content_hash},
        settings=job.settings,
        devices=job.devices,
        num_examples=len(records),
        forward=model.forward_of(job.config, next_sentences=records.has_next_sentences),
        make_source=lambda: records.source(job.settings.training.seed),
        operations=_operations(job.config, records),
        ties_embeddings=True,
        evaluate=evaluate,
        save_description=lambda: _save_description(job),
        result_files=(RESULTS,)))


def _operations(config: BertConfig, records: RecordSet) -> throughput.Operations:
    """The heads read the first position and the masked ones, of which each example has the most."""
    def operations(lengths: np.ndarray) -> float:
        masked = records.most_masked[lengths]
        return throughput.FORWARD_AND_BACKWARD * (
            throughput.encoder_forward(config, lengths, outputs=1 + masked)
            + throughput.masked_words_forward(config, masked.sum()))
    return operations


def _save_description(job: Job) -> None:
    vocab_file, do_lower_case = job.vocabulary or (None, None)
    model_files.save(job.settings.output_dir, job.config, vocab_file, do_lower_case)
