"""What the report page says of a fine-tuning: its settings, its curves, its mistakes."""

import os
import platform
from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from engine import log, run_record, summaries
from tasks import report
from tasks.finetuning import Job
from tasks.kinds import Kind
from tasks.reading import read_examples
from tasks.scoring import Evaluation

_FILE = "report.html"
_MOST_MISTAKES = 20
_MOST_CHARACTERS = 1000


def write(job: Job, evaluation: Optional[Evaluation]) -> None:
    """Writes report.html into the output directory."""
    path = os.path.join(job.settings.output_dir, _FILE)
    page = report.Report(
        title=f"{job.task_name}: {os.path.basename(os.path.abspath(job.settings.output_dir))}",
        facts={"Settings": _settings(job), "Environment": _environment(job)},
        history=summaries.read_history(job.settings.output_dir),
        # "loss" is the original's second name of "eval_loss".
        evaluation=[(name, value) for name, value in (evaluation.results if evaluation else {})
                    .items() if name != "loss"])
    if evaluation:
        page = page._replace(
            confusion=_confusion(job, evaluation), mistakes=_mistakes(job, evaluation),
            per_class=[report.ClassScores(*row.values()) for row in evaluation.per_class])
    report.write_report(path, page)
    log.info(f"Report: {path}")


def _settings(job: Job) -> Dict[str, Any]:
    """Of the training as it was; of a model trained elsewhere, only what is known."""
    config, record = job.config, run_record.load(job.settings.output_dir)
    model = (f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}, "
             f"{config.num_attention_heads} heads")
    return {"task": job.task_name, "model": model,
            "--max_seq_length": job.encoding.max_seq_length,
            "--do_lower_case": str(job.encoding.do_lower_case).lower(),
            **{name: _said(value) for name, value in (record.settings if record else {}).items()}}


def _said(value: Any) -> Any:
    return "none" if value is None else value


def _environment(job: Job) -> Mapping[str, Any]:
    return {"devices": job.devices.describe(), "replicas": job.devices.num_replicas,
            "TensorFlow": tf.VERSION, "Python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}"}


def _confusion(job: Job, evaluation: Evaluation) -> Optional[report.Confusion]:
    if not evaluation.confusion_matrix:
        return None
    return report.Confusion(job.task.labels, np.array(evaluation.confusion_matrix))


def _mistakes(job: Job, evaluation: Evaluation) -> Sequence[report.Mistake]:
    """The worst ones with their texts, which are read once more: the store has only ids."""
    kind, errors = job.task.kind, evaluation.errors
    worst: List[int] = [int(index) for index in np.argsort(-errors, kind="stable")[:_MOST_MISTAKES]
                        if errors[index] > 0]
    wanted, found = set(worst), {}
    if wanted:
        for index, example in enumerate(
                read_examples(job.task, job.task.dev, job.settings.data_dir)):
            if index in wanted:
                found[index] = example
            if len(found) == len(wanted):
                break
    return [report.Mistake(
        _excerpt(found[index].text_a), _excerpt(found[index].text_b), _shown(kind, evaluation.labels[index]),
        _shown(kind, evaluation.predicted[index]),
        float(errors[index]) if kind.labels else None) for index in worst]


def _excerpt(text: Optional[str]) -> Optional[str]:
    """As much of a text as anyone reads on a page."""
    if text is None or len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]} ..."


def _shown(kind: Kind, label: Any) -> Any:
    return kind.written(label) or "none" if kind.labels else float(label)
