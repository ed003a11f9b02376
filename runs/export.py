"""Exports a trained model for other programs.

`<output_dir>/export/` holds a SavedModel, a model card, and, in `assets.extra`, the vocabulary,
the description and the model's config.
"""

import os
import re
import shutil
from typing import Callable, List, Mapping, Optional, Sequence, Type

from absl import flags
import tensorflow.compat.v1 as tf

import modeling
from encoder import model_files, task_json, vocabulary
from encoder.model_files import ModelFiles
from engine import log, settings
from engine.checkpoints import checkpoints, onnx_file, saved_model
from engine.disk import files
from engine.errors import UserError
from engine.model import INFERENCE
from engine.training import run_record
from runs import kinds, model_card
from runs.capability import Capability
from runs.prepared import FLOAT32, WEIGHTS, Prepared

# (the file in float32, the one in int8) → how their answers agree, by name
Compare = Callable[[Prepared, Prepared], Mapping[str, str]]

HELP_TOPIC = "Export"  # of the flags defined here

CARD = "README.md"
_VERSION = re.compile("[1-9][0-9]{0,17}")  # the name of a numbered version's folder


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of an export."""
    flags.DEFINE_bool("do_export", False, "Write the trained model to <output_dir>/export, as a "
                      "SavedModel; alone, it needs only --output_dir.", flag_values=values)
    flags.DEFINE_bool("export_int8", False, "With --do_export: also write the model with int8 weights, for "
                      "serving.run --engine=int8; with --do_eval, compare it with float32 on the dev set.",
                      flag_values=values)


def check_flags(values: flags.FlagValues) -> None:
    """Raises a UserError for an output that cannot be written, before the hours of training."""
    if values.export_int8 and not values.do_export:
        raise UserError("--export_int8 needs --do_export, which is not set")
    if values.do_export:
        _export_folder(settings.required(values, "output_dir"))
    elif values.output_dir and checkpoints.is_saved_model(values.output_dir):
        raise UserError(f"--output_dir={values.output_dir} is an export, in which nothing is "
                        f"written: give it as --init_checkpoint={values.output_dir}, and "
                        "another --output_dir")


def _export_folder(output_dir: str) -> str:
    """The folder that the export is written to. Raises a UserError if it holds something else."""
    folder = os.path.join(output_dir, "export")
    if checkpoints.is_saved_model(output_dir):
        raise UserError(f"--output_dir={output_dir} is an export; --do_export needs the output "
                        "directory of the training")
    if os.path.lexists(folder) and not checkpoints.is_saved_model(folder):
        raise UserError(f"{folder} is no export (it has no {checkpoints.GRAPH_FILE}): --do_export "
                        "does not overwrite it; move it away")
    return folder


def write(values: flags.FlagValues, kind: Type[Capability], compare: Optional[Compare]) -> None:
    """Exports the best or else the newest checkpoint of a training, in the place of an earlier export.

    Args:
        kind: of the model, which --output_dir names.
        compare: what a file in int8 is compared by; None without a labelled set.
    """
    output_dir = values.output_dir
    trained = model_files.open_folder(output_dir, "--output_dir")
    model, checkpoint = kinds.model_in(trained, kind), trained.checkpoint
    mode = INFERENCE._replace(computation=modeling.Computation(inlined=True))

    def build() -> saved_model.Signature:
        inputs = {name: tf.placeholder(tf.int32, [None] * rank, name=name)
                  for name, rank in model.inputs.items()}
        return saved_model.Signature(inputs, {
            name: tf.identity(tensor, name=name)
            for name, tensor in model.outputs(inputs, mode).items()})

    folder = _export_folder(output_dir)
    with files.atomic_folder(folder) as draft:
        saved_model.write(draft, build, checkpoint)
        _describe(os.path.join(draft, saved_model.ASSETS), trained, model.card().labels)
        run_record.write(os.path.join(draft, saved_model.ASSETS), run_record.Record(model.facts(), {}))
        compared = _prepare(draft, values.export_int8, compare)
        files.write_text(os.path.join(draft, CARD), model_card.text(
            output_dir, model, checkpoint.global_step, compared))
    log.info(f"Exported {checkpoint.describe()}: {folder}")


def _prepare(draft: str, int8: bool, compare: Optional[Compare]) -> Optional[Mapping[str, str]]:
    """Writes the files for the service; returns how the one in int8 answers, None without one."""
    made = [Prepared(draft, "--output_dir", weights) for weights in (WEIGHTS if int8 else [FLOAT32])]
    try:
        for each in made:
            each.make()
    except onnx_file.CannotConvert as error:
        if int8:
            raise UserError(f"--export_int8: {error}") from error
        log.info(f"The export has no file for onnxruntime: {error}")
    if not int8:
        return None
    compared = compare(*made) if compare else {}
    if not compared:
        log.warn("--export_int8: how the answers in int8 differ is not known; --do_eval in the same command, with a "
                 "labelled dev set, compares them")
    for name, value in compared.items():
        log.info(f"int8 beside float32: {name}: {value}")
    return compared


def versions(folder: str) -> List[int]:
    """The numbers of the versions in a folder, ascending: it holds an export under each of them."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name) for name in names
                  if _VERSION.fullmatch(name) and os.path.isdir(os.path.join(folder, name)))


def _describe(assets: str, trained: ModelFiles, labels: Sequence[str]) -> None:
    """Writes the files that describe a model into a new folder."""
    os.mkdir(assets)
    model_files.save(assets, trained.config(), trained.file(vocabulary.FILE),
                     vocabulary.read_casing(trained.folder))
    description = trained.description() or {}  # that of Google's code has none
    if description:
        shutil.copyfile(trained.file(task_json.FILE), os.path.join(assets, task_json.FILE))
    if labels and "labels" not in description:
        files.write_json(os.path.join(assets, task_json.LABELS), list(labels))
