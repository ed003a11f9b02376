"""Fine-tunes BERT to tag the words of sentences with entities, on every visible GPU.

  python -m tagging.run --data_dir=ner --do_train --do_eval ...
"""

import os
from typing import Optional, Sequence

from absl import flags

from encoder import label_config, model_files, model_flags
from engine import checkpoints, command, device_flags, files, settings
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.training.settings import EpochSchedule, run_settings
from tagging import data, evaluation, export, formats, report, schemes, tagger, training
from tagging.evaluation import Sets
from tagging.formats import Columns, Layout, TaggedFile
from tagging.model import Tagger
from tagging.training import Job
from tasks import export as task_export, kinds, training as task_training
from tasks.class_weights import ClassSettings

USAGE = """Fine-tunes BERT to find entities in sentences, on every GPU that CUDA_VISIBLE_DEVICES
shows.

  python -m tagging.run --data_dir=ner --do_train --do_eval --do_predict \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out

--data_dir has train.*, dev.* and test.*: a word a line, in columns, as in CoNLL's shared tasks, a
blank line after each sentence; or JSON lines (.json, .jsonl), CLUENER's or with spans. The scheme
of the tags (IOB1, IOB2, BIOES, BMES) is detected. --do_predict writes every line of the test file
with what is predicted in an added column, to predict.* in --output_dir.
Batch sizes are per replica (GPU) and count sentences; a sentence longer than --max_seq_length is
read in overlapping windows."""

_FLAG_OF = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_string("data_dir", None, "Directory with train.*, dev.* and test.*.",
                        flag_values=values)
    for name in _FLAG_OF:
        flags.DEFINE_string(f"{name}_file", None, f"The {name} set, by default {name}.* in "
                            "--data_dir.", flag_values=values)
    flags.DEFINE_integer("word_column", Layout().word_column, "The column of the words, from 1; "
                         "-1 is the last.", flag_values=values)
    flags.DEFINE_integer("tag_column", Layout().tag_column, "The column of the tags, from 1; -1 "
                         "is the last. The test file needs none.", flag_values=values)
    flags.DEFINE_enum("scheme", None, schemes.NAMES, "The scheme of the tags in columns; detected "
                      "by default.", flag_values=values)
    flags.DEFINE_bool("crf", False, "Train the scores of transitions between tags, and the "
                      "likelihood of whole sequences (a linear-chain CRF).", flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on the train set.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Evaluate on the dev set.", flag_values=values)
    flags.DEFINE_bool("do_predict", False, "Tag the test set.", flag_values=values)
    task_export.define_flags(values)
    task_training.define_flags(values)
    settings.define_flags(values, ClassSettings)
    settings.define_flags(values, PredictionSettings)
    device_flags.define_for_training(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    wanted = [name for name, flag in _FLAG_OF.items() if values[flag].value]
    if not (wanted or values.do_export):
        raise UserError("nothing to do: set at least one of --do_train, --do_eval, --do_predict, "
                        "--do_export; --help explains all flags")
    export.check_flags(values)
    if wanted:
        _run(values, wanted)
    if values.do_export:
        export.write(values.output_dir, values.export_frozen_graph)


def _run(values: flags.FlagValues, wanted: Sequence[str]) -> None:
    layout = Layout(values.word_column, values.tag_column, values.scheme)
    found = {name: formats.open_file(_find(values, name), layout, has_tags=name != "test")
             for name in wanted}
    _check_layout(values, list(found.values()))
    prediction = settings.from_flags(values, PredictionSettings)
    job = _job(values, found.get("train"))
    if not values.do_train:
        evaluation.trained_checkpoint(job)  # before sentences are tokenized for nothing
    sets = Sets(**{name: data.load_sentences(
        file, job.tagger.tags, job.encoding, job.settings.store_dir,
        dynamic_padding=job.settings.training.dynamic_padding) for name, file in found.items()})
    if sets.train:
        with evaluation.evaluator(job, sets.dev) as evaluate:
            training.train(job, sets.train, evaluate)
    result = None
    if sets.dev or sets.test:
        result = evaluation.score(job, sets, found.get("test"), prediction.predict_batch_size)
    if sets.train or sets.dev:
        report.write(job, found.get("dev"), result)


def _check_layout(values: flags.FlagValues, found: Sequence[TaggedFile]) -> None:
    """Raises a UserError if flags for columns are given, and there are none."""
    given = [name for name in Layout._fields if values[name].present]
    if given and not any(isinstance(file, Columns) for file in found):
        raise UserError(f"--{given[0]}={values[given[0]].value} is for files in columns, and "
                        f"{found[0].path} has JSON lines; leave it out")


def _find(values: flags.FlagValues, name: str) -> str:
    """The path of a set; raises a UserError if there is none, or several."""
    given, data_dir = values[f"{name}_file"].value, values.data_dir
    if given:
        return files.require_file(os.path.abspath(given), f"--{name}_file")
    if not data_dir:
        raise UserError(f"--{_FLAG_OF[name]} needs --data_dir or --{name}_file")
    if not os.path.isdir(data_dir):
        raise UserError(f"--data_dir={data_dir}: there is no such directory")
    candidates = [name + extension for extension in formats.EXTENSIONS]
    there = [file for file in candidates if os.path.exists(os.path.join(data_dir, file))]
    if len(there) != 1:
        raise UserError(f"--data_dir={data_dir} has "
                        f"{' and '.join(there) or 'none of ' + ', '.join(candidates)}; name the "
                        f"file with --{name}_file")
    return os.path.abspath(os.path.join(data_dir, there[0]))


def _job(values: flags.FlagValues, train_file: Optional[TaggedFile]) -> Job:
    """Checks the flags; makes the output directory only if they are correct."""
    on_encoder = (Tagger(data.find_tags(train_file), values.crf) if train_file
                  else _saved_tagger(values))
    own = settings.from_flags(values, ClassSettings)
    training.check_class_weights(own.class_weights, on_encoder)
    config, encoding = model_flags.load_model(values)
    devices = device_flags.find_devices(values, training=values.do_train)
    job = Job(on_encoder, config, encoding, devices,
              run_settings(values, EpochSchedule, training.METRICS)._replace(own=own))
    for checkpoint, flag in ((checkpoints.latest(job.settings.output_dir), "--output_dir"),
                             (job.settings.init_checkpoint, "--init_checkpoint")):
        if checkpoint:
            model_files.check_outputs(checkpoint, len(on_encoder.tags.labels), flag)
    if train_file and job.settings.init_checkpoint and not checkpoints.latest(
            job.settings.output_dir):
        model_files.warn_of_other_labels(
            job.settings.init_checkpoint, "--init_checkpoint", training.description_of(on_encoder))
    return job


def _saved_tagger(values: flags.FlagValues) -> Tagger:
    """The tagger of the trained model; raises a UserError if there is none."""
    flag, path = "--output_dir", settings.required(values, "output_dir")
    description = label_config.read(path)
    if values.init_checkpoint and (description or {}).get("kind") != kinds.TAGS:
        flag, path = "--init_checkpoint", values.init_checkpoint
    trained, saved = tagger.open_files(path, flag)
    if values.crf and not saved.crf:
        raise UserError(f"--crf: {trained.checkpoint.path} was trained without a CRF; leave the flag "
                        "out, or train a model with it (--do_train)")
    if values.scheme not in (None, saved.tags.scheme):
        raise UserError(f"--scheme={values.scheme}: {trained.checkpoint.path} was trained with "
                        f"{saved.tags.scheme}, and predicts that; leave the flag out")
    return saved


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
