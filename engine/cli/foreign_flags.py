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
# A flag in an answer, and the command that has it, if it is named.
_NAMED_FLAG = re.compile(r"--(\w+)(?:=\S*)?( of [a-z_]+\.[a-z_]+)?")


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
    """What is wrong with each unknown flag of a command line; "" if no other project has any of them.

    Args:
        argv: the command line; its first element is the path of the command.
        known: the names of the command's own flags.
    """
    named: Dict[str, List[str]] = {}  # answer → flags
    flags = dict.fromkeys(match.group(1) for match in map(_FLAG.match, argv[1:]) if match)
    for name in flags:
        is_known = name in known or name.startswith("no") and name[2:] in known
        if not is_known:
            answer = _answer(argv[0], name.replace("-", "_"), known)
            named.setdefault(answer, []).append(f"--{name}")
    answers = [f"{', '.join(names)} ({answer})" for answer, names in named.items() if answer]
    unknown = [f"{', '.join(named[''])} (unknown; --help lists all flags)"] if "" in named else []
    return f"not flags of this command: {'; '.join(answers + unknown)}" if answers else ""


def _answer(path: str, name: str, known: Container[str]) -> str:
    program = _program_with(path, name, known)
    if not program:
        is_off = name.startswith("no") and _program_with(path, name[2:], known)
        return "leave it out: it is off by default" if is_off else ""
    answer = program.flags[name]
    if not answer.startswith("--"):
        return answer
    return f"here: {answer}" + ("" if _fits(answer, known) else f", of {program.command}")


def _program_with(path: str, name: str, known: Container[str]) -> Optional[Program]:
    """A program with this flag: one that the command at `path` replaces, or whose answer it can follow.

    Else the first whose answer is a flag, of another command.
    """
    command = os.path.splitext(path)[0].replace(os.sep, ".")
    programs = [program for program in PROGRAMS if name in program.flags]
    same = [program for program in programs if f".{command}".endswith(f".{program.command}")]
    fitting = [program for program in programs if _fits(program.flags[name], known)]
    others = [program for program in programs if program.flags[name].startswith("--")]
    return next(iter(same + fitting + others), None)


def _fits(answer: str, known: Container[str]) -> bool:
    """Whether a command has all flags that an answer names, but for those "of" another command."""
    return all(flag in known for flag, other in _NAMED_FLAG.findall(answer) if not other)
