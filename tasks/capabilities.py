"""Classifiers of something else than texts, and the capabilities that make their examples."""

from typing import Callable, Dict, NamedTuple, Optional

import numpy as np
from absl import flags

from encoder.encoding import Encoding
from engine.data.batches import Source
from runs import kinds, label_types
from runs.head import Job
from tasks.data import TrainingSet
from tasks.head import Reading


class DevSet(NamedTuple):
    """Held-out examples, and the metrics of a model's logits for them, [n, outputs]."""
    source: Source
    evaluate: Callable[[np.ndarray], Dict[str, float]]


class Capability(NamedTuple):
    """What other commands need of a capability whose models are classifiers."""
    task_name: str  # in the record of a run
    command: str  # that evaluates such a model and predicts with it
    reading: Reading
    # (job, flags) → the training set; raises a UserError if there is none.
    load_training_set: Callable[[Job, flags.FlagValues], TrainingSet]
    # (encoding, store_dir, flags) → the dev set; raises a UserError likewise.
    load_dev_set: Callable[[Encoding, str, flags.FlagValues], DevSet]


def of_model(kind: label_types.Kind) -> Optional[Capability]:
    """The capability that a trained model of this kind belongs to; None for one of texts."""
    return getattr(kinds.module_of(kind.name), "CAPABILITY", None)
