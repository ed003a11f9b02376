"""The heads of pretraining, masked words and next sentences, as `runs` sees them: see `runs.head`."""

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
from runs.head import Head, Job, Measured, Model, Predict, Sets, Training

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
        self.source = records.source().part(0, count)

    def __len__(self) -> int:
        return len(self.source.lengths)


def _load(job: Job, values: flags.FlagValues) -> Sets:
    """The examples to train and to evaluate on; all are read before the training starts."""
    sizes = Sizes(values.max_seq_length, positive(values, "max_predictions_per_seq"),
                  job.model.config.vocab_size)
    encoding = job.model.encoding

    def load(flag: str) -> RecordSet:
        return load_records(required(values, flag), f"--{flag}", sizes, job.settings.store_dir,
                            vocab_file=encoding.vocab_file if encoding else values.vocab_file,
                            dynamic_padding=values.dynamic_padding)

    records = load("input_file") if values.do_train else None
    train = _training(job, records) if records else None
    if not values.do_eval:
        return Sets(train)
    if values.eval_input_file:
        held_out = load("eval_input_file")
    else:
        log.warn("no --eval_input_file: evaluating on --input_file, which is not held-out text")
        held_out = records or load("input_file")
    chosen = job.settings.evaluation.metric_for_best
    if chosen == NEXT_SENTENCE_ACCURACY and not all(
            some.has_next_sentences for some in (records, held_out) if some):
        raise UserError(f"--metric_for_best={chosen}: the examples have no next-sentence labels, "
                        "or all of them are the same")
    batch_size = job.settings.evaluation.eval_batch_size or CPU_BATCH_SIZE  # Google's, too
    examples_per_step = batch_size * len(job.devices.names)
    return Sets(train, {"": HeldOut(held_out, job.model.own, examples_per_step)})


def _training(job: Job, records: RecordSet) -> Training:
    if not records.has_next_sentences:
        log.info("All examples have the same next_sentence_label: only masked tokens are learned")
    config, stored = job.model.config, records.records
    if config.type_vocab_size == 1 and (
            stored.lengths("input_ids") > stored.scalars("first_segment_length")).any():
        log.warn(ONE_SEGMENT)
    return Training(
        len(records), records.content_hash,
        model.forward_of(config, next_sentences=records.has_next_sentences),
        records.source,
        facts={"--max_seq_length": records.max_seq_length}, ties_embeddings=True)


def _forward(trained: Model, sets: Sequence[HeldOut], checkpoint: Checkpoint) -> Forward:
    return model.forward_of(trained.config, next_sentences=(
        sets[0].has_next_sentences and _NEXT_SENTENCE_HEAD in checkpoint.shapes))


def _measure(job: Job, held_out: HeldOut, predict: Predict) -> Measured:
    del job
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


def _require(trained: Model, checkpoint: Checkpoint, flag: str) -> None:
    del trained, flag
    require_masked_lm_head(checkpoint)


def _facts(trained: Model) -> Dict[str, Any]:
    return {"task": "pretraining", "model config": trained.config.to_dict()}


HEAD = Head(
    "Evaluating", "examples", facts=_facts, require=_require, load=_load, forward=_forward,
    measure=_measure, metrics=lambda own: METRICS, loss=LOSS, length=StepSchedule)
