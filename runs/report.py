"""Writes the report page of a run; settings and environment as report and model card show them."""

import os
import platform
from typing import Any, Dict, Optional

import tensorflow.compat.v1 as tf

from encoder.encoding import Encoding
from engine import log
from engine.training import run_record, summaries
from engine.training.run_record import Record
from engine.training.summaries import History
from engine.version import VERSION
from runs import report_page
from runs.head import Job, Measured, Model

FILE = "report.html"


def write(job: Job, measured: Optional[Measured]) -> None:
    """Writes report.html into the output directory.

    Args:
        measured: what was measured of the dev set; None without one.
    """
    output_dir, task_name = job.settings.output_dir, job.head.facts(job.model)["task"]
    history = summaries.read_history(output_dir)
    page = report_page.Report(
        title=f"{task_name}: {os.path.basename(os.path.abspath(output_dir))}",
        facts={"Settings": settings(task_name, job.model, run_record.load(output_dir)),
               "Environment": {"devices": job.devices.describe(),
                               "replicas": job.devices.num_replicas,
                               **_peak_memory(history), **environment()}},
        history=history,
        # Google's run_classifier writes "eval_loss" a second time as "loss".
        evaluation=[(name, value) for name, value in (measured.results if measured else {}).items()
                    if name != "loss" or "eval_loss" not in measured.results])
    if measured:
        page = page._replace(**job.head.page(job, measured))
    path = os.path.join(output_dir, FILE)
    report_page.write_report(path, page)
    log.info(f"Report: {path}")


def settings(task_name: str, model: Model, record: Optional[Record]) -> Dict[str, Any]:
    """The settings of the training, by name.

    Args:
        record: None for a model that was trained elsewhere: then only the model's settings.
    """
    config = model.config
    layers = "layer" if config.num_hidden_layers == 1 else "layers"
    shape = (f"{config.num_hidden_layers} {layers}, hidden size {config.hidden_size}, "
             f"{config.num_attention_heads} heads")
    return {"task": task_name, "model": shape,
            **_of_encoding(model.encoding),
            **{name: _shown(value)
               for name, value in (record.settings if record else {}).items()}}


def _of_encoding(encoding: Optional[Encoding]) -> Dict[str, Any]:
    return encoding and {"--max_seq_length": encoding.max_seq_length,
                         "--do_lower_case": str(encoding.do_lower_case).lower(),
                         "--long_texts": encoding.long_texts.long_texts} or {}


def environment() -> Dict[str, str]:
    """The versions of this program, TensorFlow and Python in this process, and its system."""
    return {"version": VERSION, "TensorFlow": tf.VERSION, "Python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}"}


def _peak_memory(history: History) -> Dict[str, str]:
    """The peak memory of a training, from its curves; empty if it is unknown."""
    points = history.get("peak_memory_gb")
    return {"peak memory": f"{points[-1][1]:,.1f} GB"} if points else {}


def _shown(value: Any) -> Any:
    value = "none" if value is None else value
    return str(value).lower() if isinstance(value, bool) else value
