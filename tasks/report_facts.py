"""The settings and the environment of a run, as the report page and the model card show them."""

import platform
from typing import Any, Dict, Optional

import tensorflow.compat.v1 as tf

from encoder.encoding import Encoding
from engine.training.run_record import Record
from engine.training.summaries import History
from modeling import BertConfig


def settings(task_name: str, config: BertConfig, encoding: Encoding,
             record: Optional[Record]) -> Dict[str, Any]:
    """The settings of the training, by name.

    Args:
        record: None for a model that was trained elsewhere: then only the model's settings.
    """
    layers = "layer" if config.num_hidden_layers == 1 else "layers"
    model = (f"{config.num_hidden_layers} {layers}, hidden size {config.hidden_size}, "
             f"{config.num_attention_heads} heads")
    return {"task": task_name, "model": model,
            "--max_seq_length": encoding.max_seq_length,
            "--do_lower_case": str(encoding.do_lower_case).lower(),
            "--long_texts": encoding.long_texts.long_texts,
            **{name: _shown(value)
               for name, value in (record.settings if record else {}).items()}}


def environment() -> Dict[str, str]:
    """The versions of TensorFlow and Python in this process, and its system."""
    return {"TensorFlow": tf.VERSION, "Python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}"}


def peak_memory(history: History) -> Dict[str, str]:
    """The peak memory of a training, from its curves; empty if it is unknown."""
    points = history.get("peak_memory_gb")
    return {"peak memory": f"{points[-1][1]:,.1f} GB"} if points else {}


def _shown(value: Any) -> Any:
    value = "none" if value is None else value
    return str(value).lower() if isinstance(value, bool) else value
