"""The flags of every command are those in flags.txt: people's scripts depend on them.

A new flag, a new default or one that goes is on purpose, and belongs in CHANGELOG.md. Write the
list anew with

  WRITE_FLAGS=1 scripts/test.sh tests/commands/test_flags.py
"""

import difflib
import importlib
import os

import pytest

from scripts.flags_page import COMMANDS

LIST = os.path.join(os.path.dirname(os.path.dirname(__file__)), "flags.txt")


def lines_of(command):
    """`command --flag: type = default` for each flag of a command."""
    values = importlib.import_module(command).define_flags()
    for name in sorted(values):
        flag = values[name]
        choices = getattr(flag.parser, "enum_values", ())
        kind = f"{flag.flag_type()} ({', '.join(choices)})" if choices else flag.flag_type()
        yield f"{command} --{name}: {kind} = {flag.default!r}\n"


def test_every_command_has_the_flags_of_the_list():
    found = [line for command in COMMANDS for line in lines_of(command)]
    if os.environ.get("WRITE_FLAGS"):
        with open(LIST, "w", encoding="utf-8") as file:
            file.writelines(found)
    with open(LIST, encoding="utf-8") as file:
        expected = file.readlines()
    difference = "".join(difflib.unified_diff(expected, found, "tests/flags.txt", "the code", n=0))
    if difference:
        pytest.fail(f"{difference}If this is meant: WRITE_FLAGS=1 scripts/test.sh "
                    "tests/commands/test_flags.py, and a line in CHANGELOG.md", pytrace=False)
