"""Trains BERT to count words: python -m counting.run --data_dir=texts --do_train ..."""

from absl import flags

from encoder import model_flags
from engine.cli import command
from counting.capability import WordCounter
from runs import sets, training_command

USAGE = __doc__


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    sets.define_flags(values, "Train on train.txt.", "Evaluate on dev.txt.", "Count in test.txt.")
    training_command.define_flags(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    training_command.run(values, WordCounter, lambda values: WordCounter(*model_flags.load_model(values)))


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
