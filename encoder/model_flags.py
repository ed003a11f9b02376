"""The flags that name a model, and the config and vocabulary that they mean."""

from typing import Tuple

from absl import flags

import modeling
import tokenization
from encoder.config import load_config
from encoder.encoding import Encoding, load_encoding
from engine.errors import UserError
from engine.settings import required


def define(values: flags.FlagValues, model: str) -> None:
    """Defines the flags of a model's files; `model` names it in their help: "Vocabulary of ..."."""
    flags.DEFINE_string("bert_config_file", None, f"bert_config.json of {model}.",
                        flag_values=values)
    flags.DEFINE_string("vocab_file", None, f"Vocabulary of {model}.", flag_values=values)
    flags.DEFINE_string("init_checkpoint", None, f"Checkpoint of {model} (prefix or directory).",
                        flag_values=values)
    flags.DEFINE_bool("do_lower_case", True, "Lower-case the text; true for uncased models.",
                      flag_values=values)


def define_max_seq_length(values: flags.FlagValues) -> None:
    """Defines --max_seq_length."""
    flags.DEFINE_integer("max_seq_length", 128, "Longest input in tokens; longer texts are cut.",
                         flag_values=values)


def load_config_of_flags(values: flags.FlagValues) -> modeling.BertConfig:
    """Reads --bert_config_file and checks that the model has --max_seq_length positions.

    Raises:
        UserError: the model has fewer positions, or there is no such file.
    """
    config = load_config(required(values, "bert_config_file"))
    if values.max_seq_length > config.max_position_embeddings:
        raise UserError(f"--max_seq_length={values.max_seq_length}: the model has only "
                        f"{config.max_position_embeddings} positions (--bert_config_file)")
    return config


def load_model(values: flags.FlagValues) -> Tuple[modeling.BertConfig, Encoding]:
    """The model's config and vocabulary, checked against each other and against the flags.

    Raises:
        UserError: they do not belong together.
    """
    config = load_config_of_flags(values)
    encoding = load_encoding(
        required(values, "vocab_file"), do_lower_case=values.do_lower_case,
        max_seq_length=values.max_seq_length, vocab_size=config.vocab_size)
    try:
        tokenization.validate_case_matches_checkpoint(
            values.do_lower_case, values.init_checkpoint)
    except ValueError as error:
        raise UserError(str(error)) from error
    return config, encoding
