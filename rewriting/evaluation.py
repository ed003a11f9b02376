"""Evaluates how well a model ranks the phrases of held-out slots."""

from typing import ContextManager, Dict, Mapping, Optional

import numpy as np

from engine import inference, log
from engine.inference import Predictor
from engine.progress import Counter
from engine.training.evaluations import Evaluate
from rewriting import ranking
from rewriting.data import KIND, QuestionSet
from rewriting.model import log_odds
from rewriting.training import LISTWISE
from tasks.evaluation import trained_checkpoint, write_results
from tasks.training import Job


def evaluate_and_write(job: Job, held_out: Mapping[str, QuestionSet], objective: str) -> None:
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
        for suffix, questions in held_out.items():
            with Counter("Scoring", unit="pairs", total=len(questions.pairs)) as counter:
                logits = predictor.predict(questions.pairs.source(),
                                           job.settings.evaluation.eval_batch_size,
                                           counter.advance)["logits"]
            found = results_of(questions, logits, objective)
            results.update({name + suffix: value for name, value in found.items()})
            details.update({"num_slots" + suffix: int(questions.is_ranked.sum()),
                            "num_pairs" + suffix: len(questions.pairs),
                            "chance" + suffix: ranking.chance(questions.num_phrases,
                                                              questions.num_fitting)})
    results.setdefault("eval_loss", results.get("eval_loss_test"))
    write_results(job.settings.output_dir, results, details, checkpoint.global_step)


def evaluator(job: Job, dev: Optional[QuestionSet], objective: str) -> ContextManager[Evaluate]:
    """A function that evaluates checkpoints on the dev set."""
    return inference.evaluator(
        lambda checkpoint: job.forward, lambda: dev.pairs.source(), job.devices,
        job.settings.evaluation.eval_batch_size,
        lambda predictions: results_of(dev, predictions["logits"], objective))


def results_of(questions: QuestionSet, logits: np.ndarray, objective: str) -> Dict[str, float]:
    """The metrics of a set: ranking.METRICS, the pairs' eval_accuracy, the objective's eval_loss.

    Args:
        logits: [pairs, 2].
    """
    odds, labels = log_odds(logits.astype(np.float64)), questions.labels
    if objective == LISTWISE:
        loss = _listwise_loss(questions, odds)
    else:
        loss = float(np.mean(KIND.losses(logits.astype(np.float64), labels)))
    return {"eval_accuracy": float(np.mean((odds > 0) == labels)), "eval_loss": loss,
            **ranking.evaluate(questions.num_phrases, questions.num_fitting, odds)}


def _listwise_loss(questions: QuestionSet, odds: np.ndarray) -> float:
    """The mean, over the ranked slots, of the softmax cross-entropy over their phrases."""
    largest = np.maximum.reduceat(odds, questions.starts)
    powers = np.exp(odds - np.repeat(largest, questions.num_phrases))
    losses = (np.log(np.add.reduceat(powers, questions.starts)) + largest
              - odds[questions.starts])
    return float(np.mean(losses[questions.is_ranked]))
