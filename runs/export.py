"""Exports a trained model for other programs.

`<output_dir>/export/` holds a SavedModel, a model card, and, in `assets.extra`, the vocabulary,
the description and the model's config.
"""

import glob
import os
import re
import shutil
from typing import List, Optional, Sequence, Tuple, Type

from absl import flags
import tensorflow.compat.v1 as tf

import modeling
from encoder import model_files, task_json, vocabulary
from encoder.model_files import ModelFiles
from engine import log, settings
from engine.checkpoints import checkpoints, saved_model
from engine.disk import files
from engine.errors import UserError
from engine.model import INFERENCE
from runs import model_card
from runs.capability import Capability

HELP_TOPIC = "Export"  # of the flags defined here

CARD = "README.md"
_FROZEN_GRAPH = "frozen_graph.pb"
_NEXT = "next"
_VERSION = re.compile("[1-9][0-9]{0,17}")  # the name of a numbered version's folder


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of an export."""
    flags.DEFINE_bool("do_export", False, "Write the trained model to <output_dir>/export, as a "
                      "SavedModel; alone, it needs only --output_dir.", flag_values=values)
    flags.DEFINE_enum("export_frozen_graph", None, list(saved_model.FLOAT_TYPES), "With "
                      "--do_export: also write the model as a frozen graph, a single file with "
                      "weights of this type.", flag_values=values)
    flags.DEFINE_string("export_version", None, "With --do_export: write to "
                        "<output_dir>/export/N, a numbered version as TensorFlow Serving and "
                        f"serving.run take them; N is a number, or {_NEXT}.",
                        flag_values=values)


def check_flags(values: flags.FlagValues, kind: Type[Capability]) -> None:
    """Raises a UserError for an output that cannot be written, before the hours of training."""
    for name in ("export_frozen_graph", "export_version"):
        if values[name].value and not values.do_export:
            raise UserError(f"--{name} needs --do_export; set both or neither")
    if not values.do_export:
        if values.output_dir and checkpoints.is_saved_model(values.output_dir):
            raise UserError(f"--output_dir={values.output_dir} is an export, in which nothing is "
                            f"written: give it as --init_checkpoint={values.output_dir}, and "
                            "another --output_dir")
        return
    _export_folder(settings.required(values, "output_dir"), values.export_version)
    if not values.do_train:
        _open(values.output_dir, kind)


def _open(output_dir: str, kind: Type[Capability]) -> Tuple[ModelFiles, Capability]:
    trained = model_files.open_folder(output_dir, "--output_dir")
    return trained, kind.open(trained)


def _export_folder(output_dir: str, version: Optional[str]) -> str:
    """The folder that the export is written to. Raises a UserError if it holds something else."""
    folder = os.path.join(output_dir, "export")
    if checkpoints.is_saved_model(output_dir):
        raise UserError(f"--output_dir={output_dir} is an export; --do_export needs the output "
                        "directory of the training")
    numbers = versions(folder)
    if version is not None:
        return _version_folder(folder, version, numbers)
    if numbers:
        raise UserError(f"{folder} holds numbered versions: add --export_version={_NEXT}, or move "
                        "it away")
    if os.path.lexists(folder) and not checkpoints.is_saved_model(folder):
        raise UserError(f"{folder} is no export (it has no {checkpoints.GRAPH_FILE}): --do_export "
                        "does not overwrite it; move it away")
    return folder


def _version_folder(folder: str, version: str, numbers: List[int]) -> str:
    if os.path.lexists(folder) and not numbers and (
            not os.path.isdir(folder) or glob.glob(os.path.join(glob.escape(folder), "*"))):
        raise UserError(f"{folder} holds no numbered versions but something else: "
                        "--export_version does not write into it; move it away")
    if version == _NEXT:
        version = str(max(numbers, default=0) + 1)
    if not _VERSION.fullmatch(version):
        raise UserError(f"--export_version={version}: must be a number from 1 on, or {_NEXT}")
    path = os.path.join(folder, version)
    if os.path.lexists(path):
        raise UserError(f"--export_version={version}: {path} is there already, and a version never "
                        f"changes; give another number, or {_NEXT}")
    return path


def write(output_dir: str, kind: Type[Capability], frozen_type: Optional[str],
          version: Optional[str] = None) -> None:
    """Exports the best or else the newest checkpoint of a training.

    It replaces an earlier export, or becomes a version beside the earlier ones.

    Args:
        frozen_type: also writes a frozen graph whose weights have this type, one of
            `saved_model.FLOAT_TYPES`.
        version: the value of --export_version.
    """
    trained, model = _open(output_dir, kind)
    checkpoint, folder = trained.checkpoint, _export_folder(output_dir, version)
    mode = INFERENCE._replace(computation=modeling.Computation(inlined=True))

    def build() -> saved_model.Signature:
        inputs = {name: tf.placeholder(tf.int32, [None] * rank, name=name)
                  for name, rank in model.inputs.items()}
        return saved_model.Signature(inputs, {
            name: tf.identity(tensor, name=name)
            for name, tensor in model.outputs(inputs, mode).items()})

    with files.atomic_folder(folder, replaces=version is None) as draft:
        saved_model.write(draft, build, checkpoint)
        if frozen_type:
            saved_model.write_frozen_graph(
                os.path.join(draft, _FROZEN_GRAPH), build, checkpoint, frozen_type)
        _describe(os.path.join(draft, saved_model.ASSETS), trained, model.card().labels)
        files.write_text(os.path.join(draft, CARD), model_card.text(
            output_dir, model, checkpoint.global_step, frozen_type))
    log.info(f"Exported {checkpoint.describe()}: {folder}")


def versions(folder: str) -> List[int]:
    """The numbers of the versions in a folder, ascending: it holds an export under each of them."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name) for name in names
                  if _VERSION.fullmatch(name) and os.path.isdir(os.path.join(folder, name)))


def _describe(assets: str, trained: ModelFiles, labels: Sequence[str]) -> None:
    """Writes the files that describe a model into a new folder."""
    os.mkdir(assets)
    model_files.save(assets, trained.config(), trained.file(vocabulary.FILE),
                     vocabulary.is_lower_cased(trained.folder))
    description = trained.description() or {}  # that of Google's code has none
    if description:
        shutil.copyfile(trained.file(task_json.FILE), os.path.join(assets, task_json.FILE))
    if labels and "labels" not in description:
        files.write_json(os.path.join(assets, task_json.LABELS), list(labels))
