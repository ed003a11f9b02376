"""The output layer of another model, which a run takes over: for the same labels, in the run's order."""

from typing import Any, Mapping, Sequence

from encoder import model_files, task_json, written_labels
from engine import log
from engine.checkpoints.checkpoints import Checkpoint
from engine.errors import UserError
from runs.capability import Capability

SAME_TASK = "they must be of the same task"  # what is to be done where nothing is trained
NEW_LAYER = "--new_output_layer keeps the encoder and starts this layer anew"
_RENAME = "; labels that differ only in their spelling can be renamed in the model's task.json"
OTHER_FOLDER = "use another --output_dir, and start from this one (--init_checkpoint)"

# The variables of a layer for labels → how many of their dimensions are the labels.
_VARIABLES = {"output_weights": 1, "output_bias": 1, "crf/transitions": 2, "crf/first": 1, "crf/last": 1}
_ENCODER = "bert/"  # how the names of its variables begin


def left_out(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint's encoder alone."""
    names = checkpoint.parameters()
    layer = [name for name in names if not name.startswith(_ENCODER)]
    if layer:
        log.info(f"--new_output_layer: {', '.join(layer)} of {checkpoint.path} are left out")
    return checkpoint.renamed({name: name for name in names if name not in layer})


def taken_over(model: Capability, checkpoint: Checkpoint, flag: str, way_out: str = SAME_TASK) -> Checkpoint:
    """The checkpoint, its output layer in the order of the model's labels.

    Args:
        flag: that names the checkpoint, for messages.
        way_out: ends the message for a layer of other labels.

    Raises:
        UserError: the layer is for something else.
    """
    num_outputs = model.num_outputs()
    if not (num_outputs and model_files.has_output_layer(checkpoint)):
        return checkpoint
    where = f"{flag}={checkpoint.path}"
    own, description = model.describe(), task_json.read(model_files.folder_of(checkpoint.path))
    labels, held = model.labels_of(own, where), ()
    if description and description["kind"] != own["kind"]:
        raise UserError(f"{where} has an output layer for {description['kind']}, and this run needs one for "
                        f"{own['kind']}: {way_out}")
    if description:
        held = model.labels_of(description, where)
    if len(held) != model_files.num_outputs(checkpoint) or written_labels.places(held):
        model_files.check_outputs(checkpoint, num_outputs, flag, way_out)
        if labels and tuple(held) != tuple(labels):
            are_numbers = list(labels) == list(map(str, range(len(labels))))
            say = log.info if are_numbers or not held else log.warn
            say(f"{where} does not name its labels: its outputs are taken for {_listed(labels)}, in this order")
        return checkpoint
    if set(held) != set(labels):
        raise UserError(f"{where} has an output layer for the labels {_listed(held)}, and this run has "
                        f"{_listed(labels)}: {way_out}"
                        + (_RENAME if way_out == NEW_LAYER and len(held) == len(labels) else ""))
    if tuple(held) == tuple(labels):
        return checkpoint
    log.info(f"{where}: its outputs are put in the order of this run's labels, {_listed(labels)}")
    rows = [list(held).index(label) for label in labels]
    return checkpoint._replace(rows={name: (rows,) * count for name, count in _VARIABLES.items()
                                     if name in checkpoint.shapes})


def warn_of_pairs(start: Checkpoint, description: Mapping[str, Any]) -> None:
    """Warns of a layer that has learned from pairs, if a training's description says single texts; or the reverse."""
    held = model_files.has_output_layer(start) and task_json.read(model_files.folder_of(start.path)) or {}
    learned, now = (each.get("takes_pairs") for each in (held, description))
    if None not in (learned, now) and learned != now:
        names = {True: "pairs of texts", False: "single texts"}
        log.warn(f"{start.path} was trained on {names[learned]}, and this run trains it on {names[now]}: the output "
                 "layer that it keeps may not fit; --new_output_layer starts it anew")


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(map(log.brief, labels[:10])) + (", ..." if len(labels) > 10 else "")
