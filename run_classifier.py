"""Fine-tunes BERT on a classification or regression task, on every visible GPU.

Has the flags of google-research/bert's run_classifier.py, and more; see README.md.
"""

from typing import Optional

from absl import flags

from encoder import model_flags
from encoder.long_texts import LongTexts
from engine import settings
from engine.cli import command, device_flags
from engine.errors import UserError
from runs import kinds, sets, training_command
from runs.tries import TrySettings
from tasks import capability, model_folder, task_flags
from tasks.capability import Classifier
from tasks.google_interface import (  # noqa: F401 (for programs that import them from here)
    ColaProcessor, InputFeatures, MnliProcessor, MrpcProcessor, PaddingInputExample, XnliProcessor,
    convert_examples_to_features, convert_single_example, create_model,
    file_based_convert_examples_to_features, file_based_input_fn_builder, input_fn_builder,
    model_fn_builder)
from tasks.processors import DataProcessor, InputExample  # noqa: F401 (the same)
from tasks.model_folder import Classification

USAGE = """Fine-tunes BERT on a task, on every GPU that CUDA_VISIBLE_DEVICES shows.

  python run_classifier.py --task_name=cola --data_dir=glue/CoLA --do_train --do_eval \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt --output_dir=out --num_gpus=4

Batch sizes are per replica (GPU); the number of steps is divided by the number of replicas."""


def define_flags() -> flags.FlagValues:
    """The flags of Google's run_classifier.py, and others."""
    values = flags.FlagValues()
    task_flags.define(
        values, "Train on the training set.", "Evaluate on the dev set.", "Predict the labels of the test set.")
    capability.define_flags(values)
    training_command.define_flags(values, LongTexts, TrySettings)
    settings.define_flags(values, device_flags.TpuSettings)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, evaluates, predicts and exports, as the flags ask."""
    training_command.run(values, Classifier, lambda values: Classifier(
        _classification(values), *model_flags.load_model(values)))


def _classification(values: flags.FlagValues) -> Classification:
    return task_flags.find(values, sets.wanted(values), None if values.do_train else _saved(values)
                           )._replace(predict_labels=values.predict_labels)


def _saved(values: flags.FlagValues) -> Optional[Classification]:
    """`model_folder.saved` of the model to evaluate; None if it has no description.

    Raises a UserError if the model's examples are not texts.
    """
    flag, path = model_flags.used(values) or ("", "")
    saved = model_folder.saved(path) if path else None
    if saved and saved.kind.name in kinds.COMMANDS:
        raise UserError(f"{flag}={path} does not read texts: its command is "
                        f"{kinds.COMMANDS[saved.kind.name]}, with {flag}={path} and "
                        "--do_eval or --do_predict")
    return saved


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
