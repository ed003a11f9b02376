"""A command with one wrong file or flag, and what it must not leave."""

import os
import pathlib
import re
from typing import Callable, NamedTuple, Tuple

from commands import Flags, ends_with_error, run_here


class Case(NamedTuple):
    """What is done to a good command and its files, and what the line must then say."""
    damage: Callable[[pathlib.Path, Flags], None]
    mentions: Tuple[str, ...]


def flags_set(**changes) -> Callable:
    """Sets flags, or leaves those out that are None; {} in a value is the command's folder."""
    def damage(folder, flags):
        for name, value in changes.items():
            flags[name] = value.format(folder) if isinstance(value, str) else value
    return damage


def missing(name: str) -> Callable:
    return lambda folder, flags: (folder / name).unlink()


def content(name: str, text) -> Callable:
    def damage(folder, flags):
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return damage


def directory(name: str) -> Callable:
    def damage(folder, flags):
        (folder / name).unlink()
        (folder / name).mkdir()
    return damage


def in_turn(*damages: Callable) -> Callable:
    def damage(folder, flags):
        for each in damages:
            each(folder, flags)
    return damage


def assert_refused(case: Case, folder: pathlib.Path, flags: Flags, capsys) -> None:
    """The case's command ends in one line with status 2, and leaves nothing half-written."""
    case.damage(folder, flags)
    with ends_with_error(capsys, *case.mentions):
        run_here(flags)
    assert_nothing_half_written(folder / "out")


def assert_nothing_half_written(folder: pathlib.Path) -> None:
    left = [os.path.join(parent, name) for parent, folders, names in os.walk(str(folder))
            for name in folders + names]
    bad = [path for path in left
           if re.search(r"tmp-|run\.json|model\.ckpt|checkpoint$|results|predict", path)]
    assert not bad
