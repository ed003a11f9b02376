"""Evaluations during training, for the choice of the best checkpoint and early stopping.

All decisions depend only on the file checkpoints.EVALUATIONS in the output directory, so that an
interrupted and resumed run makes the same ones as an uninterrupted run.
"""

import math
import os
from typing import Any, Callable, Dict, List, Mapping, Optional

from engine import log
from engine.checkpoints import checkpoints
from engine.disk import files
from engine.training import summaries
from engine.training.settings import EvaluationSettings
from engine.workers.coordination import NO_PEERS, Peers


# (checkpoint, advance) -> metrics, which include EvaluationSettings.metric_for_best. The function calls
# `advance` with numbers of finished examples; `advance` may raise an exception.
Evaluate = Callable[[checkpoints.Checkpoint, Callable[[int], None]], Mapping[str, float]]


class Evaluations:
    """The evaluations of one output directory, up to its newest checkpoint."""

    def __init__(self, output_dir: str, settings: EvaluationSettings, evaluate: Evaluate,
                 peers: Peers = NO_PEERS):
        self.settings = settings
        self._output_dir = output_dir
        self._evaluate = evaluate
        self._peers = peers
        newest = checkpoints.latest(output_dir)
        step = newest.global_step if newest else 0
        self._done: List[Dict[str, Any]] = [  # ascending; "step" and the metrics
            evaluation for evaluation in checkpoints.read_evaluations(output_dir)["evaluations"]
            if evaluation["step"] <= step]

    def catch_up(self, is_evaluated: Callable[[int], bool]) -> None:
        """Evaluates the newest checkpoint if that of its step `is_evaluated`, and an earlier process did not."""
        newest = checkpoints.latest(self._output_dir)
        if newest and is_evaluated(newest.global_step) and all(
                evaluation["step"] != newest.global_step for evaluation in self._done):
            self.run(newest)

    def run(self, checkpoint: checkpoints.Checkpoint,
            advance: Callable[[int], None] = lambda count: None) -> None:
        """Evaluates the newest checkpoint; logs and saves the metrics. Only the chief does."""
        if not self._peers.is_chief:
            return
        step, metrics = checkpoint.global_step, self._evaluate(checkpoint, advance)
        summaries.write_evaluation(self._output_dir, metrics, step)
        # A correlation can be NaN, which JSON does not have.
        finite = {name: value if math.isfinite(value) else None
                  for name, value in metrics.items()}
        self._done.append({"step": step, **finite})
        best_step = self.best_step
        files.write_json(os.path.join(self._output_dir, checkpoints.EVALUATIONS), {
            "metric": self.settings.metric_for_best,
            "best_checkpoint": best_step and checkpoints.checkpoint_name(best_step),
            "evaluations": self._done})
        values = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        best = (f"step {best_step}" if best_step else
                f"none, as {self.settings.metric_for_best} was never a number")
        log.info(f"Evaluation at step {step}: {values} (the best: {best})")

    @property
    def best_step(self) -> Optional[int]:
        """The step of the best evaluation; the first of a tie.

        None if no evaluation has a finite metric. Evaluations whose checkpoint is damaged or gone do not
        count: after a change of the metric, the checkpoint that is best by the new one may be gone.
        """
        ranked = checkpoints.ranking(self._done, self.settings.metric_for_best)
        return next((step for step in ranked if checkpoints.has_whole(self._output_dir, step)), None)

    def should_stop_early(self) -> bool:
        """Whether --early_stopping_patience evaluations brought no improvement; logs it if so.

        Called by all workers; the chief decides.
        """
        return self._peers.from_chief("stops early", self._should_stop_early)

    def _should_stop_early(self) -> bool:
        patience, best_step = self.settings.early_stopping_patience, self.best_step or 0
        since = [evaluation["step"] for evaluation in self._done if evaluation["step"] > best_step]
        if not patience or len(since) < patience:
            return False
        metric = self.settings.metric_for_best
        failed = (f"did not improve on the {metric} of step {best_step}" if best_step
                  else f"had no {metric} that is a number")
        log.info(f"Stopped early at step {since[-1]}: {len(since)} evaluations {failed}; to "
                 "continue, raise --early_stopping_patience")
        return True
