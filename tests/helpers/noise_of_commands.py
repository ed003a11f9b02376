"""What a command says that tells nobody anything."""

import re

MARK = "log: "
# Runs a module as a program, with each line of our log marked.
RUN_MARKED = f"""
import runpy, sys
from engine import log
write = log._print
log._print = lambda text: [write("{MARK}" + line) for line in text.split(chr(10))]
sys.argv.pop(0)
sys.modules.pop(sys.argv[0], None)
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
# In a line of ours: what tells nobody anything.
EMPTY = re.compile(r"\b0 of [\d,]+ |\b1 replicas|in 0\.0 s|\.\d{7}")


def noise(said, *allowed):
    """The lines that are neither marked nor begin in an allowed way, and those that say nothing."""
    return [line for line in said.splitlines()
            if not line.startswith((MARK, *allowed)) or EMPTY.search(line)]
