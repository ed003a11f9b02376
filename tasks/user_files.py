"""A task made of a user's own files: which files, which columns, and which labels there are.

What the flags leave open is detected from the training file, and the result is printed.
"""

import os
from typing import NamedTuple, Optional, Sequence, Set, Tuple

from absl import flags

from engine import files, log
from engine.data import text_files
from engine.errors import UserError
from tasks import columns, label_types, metrics as scores
from tasks.examples import read_split
from tasks.table import Split, Target, Task

# With more labels than this the column cannot hold classes.
_MOST_LABELS = 100_000
_SEPARATOR = ","  # default separator between the labels of an example
_MARKS = frozenset("\t\r\n")
_METRICS = {
    label_types.OneClass.name: (scores.accuracy, scores.macro_f1, scores.micro_f1),
    label_types.SeveralClasses.name: (scores.accuracy, scores.macro_f1, scores.micro_f1),
    label_types.Number.name: (scores.pearson, scores.spearman)}


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of --task_name=file; most can be detected from the files."""
    for name, more in (("train", " With a task of the table, which has its own: another one in "
                        "the same layout."), ("dev", ""), ("test", "")):
        flags.DEFINE_string(
            f"{name}_file", None, f"With --task_name=file: the {name} set, .tsv, .txt (tab-"
            f"separated), .csv or .jsonl; default: {name}.* in --data_dir.{more}",
            flag_values=values)
    for name, what in (("text", "the text"), ("text_pair", "the second text of a pair"),
                       ("label", "the label")):
        flags.DEFINE_string(
            f"{name}_column", None, f"With --task_name=file: the column of {what}, its name or "
            "its number, from 1; default: detected.", flag_values=values)
    flags.DEFINE_bool("header", None, "With --task_name=file: whether the first line names the "
                      "columns; default: detected.", flag_values=values)
    flags.DEFINE_enum("label_kind", None, sorted(_METRICS), "With --task_name=file: exactly one "
                      "class, any number of classes, or a number; default: detected.",
                      flag_values=values)
    flags.DEFINE_string("label_separator", None, "With --label_kind=multi_label: what separates "
                        "the labels of an example; default: a comma.",
                        flag_values=values)


class Options(NamedTuple):
    """The flags of `define_flags`, by their names."""
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
    def of_flags(cls, values: flags.FlagValues) -> "Options":
        return cls(*(values[name].value for name in cls._fields))


def make_task(options: Options, sets: Sequence[str], known_kind: Optional[label_types.Kind] = None,
              takes_pairs: Optional[bool] = None) -> Task:
    """The task of a user's files.

    Args:
        options: the user's flags.
        sets: those that the run needs, of "train", "dev" and "test", in this order.
        known_kind: the kind of labels of a model that is trained already; None to detect it
            from the training file.
        takes_pairs: whether that model takes pairs of texts.

    Raises:
        UserError: a file or a column is not there, or the labels make no sense.
    """
    _check_kind(options, known_kind)
    if known_kind is None and "train" not in sets:
        raise UserError("the labels are unknown: --output_dir holds no trained model, and this "
                        "run has no training file; train first (--do_train)")
    tables = {name: columns.read_head(_find_file(options, name), options.header) for name in sets}
    first = next(iter(tables.values()))
    said = columns.Roles(options.text_column, options.text_pair_column, options.label_column)
    roles = said
    if list(sets) == ["test"]:
        roles = columns.complete_texts(said, first, bool(takes_pairs))
    elif None in (said.text, said.label):
        roles = columns.complete(said, first, takes_pairs)
    if roles != said:
        columns.report(first, roles, said)
    if takes_pairs not in (None, roles.text_pair is not None):
        raise UserError(f"{first.path}: the trained model takes "
                        f"{'pairs of texts' if takes_pairs else 'single texts'}; say so with "
                        "--text_column and --text_pair_column")
    splits = {name: columns.split_of(table, roles, first, labelled=name != "test")
              for name, table in tables.items()}
    kind = known_kind or _kind_of_labels(options, tables["train"], splits["train"])
    return Task(Target(kind.labels, kind.separator, _METRICS[kind.name]), **splits)


def _check_kind(options: Options, known_kind: Optional[label_types.Kind]) -> None:
    separator = options.label_separator
    if separator is not None and not separator.strip():
        raise UserError(f"--label_separator={separator!r}: must not be blank")
    if separator is not None and options.label_kind != label_types.SeveralClasses.name:
        raise UserError(f"--label_separator={separator!r} is for --label_kind=multi_label; set "
                        "that, too, or leave it out")
    if known_kind is None:
        return
    if options.label_kind not in (None, known_kind.name):
        raise UserError(f"--label_kind={options.label_kind}: the model is trained with "
                        f"{known_kind.name}")
    if separator not in (None, known_kind.separator):
        raise UserError(f"--label_separator={separator!r}: the model is trained with "
                        f"{known_kind.separator!r}")


def _find_file(options: Options, name: str) -> str:
    given = getattr(options, f"{name}_file")
    if given:
        if os.path.splitext(given)[1].lower() not in text_files.FORMATS:
            raise UserError(f"--{name}_file={given}: its name must end in one of "
                            f"{', '.join(text_files.FORMATS)}")
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
        raise UserError(f"--data_dir={options.data_dir} holds {there}; say with --{name}_file "
                        "which file is meant")
    return files.require_file(os.path.abspath(os.path.join(options.data_dir, found[0])),
                              "--data_dir")


class _AsWritten(label_types.Kind):
    """A list of label names for each example, while it is not yet known which labels there are."""

    def __init__(self, separator: str):
        """`separator`: between the labels of an example; empty if each has exactly one."""
        self.separator = separator

    def parse(self, text):
        labels = label_types.split_labels(text, self.separator) if self.separator else [text.strip()]
        for label in labels:
            if not label:
                raise ValueError("something: every example needs a label")
            # Predictions are written as lines, several labels with the separator between them.
            if not _MARKS.isdisjoint(label):
                raise ValueError("without tabs and line ends; is --label_column right?")
            if self.separator and self.separator in label:
                raise ValueError(f"without {self.separator!r}, which stands between labels; set "
                                 "--label_kind=multi_label and another --label_separator")
        return labels


def _kind_of_labels(options: Options, table: columns.Table, split: Split) -> label_types.Kind:
    """The kind of labels, given or detected, with the labels of the training file."""
    if options.label_kind == label_types.Number.name:
        return label_types.Number()
    several = options.label_kind == label_types.SeveralClasses.name or (
        options.label_kind is None and _holds_lists(table, split))
    separator = (options.label_separator or _SEPARATOR) if several else ""
    labels = _different_labels(options, split, separator)
    if options.label_kind is None and not several and _have_fractions(labels):
        log.info(f"{split.file}: the labels are numbers with fractions: taken for a regression; "
                 "--label_kind says otherwise")
        return label_types.Number()
    if not labels:
        raise UserError(f"{split.file}: no example has a label; is --label_column right?")
    if len(labels) == 1:
        raise UserError(f"{split.file}: every label is {min(labels)[:40]!r}, which leaves nothing "
                        "to learn; is --label_column right?")
    labels = _in_order(labels)
    shown = ", ".join(label[:40] for label in labels[:10]) + (", ..." if len(labels) > 10 else "")
    log.info(f"{split.file}: {len(labels):,} labels ({shown}), "
             + (f"any number for each example, separated by {separator!r}" if several
                else "one for each example"))
    return label_types.SeveralClasses(labels, separator) if several else label_types.OneClass(labels)


def _different_labels(options: Options, split: Split, separator: str) -> Set[str]:
    """All labels of a file, or enough of them to see that they are numbers of a regression."""
    labels: Set[str] = set()
    for example in read_split(split, "", _AsWritten(separator), is_first_look=True):
        labels.update(example.label)
        if len(labels) > _MOST_LABELS:
            if options.label_kind is None and not separator and _have_fractions(labels):
                break
            raise UserError(f"{split.file}: more than {_MOST_LABELS:,} different labels; is "
                            "--label_column right? (If they are numbers to be learned as such, "
                            "set --label_kind=regression)")
    return labels


def _holds_lists(table: columns.Table, split: Split) -> bool:
    if table.format != "jsonl":
        return False
    position = table.names.index(split.keys[split.columns.label])
    return any(isinstance(value, list) for value in table.column(position))


def _have_fractions(labels: Set[str]) -> bool:
    return columns.are_numbers(labels) and not all(float(label).is_integer() for label in labels)


def _in_order(labels: Set[str]) -> Tuple[str, ...]:
    """The labels sorted: numbers by value, everything else alphabetically."""
    if columns.are_numbers(labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))
