"""Pretraining on masked words and next sentences: see `runs.capability`."""

import math
from typing import Any, Dict, Mapping, Optional, Sequence

import numpy as np
from absl import flags

from encoder.encoding import ONE_SEGMENT
from encoder.pretraining_heads import require_masked_lm_head
from encoder.pretraining_tfrecords import Sizes
from engine import log
from engine.checkpoints.checkpoints import Checkpoint
from engine.errors import UserError
from engine.inference import CPU_BATCH_SIZE
from engine.model import Forward
from engine.settings import positive, required
from engine.training.settings import StepSchedule
from pretraining import model
from pretraining.data import RecordSet, load_records
from pretraining.objectives import warn_of_equal_labels
from runs.capability import Capability, Job, Measured, Predict, Sets, Training

# A higher value of these METRICS is better, a lower LOSS.
NEXT_SENTENCE_ACCURACY = "next_sentence_accuracy"
METRICS = ("masked_lm_accuracy", NEXT_SENTENCE_ACCURACY)
LOSS = "loss"

_NEXT_SENTENCE_HEAD = "cls/seq_relationship/output_bias"


class HeldOut:
    """The examples to evaluate: all, or the first ones, limited by --max_eval_steps."""

    def __init__(self, records: RecordSet, max_steps: Optional[int], examples_per_step: int):
        self.has_next_sentences = records.has_next_sentences
        count = len(records)
        if max_steps is not None and max_steps * examples_per_step < count:
            count = max_steps * examples_per_step
            log.warn(f"--max_eval_steps={max_steps}: only the first {count:,} of "
                     f"{len(records):,} examples are evaluated")
        self.source = records.source().subset(slice(count))
        # Of the flag, not of the count, which another number of replicas changes.
        self.content_hash = f"{records.content_hash}, {max_steps} steps"

    def __len__(self) -> int:
        return len(self.source.lengths)


class Pretraining(Capability):
    """An encoder with heads for masked words and next sentences."""
    verb, unit, loss, length = "Evaluating", "examples", LOSS, StepSchedule

    def facts(self) -> Dict[str, Any]:
        """The encoder; texts have become ids already."""
        return {"task": "pretraining", "model config": self.config.to_dict()}

    def metrics(self) -> Sequence[str]:
        """Accuracies."""
        return METRICS

    def require(self, checkpoint: Checkpoint, flag: str) -> None:
        """The head for masked words."""
        require_masked_lm_head(checkpoint)

    def load(self, job: Job, values: flags.FlagValues, training: Any = None) -> Sets:
        """The examples to train and to evaluate on; all are read before the training starts."""
        sizes = Sizes(values.max_seq_length, positive(values, "max_predictions_per_seq"),
                      self.config.vocab_size)

        def load(flag: str) -> RecordSet:
            return load_records(
                required(values, flag), f"--{flag}", sizes, job.settings.store_dir,
                vocab_file=self.encoding.vocab_file if self.encoding else values.vocab_file)

        max_steps = positive(values, "max_eval_steps") if values["max_eval_steps"].present else None
        records = load("input_file") if values.do_train else None
        train = self._training(records) if records else None
        if not values.do_eval:
            return Sets(train)
        if values.eval_input_file:
            held_out = load("eval_input_file")
        else:
            log.warn("no --eval_input_file: evaluating on --input_file, which is not held-out text")
            held_out = records or load("input_file")
        evaluation = job.settings.evaluation
        if evaluation.metric_for_best == NEXT_SENTENCE_ACCURACY and not all(
                examples.has_next_sentences for examples in (records, held_out) if examples):
            raise UserError(f"--metric_for_best={NEXT_SENTENCE_ACCURACY}: the examples have no "
                            "next-sentence labels, or all of them are the same")
        batch_size = evaluation.eval_batch_size or CPU_BATCH_SIZE  # Google's, too
        return Sets(train, {"": HeldOut(held_out, max_steps, batch_size * len(job.devices.names))})

    def _training(self, records: RecordSet) -> Training:
        stored = records.records
        has_pairs = (stored.lengths("input_ids") > stored.scalars("first_segment_length")).any()
        if has_pairs:
            warn_of_equal_labels(stored.flat("next_sentence_label").mean(), "make the examples anew, with a blank "
                                 "line after each document alone, or with --objective=mlm")
        elif not records.has_next_sentences:
            log.info("All examples have the same next_sentence_label: only masked tokens are learned")
        if self.config.type_vocab_size == 1 and has_pairs:
            log.warn(ONE_SEGMENT)
        return Training(
            len(records), records.content_hash,
            model.forward_of(self.config, next_sentences=records.has_next_sentences),
            records.source,
            facts={"--max_seq_length": records.max_seq_length}, ties_embeddings=True)

    def forward(self, sets: Sequence[HeldOut] = (), checkpoint: Optional[Checkpoint] = None) -> Forward:
        """With the next sentences if the set has labels of them, and the checkpoint their head."""
        return model.forward_of(self.config, next_sentences=(
            sets[0].has_next_sentences and _NEXT_SENTENCE_HEAD in checkpoint.shapes))

    def measure(self, job: Job, held_out: HeldOut, predict: Predict) -> Measured:
        return Measured(metrics_of(predict(held_out.source)))


def metrics_of(predictions: Mapping[str, np.ndarray]) -> Dict[str, float]:
    """The metrics, under the names of Google's run_pretraining.py.

    Args:
        predictions: those of `model.forward_of`, of all examples.
    """
    sums = {name: float(values.sum(dtype=np.float64)) for name, values in predictions.items()}
    num_masked = max(sums["masked_lm_weight"], 1e-5)
    metrics = {"masked_lm_accuracy": sums["masked_lm_correct"] / num_masked,
               "masked_lm_loss": sums["masked_lm_loss"] / num_masked}
    loss = metrics["masked_lm_loss"]
    metrics["perplexity"] = math.exp(min(loss, 700.0))  # e^710 overflows
    if "next_sentence_loss" in sums:
        num_examples = len(predictions["next_sentence_loss"])
        for name in (NEXT_SENTENCE_ACCURACY, "next_sentence_loss"):
            metrics[name] = sums[name.replace("accuracy", "correct")] / num_examples
        loss += metrics["next_sentence_loss"]
    return {LOSS: loss, **metrics}
