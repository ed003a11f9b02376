"""The tasks that come with the project: rows of a table.

A row has a task's files, their columns, the labels and the metrics. To add a task, add a row.
"""

from typing import Any, NamedTuple, Optional, Tuple

from engine.cli.foreign_flags import TASKS as TASKS_OF_OTHERS
from engine.errors import UserError
from runs import label_types
from runs.rows import Columns, Split
from tasks import metrics as scores

# The --task_name of a task made from a user's own files.
OWN_DATA = "file"


class Target(NamedTuple):
    """What is predicted, and how the predictions are scored."""
    labels: Tuple[str, ...] = ()  # empty: regression, a number in the label column
    label_separator: str = ""  # not empty: an example has any number of labels
    metrics: Tuple[scores.Metric, ...] = (scores.accuracy,)
    # Other names that a file may give a label.
    label_aliases: Tuple[Tuple[str, str], ...] = ()
    kind_of_labels: Optional[label_types.Kind] = None  # where the others do not tell it

    @property
    def kind(self) -> label_types.Kind:
        """What a label is."""
        if self.kind_of_labels:
            return self.kind_of_labels
        if self.label_separator:
            return label_types.MultiLabel(self.labels, self.label_separator)
        if self.labels:
            return label_types.SingleLabel(self.labels, self.label_aliases)
        return label_types.Regression()


class Task(NamedTuple):
    """A task: what is predicted, and its files; None for one that it does not have."""
    target: Target
    train: Optional[Split] = None
    dev: Optional[Split] = None
    test: Optional[Split] = None
    # A second dev and test set, scored beside the first if their files exist.
    mismatched_dev: Optional[Split] = None
    mismatched_test: Optional[Split] = None
    trained_columns: Any = None  # of a user's files: `columns.Trained`, for the model's description

    @property
    def kind(self) -> label_types.Kind:
        """What a label is."""
        return self.target.kind

    @property
    def labels(self) -> Tuple[str, ...]:
        """The names of the classes; empty for a regression."""
        return self.target.labels

    @property
    def label_separator(self) -> str:
        """What separates the labels of an example; empty if it has exactly one."""
        return self.target.label_separator

    @property
    def metrics(self) -> Tuple[scores.Metric, ...]:
        """The metrics of an evaluation; by default the first chooses the best checkpoint."""
        return self.target.metrics


def _glue(target: Target, columns: Columns, test_columns: Columns) -> Task:
    """A task whose three files are train.tsv, dev.tsv and test.tsv."""
    return Task(target, Split("train.tsv", columns), Split("dev.tsv", columns),
                Split("test.tsv", test_columns))


_COLA = Columns(text_a=3, label=1, header=False)
_MNLI = Columns(text_a=8, text_b=9, label=-1)
_XNLI = Columns(text_a=6, text_b=7, label=1, only=(0, "zh"))
_QQP = Columns(text_a=3, text_b=4, label=5, skip_short_rows=True)
_PAIR = Columns(text_a=1, text_b=2, label=-1)  # QNLI, RTE, WNLI
_NLI_LABELS = ("contradiction", "entailment", "neutral")
_BINARY = Target(("0", "1"))
_ENTAILMENT = Target(("entailment", "not_entailment"))

TASKS = {
    "cola": _glue(Target(("0", "1"), metrics=(scores.accuracy, scores.matthews_correlation)),
                  _COLA, Columns(text_a=1)),
    "mnli": Task(
        Target(_NLI_LABELS),
        Split("train.tsv", _MNLI),
        Split("dev_matched.tsv", _MNLI),
        Split("test_matched.tsv", _MNLI._replace(label=None)),
        mismatched_dev=Split("dev_mismatched.tsv", _MNLI),
        mismatched_test=Split("test_mismatched.tsv", _MNLI._replace(label=None))),
    "mrpc": _glue(Target(("0", "1"), metrics=(scores.accuracy, scores.f1)),
                  Columns(text_a=3, text_b=4, label=0), Columns(text_a=3, text_b=4)),
    "qnli": _glue(_ENTAILMENT, _PAIR, _PAIR._replace(label=None)),
    "qqp": _glue(Target(("0", "1"), metrics=(scores.accuracy, scores.f1)),
                 _QQP, Columns(text_a=1, text_b=2)),
    "rte": _glue(_ENTAILMENT, _PAIR, _PAIR._replace(label=None)),
    "sst-2": _glue(_BINARY, Columns(text_a=0, label=1), Columns(text_a=1)),
    "sts-b": _glue(Target(metrics=(scores.pearson, scores.spearman)),
                   Columns(text_a=7, text_b=8, label=-1), Columns(text_a=7, text_b=8)),
    "wnli": _glue(_BINARY, _PAIR, _PAIR._replace(label=None)),
    "xnli": Task(
        Target(_NLI_LABELS, label_aliases=(("contradictory", "contradiction"),)),
        Split("multinli/multinli.train.zh.tsv", Columns(text_a=0, text_b=1, label=2)),
        Split("xnli.dev.tsv", _XNLI),
        Split("xnli.test.tsv", _XNLI._replace(label=None))),
}


def find_task(name: str) -> Tuple[str, Task]:
    """The key in TASKS and the task; "SST-2", "sst2" and "sst_2" are the same task.

    Raises:
        UserError: there is no such task.
    """
    def plain(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    for own_name, task in TASKS.items():
        if plain(own_name) == plain(name):
            return own_name, task
    if plain(name) in TASKS_OF_OTHERS:
        raise UserError(f"--task_name={name}: here, {TASKS_OF_OTHERS[plain(name)]} does that task")
    raise UserError(f"--task_name={name}: unknown; choose from {', '.join(sorted(TASKS))}, or "
                    f"{OWN_DATA} for files of your own")
