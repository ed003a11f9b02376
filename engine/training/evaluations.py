"""Evaluations during a training: which checkpoint is the best, and whether to go on.

Every decision is a function of what checkpoints.EVALUATIONS in the output directory holds,
so that a run that was interrupted decides as the uninterrupted one.
"""

import math
import os
from typing import Any, Callable, Dict, List, Mapping, Optional

from engine import checkpoints, files, log
from engine.training import summaries
from engine.training.settings import EvaluationSettings


# (checkpoint, advance) -> its metrics, of which EvaluationSettings.metric_for_best is one. `advance`
# hears now and then how many more examples are done, and may raise.
Evaluate = Callable[[checkpoints.Checkpoint, Callable[[int], None]], Mapping[str, float]]


class Evaluations:
    """Those of one output directory; later than its newest checkpoint are none."""

    def __init__(self, output_dir: str, settings: EvaluationSettings, evaluate: Evaluate):
        self.settings = settings
        self._output_dir = output_dir
        self._path = os.path.join(output_dir, checkpoints.EVALUATIONS)
        self._evaluate = evaluate
        newest = checkpoints.latest(output_dir)
        step = newest.global_step if newest else 0
        self._done: List[Dict[str, Any]] = []  # by step: "step" and the metrics
        if os.path.exists(self._path):
            done = files.read_json(self._path, "the evaluations")["evaluations"]
            self._done = [evaluation for evaluation in done if evaluation["step"] <= step]
        # The best by another metric than the run's so far may have been removed.
        self._gone = {evaluation["step"] for evaluation in self._done
                      if not checkpoints.is_kept(output_dir, evaluation["step"])}

    def lacks(self, step: int) -> bool:
        return all(evaluation["step"] != step for evaluation in self._done)

    def run(self, checkpoint: checkpoints.Checkpoint,
            advance: Callable[[int], None] = lambda count: None) -> None:
        """Evaluates a checkpoint, the newest; says what came of it and remembers it."""
        step, metrics = checkpoint.global_step, self._evaluate(checkpoint, advance)
        summaries.write_evaluation(self._output_dir, metrics, step)
        # JSON has no NaN, which a correlation may be.
        finite = {name: value if math.isfinite(value) else None
                  for name, value in metrics.items()}
        self._done.append({"step": step, **finite})
        best_step = self.best_step
        files.write_json(self._path, {
            "metric": self.settings.metric_for_best,
            "best_checkpoint": best_step and checkpoints.name_of(best_step),
            "evaluations": self._done})
        said = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        log.info(f"Evaluation at step {step}: {said} ({self._said_of_best(step)})")

    @property
    def best_step(self) -> Optional[int]:
        """Of the best evaluation, the first of equals; None while none has a finite metric.

        One whose checkpoint was gone when the run was taken up is not the best.
        """
        name, sign = self.settings.metric_for_best, 1 if self.settings.higher_is_better else -1
        finite = [evaluation for evaluation in self._done
                  if evaluation.get(name) is not None and evaluation["step"] not in self._gone]
        best = max(finite, key=lambda evaluation: sign * evaluation[name], default=None)
        return best and best["step"]

    def is_patience_used_up(self) -> bool:
        """Whether as many evaluations as the patience allows brought no improvement; says so."""
        patience, best_step = self.settings.early_stopping_patience, self.best_step or 0
        since = [evaluation["step"] for evaluation in self._done if evaluation["step"] > best_step]
        if not patience or len(since) < patience:
            return False
        metric = self.settings.metric_for_best
        failed = (f"did not improve on the {metric} of step {best_step}" if best_step
                  else f"had no {metric} that is a number")
        log.info(f"Stopped early at step {since[-1]}: {len(since)} evaluations {failed}; a larger "
                 "--early_stopping_patience goes on")
        return True

    def _said_of_best(self, step: int) -> str:
        best_step = self.best_step
        if best_step is None:
            return f"none is the best: {self.settings.metric_for_best} was never a number"
        return "the best so far" if step == best_step else f"the best: step {best_step}"


def forget(output_dir: str) -> None:
    """For a training that goes on without evaluations: its newest checkpoint is what counts."""
    path = os.path.join(output_dir, checkpoints.EVALUATIONS)
    if os.path.exists(path):
        log.warn(f"the run in {output_dir} goes on without evaluations: its best checkpoint so "
                 "far counts no more, and the newest does")
        os.remove(path)
