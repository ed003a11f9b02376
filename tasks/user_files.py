"""Makes a task from a user's own files: finds the files, their columns and the labels.

What the flags do not give is detected from the training file and logged.
"""

import collections
import itertools
import re
import unicodedata
from typing import Any, Counter, Dict, Iterable, List, Optional, Sequence, Set, Union

from absl import flags

from encoder import label_types, written_labels
from engine import log
from engine.data import text_files
from engine.errors import UserError
from runs import column_finder, column_values, columns, sets, table_head
from runs.column_finder import Finder
from runs.rows import Split, read_rows
from tasks import metrics as scores
from tasks.model_folder import Classification
from tasks.table import Task

HELP_TOPIC = "Data"  # of the flags defined here

# The flags of `define_flags`, and the flags of the sets.
FLAGS = ("data_dir", "train_file", "dev_file", "test_file", "text_column", "text_pair_column",
         "label_column", "header", "label_kind", "label_separator")

_MAX_LABELS = 100_000  # with more, the column is not one of classes
_MANY_NUMBERS = 10  # different ones with fractions are no classes
_DEFAULT_SEPARATOR = ","  # between the labels of an example
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_METRICS = {
    label_types.SingleLabel.name: (scores.accuracy, scores.macro_f1, scores.micro_f1),
    label_types.MultiLabel.name: (scores.accuracy, scores.macro_f1, scores.micro_f1),
    label_types.Regression.name: (scores.pearson, scores.spearman, scores.r2)}


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of --task_name=file, without the flags of the sets."""
    column_finder.define_flags(values, {
        "text": "the text", "text_pair": "the second text of a pair",
        "label": "the label (several columns of 0 and 1 have commas between)"}, note=" Only with --task_name=file.")
    flags.DEFINE_enum("label_kind", None, sorted(_METRICS), "With --task_name=file: what each "
                      "example has: exactly one class (classes), any number of classes "
                      "(multi_label) or a number (regression); detected by default.",
                      flag_values=values)
    flags.DEFINE_string("label_separator", None, "With --label_kind=multi_label: the separator of "
                        "an example's labels, by default a comma.", flag_values=values)


def make_task(values: flags.FlagValues, names: Sequence[str],
              trained: Optional[Classification] = None) -> Task:
    """The task of a user's files.

    Args:
        names: of the sets that the run needs: "train", "dev" and "test", in this order.
        trained: what a trained model classifies, and the columns that it was trained with: those
            of the flags come first. Without it, the labels are those of the training file.
    """
    kind, takes_pairs, remembered = trained[:3] if trained else (None, None, None)
    _check_kind(values, kind)
    if kind is None and "train" not in names:
        raise UserError("the labels are unknown: --output_dir has no trained model, and this "
                        "run has no training file; train first (--do_train)")
    header = remembered.header if remembered and values.header is None else values.header
    given = column_finder.of_flags(values, *columns.ROLES)
    splits: Dict[str, Split] = {}
    for name in names:
        table = table_head.read(sets.find(values, name, text_files.FORMATS), header, columns.names_of(remembered))
        if name != "test":  # which gets a prediction for each row
            table = table.accepted(values.label_column or remembered and remembered.label)
        finder = columns.find(table, given, labelled=name != "test", takes_pairs=takes_pairs,
                              trained=remembered, kind=kind)
        splits[name] = finder.split()
        if len(splits) == 1:  # the flags name its columns; the other files have the same
            given, takes_pairs = {}, bool(finder.places["text_pair"])
            remembered = columns.Trained(*(",".join(finder.columns(role)) or None for role in columns.ROLES),
                                         values.header, table.width)
        _check_columns(splits[name], kind.name if kind else values.label_kind)
        kind = kind or _infer_kind(values, finder, splits[name])
        if name == "dev":
            splits[name] = splits[name]._replace(more_labels=_more_labels(splits[name], kind))
    return Task(kind, _METRICS[kind.name], **splits,
                trained_columns=remembered if "train" in names else None)


def _check_kind(values: flags.FlagValues, trained: Optional[label_types.Kind]) -> None:
    separator = values.label_separator
    if separator is not None and not separator.strip():
        raise UserError(f"--label_separator={separator!r}: must not be blank")
    if separator is not None and values.label_kind != label_types.MultiLabel.name:
        raise UserError(f"--label_separator={separator!r} needs --label_kind=multi_label, "
                        "which is not set")
    for name, known in (("label_kind", trained.name),
                        ("label_separator", trained.separator)) if trained else ():
        if values[name].value not in (None, known):
            raise UserError(f"--{name}={values[name].value}: the model was trained with {known!r}")


def _check_columns(split: Split, kind: Optional[str]) -> None:
    if split.labels and kind == label_types.Regression.name:
        raise UserError(f"{split.file} has 0 and 1 in the columns of {', '.join(split.labels)}, which are "
                        f"labels, and not numbers for a {kind}; name one of them with --label_column")


class _AsWritten(label_types.Kind):
    """Reads labels as text, to find out which there are: a list for each example."""

    def __init__(self, separator: str, names: Sequence[str] = ()):
        """Makes the reader.

        Args:
            separator: between the labels of an example; empty if it has exactly one.
            names: of the labels for which a list has 0 and 1.
        """
        self.separator, self.names = separator, names
        self.forms: Set[type] = set()  # of the labels so far: list, dict, or str

    def parse(self, text):
        written = written_labels.listed(text)
        self.forms.add(str if written is None else type(written))
        if not self.separator and written is None:
            if not text.strip():
                raise ValueError("some text; is --label_column right?")
            return {text.strip(): True}
        labels = written_labels.split(text, self.separator, self.names)
        if not self.separator and sum(labels.values()) != 1:
            raise ValueError("one label; if examples may have any number, set --label_kind=multi_label")
        if self.separator and any(self.separator in label for label in labels):
            raise ValueError(f"without {self.separator!r}, which separates labels; set "
                             "--label_kind=multi_label and another --label_separator")
        return labels


def _infer_kind(values: flags.FlagValues, finder: Finder, split: Split) -> label_types.Kind:
    """The given or else the detected kind, with the labels of the training file."""
    if values.label_kind == label_types.Regression.name:
        return label_types.Regression()
    separator = values.label_separator or _DEFAULT_SEPARATOR
    is_given = values.label_kind == label_types.MultiLabel.name
    lists = [] if split.labels else _lists(finder, separator if is_given else "")
    several = is_given or values.label_kind is None and bool(split.labels or lists)
    separator = separator if several else ""
    names = split.labels or _names_of_flags(lists, split.file)
    least, most, have_flags = 1, 1, False  # labels in a row; 0 for those that it has not
    counts: Counter[str] = collections.Counter()
    lines: Dict[str, int] = {}  # of the first example with each label
    reader = _AsWritten(separator, names)
    for line, fields, example in read_rows(reader, split):
        if finder.table.names and _plain(finder.table.names) == _plain(fields):
            raise UserError(f"{split.file}, line {line}: the header again; remove this line")
        number = sum(example.label.values())
        least, most = min(least, number), max(most, number)
        have_flags |= not all(example.label.values())
        for label, has_it in example.label.items():
            counts[label] += has_it
            if has_it:
                lines.setdefault(label, line)
    if values.label_kind is None and not several and _are_fractions(counts, lines, split.file):
        return label_types.Regression()
    _check_number(counts, split.file)
    label_types.check_labels(counts, f"{split.file} (is --label_column right?)")
    are_numbers = column_values.are_numbers(counts)  # then they are in the order of their values
    labels = tuple(names) or tuple(sorted(
        counts, key=lambda label: (float(label) if are_numbers else 0, label)))
    shown = ", ".join(label[:40] for label in labels[:10]) + (", ..." if len(labels) > 10 else "")
    forms = set(map(column_values.form_of, counts))
    basis = ("several columns have 0 and 1" if split.labels else
             f"{'some' if str in reader.forms else 'they'} are {'lists' if list in reader.forms else 'objects'}"
             if several else
             "few are fractions" if column_values.FRACTION in forms else "they are whole numbers" if are_numbers else
             f"{'some are' if column_values.INTEGER in forms else 'they are'} no numbers")
    if several and least == most == 1:
        basis += ", with exactly one label in each row"
        several = is_given or not have_flags
    log.info(f"{split.file}: {len(labels):,} labels ({shown}), "
             + ("one for each example" if not several else "0 or 1 for each of them" if names else
                "any number for each example" + (f", separated by {separator!r}" if str in reader.forms else ""))
             + (", and no example has more than one" if several and most == 1 else "")
             + ("" if values.label_kind else f" (detected: {basis}; see --label_kind)"))
    _warn_of_odd(counts, lines, split.file, may_be_joined=most == 1 and not names)
    return label_types.MultiLabel(labels, separator) if several else label_types.SingleLabel(labels)


def _warn_of_odd(counts: Counter[str], lines: Dict[str, int], file: str, *, may_be_joined: bool) -> None:
    """Warns of labels that may be several, or the same, or too rare."""
    joined = _joined(counts) if may_be_joined else ()
    if joined:
        log.warn(f"{file}: the label {log.brief(repr(joined[0]))} seems to be several, separated by "
                 f"{joined[1]!r}, and is learned as one class; if so, set --label_kind=multi_label "
                 + (f"--label_separator={joined[1]!r}" if joined[1].strip() else "and write commas between them"))

    def folded(label: str) -> Union[str, float]:
        if column_values.are_numbers([label]):
            return float(label)
        seen = (sign for sign in unicodedata.normalize("NFKC", label) if unicodedata.category(sign) != "Cf")
        return " ".join("".join(seen).casefold().split())

    spellings = collections.Counter(map(folded, counts))
    alike = sorted((label for label in counts if spellings[folded(label)] > 1),
                   key=lambda label: (str(folded(label)), label))
    if alike:
        what = "are equal numbers" if column_values.are_numbers(alike) else "differ in case, spaces or Unicode form alone"
        log.warn(f"{file}: labels {what}, and are learned as different ones: "
                 f"{log.brief(', '.join(map(repr, alike)))}")
    no_values = column_values.missing(list(lines))
    if no_values:
        log.warn(f"{file}: the label {no_values[0]!r} of {counts[no_values[0]]:,} examples often stands for a "
                 "missing value, and is learned as a class; if it is none, leave these lines out")
    single = [label for label in lines if counts[label] == 1]
    if single:
        log.warn(f"{file}: {len(single):,} of {len(counts):,} labels have one example each, "
                 f"too few to learn from, such as {log.brief(repr(single[0]))} on line "
                 f"{lines[single[0]]}; are --label_column, --label_kind and --header right?")


def _more_labels(split: Split, kind: label_types.Kind) -> Sequence[str]:
    """The labels of a dev file that the model does not know, if they are few: rare ones may all be in it."""
    if not kind.labels:
        return ()
    more: Counter[str] = collections.Counter()
    num_rows = num_others = 0
    for _, _, example in read_rows(_AsWritten(kind.separator, written_labels.places(kind.labels)), split):
        names = [name for name, has_it in example.label.items()
                 if has_it and kind.aliases.get(name, name) not in kind.labels]
        more.update(names)
        num_rows, num_others = num_rows + 1, num_others + bool(names)
    if not more or 2 * num_others > num_rows:  # then it is another column, and an error that names the line
        return ()
    shown = ", ".join(f"{log.brief(repr(label))} ({count:,})" for label, count in more.most_common(10))
    log.warn(f"{split.file}: {num_others:,} of {num_rows:,} examples have labels that the model does not learn, since "
             f"the training set has none of them: {shown}{', ...' if len(more) > 10 else ''}; they count as mistakes")
    return tuple(sorted(more))


def _joined(labels: Iterable[str]) -> Sequence[str]:
    """A label that other labels make up, or only 0 and 1, and what is between them; or none."""
    for label, separator in itertools.product(labels, ",;|/# "):
        parts = [part.strip() for part in label.split(separator)]
        if len(parts) > 1 and (all(part in labels for part in parts) or set(parts) <= {"0", "1"}):
            return label, separator
    return ()


def _plain(names: Sequence[str]) -> Sequence[str]:
    return [str(name).strip().lower() for name in names]


def _check_number(labels: Counter[str], file: str) -> None:
    """Raises a UserError if a column's values are no classes to learn."""
    if not any(labels.values()):
        raise UserError(f"{file} holds no examples with a label; is --label_column right?")
    if len(labels) == 1:
        raise UserError(f"{file}: every label is {min(labels)[:40]!r}, so there is nothing "
                        "to learn; is --label_column right?")
    if len(labels) > _MAX_LABELS:
        raise UserError(f"{file}: more than {_MAX_LABELS:,} different labels; is --label_column "
                        "right? (If they are numbers to be predicted, set --label_kind=regression)")


def _lists(finder: Finder, separator: str) -> List[Any]:
    """The first labels that are lists or objects; of those that texts hold, only if they are many.

    Args:
        separator: makes lists of the others; "": they are none.
    """
    table, values = finder.table, finder.table.values(*finder.places["label"])
    lists = [each for each in map(written_labels.listed, values) if each is not None]
    if separator:
        return lists + [str(value).split(separator) for value in values
                        if written_labels.listed(value) is None]
    if 0 < 2 * len(lists) < len(values):
        log.warn(f"{table.path}: only {len(lists):,} of the first {len(values):,} labels are lists")
    return lists if table.format == "jsonl" or 2 * len(lists) >= len(values) else []


def _names_of_flags(lists: Sequence[Any], file: str) -> Sequence[str]:
    """Names for the places of lists of 0 and 1; none if the lists hold names. Raises a UserError."""
    filled = [each for each in lists if isinstance(each, list) and each]
    of_flags = [each for each in filled if all(map(written_labels.is_flag, each))]
    repeating = [each for each in filled if len(set(map(str, each))) < len(each)]  # names do not
    sizes = collections.Counter(map(len, of_flags))
    if 2 * len(of_flags) > len(filled) and (
            any(each in repeating for each in of_flags) or len(sizes) == 1 and 1 not in sizes):
        return written_labels.unnamed(sizes.most_common(1)[0][0])
    suspects = repeating if 10 * len(repeating) > len(filled) else []
    for each in (*suspects, *filled):
        if all(isinstance(value, (int, float)) for value in each) and (
                each in suspects or not all(float(value).is_integer() for value in each)):
            raise UserError(f"{file}: the label {log.brief(str(each))} is a list of numbers, neither 0 or "
                            "1 for each class nor the classes' names; write one of these")
    return ()


def _are_fractions(counts: Counter[str], lines: Dict[str, int], file: str) -> bool:
    """Whether the labels are numbers, some with a fraction.

    Raises:
        UserError: all but a few labels are numbers, or nearly all are miswritten ones.
    """
    forms = {label: column_values.form_of(label) for label in lines}
    rows = collections.Counter(forms[label] for label in counts.elements())
    fractions, num_rows = rows[column_values.FRACTION], sum(rows.values())
    numbers, miswritten = fractions + rows[column_values.INTEGER], rows[column_values.MISWRITTEN]
    num_distinct = sum(form <= column_values.INTEGER for form in forms.values())
    # Of classes, few values have many examples each.
    are_odd = (10 * (num_rows - numbers) <= num_rows or 2 * num_distinct > numbers
               or fractions and num_distinct >= _MANY_NUMBERS)
    is_column = numbers > rows[column_values.WORD] + miswritten and (fractions or not rows[column_values.WORD])
    odd = next((label for label in lines if forms[label] > column_values.INTEGER), None)
    if odd is not None and (is_column and are_odd or miswritten and 2 * len(lines) > num_rows
                            and 10 * (numbers + miswritten) >= 9 * num_rows):
        raise UserError(f"{file}, line {lines[odd]}: the label is {log.brief(repr(odd))}, and "
                        f"{numbers:,} of {num_rows:,} labels are numbers: write this one like 1234.5 or "
                        "leave the line out, or set --label_kind=classes (multi_label for lists)")
    pairs = [label.split(",") for label in lines] if all(map(_DECIMAL_COMMA.fullmatch, lines)) else []
    # Those of two labels ascend, as in 1,3; 0 and 1 are flags.
    if any(int(first) >= int(second) for first, second in pairs) and not {"0", "1"} >= {*itertools.chain(*pairs)}:
        label = next(iter(lines))
        raise UserError(f"{file}, line {lines[label]}: the label is {label!r}, and all look like numbers with "
                        f"a decimal comma: write {label.replace(',', '.')}; if each is two labels, set "
                        "--label_kind=multi_label")
    if odd is None and fractions:  # a few may be mistakes in classes
        line = next(lines[label] for label in lines if forms[label] == column_values.FRACTION)
        (log.warn if 10 * fractions < numbers - fractions else log.info)(
            f"{file}: {numbers:,} of {num_rows:,} labels are numbers, {fractions:,} with a fraction (the "
            f"first on line {line}), so this is a regression; to change that, set --label_kind")
    return odd is None and fractions > 0
