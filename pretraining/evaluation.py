"""Evaluates a model's predictions of masked tokens and next sentences, on all replicas."""

import math
import os
from typing import ContextManager, Dict, Mapping

import numpy as np

from encoder import model_files
from encoder.pretraining_heads import require_masked_lm_head
from engine import checkpoints, files, inference, log
from engine.data.batches import Source
from engine.model import Forward
from engine.progress import Counter
from engine.training import run, summaries
from engine.training.evaluations import Evaluate
from pretraining import model
from pretraining.data import RecordSet
from pretraining.training import RESULTS, Job

# A higher value of these METRICS is better, a lower LOSS.
NEXT_SENTENCE_ACCURACY = "next_sentence_accuracy"
METRICS = ("masked_lm_accuracy", NEXT_SENTENCE_ACCURACY)
LOSS = "loss"

_NEXT_SENTENCE_HEAD = "cls/seq_relationship/output_bias"


def evaluator(job: Job, records: RecordSet) -> ContextManager[Evaluate]:
    """A function that evaluates checkpoints on these examples."""
    source = _source(job, records)

    def forward_of(checkpoint: checkpoints.Checkpoint) -> Forward:
        return model.forward_of(job.config, next_sentences=(
            records.has_next_sentences and _NEXT_SENTENCE_HEAD in checkpoint.shapes))

    return inference.evaluator(forward_of, lambda: source, job.devices,
                               job.settings.evaluation.eval_batch_size, metrics_of)


def _source(job: Job, records: RecordSet) -> Source:
    """The examples to evaluate: all, or the first ones, limited by --max_eval_steps."""
    source, count = records.source(job.settings.training.seed), _num_examples(job, records)
    if count < len(records):
        log.warn(f"--max_eval_steps={job.max_eval_steps}: only the first {count:,} of "
                 f"{len(records):,} examples are evaluated")
    return source._replace(lengths=source.lengths[:count])


def _num_examples(job: Job, records: RecordSet) -> int:
    if job.max_eval_steps is None:
        return len(records)
    return min(len(records), (job.max_eval_steps * job.settings.evaluation.eval_batch_size
                              * len(job.devices.names)))


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


def evaluate_and_write(job: Job, records: RecordSet, evaluate: Evaluate) -> None:
    """Evaluates the best or newest model; writes eval_results.txt, lines of `name = value`.

    Raises:
        UserError: there is no model, or it does not match the job.
    """
    checkpoint = trained_checkpoint(job)
    log.info(f"Evaluating {checkpoint.path} (step {checkpoint.global_step})")
    total = _num_examples(job, records)
    with Counter("Evaluating", unit="examples", total=total) as counter:
        metrics = evaluate(checkpoint, counter.advance)
    results = dict(sorted({**metrics, "global_step": checkpoint.global_step}.items()))
    files.write_text(os.path.join(job.settings.output_dir, RESULTS),
                     "".join(f"{name} = {value}\n" for name, value in results.items()))
    summaries.write_evaluation(job.settings.output_dir, metrics, checkpoint.global_step)
    log.results(results)


def trained_checkpoint(job: Job) -> checkpoints.Checkpoint:
    """The best or else the newest checkpoint of the output directory, or else --init_checkpoint.

    Raises:
        UserError: there is none, or it does not match the job.
    """
    checkpoint, flag = run.find_trained(job.settings, job.facts())
    model_files.check_layers(checkpoint, job.config, flag)
    return require_masked_lm_head(checkpoint)
