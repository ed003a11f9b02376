"""Evaluates how well a model ranks the phrases of held-out slots."""

from typing import ContextManager, Dict, Mapping, Optional

import numpy as np

from engine import inference, log
from engine.inference import Predictor
from engine.progress import Counter
from engine.training.evaluations import Evaluate
from rewriting import ranking
from rewriting.data import KIND, SlotSet
from rewriting.model import log_odds
from rewriting.training import LISTWISE
from tasks.evaluation import trained_checkpoint, write_results
from tasks.training import Job


def evaluate_and_write(job: Job, held_out: Mapping[str, SlotSet], objective: str) -> None:
    """Ranks the phrases of each set; writes eval_results.txt and eval_results.json.

    Args:
        held_out: sets by the suffix of their results' names.

    Raises:
        UserError: there is no trained model, or it does not match the job.
    """
    checkpoint = trained_checkpoint(job)
    log.info(f"Scoring {checkpoint.path} (step {checkpoint.global_step})")
    results, details = {}, {}
    any_source = next(iter(held_out.values())).pairs.source()
    with Predictor(job.forward, any_source, job.devices) as predictor:
        predictor.restore(checkpoint)
        for suffix, slot_set in held_out.items():
            with Counter("Scoring", unit="pairs", total=len(slot_set.pairs)) as counter:
                logits = predictor.predict(slot_set.pairs.source(),
                                           job.settings.evaluation.eval_batch_size,
                                           counter.advance)["logits"]
            found = results_of(slot_set, logits, objective)
            results.update({name + suffix: value for name, value in found.items()})
            details.update({"num_slots" + suffix: int(slot_set.is_ranked.sum()),
                            "num_pairs" + suffix: len(slot_set.pairs),
                            "chance" + suffix: ranking.chance(slot_set.num_phrases,
                                                              slot_set.num_fitting)})
    results.setdefault("eval_loss", results.get("eval_loss_test"))
    write_results(job.settings.output_dir, results, details, checkpoint.global_step)


def evaluator(job: Job, dev: Optional[SlotSet], objective: str) -> ContextManager[Evaluate]:
    """A function that evaluates checkpoints on the dev set."""
    return inference.evaluator(
        lambda checkpoint: job.forward, lambda: dev.pairs.source(), job.devices,
        job.settings.evaluation.eval_batch_size,
        lambda predictions: results_of(dev, predictions["logits"], objective))


def results_of(slot_set: SlotSet, logits: np.ndarray, objective: str) -> Dict[str, float]:
    """The metrics of a set: ranking.METRICS, the pairs' eval_accuracy, the objective's eval_loss.

    Args:
        logits: [pairs, 2].
    """
    odds, labels = log_odds(logits.astype(np.float64)), slot_set.labels
    if objective == LISTWISE:
        loss = _listwise_loss(slot_set, odds)
    else:
        loss = float(np.mean(KIND.losses(logits.astype(np.float64), labels)))
    return {"eval_accuracy": float(np.mean((odds > 0) == labels)), "eval_loss": loss,
            **ranking.evaluate(slot_set.num_phrases, slot_set.num_fitting, odds)}


def _listwise_loss(slot_set: SlotSet, odds: np.ndarray) -> float:
    """The mean, over the ranked slots, of the softmax cross-entropy over their phrases."""
    largest = np.maximum.reduceat(odds, slot_set.starts)
    powers = np.exp(odds - np.repeat(largest, slot_set.num_phrases))
    losses = (np.log(np.add.reduceat(powers, slot_set.starts)) + largest
              - odds[slot_set.starts])
    return float(np.mean(losses[slot_set.is_ranked]))
