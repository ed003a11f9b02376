"""Makes a task from a user's own files: finds the files, their columns and the labels.

What the flags do not give is detected from the training file and logged.
"""

import os
from typing import NamedTuple, Optional, Sequence, Set, Tuple

from absl import flags

from encoder import label_config
from engine import log
from engine.data import text_files
from engine.disk import files
from engine.errors import UserError
from runs import columns, label_types
from runs.rows import Split, read_split
from tasks import metrics as scores
from tasks.table import Target, Task

HELP_TOPIC = "Data"  # of the flags defined here

_MAX_LABELS = 100_000  # with more, the column is not one of classes
_DEFAULT_SEPARATOR = ","  # between the labels of an example
_METRICS = {
    label_types.SingleLabel.name: (scores.accuracy, scores.macro_f1, scores.micro_f1),
    label_types.MultiLabel.name: (scores.accuracy, scores.macro_f1, scores.micro_f1),
    label_types.Regression.name: (scores.pearson, scores.spearman)}


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of --task_name=file."""
    for name, more in (("train", " With another task: a training file to use instead of the "
                        "task's, in the same layout."), ("dev", ""), ("test", "")):
        flags.DEFINE_string(
            f"{name}_file", None, f"With --task_name=file: the {name} set, .tsv, .txt (tab-"
            f"separated), .csv or .jsonl; by default {name}.* in --data_dir.{more}",
            flag_values=values)
    for name, what in (("text", "the text"), ("text_pair", "the second text of a pair"),
                       ("label", "the label")):
        flags.DEFINE_string(
            f"{name}_column", None, f"With --task_name=file: the column of {what}: its name, or "
            "its number from 1; detected by default.", flag_values=values)
    flags.DEFINE_bool("header", None, "With --task_name=file: whether the first line names the "
                      "columns; detected by default.", flag_values=values)
    flags.DEFINE_enum("label_kind", None, sorted(_METRICS), "With --task_name=file: what each "
                      "example has: exactly one class (classes), any number of classes "
                      "(multi_label) or a number (regression); detected by default.",
                      flag_values=values)
    flags.DEFINE_string("label_separator", None, "With --label_kind=multi_label: the separator of "
                        "an example's labels, by default a comma.", flag_values=values)


class Options(NamedTuple):
    """The values of the flags of `define_flags`, and of --data_dir."""
    data_dir: Optional[str]
    train_file: Optional[str]
    dev_file: Optional[str]
    test_file: Optional[str]
    text_column: Optional[str]
    text_pair_column: Optional[str]
    label_column: Optional[str]
    header: Optional[bool]
    label_kind: Optional[str]
    label_separator: Optional[str]

    @classmethod
    def from_flags(cls, values: flags.FlagValues) -> "Options":
        """Reads the flags."""
        return cls(*(values[name].value for name in cls._fields))


def make_task(options: Options, sets: Sequence[str],
              trained_kind: Optional[label_types.Kind] = None,
              takes_pairs: Optional[bool] = None,
              trained: Optional[columns.Trained] = None) -> Task:
    """The task of a user's files.

    Args:
        options: the user's flags.
        sets: the sets that the run needs, of "train", "dev" and "test", in this order.
        trained_kind: the labels of a trained model; without it, the labels are those of the
            training file.
        takes_pairs: whether the trained model takes pairs of texts.
        trained: the columns that it was trained with; those of the flags come first.

    Raises:
        UserError: a file or a column is missing, or the labels cannot be learned.
    """
    _check_kind(options, trained_kind)
    if trained_kind is None and "train" not in sets:
        raise UserError("the labels are unknown: --output_dir has no trained model, and this "
                        "run has no training file; train first (--do_train)")
    header = trained.header if trained and options.header is None else options.header
    tables = {name: columns.read_head(_find_file(options, name), header) for name in sets}
    first = next(iter(tables.values()))
    given = columns.Roles(options.text_column, options.text_pair_column, options.label_column)
    remembered = trained.roles_in(first) if trained else None
    roles = columns.Roles(*(flag or column for flag, column in zip(given, remembered or given)))
    if list(sets) == ["test"]:
        roles = columns.complete_texts(roles._replace(label=given.label), first,
                                       bool(takes_pairs))
    elif None in (roles.text, roles.label):
        roles = columns.complete(roles, first, takes_pairs)
    if roles != given:
        columns.report(first, roles, given, remembered)
    if takes_pairs not in (None, roles.text_pair is not None):
        raise UserError(f"{first.path}: the trained model takes "
                        f"{'pairs of texts' if takes_pairs else 'single texts'}; give its columns "
                        "with --text_column and --text_pair_column")
    splits = {name: columns.split_of(table, roles, first, labelled=name != "test")
              for name, table in tables.items()}
    kind = trained_kind or _infer_kind(options, tables["train"], splits["train"])
    own = columns.Trained(*roles, options.header, first.width) if "train" in sets else None
    return Task(Target(kind.labels, kind.separator, _METRICS[kind.name]), **splits,
                trained_columns=own)


def _check_kind(options: Options, trained_kind: Optional[label_types.Kind]) -> None:
    separator = options.label_separator
    if separator is not None and not separator.strip():
        raise UserError(f"--label_separator={separator!r}: must not be blank")
    if separator is not None and options.label_kind != label_types.MultiLabel.name:
        raise UserError(f"--label_separator={separator!r} needs --label_kind=multi_label; set "
                        "both or neither")
    if trained_kind is None:
        return
    if options.label_kind not in (None, trained_kind.name):
        raise UserError(f"--label_kind={options.label_kind}: the model was trained with "
                        f"{trained_kind.name}")
    if separator not in (None, trained_kind.separator):
        raise UserError(f"--label_separator={separator!r}: the model was trained with "
                        f"{trained_kind.separator!r}")


def _find_file(options: Options, name: str) -> str:
    given = getattr(options, f"{name}_file")
    if given:
        return files.require_file(os.path.abspath(given), f"--{name}_file")
    if not options.data_dir:
        raise UserError(f"--task_name=file needs --data_dir or --{name}_file")
    if not os.path.isdir(options.data_dir):
        raise UserError(f"--data_dir={options.data_dir}: there is no such directory")
    candidates = [name + extension for extension in text_files.FORMATS]
    found = [candidate for candidate in candidates
             if os.path.exists(os.path.join(options.data_dir, candidate))]
    if len(found) != 1:
        there = " and ".join(found) or f"none of {', '.join(candidates)}"
        raise UserError(f"--data_dir={options.data_dir} has {there}; name the file with "
                        f"--{name}_file")
    return files.require_file(os.path.abspath(os.path.join(options.data_dir, found[0])),
                              "--data_dir")


class _AsWritten(label_types.Kind):
    """Reads labels as text, to find out which there are: a list for each example."""

    def __init__(self, separator: str):
        """`separator`: between the labels of an example; empty if it has exactly one."""
        self.separator = separator

    def parse(self, text):
        labels = (label_types.split_labels(text, self.separator) if self.separator
                  else [text.strip()])
        for label in labels:
            if not label:
                raise ValueError("non-empty: every example needs a label")
            # Predictions are written as lines, with the separator between labels.
            if not label_config.LINE_CHARACTERS.isdisjoint(label):
                raise ValueError("without tabs and line ends; is --label_column right?")
            if self.separator and self.separator in label:
                raise ValueError(f"without {self.separator!r}, which separates labels; set "
                                 "--label_kind=multi_label and another --label_separator")
        return labels


def _infer_kind(options: Options, table: columns.Table, split: Split) -> label_types.Kind:
    """The given or else the detected kind, with the labels of the training file."""
    if options.label_kind == label_types.Regression.name:
        return label_types.Regression()
    several = options.label_kind == label_types.MultiLabel.name or (
        options.label_kind is None and _holds_lists(table, split))
    separator = (options.label_separator or _DEFAULT_SEPARATOR) if several else ""
    labels = _distinct_labels(options, split, separator)
    if options.label_kind is None and not several and _have_fractions(labels):
        log.info(f"{split.file}: the labels are numbers with fractions, so this is a regression; "
                 "to change that, set --label_kind")
        return label_types.Regression()
    if not labels:
        raise UserError(f"{split.file}: no example has a label; is --label_column right?")
    if len(labels) == 1:
        raise UserError(f"{split.file}: every label is {min(labels)[:40]!r}, so there is nothing "
                        "to learn; is --label_column right?")
    labels = _sorted_labels(labels)
    shown = ", ".join(label[:40] for label in labels[:10]) + (", ..." if len(labels) > 10 else "")
    log.info(f"{split.file}: {len(labels):,} labels ({shown}), "
             + (f"any number for each example, separated by {separator!r}" if several
                else "one for each example"))
    return label_types.MultiLabel(labels, separator) if several else label_types.SingleLabel(labels)


def _distinct_labels(options: Options, split: Split, separator: str) -> Set[str]:
    """The distinct labels of a file; stops early if there are too many numbers to be classes."""
    labels: Set[str] = set()
    for example in read_split(split, "", _AsWritten(separator), is_first_look=True):
        labels.update(example.label)
        if len(labels) > _MAX_LABELS:
            if options.label_kind is None and not separator and _have_fractions(labels):
                break
            raise UserError(f"{split.file}: more than {_MAX_LABELS:,} different labels; is "
                            "--label_column right? (If they are numbers to be predicted, set "
                            "--label_kind=regression)")
    return labels


def _holds_lists(table: columns.Table, split: Split) -> bool:
    if table.format != "jsonl":
        return False
    position = table.names.index(split.keys[split.columns.label])
    return any(isinstance(value, list) for value in table.column(position))


def _have_fractions(labels: Set[str]) -> bool:
    return columns.are_numbers(labels) and not all(float(label).is_integer() for label in labels)


def _sorted_labels(labels: Set[str]) -> Tuple[str, ...]:
    """The labels in the order of their values if all are numbers, else in alphabetical order."""
    if columns.are_numbers(labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))
