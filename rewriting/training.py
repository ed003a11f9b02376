"""Trains a model that scores phrases: pairwise or listwise."""

import numpy as np

from engine.training import throughput
from engine.training.evaluations import Evaluate
from rewriting import model
from rewriting.data import PairwiseSet, SlotSet, listwise_set
from tasks import training
from tasks.training import Job

PAIRWISE, LISTWISE = OBJECTIVES = ("pairwise", "listwise")


def train(job: Job, slots: SlotSet, objective: str, evaluate: Evaluate) -> None:
    """Trains for the epochs of the job's settings; resumes an earlier run.

    Args:
        objective: one of OBJECTIVES.
        evaluate: evaluates a checkpoint on the dev set; called only if the settings ask for
            evaluation during the training.

    Raises:
        UserError: the output directory belongs to another run, or the checkpoint to another model.
    """
    operations = of_pairs = throughput.classifier(job.config)
    if objective == LISTWISE:
        train_set, forward = listwise_set(slots), model.listwise(job.config)

        def operations(lengths: np.ndarray) -> float:
            return train_set.mean_phrases * of_pairs(lengths)
    else:
        train_set, forward = PairwiseSet(slots), model.pairwise(job.config)
    training.train(job, train_set, evaluate, forward, facts={"--objective": objective},
                   operations=operations)
