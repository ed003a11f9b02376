"""Classifiers of something else than texts, and the capabilities that make their examples.

This table alone names capabilities. Their modules are loaded on use, so that a command which takes
any trained model serves them without importing them.
"""

import importlib
from typing import Callable, NamedTuple, Optional

from tasks import label_types, model_card
from tasks.data import TrainingSet
from tasks.training import Job

SCORER_LABELS = ("does not fit", "fits")

# The labels of a capability's models → the module that has its `CAPABILITY`.
_MODULES = {SCORER_LABELS: "rewriting.scorer"}


class Capability(NamedTuple):
    """What other commands need of a capability whose models are classifiers."""
    task_name: str  # in the record of a run
    command: str  # that evaluates such a model and predicts with it
    reading: model_card.Reading
    # (job, --data_dir, --train_file) → the training set; raises a UserError if there is none.
    load_training_set: Callable[[Job, Optional[str], Optional[str]], TrainingSet]


def of_model(kind: label_types.Kind) -> Optional[Capability]:
    """The capability that a trained model with these labels belongs to; None for one of texts."""
    module = _MODULES.get(tuple(kind.labels))
    return importlib.import_module(module).CAPABILITY if module else None
