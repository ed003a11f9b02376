"""Several trained models as one, whose prediction is the mean of their probabilities.

They are the tries of a search with `--ensemble`. A file in the output directory names them.
"""

import os
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from engine.checkpoints import checkpoints
from engine.checkpoints.checkpoints import Checkpoint
from engine.data.batches import Source
from engine.disk import files
from engine.inference import Predictor

FILE = "ensemble.json"
TRIES = "tries"  # the folder of the models, in the output directory

Predictions = Dict[str, np.ndarray]
Mean = Callable[[Source, List[Predictions]], Predictions]  # of several models → as of one model


def write(output_dir: str, names: Sequence[str]) -> None:
    """Makes the tries with these names the ensemble of an output directory."""
    files.write_json(os.path.join(output_dir, FILE), {"members": list(names)})


def remove(output_dir: str) -> None:
    """Removes the ensemble; the output directory's own model, the best try, is left."""
    path = os.path.join(output_dir, FILE)
    if os.path.exists(path):
        os.remove(path)


def members(output_dir: str) -> List[Checkpoint]:
    """The models of the ensemble in an output directory; none without an ensemble.

    Raises:
        UserError: the file is damaged, or a model is missing.
    """
    path = os.path.join(output_dir, FILE)
    if not os.path.exists(path):
        return []
    names = files.read_record(path, "the ensemble", {"members": list})["members"]
    return [checkpoints.open_checkpoint(  # only base names count: no path leads out of the folder
        os.path.join(output_dir, TRIES, os.path.basename(str(name))), path) for name in names]


def predict(models: Sequence[Tuple[Predictor, Checkpoint]], mean: Optional[Mean], source: Source,
            batch_size: Optional[int], advance: Callable[[int], None]) -> Predictions:
    """The predictions of one model, or the mean of several, for all examples of a source.

    Args:
        models: their checkpoints; they may share a predictor.
        advance: called as the last model finishes the examples.
    """
    found = []
    for number, (predictor, checkpoint) in enumerate(models, 1):
        predictor.restore(checkpoint)
        found.append(predictor.predict(
            source, batch_size, advance if number == len(models) else lambda count: None))
    return mean(source, found) if len(found) > 1 else found[0]
