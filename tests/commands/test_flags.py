"""The flags of every command are those in flags.txt: people's scripts depend on them."""

import difflib
import importlib
import os
import re

import pytest

from engine.cli.command import run
from scripts.flags_page import commands

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
    lines = [line for command in commands() for line in lines_of(command)]
    if os.environ.get("WRITE_FLAGS"):
        with open(LIST, "w", encoding="utf-8") as file:
            file.writelines(lines)
    with open(LIST, encoding="utf-8") as file:
        expected = file.readlines()
    difference = "".join(difflib.unified_diff(expected, lines, "tests/flags.txt", "the code", n=0))
    if difference:
        pytest.fail(f"{difference}If this is meant: WRITE_FLAGS=1 scripts/test.sh "
                    "tests/commands/test_flags.py, and a line in CHANGELOG.md", pytrace=False)


def test_every_command_tells_its_version(capsys):
    with pytest.raises(SystemExit) as ended:
        run(None, importlib.import_module("runs.predict").define_flags(), usage="",
            argv=["predict", "--version"])
    with open(os.path.join(os.path.dirname(LIST), os.pardir, "CHANGELOG.md")) as file:
        released = re.search(r"^## \[(\d.*?)\]", file.read(), re.MULTILINE)
    assert not ended.value.code and capsys.readouterr().out == f"{released.group(1)}\n"


@pytest.mark.parametrize("command", commands())
def test_help_shows_all_flags_and_nothing_else_and_a_wrong_flag_gets_one_line(command, capfd):
    module = importlib.import_module(command)
    values = module.define_flags()
    with pytest.raises(SystemExit) as wrong:
        run(None, values, usage="", argv=[command, "--misspelt"])
    assert wrong.value.code == 2
    assert capfd.readouterr() == ("", "error: Unknown command line flag 'misspelt'\n")
    values = module.define_flags()
    with pytest.raises(SystemExit) as helped:
        run(None, values, usage="What it does.", argv=[command, "--help"])
    shown, said = capfd.readouterr()
    assert not helped.value.code and said == ""
    topics = re.findall(r"^(\S.*):$", shown, re.MULTILINE)
    assert len(topics) == len(set(topics)) and not [
        topic for topic in topics if not re.fullmatch("[A-Z][A-Za-z, ]+", topic)]
    assert [name for name in values if not re.search(rf"^  --(\[no\])?{name}\b", shown, re.MULTILINE)] == []
