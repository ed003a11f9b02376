"""The labels of an example as a file writes them: names, lists of names or of 0 and 1, objects."""

import ast
import json
import re
from typing import Any, Dict, List, Sequence, Tuple, Union

_UNNAMED = re.compile(r"LABEL_\d+")  # what transformers calls a label that it has no name for
# How files say whether an example has a label.
_FLAGS = {**dict.fromkeys(("1", "1.0", "true", "t", "yes", "y"), True),
          **dict.fromkeys(("0", "0.0", "false", "f", "no", "n"), False)}
# A text or number, and the space before the next where NumPy has no comma: Python would join the texts.
_ITEM = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\w.]+)(\s+(?=[-\w'"])|)""")
# The labels of an example: names with separators, a list of names or flags, or a flag for each name.
Written = Union[str, List[Any], Dict[str, Any]]


def split(text: Written, separator: str, names: Sequence[str] = ()) -> Dict[str, bool]:
    """The labels that are named, and whether the example has them; raises ValueError.

    Args:
        names: of labels for which a list has 0 and 1.
    """
    written = listed(text)
    if isinstance(written, dict):
        return of_flags(list(written.values()), list(written))
    values = text.split(separator) if written is None else written
    if names and any(map(is_flag, values)):
        return of_flags(values, names)
    return dict.fromkeys(filter(None, (str(value).strip() for value in values)), True)


def listed(text: Any) -> Union[None, List[Any], Dict[str, Any]]:
    """A list or an object of labels, also one that a text holds as in JSON, Python or NumPy; else None."""
    value, form = text, text.strip() if isinstance(text, str) else ""
    if form[:1] + form[-1:] in ("[]", "{}", "()"):
        for read, literal in ((json.loads, form), (ast.literal_eval, _ITEM.sub(_with_comma, form))):
            try:
                value = read(literal)
                break
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
    if isinstance(value, (tuple, set)):
        value = sorted(value, key=str) if isinstance(value, set) else list(value)
    return value if isinstance(value, (list, dict)) else None


def _with_comma(item: Any) -> str:
    return item[1] + (item[2] and ",")


def places(labels: Sequence[str]) -> Sequence[str]:
    """The labels for which a list has 0 and 1: those without names but the ones that transformers gives to all."""
    return labels if all(map(_UNNAMED.fullmatch, labels)) else ()


def unnamed(count: int) -> Tuple[str, ...]:
    """Names of labels that have none, as transformers gives them."""
    return tuple(f"LABEL_{index}" for index in range(count))


def is_flag(value: Any) -> bool:
    """Whether a value, such as 0 or "true", says if an example has a label."""
    return str(value).strip().lower() in _FLAGS


def of_flags(values: Sequence[Any], names: Sequence[str]) -> Dict[str, bool]:
    """Whether an example has each label, from 0 and 1; raises ValueError, as `Kind.parse`."""
    odd = next((value for value in values if not is_flag(value)), None)
    if odd is not None:
        raise ValueError(f"0 or 1 for each label, and {str(odd)!r} is neither")
    if len(values) != len(names):
        raise ValueError(f"{len(names)} values of 0 and 1, as elsewhere, and it has {len(values)}")
    return {name.strip(): _FLAGS[str(value).strip().lower()] for name, value in zip(names, values)}
