"""The earlier name of `python -m runs.predict`."""

from engine.cli import command
from runs.predict import USAGE, define_flags, main

if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
