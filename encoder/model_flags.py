"""The flags that name a model, and the config and vocabulary that they mean.

What is not given is found in the model's folder: that of the model trained in --output_dir, or
else that of --init_checkpoint.
"""

import dataclasses
import os
from typing import Any, Dict, List, Optional, Tuple

from absl import flags

import modeling
import tokenization
from encoder import long_texts, model_files, task_json, vocabulary
from encoder.encoding import Encoding, load_encoding
from encoder.long_texts import LongTexts
from encoder.pretraining_heads import require_masked_lm_head
from engine import log, settings
from engine.checkpoints import checkpoints
from engine.errors import UserError
from engine.settings import required

HELP_TOPIC = "Model"  # of the flags defined here


def define(values: flags.FlagValues, model: str) -> None:
    """Defines the flags of a model's files; `model` names it in their help: "Vocabulary of ..."."""
    for name, text in (
            ("bert_config_file", f"bert_config.json of {model}; default: that in its folder."),
            ("vocab_file", f"Vocabulary of {model}; default: that in its folder."),
            ("init_checkpoint", f"{model[0].upper()}{model[1:]}: its folder or the prefix of a "
             "checkpoint.")):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_bool("do_lower_case", True, "Lower-case the text; default: as the model's folder "
                      "says, or else true.", flag_values=values)


def define_max_seq_length(values: flags.FlagValues) -> None:
    """Defines --max_seq_length of a classifier."""
    flags.DEFINE_integer("max_seq_length", 128, "Longest input in tokens; longer texts are cut; "
                         "default: as the folder of a trained classifier says, or else 128.",
                         flag_values=values)


def find_file(values: flags.FlagValues, flag: str, name: str) -> Optional[str]:
    """The file that a flag gives, or else that of this name in the model's folder; or None."""
    if values[flag].value:
        return values[flag].value
    return next((path for path in (os.path.join(folder, name) for folder in folders(values))
                 if os.path.exists(path)), None)


def find_vocabulary(values: flags.FlagValues) -> Optional[str]:
    """--vocab_file, with a warning if the model's folder has another; or else the one there, or None."""
    path = find_file(values, "vocab_file", vocabulary.FILE)
    if values.vocab_file and os.path.exists(path):
        vocabulary.warn_of_another(path, next(iter(folders(values)), None))
    return path


def folders(values: flags.FlagValues) -> List[str]:
    """The folder of the model that is trained in --output_dir, if there is one, and of the one to start from."""
    paths = _trained(values), values.init_checkpoint
    return [model_files.folder_of(path) for path in paths if path]


def _trained(values: flags.FlagValues) -> Optional[str]:
    """--output_dir, if a model was trained there."""
    output_dir = values.output_dir if "output_dir" in values else None
    return output_dir if output_dir and checkpoints.latest(output_dir) else None


def load_config_of_flags(values: flags.FlagValues,
                         initial: Optional[model_files.ModelFiles] = None) -> modeling.BertConfig:
    """Reads --bert_config_file and checks that the model has --max_seq_length positions.

    Args:
        initial: the model to start from. Its upper layers may be left out by a --bert_config_file, but
            not by a file beside it that nobody has named.
    """
    config_file = find_file(values, "bert_config_file", model_files.CONFIG)
    if not (config_file or values.init_checkpoint) and "do_train" in values and not values.do_train:
        raise UserError(f"--output_dir={required(values, 'output_dir')} has no trained model; give "
                        "the folder of one, or --init_checkpoint")
    config = model_files.load_config(config_file or required(values, "bert_config_file"))
    if initial and not _trained(values):
        if not values.bert_config_file:
            model_files.check_layers(initial.checkpoint, config, initial.flag)
        model_files.check_encoder(initial.checkpoint, config, initial.flag)
    length = _longest_input(values)
    if length and length > config.max_position_embeddings:
        raise UserError(f"--max_seq_length={length}: the model has only "
                        f"{config.max_position_embeddings} positions (--bert_config_file)")
    return config


def load_masked_lm(values: flags.FlagValues) -> Tuple[modeling.BertConfig, Encoding, checkpoints.Checkpoint]:
    """Like `load_model`, with the checkpoint, for a command that has --init_checkpoint predict words as it is."""
    required(values, "init_checkpoint")
    config, encoding = load_model(values)
    checkpoint = require_masked_lm_head(checkpoints.open_checkpoint(values.init_checkpoint))
    model_files.check_layers(checkpoint, config, "--init_checkpoint")
    vocabulary.require_mask(encoding.tokenizer, encoding.vocab_file)
    return config, encoding, checkpoint


def load_model(values: flags.FlagValues) -> Tuple[modeling.BertConfig, Encoding]:
    """The model's config and vocabulary, checked against each other and against the flags.

    Without --max_seq_length the encoding has all positions of the model.
    """
    initial = None
    if values.init_checkpoint:
        initial = model_files.open_folder(values.init_checkpoint, "--init_checkpoint")
    config = load_config_of_flags(values, initial)
    vocab_file = find_vocabulary(values) or required(values, "vocab_file")
    if initial:
        model_files.check_record(initial, vocab_file, values.bert_config_file)
    recorded = next((casing for casing in map(
        vocabulary.recorded_casing, (*folders(values), os.path.dirname(vocab_file))) if casing is not None), None)
    do_lower_case = _casing(values, recorded)
    encoding = load_encoding(
        vocab_file, do_lower_case=do_lower_case, vocab_size=config.vocab_size,
        type_vocab_size=config.type_vocab_size,
        max_seq_length=_longest_input(values) or config.max_position_embeddings)
    try:
        tokenization.validate_case_matches_checkpoint(
            do_lower_case, initial and initial.checkpoint.path)
    except ValueError as error:
        raise UserError(str(error)) from error
    if recorded is None and do_lower_case and not values["do_lower_case"].present and (
            vocabulary.has_capitals(encoding.tokenizer.vocab)):
        log.warn(f"{vocab_file} has words with capital letters, which are never found, since texts "
                 "are lower-cased by default: give --do_lower_case=false if the model is cased")
    return config, encoding._replace(long_texts=_long_texts(values, encoding.max_seq_length))


def _longest_input(values: flags.FlagValues) -> Optional[int]:
    """--max_seq_length, or else that of the classifier that is used, or else the default."""
    description = None if values["max_seq_length"].present else _used_classifier(values)
    return description["max_seq_length"] if description else values.max_seq_length


def _long_texts(values: flags.FlagValues, max_seq_length: int) -> LongTexts:
    """--long_texts and the flags that belong to it, or else those of the classifier that is used.

    Of a command without these flags, the default.
    """
    if "long_texts" not in values:
        return LongTexts()
    names = [field.name for field in dataclasses.fields(LongTexts)]
    description = _used_classifier(values)
    if description and not any(values[name].present for name in names):
        return long_texts.of_description(description).check(max_seq_length)
    return settings.from_flags(values, LongTexts).check(max_seq_length)


def used(values: flags.FlagValues) -> Optional[Tuple[str, str]]:
    """The flag of the trained model that is used, and its value; None if there is none."""
    if _trained(values):
        return "--output_dir", values.output_dir
    if values.init_checkpoint and not ("do_train" in values and values.do_train):
        return "--init_checkpoint", values.init_checkpoint
    return None


def used_folder(values: flags.FlagValues) -> Optional[str]:
    """The folder of the trained model that is used; None if there is none."""
    given = used(values)
    return given and model_files.folder_of(given[1])


def _used_classifier(values: flags.FlagValues) -> Optional[Dict[str, Any]]:
    """The description of the classifier that is used; None if there is none."""
    folder = used_folder(values)
    return task_json.read(folder) if folder else None


def _casing(values: flags.FlagValues, known: Optional[bool]) -> bool:
    """--do_lower_case, or else what the model's folder says, or else true, as in Google's code."""
    if known is None:
        return values.do_lower_case
    if not values["do_lower_case"].present:
        if not known:
            log.info("The model is cased, as its folder says: --do_lower_case=false")
        return known
    if values.do_lower_case != known:
        log.warn(f"--do_lower_case={str(values.do_lower_case).lower()}, and the model's folder "
                 f"says {str(known).lower()}: words may get other ids than in its training")
    return values.do_lower_case
