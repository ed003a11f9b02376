"""Trains BERT to count words: python -m counting.run --data_dir=texts --do_train ..."""

from absl import flags

from engine.cli import command
from counting.head import HEAD
from runs import command as runs, sets

USAGE = __doc__


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    sets.define_flags(values, "Train on train.txt.", "Evaluate on dev.txt.", "Count in test.txt.")
    runs.define_flags(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    runs.run(values, HEAD, own_of=lambda values: None)


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
