"""The first losses of the toy run of each capability."""

import glob
import json
import os
from typing import List

from toy_runs import STEPS

import tensorflow.compat.v1 as tf

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(__file__)), "golden_losses.json")
RUNTIME = ".".join(tf.__version__.split(".")[:2])


def losses_of(output_dir, steps: int = STEPS) -> List[float]:
    """The first losses in the event file of a run."""
    path, = glob.glob(os.path.join(str(output_dir), "events.out.tfevents.*"))
    losses = {event.step: value.simple_value for event in tf.train.summary_iterator(path)
              for value in event.summary.value if value.tag == "loss"}
    return [losses[step] for step in range(1, steps + 1)]


def read_golden():
    with open(GOLDEN, encoding="utf-8") as file:
        return json.load(file)
