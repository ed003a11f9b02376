"""A model's bert_config.json, read and checked."""

import os
from typing import Any, Mapping

import modeling
from engine.disk import files
from engine.errors import UserError

_MAX_LAYERS = 10_000  # each is a part of the graph, however small


def load_config(path: str) -> modeling.BertConfig:
    """Reads a config. Raises a UserError if the file is missing or is not a BERT config."""
    return checked(files.read_record(path, "--bert_config_file", {}), f"--bert_config_file={path}")


def checked(values: Mapping[str, Any], where: str) -> modeling.BertConfig:
    """The config with these values. Raises a UserError if there can be no such model."""
    config = modeling.BertConfig.from_dict(values)
    try:
        modeling.check_config(config)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    _check_size(config, where)
    return config


def _check_size(config: modeling.BertConfig, where: str) -> None:
    """Raises a UserError if the weights alone are larger than the machine's memory."""
    hidden = config.hidden_size
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    layer = hidden * (4 * hidden + 2 * config.intermediate_size)
    needed = 4 * (rows * hidden + config.num_hidden_layers * layer)  # bytes, as float32
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there or config.num_hidden_layers > _MAX_LAYERS:
        raise UserError(
            f"{where}: {config.num_hidden_layers:,} layers of {hidden:,} and "
            f"{rows:,} embeddings take {needed / 2**30:,.0f} GB, and this machine has "
            f"{there / 2**30:,.0f}; is a number wrong?")
