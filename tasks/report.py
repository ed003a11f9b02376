"""Writes the report page of a fine-tuning: its settings, its curves and its worst mistakes."""

import os
from typing import Any, List, Optional, Sequence

import numpy as np

from engine import log
from engine.training import run_record, summaries
from tasks import report_facts, report_page
from tasks.evaluation import Evaluation
from tasks.examples import read_examples
from tasks.label_types import Kind
from tasks.training import Job

_FILE = "report.html"
_MAX_MISTAKES = 20
_MAX_CHARACTERS = 1000  # of a text on the page


def write(job: Job, evaluation: Optional[Evaluation]) -> None:
    """Writes report.html into the output directory."""
    path = os.path.join(job.settings.output_dir, _FILE)
    history = summaries.read_history(job.settings.output_dir)
    page = report_page.Report(
        title=f"{job.task_name}: {os.path.basename(os.path.abspath(job.settings.output_dir))}",
        facts={"Settings": report_facts.settings(job.task_name, job.config, job.encoding,
                                              run_record.load(job.settings.output_dir)),
               "Environment": {"devices": job.devices.describe(),
                               "replicas": job.devices.num_replicas,
                               **report_facts.peak_memory(history),
                               **report_facts.environment()}},
        history=history,
        # Google's run_classifier writes "eval_loss" a second time as "loss".
        evaluation=[(name, value) for name, value in (evaluation.results if evaluation else {})
                    .items() if name != "loss"])
    if evaluation:
        page = page._replace(
            confusion=_confusion(job, evaluation), mistakes=_mistakes(job, evaluation),
            per_class=[report_page.ClassScores(*row.values()) for row in evaluation.per_class])
    report_page.write_report(path, page)
    log.info(f"Report: {path}")


def _confusion(job: Job, evaluation: Evaluation) -> Optional[report_page.Confusion]:
    if not evaluation.confusion_matrix:
        return None
    return report_page.Confusion(job.task.labels, np.array(evaluation.confusion_matrix))


def _mistakes(job: Job, evaluation: Evaluation) -> Sequence[report_page.Mistake]:
    """The worst mistakes. Their texts are read again, because the store has only token ids."""
    kind, errors = job.task.kind, evaluation.errors
    worst: List[int] = [int(index) for index in np.argsort(-errors, kind="stable")[:_MAX_MISTAKES]
                        if errors[index] > 0]
    wanted, found = set(worst), {}
    if wanted:
        for index, example in enumerate(read_examples(job.task, job.task.dev, job.data_dir)):
            if index in wanted:
                found[index] = example
            if len(found) == len(wanted):
                break
    return [report_page.Mistake(
        text_a=_excerpt(found[index].text_a),
        text_b=_excerpt(found[index].text_b),
        label=_shown(kind, evaluation.labels[index]),
        predicted=_shown(kind, evaluation.predicted[index]),
        probability=float(errors[index]) if kind.labels else None) for index in worst]


def _excerpt(text: Optional[str]) -> Optional[str]:
    if text is None or len(text) <= _MAX_CHARACTERS:
        return text
    return f"{text[:_MAX_CHARACTERS]} ..."


def _shown(kind: Kind, label: Any) -> Any:
    return kind.format_label(label) or "none" if kind.labels else float(label)
