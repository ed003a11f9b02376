"""The tasks that come with the project: rows of a table.

A row has a task's files, their columns, the labels and the metrics. To add a task, add a row.
"""

import os
from typing import NamedTuple, Optional, Tuple

from encoder import label_types
from encoder.label_types import SingleLabel
from engine.errors import UserError
from runs.columns import Trained
from runs.rows import Columns, Split
from tasks import metrics as scores

# The --task_name of a task made from a user's own files.
OWN_DATA = "file"


class Task(NamedTuple):
    """A task: its labels, metrics and files; None for a file that it does not have."""
    kind: label_types.Kind  # of its labels
    metrics: Tuple[scores.Metric, ...]  # by default the first chooses the best checkpoint
    train: Optional[Split] = None
    dev: Optional[Split] = None
    test: Optional[Split] = None
    # A second dev and test set, scored beside the first if their files exist.
    mismatched_dev: Optional[Split] = None
    mismatched_test: Optional[Split] = None
    trained_columns: Optional[Trained] = None  # of a user's files, for the model's description

    def within(self, data_dir: str) -> "Task":
        """The task whose files are in a directory."""
        return self._replace(**{name: split._replace(file=os.path.join(data_dir, split.file))
                                for name, split in self._asdict().items() if isinstance(split, Split)})


def _glue(kind: label_types.Kind, columns: Columns, test_columns: Columns,
          *metrics: scores.Metric) -> Task:
    """A task whose three files are train.tsv, dev.tsv and test.tsv."""
    return Task(kind, metrics or (scores.accuracy,), Split("train.tsv", columns),
                Split("dev.tsv", columns), Split("test.tsv", test_columns))


_COLA = Columns(texts=(3,), label=1, header=False)
_MNLI = Columns(texts=(8, 9), label=-1)
_XNLI = Columns(texts=(6, 7), label=1, only=(0, "zh"))
_QQP = Columns(texts=(3, 4), label=5, skip_short_rows=True)
_PAIR = Columns(texts=(1, 2), label=-1)  # QNLI, RTE, WNLI
_NLI_LABELS = ("contradiction", "entailment", "neutral")
_BINARY = SingleLabel(("0", "1"))
_ENTAILMENT = SingleLabel(("entailment", "not_entailment"))

TASKS = {
    "cola": _glue(_BINARY, _COLA, Columns(texts=(1,)), scores.accuracy, scores.matthews_correlation),
    "mnli": Task(
        SingleLabel(_NLI_LABELS), (scores.accuracy,),
        Split("train.tsv", _MNLI),
        Split("dev_matched.tsv", _MNLI),
        Split("test_matched.tsv", _MNLI._replace(label=None)),
        mismatched_dev=Split("dev_mismatched.tsv", _MNLI),
        mismatched_test=Split("test_mismatched.tsv", _MNLI._replace(label=None))),
    "mrpc": _glue(_BINARY, Columns(texts=(3, 4), label=0), Columns(texts=(3, 4)),
                  scores.accuracy, scores.f1),
    "qnli": _glue(_ENTAILMENT, _PAIR, _PAIR._replace(label=None)),
    "qqp": _glue(_BINARY, _QQP, Columns(texts=(1, 2)), scores.accuracy, scores.f1),
    "rte": _glue(_ENTAILMENT, _PAIR, _PAIR._replace(label=None)),
    "sst-2": _glue(_BINARY, Columns(texts=(0,), label=1), Columns(texts=(1,))),
    "sts-b": _glue(label_types.Regression(), Columns(texts=(7, 8), label=-1),
                   Columns(texts=(7, 8)), scores.pearson, scores.spearman, scores.r2),
    "wnli": _glue(_BINARY, _PAIR, _PAIR._replace(label=None)),
    "xnli": Task(
        SingleLabel(_NLI_LABELS, {"contradictory": "contradiction"}), (scores.accuracy,),
        Split("multinli/multinli.train.zh.tsv", Columns(texts=(0, 1), label=2)),
        Split("xnli.dev.tsv", _XNLI),
        Split("xnli.test.tsv", _XNLI._replace(label=None))),
}

# Tasks of other projects that are commands of their own here.
_OTHER_COMMANDS = {"ad": "python -m rewriting.run", "ner": "python -m tagging.run", "squad": "python run_squad.py"}


def find_task(name: str) -> Tuple[str, Task]:
    """The key in TASKS and the task; "SST-2", "sst2" and "sst_2" are the same task."""
    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    for own_name, task in TASKS.items():
        if plain(own_name) == plain(name):
            return own_name, task
    if plain(name) in _OTHER_COMMANDS:
        raise UserError(f"--task_name={name}: here, {_OTHER_COMMANDS[plain(name)]} does that task")
    raise UserError(f"--task_name={name}: unknown; choose from {', '.join(sorted(TASKS))}, or "
                    f"{OWN_DATA} for files of your own")
