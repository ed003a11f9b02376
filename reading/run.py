"""Trains a model that finds the answers to questions in a text, and answers questions with it.

  python run_squad.py --train_file=train-v1.1.json --do_train ...
"""

from typing import Tuple

from absl import flags

from encoder import model_flags, task_json
from engine import settings
from engine.cli import device_flags
from reading.answers import AnswerSettings
from reading.data import WindowSettings
from reading.capability import AnswerFinder, saved_settings
from runs import training_command
from runs.tries import TrySettings

USAGE = """Trains BERT to find the answers to questions in a text, on every GPU that
CUDA_VISIBLE_DEVICES shows.

  python run_squad.py --train_file=train-v1.1.json --predict_file=dev-v1.1.json --do_train \\
    --do_predict --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out --num_gpus=4

The files are in SQuAD's format; --version_2_with_negative is for SQuAD 2.0. --do_predict writes
predictions.json, nbest_predictions.json and null_odds.json, and, if the file has the right answers,
their scores to eval_results.txt, as --do_eval does.
Batch sizes are per replica (GPU) and count windows of --max_seq_length tokens; the number of steps is
divided by the number of replicas."""


def define_flags() -> flags.FlagValues:
    """The flags of Google's run_squad.py, and others."""
    values = flags.FlagValues()
    flags.DEFINE_string("train_file", None, "Questions to train on, in SQuAD's format.",
                        flag_values=values)
    flags.DEFINE_string("predict_file", None, "Questions to answer, in SQuAD's format.",
                        flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on --train_file.", flag_values=values)
    flags.DEFINE_bool("do_predict", False, "Answer the questions of --predict_file.",
                      flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Score the answers to the questions of --predict_file, "
                      "which has the right ones.", flag_values=values)
    flags.DEFINE_integer("max_seq_length", 384, "Longest window in tokens, with the question; of a "
                         "longer context there are several.", flag_values=values)
    training_command.define_flags(values, WindowSettings, AnswerSettings, TrySettings)
    settings.define_flags(values, device_flags.TpuSettings)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, answers, scores and exports, as the flags ask."""
    training_command.run(values, AnswerFinder, lambda values: AnswerFinder(
        *_settings(values), *model_flags.load_model(values)))


def _settings(values: flags.FlagValues) -> Tuple[WindowSettings, AnswerSettings]:
    """The settings that the flags give, and those of the trained model where they give none."""
    for name, is_needed in (("train_file", values.do_train),
                            ("predict_file", values.do_predict or values.do_eval)):
        if is_needed:
            settings.required(values, name)
    given = {name: values[name].value for name in values if values[name].present}
    windows = settings.from_flags(values, WindowSettings)
    answers = settings.from_flags(values, AnswerSettings)
    folder = model_flags.used_folder(values)
    if folder and task_json.is_reader(task_json.read(folder) or {}):
        return saved_settings(folder, given)
    return windows, answers
