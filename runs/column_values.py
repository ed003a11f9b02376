"""What the values of a column are: numbers, flags, texts."""

import collections
import math
import re
from typing import Any, Iterable, List, Sequence

from encoder import label_types, written_labels

# What a value is as a number; MISWRITTEN is a decimal comma, thousands, a percentage or unit.
FRACTION, INTEGER, MISSING, MISWRITTEN, WORD = range(5)
# Three words, or four signs of a script without spaces.
_PROSE = re.compile(r"[^\W\d_]+(?:\W+[^\W\d_]+){2}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{4}")
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')  # as in CSV
_ID = re.compile(r"(?=.*\d)[!-~]{1,64}")  # a word of ASCII with a digit
ACCEPTED = "accept"  # Prodigy's answer to an example
_MIN_NUMBERS = 10  # below a word, for it to be the name of the column
_NO_VALUE = ("", "na", "nan", "none", "null")  # without marks, as of n/a
_MISWRITTEN = re.compile(
    r"[^\w\s]?\s?\d+(?:(?:[.,'\s]\d{3})+(?:[.,]\d+)?|[.,]\d+|(?=\s?%))\s?[^\W\d_]{0,4}[^\w\s]?")


def form_of(value: str) -> int:
    """What a value is as a number, one of FRACTION to WORD."""
    try:
        number = float(value)
    except ValueError:
        if re.sub(r"[^\w+]", "", value).lower() in _NO_VALUE:
            return MISSING
        return MISWRITTEN if _MISWRITTEN.fullmatch(value.strip()) else WORD
    return (MISSING if not math.isfinite(number) else
            INTEGER if number.is_integer() else FRACTION)


def are_mostly_numbers(values: Iterable[str]) -> bool:
    """Whether there are numbers, and at least nine for each word."""
    forms = collections.Counter(map(form_of, values))
    return 0 < forms[FRACTION] + forms[INTEGER] + forms[MISWRITTEN] >= 9 * forms[WORD]


def are_numbers(values: Iterable[str]) -> bool:
    """Whether all values are finite numbers."""
    return all(form_of(value) <= INTEGER for value in values)


def count_rows(values: Sequence[Any]) -> bool:
    """Whether these are the numbers of many rows, one after the other, such as q7 and q8."""
    texts = list(map(str, values))
    first = re.fullmatch(r"([a-zA-Z]*[_-]?)(\d+)", texts[0]) if len(texts) >= _MIN_NUMBERS else None
    return bool(first) and texts == [f"{first.group(1)}{int(first.group(2)) + place}" for place in range(len(texts))]


def are_ids(values: Sequence[Any], *, with_letters: bool = False) -> bool:
    """Whether these are many whole numbers, each another; or `with_letters` also words with digits, such as doc-7."""
    texts = list(map(str, values))
    return len(texts) == len(set(texts)) >= _MIN_NUMBERS and (all(form_of(text) == INTEGER for text in texts) or (
        with_letters and all(map(_ID.fullmatch, texts)) and not are_mostly_numbers(texts)))


def are_flags(values: Sequence[Any]) -> bool:
    """Whether nearly all are 0 or 1; reading the file reports the others."""
    return 0 < 10 * sum(map(written_labels.is_flag, values)) >= 9 * len(values)


def holds_texts(values: Sequence[Any]) -> bool:
    """Whether these are texts of several words, and not classes. A text may be repeated, as in pairs."""
    texts = [text for text in map(str, values) if text.strip()]
    return 2 * sum(map(bool, map(_PROSE.search, texts))) > len(texts) and not are_classes(texts)


def are_classes(texts: Sequence[str]) -> bool:
    """Whether these repeat a few values, or short ones."""
    return len(texts) >= 3 * len(set(texts)) and (len(set(texts)) < 10 or mean_length(texts) < 20)


def are_answers(values: Iterable[Any]) -> bool:
    """Whether all values are answers of Prodigy."""
    found = set(map(str, values))
    return bool(found) and found <= {ACCEPTED, "reject", "ignore"}


def missing(labels: Sequence[str]) -> List[str]:
    """The labels that other programs write for a missing value: a word, a sign among words, -1 before 0, 1, 2, ..."""
    words = [label for label in labels if re.sub(r"[^\w+]", "", label).lower() in _NO_VALUE[1:]]
    signs = [label for label in labels if not re.search(r"\w", label)]
    numbers = {float(label) for label in labels} if are_numbers(labels) else set()
    starts_at_0 = {-1, 0} <= numbers and min(numbers) == -1 and max(numbers) > 1
    return words + [sign for sign in signs if len(signs) == 1 and re.fullmatch("[-?]+", sign)] + [
        label for label in labels if starts_at_0 and float(label) == -1]


def are_names(first: Sequence[str], others: Sequence[Sequence[str]], usual: Sequence[str]) -> bool:
    """Whether a field of the first row is not repeated below, and a usual name or a word above numbers.

    So is an empty first field above numbers that all differ, as pandas writes its index.
    """
    for position, field in enumerate(first):
        below = [row[position] for row in others if position < len(row)]
        if not (position or field.strip()) and len(first) > 1 and are_ids(below):
            return True
        if field not in below and (field.strip().lower() in usual or (
                len(below) >= _MIN_NUMBERS and are_mostly_numbers(below)
                and form_of(field) == WORD and any(map(str.isalpha, field)))):
            return True
    return False


def number_columns(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether the first row is 0, 1, 2 ... above texts: pandas' columns without names, also beside its index."""
    numbers = first[not first[0]:]
    return bool(numbers) and numbers == list(map(str, range(len(numbers)))) and any(
        holds_texts([row[position] for row in others if position < len(row)]) for position in range(len(first)))


def are_quoted(rows: Sequence[Sequence[str]]) -> bool:
    """Whether cells have CSV's quotes.

    Those are some with doubled ones within; as of R, the first row and a column; as of Excel, all cells with commas.
    """
    cells = [cell for row in rows for cell in row]
    with_commas = [cell for cell in cells if "," in cell]
    return any('""' in cell[1:-1] and _QUOTED.fullmatch(cell) for cell in cells) or (
        all(map(_QUOTED.fullmatch, rows[0])) and any(all(map(_QUOTED.fullmatch, column)) for column in zip(*rows))) or (
        len(with_commas) > 2 and all(map(_QUOTED.fullmatch, with_commas)))


def no_labels(kind: label_types.Kind, values: Sequence[Any]) -> List[Any]:
    """The values that are no labels of this kind."""
    def is_label(value: Any) -> bool:
        try:
            kind.parse(str(value))
        except ValueError:
            return False
        return True
    return [value for value in values if not is_label(value)]


def mean_length(values: Sequence[Any]) -> float:
    return sum(len(str(value)) for value in values) / max(len(values), 1)
