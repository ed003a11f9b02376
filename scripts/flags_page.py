"""Writes docs/flags.md from the definitions of the flags.

  python -m scripts.flags_page > docs/flags.md
"""

import collections
import glob
import importlib
import os
from typing import Dict, Iterable, List, Tuple

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
    names = []
    for path in (*sorted(glob.glob(f"{_ROOT}/*.py")), *sorted(glob.glob(f"{_ROOT}/*/*.py"))):
        with open(path, encoding="utf-8") as file:
            source = file.read()
        name = os.path.relpath(path, _ROOT)[:-len(".py")].replace(os.sep, ".")
        if ("define_flags" in source and '\nif __name__ == "__main__":' in source
                and not name.startswith(("scripts.", "benchmarks."))):
            names.append(name)
    return names


def text() -> str:
    """The page, in Markdown."""
    rows = {command: [_row(flag) for module in importlib.import_module(
        command).define_flags().flags_by_module_dict().values() for flag in module]
        for command in commands()}
    users = {row: tuple(command for command in rows if row in rows[command])
             for row in sum(rows.values(), [])}
    shared: Dict[Tuple[str, ...], List[str]] = collections.defaultdict(list)
    for row, names in users.items():
        if len(names) >= _SHARED_BY:
            shared[names].append(row)
    parts = [_HEADER]
    for names in sorted(shared, key=len, reverse=True):
        parts.append(f"## Flags of {len(names)} commands\n\n"
                     f"{', '.join(map(_shown_command, names))}\n\n{_table(shared[names])}")
    for command in rows:
        own = [row for row in rows[command] if len(users[row]) < _SHARED_BY]
        parts.append(f"## {_shown_command(command)}\n\n{_table(own)}")
    return "\n".join(parts)


def _shown_command(name: str) -> str:
    return f"`python -m {name}`" if "." in name else f"`python {name}.py`"


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| flag | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _row(flag: flags.Flag) -> str:
    # absl begins the help of an enum with its choices, as <a|b>.
    meaning = " ".join(flag.help.split()).replace("|", "\\|").replace("<", "&lt;")
    value = ",".join(flag.default) if isinstance(flag.default, list) else flag.default
    shown = str(value).lower() if isinstance(value, bool) else value
    default = "–" if flag.default in (None, []) else f"`{shown}`"
    return f"| `--{flag.name}` | {default} | {meaning} |"


if __name__ == "__main__":
    print(text(), end="")
