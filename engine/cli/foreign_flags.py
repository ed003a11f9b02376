"""The flags of other BERT projects, and their replacements here.

A command names the replacement in one line, instead of guessing at a misspelling. The table is
foreign_flags.txt.
"""

import os
import re
from typing import Container, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence


class Program(NamedTuple):
    """Scripts of another project, and how their flags differ from our command's."""
    project: str
    scripts: str
    command: str  # our module
    flags: Mapping[str, str]  # their flag → its replacement, or why it has none


# Tasks of other projects that are commands of their own here.
TASKS = {"ad": "python -m rewriting.run", "ner": "python -m tagging.run",
         "squad": "python run_squad.py"}

# A flag on a command line, as absl and argparse take it.
_FLAG = re.compile(r"--?([A-Za-z][\w-]*)")


def _load() -> Iterator[Program]:
    with open(f"{os.path.splitext(__file__)[0]}.txt", encoding="utf-8") as file:
        sections = file.read().split("\n[")[1:]
    for section in sections:
        head, *rows = section.strip().split("\n")
        answers = [row.partition(": ")[::2] for row in rows]
        yield Program(*head.rstrip("]").split(" | "), {
            flag: answer for flags, answer in answers for flag in flags.split()})


PROGRAMS = tuple(_load())


def explain(argv: Sequence[str], known: Container[str]) -> str:
    """The replacements of other projects' flags in a command line; "" if it has none of them.

    Args:
        argv: the command line; its first element is the path of the command.
        known: the names of the command's own flags.
    """
    named: Dict[str, List[str]] = {}  # answer → flags
    flags = dict.fromkeys(match.group(1) for match in map(_FLAG.match, argv[1:]) if match)
    for name in (flag for flag in flags if flag not in known):
        answer = _answer(argv[0], name.replace("-", "_"), known)
        if answer:
            named.setdefault(answer, []).append(f"--{name}")
    answers = [f"{', '.join(names)} ({answer})" for answer, names in named.items()]
    return f"not flags of this command: {'; '.join(answers)}" if answers else ""


def _answer(path: str, name: str, known: Container[str]) -> str:
    program = _program_with(path, name)
    if not program:
        is_off = name.startswith("no") and _program_with(path, name[2:])
        return "leave it out: it is off by default" if is_off else ""
    answer = program.flags[name]
    flag = re.match(r"--(\w+)|", answer).group(1)
    if flag is None:
        return answer
    return f"here: {answer}" + ("" if flag in known else f", of {program.command}")


def _program_with(path: str, name: str) -> Optional[Program]:
    """A program with this flag: one that the command at `path` replaces, else the first."""
    command = os.path.splitext(path)[0].replace(os.sep, ".")
    programs = [program for program in PROGRAMS if name in program.flags]
    same = [program for program in programs
            if f".{command}".endswith(f".{program.command}")]
    return next(iter(same + programs), None)
