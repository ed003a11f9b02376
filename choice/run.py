"""Trains BERT to choose an answer among those of a question, on every GPU that
CUDA_VISIBLE_DEVICES shows.

  python -m choice.run --data_dir=swag --do_train --do_eval --do_predict \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out

--data_dir has train.*, dev.* and test.*: .csv, .tsv or .txt (tab-separated) with a question a row and
a column for each choice, as SWAG's; .jsonl with an object a line, whose choices are a list; .json as
RACE's, with a text and its questions. The names of the columns decide, and the log says which is which.
Questions may have different numbers of choices. Batch sizes are per replica (GPU) and count questions.
"""

from typing import Dict, Tuple

from absl import flags

from choice import files
from choice.capability import Chooser, trained_on
from choice.files import ChoiceFile, Layout
from encoder import model_flags
from engine.cli import command
from runs import column_finder, sets, training_command
from runs.tries import TrySettings


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    sets.define_flags(values, "Train on the train set.", "Evaluate on the dev set.", "Choose for those of the test set.")
    column_finder.define_flags(values, {
        "text": "the question, or of what it is about and of the question",
        "choice": "each choice, or of lists of them",
        "answer": "the answer (the right choice's label, its number from 0 or from 1, or its text)"}, files.ROLES)
    training_command.define_flags(values, TrySettings)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    training_command.run(values, Chooser, lambda values: Chooser(*_opened(values), *model_flags.load_model(values)))


def _opened(values: flags.FlagValues) -> Tuple[Dict[str, ChoiceFile], Layout]:
    """The files of the sets, and the layout of the training file, which the other files follow.

    Without a training, flags name the columns of all files.
    """
    given, opened = column_finder.of_flags(values, *files.ROLES), {}
    folder = model_flags.used_folder(values)
    trained = trained_on(folder) if folder and not values.do_train else files.UNKNOWN
    if given:
        trained = Layout(answers=trained.answers)
    for name in sets.wanted(values):
        opened[name] = files.open_file(sets.find(values, name, files.EXTENSIONS), given, values.header,
                                       labelled=name != "test", like=trained)
        if name == "train":
            trained = opened[name].layout
    return opened, trained


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)
