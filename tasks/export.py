"""Exports a trained model for other programs.

`<output_dir>/export/` holds a SavedModel, a model card, and, in `assets.extra`, the vocabulary,
the labels and the model's config.
"""

import os
import shutil
from typing import Callable, Dict, Optional

from absl import flags
import tensorflow.compat.v1 as tf

import modeling
from encoder import classifier, label_config, model_files, vocabulary
from engine import checkpoints, files, log, saved_model, settings
from engine.errors import UserError
from engine.model import INFERENCE
from tasks import capabilities, label_types, model_card, model_folder

_FROZEN_GRAPH = "frozen_graph.pb"
INPUTS = ("input_ids", "input_mask", "segment_ids")


def _single_label_outputs(logits: tf.Tensor) -> Dict[str, tf.Tensor]:
    return {"probabilities": tf.nn.softmax(logits),
            "label_index": tf.argmax(logits, axis=-1)}


# Name of a label kind → a function from logits, [batch, num_outputs], to the export's outputs.
_OUTPUTS: Dict[str, Callable[[tf.Tensor], Dict[str, tf.Tensor]]] = {
    label_types.SingleLabel.name: _single_label_outputs,
    label_types.Scorer.name: _single_label_outputs,
    label_types.MultiLabel.name: lambda logits: {"probabilities": tf.sigmoid(logits)},
    label_types.Regression.name: lambda logits: {"value": tf.squeeze(logits, -1)},
}


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of an export."""
    flags.DEFINE_bool("do_export", False, "Write the trained model to <output_dir>/export, as a "
                      "SavedModel; alone, it needs only --output_dir.", flag_values=values)
    flags.DEFINE_enum("export_frozen_graph", None, list(saved_model.FLOAT_TYPES), "With "
                      "--do_export: also write the model as a frozen graph, a single file with "
                      "weights of this type.", flag_values=values)


def check_flags(values: flags.FlagValues) -> None:
    """Raises the UserErrors of an export before the hours of training."""
    check_output(values)
    if values.do_export and not values.do_train:
        model_folder.load(values.output_dir)


def check_output(values: flags.FlagValues) -> None:
    """Raises a UserError for an output that cannot be written, whatever kind of model it is."""
    if values.export_frozen_graph and not values.do_export:
        raise UserError("--export_frozen_graph needs --do_export; set both or neither")
    if values.do_export:
        export_folder(settings.required(values, "output_dir"))
    elif values.output_dir and saved_model.is_there(values.output_dir):
        raise UserError(f"--output_dir={values.output_dir} is an export, in which nothing is "
                        f"written: give it as --init_checkpoint={values.output_dir}, and another "
                        "--output_dir")


def export_folder(output_dir: str) -> str:
    """The folder that the export is written to. Raises a UserError if it holds something else."""
    folder = os.path.join(output_dir, "export")
    if saved_model.is_there(output_dir):
        raise UserError(f"--output_dir={output_dir} is an export; --do_export needs the output "
                        "directory of the training")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UserError(f"{folder} is a file, and --do_export writes a folder of that name; "
                        "move it away")
    if os.path.isdir(folder) and os.listdir(folder) and not saved_model.is_there(folder):
        raise UserError(f"{folder} is not empty and not an export (it has no "
                        f"{saved_model.GRAPH_FILE}): --do_export does not overwrite it; move it "
                        "away")
    return folder


def write(output_dir: str, frozen_type: Optional[str]) -> None:
    """Exports the best or else the newest checkpoint of a training; replaces an earlier export.

    Args:
        frozen_type: also writes a frozen graph whose weights have this type, one of
            `saved_model.FLOAT_TYPES`.

    Raises:
        UserError: there is no trained model.
    """
    model, checkpoint = model_folder.load(output_dir), model_folder.checkpoint_of(output_dir)
    capability = capabilities.of_model(model.kind)
    card = model_card.text(output_dir, model, checkpoint.global_step, frozen_type,
                           capability and capability.reading)

    def describe(assets: str) -> None:
        for name in model_folder.FILES:
            shutil.copyfile(os.path.join(output_dir, name), os.path.join(assets, name))

    write_folder(output_dir, lambda: _signature(model), checkpoint, frozen_type, describe, card)


def write_folder(output_dir: str, build: saved_model.Build, checkpoint: checkpoints.Checkpoint,
                 frozen_type: Optional[str], describe: Callable[[str], None], card: str) -> None:
    """Writes `<output_dir>/export`, of any kind of model; replaces an earlier export as a whole.

    Args:
        describe: writes the files that describe the model into a folder.
        card: the content of README.md.
    """
    folder = export_folder(output_dir)
    with files.atomic_folder(folder) as draft:
        saved_model.write(draft, build, checkpoint)
        if frozen_type:
            saved_model.write_frozen_graph(
                os.path.join(draft, _FROZEN_GRAPH), build, checkpoint, frozen_type)
        assets = os.path.join(draft, saved_model.ASSETS)
        os.mkdir(assets)
        describe(assets)
        files.write_text(os.path.join(draft, "README.md"), card)
    log.info(f"Exported {checkpoint.path} (step {checkpoint.global_step}): {folder}")


def write_with_files(output_dir: str, build: saved_model.Build, model: model_files.ModelFiles,
                     frozen_type: Optional[str], card: str) -> None:
    """`write_folder`, for a model that its files describe as they are."""
    def describe(assets: str) -> None:
        model_files.save(assets, model.config(), model.file(vocabulary.FILE),
                         vocabulary.is_lower_cased(model.folder))
        if model.description():  # that of Google's code has none
            shutil.copyfile(model.file(label_config.FILE),
                            os.path.join(assets, label_config.FILE))

    write_folder(output_dir, build, model.checkpoint, frozen_type, describe, card)


def _signature(model: model_folder.TrainedModel) -> saved_model.Signature:
    """Builds the model in the default graph, with int32 inputs [batch, length] of any size."""
    kind = model.kind
    inputs = {name: tf.placeholder(tf.int32, [None, None], name=name) for name in INPUTS}
    mode = INFERENCE._replace(computation=modeling.Computation(inlined=True))
    outputs = classifier.forward_of(model.config, kind.num_outputs)(inputs, mode)
    named = _OUTPUTS[kind.name](outputs.predictions["logits"])
    return saved_model.Signature(
        inputs, {name: tf.identity(tensor, name=name) for name, tensor in named.items()})
