"""Fine-tunes a model that scores how well a phrase fits a slot, and ranks phrases with it.

  python -m rewriting.run --data_dir=slots --do_train --do_eval ...
"""

from typing import Mapping

from absl import flags

from encoder import model_flags
from engine import command, device_flags, settings
from engine.errors import UserError
from engine.inference import PredictionSettings
from engine.training.settings import EpochSchedule, run_settings
from rewriting import evaluation, pairs, ranking, scorer, training
from rewriting.data import KIND, Sets, SlotSet, load_slots
from rewriting.slot_files import find_set
from rewriting.training import OBJECTIVES, PAIRWISE
from tasks import evaluation as task_evaluation, export, training as task_training
from tasks.table import Target, Task
from tasks.training import Job

USAGE = """Fine-tunes any BERT checkpoint to score how well a phrase fits a slot of a text, on
every GPU that CUDA_VISIBLE_DEVICES shows.

  python -m rewriting.run --data_dir=slots --do_train --do_eval --vocab_file=$BERT/vocab.txt \\
    --bert_config_file=$BERT/bert_config.json --init_checkpoint=$BERT/bert_model.ckpt \\
    --output_dir=out

--data_dir is the output of `python -m rewriting.create_data`, or has files in bert-ad's format.
--do_predict scores the phrases of the test set, whose labels are not needed: test_results.tsv has
the probabilities of "does not fit" and "fits", predict.txt the likelier of them, a line for each
phrase in the order of the file. --do_export writes the model for other programs.
Batch sizes are per replica (GPU) and count pairs of a slot and a phrase; with
--objective=listwise, --train_batch_size counts slots, each with all its phrases."""


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_string("data_dir", None, "Directory with train, dev and test, each .jsonl or "
                        ".tsv.", flag_values=values)
    for name in ("train", "dev", "test"):
        flags.DEFINE_string(f"{name}_file", None, f"The {name} set, by default {name}.* in "
                            "--data_dir.", flag_values=values)
    flags.DEFINE_enum("objective", PAIRWISE, OBJECTIVES, "pairwise: classify each phrase as "
                      "fitting or not; listwise: choose among all phrases of a slot.",
                      flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on the train set.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Rank the phrases of the dev set.", flag_values=values)
    flags.DEFINE_bool("do_test", False, "Rank the phrases of the test set; the names of its "
                      "metrics end in _test.", flag_values=values)
    flags.DEFINE_bool("do_predict", False, "Predict which phrases of the test set fit; it needs "
                      "no labels.", flag_values=values)
    task_evaluation.define_flags(values)
    export.define_flags(values)
    task_training.define_flags(values)
    settings.define_flags(values, PredictionSettings)
    device_flags.define_for_training(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains, ranks, predicts and exports, as the flags ask."""
    scores = values.do_eval or values.do_test or values.do_predict
    if not (values.do_train or scores or values.do_export):
        raise UserError("nothing to do: set at least one of --do_train, --do_eval, --do_test, "
                        "--do_predict, --do_export; --help explains all flags")
    export.check_flags(values)
    if values.do_export and not values.do_train:
        scorer.load(values.output_dir)
    if values.do_train or scores:
        _run(values)
    if values.do_export:
        export.write(values.output_dir, values.export_frozen_graph)


def _run(values: flags.FlagValues) -> None:
    paths = {name: find_set(name, values.data_dir, values[f"{name}_file"].value)
             for name, wanted in (("train", values.do_train), ("dev", values.do_eval),
                                  ("test", values.do_test or values.do_predict)) if wanted}
    prediction = settings.from_flags(values, PredictionSettings)
    job = _job(values)
    task_training.check_checkpoints(job)
    if not values.do_train:
        task_evaluation.trained_checkpoint(job)  # before texts are tokenized for nothing
    sets = _load(job, paths, ranks_test=values.do_test, predicts=values.do_predict)
    if sets.train:
        with evaluation.evaluator(job, sets.held_out.get(""), values.objective) as evaluate:
            training.train(job, sets.train, values.objective, evaluate)
    if sets.held_out or sets.unlabelled:
        evaluation.score(job, sets, values.objective, prediction.predict_batch_size,
                         values.predict_labels)


def _job(values: flags.FlagValues) -> Job:
    """Checks the flags; makes the output directory only if they are correct."""
    config, encoding = model_flags.load_model(values)
    pairs.check_vocabulary(encoding)
    devices = device_flags.find_devices(values, training=values.do_train)
    task = Task(Target(KIND.labels, kind_of_labels=KIND))
    return Job(scorer.TASK_NAME, task, config, encoding, devices,
               run_settings(values, EpochSchedule, ranking.METRICS))


def _load(job: Job, paths: Mapping[str, str], *, ranks_test: bool, predicts: bool) -> Sets:
    """Loads all sets before the training, so that it does not end in an error about a bad line."""
    def load(name: str, unlabelled: bool = False) -> SlotSet:
        return load_slots(paths[name], job.encoding, job.settings.store_dir, unlabelled=unlabelled,
                          dynamic_padding=job.settings.training.dynamic_padding)

    ranked = {suffix: name for suffix, name, wanted in (
        ("", "dev", "dev" in paths), ("_test", "test", ranks_test)) if wanted}
    sets = Sets(load("train") if "train" in paths else None,
                {suffix: load(name) for suffix, name in ranked.items()},
                load("test", unlabelled=True) if predicts else None)
    for suffix, name in ranked.items():
        if not sets.held_out[suffix].is_ranked.any():
            raise UserError(f"{paths[name]}: no slot has a phrase that fits and one that does "
                            "not, so there is nothing to rank")
    return sets


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
