"""A model's bert_config.json, read and checked."""

from absl import flags

import modeling
from engine import files, run_flags
from engine.errors import UserError


def load_config(path: str) -> modeling.BertConfig:
    """The model's config. Raises a UserError if the file is missing or not a BERT config."""
    values = files.read_json(path, "--bert_config_file")
    if not isinstance(values, dict) or "vocab_size" not in values:
        raise UserError(f"--bert_config_file={path} is no BERT config: it lacks vocab_size")
    try:
        config = modeling.BertConfig.from_dict(values)
        modeling.check_config(config)
    except (TypeError, ValueError) as error:  # a value of the wrong type; one out of range
        raise UserError(f"--bert_config_file={path}: {error}") from error
    return config


def load_config_of_flags(values: flags.FlagValues) -> modeling.BertConfig:
    """The config of --bert_config_file, checked against --max_seq_length.

    Raises:
        UserError: there is no such file, or the model has fewer positions.
    """
    config = load_config(run_flags.required(values, "bert_config_file"))
    if values.max_seq_length > config.max_position_embeddings:
        raise UserError(f"--max_seq_length={values.max_seq_length}: the model has only "
                        f"{config.max_position_embeddings} positions (--bert_config_file)")
    return config
