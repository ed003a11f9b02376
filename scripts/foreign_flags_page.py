"""Writes the lists of other projects' flags at the end of docs/from-elsewhere.md.

  python -m scripts.foreign_flags_page
"""

import os
import re
from typing import Dict, List

from engine.cli.foreign_flags import PROGRAMS, Program
from engine.disk import files

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs",
                    "from-elsewhere.md")

HEADING = """## Flag by flag

Generated from [`engine/cli/foreign_flags.txt`](../engine/cli/foreign_flags.txt) by
`python -m scripts.foreign_flags_page`. Flags that are not listed are the same, or have a default here
that needs no change.
"""


def text() -> str:
    """The end of the page, in Markdown, from its heading on."""
    return "\n".join([HEADING, *map(_table, PROGRAMS)])


def _table(program: Program) -> str:
    names: Dict[str, List[str]] = {}  # flags by what is said of them
    dashes = "-" if ".sh" in program.scripts else "--"
    for name, answer in program.flags.items():
        names.setdefault(answer, []).append(f"`{dashes}{name}`")
    rows = [f"| {', '.join(flags)} | {_with_code(answer)} |" for answer, flags in names.items()]
    return "\n".join([f"**{program.project}**, {program.scripts}; here {_command(program)}", "",
                      "| theirs | here |", "| --- | --- |", *rows, ""])


def _with_code(answer: str) -> str:
    return re.sub(r"--\w+(=[\w./]*\w)?", r"`\g<0>`", answer)


def _command(program: Program) -> str:
    command = program.command
    return f"`python -m {command}`" if "." in command else f"`{command}.py`"


def main() -> None:
    """Replaces the end of the page."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    files.write_text(PAGE, page[:page.index(HEADING.split("\n")[0])] + text())


if __name__ == "__main__":
    main()
