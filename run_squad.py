"""Finds the answers to questions in a text, with BERT, on every visible GPU.

Has the flags of google-research/bert's run_squad.py, and more; see docs/reading.md. The code is in
reading/.
"""

from engine.cli import command
from reading.run import USAGE, define_flags, main

if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
