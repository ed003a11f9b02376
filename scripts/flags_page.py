"""Writes docs/flags.md from the definitions of the flags.

  python -m scripts.flags_page > docs/flags.md
"""

import dataclasses
import glob
import importlib
import os
from typing import Any, Container, Iterable, List, NamedTuple, Tuple

from absl import flags

from engine import settings
from engine.cli import device_flags
from engine.training import settings as run_settings

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_HEADER = """# Flags

Generated from the definitions by `python -m scripts.flags_page`; a test checks that it is up to
date. `--help` explains the flags of a command, `--version` prints the version. Booleans are set by
`--name` and `--noname`.
"""


class Group(NamedTuple):
    """Flags that several commands share."""
    title: str
    text: str
    settings: Tuple[Any, ...]


def commands() -> List[str]:
    """The commands of the root and its rooms: modules that define flags and can be run."""
    found = []
    for pattern in ("*.py", "*/*.py"):
        for path in sorted(glob.glob(os.path.join(_ROOT, pattern))):
            with open(path, encoding="utf-8") as file:
                source = file.read()
            name = os.path.relpath(path, _ROOT)[:-len(".py")].replace(os.sep, ".")
            if ("define_flags" in source and '\nif __name__ == "__main__":' in source
                    and not name.startswith("scripts.")):
                found.append(name)
    return found


def groups() -> List[Group]:
    """The groups of shared flags, in the order of the page."""
    return [
        Group("Training", "Flags of `run_classifier.py`, `run_squad.py`, `pretraining.run`, "
              "`rewriting.run`, `distillation.run` and `tagging.run`. A run can be resumed with other values; it warns "
              "of changes in those marked *recorded*, which are also in `run.json`, the report and "
              "the model card. `--precision` is a flag of every command that runs a model.",
              (run_settings.TrainingSettings,)),
        Group("Length of a training", "Flags of the same commands: `pretraining.run` counts "
              "steps, the others epochs.",
              (run_settings.EpochSchedule, run_settings.StepSchedule)),
        Group("Evaluation", "Flags of the same commands.", (run_settings.EvaluationSettings,)),
        Group("Devices", "Flags of every command that runs a model, `--all_reduce` and the "
              "timeouts only of those that train.",
              (device_flags.DeviceSettings,)),
    ]


def text() -> str:
    """The page, in Markdown."""
    parts, shared = [_HEADER], {}
    for group in groups():
        values = flags.FlagValues()
        for cls in group.settings:
            settings.define_flags(values, cls)
        shared.update({flag.name: flag.default for flag in _all(values)})
        recorded = {field.name for cls in group.settings for field in dataclasses.fields(cls)
                    if field.metadata["recorded"]}
        parts.append(f"## {group.title}\n\n{group.text}\n\n{_table(_all(values), recorded)}")
    for command in commands():
        own = [flag for flag in _all(importlib.import_module(command).define_flags())
               if flag.name not in shared or flag.default != shared[flag.name]]
        name = f"python -m {command}" if "." in command else f"python {command}.py"
        parts.append(f"## `{name}`\n\n{_table(own)}")
    return "\n".join(parts)


def _all(values: flags.FlagValues) -> List[flags.Flag]:
    return [flag for defined in values.flags_by_module_dict().values() for flag in defined]


def _table(rows: Iterable[flags.Flag], recorded: Container[str] = ()) -> str:
    lines = ["| flag | default | meaning |", "| --- | --- | --- |"]
    lines += [f"| `--{flag.name}` | {_shown(flag.default)} | {_one_line(flag.help)}"
              f"{' *Recorded.*' if flag.name in recorded else ''} |" for flag in rows]
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if default is None or default == []:
        return "–"
    if isinstance(default, list):
        return f"`{','.join(default)}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _one_line(help_text: str) -> str:
    # absl begins the help of an enum with its choices, as <a|b>.
    return " ".join(help_text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(text(), end="")
