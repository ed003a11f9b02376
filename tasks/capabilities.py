"""Classifiers of something else than texts, and the capabilities that make their examples.

This table alone names capabilities. Their modules are loaded on use, so that a command which takes
any trained model serves them without importing them.
"""

import importlib
from typing import Callable, Dict, NamedTuple, Optional

import numpy as np

from encoder.encoding import Encoding
from engine.data.batches import Source
from tasks import label_types, model_card
from tasks.data import TrainingSet
from tasks.training import Job

SCORER_LABELS = ("does not fit", "fits")

# The labels of a capability's models → the module that has its `CAPABILITY`.
_MODULES = {SCORER_LABELS: "rewriting.scorer"}


class DevSet(NamedTuple):
    """Held-out examples, and the metrics of a model's logits for them, [n, outputs]."""
    source: Source
    evaluate: Callable[[np.ndarray], Dict[str, float]]


class Capability(NamedTuple):
    """What other commands need of a capability whose models are classifiers."""
    task_name: str  # in the record of a run
    command: str  # that evaluates such a model and predicts with it
    reading: model_card.Reading
    # (job, --data_dir, --train_file) → the training set; raises a UserError if there is none.
    load_training_set: Callable[[Job, Optional[str], Optional[str]], TrainingSet]
    # (encoding, store_dir, --data_dir, --dev_file) → the dev set; raises a UserError likewise.
    load_dev_set: Callable[[Encoding, str, Optional[str], Optional[str]], DevSet]


def of_model(kind: label_types.Kind) -> Optional[Capability]:
    """The capability that a trained model with these labels belongs to; None for one of texts."""
    module = _MODULES.get(tuple(kind.labels))
    return importlib.import_module(module).CAPABILITY if module else None
