"""Writes docs/flags.md from the definitions of the flags.

  python -m scripts.flags_page > docs/flags.md
"""

import collections
import glob
import importlib
import os
from typing import Any, Dict, Iterable, List, Tuple

from absl import flags

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SHARED_BY = 3  # so many commands share a flag if it has a table of its own
_HEADER = """# Flags

Generated from the definitions by `python -m scripts.flags_page`; a test checks that it is up to
date. `--help` explains the flags of a command, `--version` prints the version. Booleans are set by
`--name` and `--noname`. The flags that several commands share come first.
"""


def commands() -> List[str]:
    """The commands of the root and its rooms: modules that define flags and can be run."""
    found = []
    for pattern in ("*.py", "*/*.py"):
        for path in sorted(glob.glob(os.path.join(_ROOT, pattern))):
            with open(path, encoding="utf-8") as file:
                source = file.read()
            name = os.path.relpath(path, _ROOT)[:-len(".py")].replace(os.sep, ".")
            if ("define_flags" in source and '\nif __name__ == "__main__":' in source
                    and not name.startswith(("scripts.", "benchmarks."))):
                found.append(name)
    return found


def text() -> str:
    """The page, in Markdown."""
    rows = {command: [_row(flag) for flag in _flags_of(command)] for command in commands()}
    having: Dict[str, Tuple[str, ...]] = {row: tuple(
        command for command in rows if row in rows[command]) for row in sum(rows.values(), [])}
    shared: Dict[Tuple[str, ...], List[str]] = collections.defaultdict(list)
    for row, names in having.items():
        shared[names].append(row)
    parts = [_HEADER]
    for names in sorted(shared, key=len, reverse=True):
        if len(names) >= _SHARED_BY:
            parts.append(f"## Flags of {len(names)} commands\n\n"
                         f"{', '.join(map(_shown_command, names))}\n\n{_table(shared[names])}")
    for command in rows:
        own = [row for row in rows[command] if len(having[row]) < _SHARED_BY]
        parts.append(f"## {_shown_command(command)}\n\n{_table(own)}")
    return "\n".join(parts)


def _flags_of(command: str) -> List[flags.Flag]:
    values = importlib.import_module(command).define_flags()
    return [flag for defined in values.flags_by_module_dict().values() for flag in defined]


def _shown_command(name: str) -> str:
    return f"`python -m {name}`" if "." in name else f"`python {name}.py`"


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| flag | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _row(flag: flags.Flag) -> str:
    # absl begins the help of an enum with its choices, as <a|b>.
    meaning = " ".join(flag.help.split()).replace("|", "\\|").replace("<", "&lt;")
    return f"| `--{flag.name}` | {_shown(flag.default)} | {meaning} |"


def _shown(default: Any) -> str:
    if default is None or default == []:
        return "–"
    if isinstance(default, list):
        return f"`{','.join(default)}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    print(text(), end="")
