"""Writes the report page of a run; settings and environment as report and model card show them."""

import os
import platform
from typing import Any, Dict, Optional

import tensorflow.compat.v1 as tf

from engine import log
from engine.training import run_record, summaries
from engine.training.run_record import Record
from engine.version import VERSION
from runs import linear_probe, report_page
from runs.capability import Capability, Job, Measured
from runs.results import distinct

FILE = "report.html"


def write(job: Job, measured: Optional[Measured], of_tries: Optional[Measured] = None) -> None:
    """Writes report.html into the output directory.

    Args:
        measured: the evaluation of the dev set; None without one.
        of_tries: that of several tries; `shown` are sections of the page.
    """
    output_dir, task_name = job.settings.output_dir, job.model.facts()["task"]
    of_texts = getattr(job.model.encoding and job.model.encoding.counts, "warnings", [])
    history, record = summaries.read_history(output_dir), run_record.load(output_dir)
    memory = {"peak memory": f"{history['peak_memory_gb'][-1][1]:,.1f} GB"
              } if history.get("peak_memory_gb") else {}
    results = {name: value for name, value in distinct(measured.results if measured else {}).items()
               if not (of_tries and name in of_tries.results)}
    step = {"evaluated after step": f"{results.pop('global_step'):,}"} if "global_step" in results else {}
    first = [name for name in (*job.model.metrics(), job.model.loss) if name in results]
    sections = [*(of_tries.shown if of_tries else []),
                *(job.model.page(job, measured) if measured else []),
                report_page.Table("More metrics", "They are in eval_results.txt, too.", ("Metric", "Value"), [
                    (name, value) for name, value in results.items() if name not in first]),
                report_page.training_curves(history)]
    path = os.path.join(output_dir, FILE)
    report_page.write_report(path, report_page.Report(
        title=f"{task_name}: {os.path.basename(os.path.abspath(output_dir))}",
        warnings=list(filter(None, [record and record.warning, *of_texts])),
        evaluation=[(name, results[name]) for name in first],
        # Texts are long, and come last.
        sections=sorted(sections, key=lambda section: isinstance(section, report_page.MarkedTexts)),
        facts={"Settings": {**settings(task_name, job.model, record), **step},
               "Environment": {"devices": job.devices.describe(),
                               "replicas": job.devices.num_replicas,
                               **memory, **environment()}}))
    log.info(f"Report: {path}")


def settings(task_name: str, model: Capability, record: Optional[Record]) -> Dict[str, Any]:
    """The settings of the training, by name.

    Args:
        record: None for a model that was trained elsewhere: then only the model's settings.
    """
    config, encoding = model.config, model.encoding
    layers = "layer" if config.num_hidden_layers == 1 else "layers"
    values = {"task": task_name,
              "model": f"{config.num_hidden_layers} {layers}, hidden size {config.hidden_size}, "
                       f"{config.num_attention_heads} heads", **(record.all_settings if record else {})}
    if encoding:
        values.update({"--max_seq_length": encoding.max_seq_length,
                       "--do_lower_case": encoding.do_lower_case,
                       "--long_texts": encoding.long_texts.long_texts})
    if record and record.output_layer:
        values["before the first step"] = linear_probe.describe(record.output_layer)
    return {name: "none" if value in (None, "") else str(value).lower() if isinstance(value, bool) else value
            for name, value in values.items()}


def environment() -> Dict[str, str]:
    """The versions of this program, TensorFlow and Python in this process, and its system."""
    return {"version": VERSION, "TensorFlow": tf.VERSION, "Python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}"}
