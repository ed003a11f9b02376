"""A model's bert_config.json, read and checked."""

import modeling
from engine import files
from engine.errors import UserError


def load_config(path: str) -> modeling.BertConfig:
    """Reads a config. Raises a UserError if the file is missing or is not a BERT config."""
    values = files.read_json(path, "--bert_config_file")
    if not isinstance(values, dict) or "vocab_size" not in values:
        raise UserError(f"--bert_config_file={path} is no BERT config: it lacks vocab_size")
    try:
        config = modeling.BertConfig.from_dict(values)
        modeling.check_config(config)
    except (TypeError, ValueError) as error:  # a value of the wrong type; one out of range
        raise UserError(f"--bert_config_file={path}: {error}") from error
    return config
