"""What a command says that tells nobody anything."""

import re

import processes

MARK = "log: "
# Runs a module as a program, with each line of our log marked.
RUN_MARKED = f"""
from engine import log
write = log._print
log._print = lambda text: [write("{MARK}" + line) for line in text.split(chr(10))]
{processes.RUN_MODULE}"""
# In a line of ours: what tells nobody anything.
EMPTY = re.compile(r"\b0 of [\d,]+ |\b1 replicas|in 0\.0 s|\.\d{7}")


def noise(said, *allowed):
    """The lines that are neither marked nor begin in an allowed way, and those that say nothing."""
    return [line for line in said.splitlines()
            if not line.startswith((MARK, *allowed)) or EMPTY.search(line)]
