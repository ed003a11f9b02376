"""Fine-tunes a model that scores how well a phrase fits a slot, and ranks phrases with it.

  python -m rewriting.run --data_dir=slots --do_train --do_eval ...
"""

import os
from typing import Dict, Mapping, NamedTuple, Optional

from absl import flags

from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)

from encoder import model_flags
from engine import command, device_flags, files
from engine.errors import UserError
from engine.training.settings import EpochSchedule, run_settings
from rewriting import evaluation, pairs, ranking, training
from rewriting.data import KIND, SlotSet, load_slots
from rewriting.slot_files import EXTENSIONS
from rewriting.training import OBJECTIVES, PAIRWISE
from tasks import training as task_training
from tasks.evaluation import trained_checkpoint
from tasks.table import Target, Task
from tasks.training import Job

USAGE = """Fine-tunes any BERT checkpoint to score how well a phrase fits a slot of a text, on
every GPU that CUDA_VISIBLE_DEVICES shows.

  python -m rewriting.run --data_dir=slots --do_train --do_eval --vocab_file=$BERT/vocab.txt \\
    --bert_config_file=$BERT/bert_config.json --init_checkpoint=$BERT/bert_model.ckpt \\
    --output_dir=out

--data_dir is the output of `python -m rewriting.create_data`, or has files in bert-ad's format.
Batch sizes are per replica (GPU) and count pairs of a slot and a phrase; with
--objective=listwise, --train_batch_size counts slots, each with all its phrases."""

_SETS = ("train", "dev", "test")


class Data(NamedTuple):
    """The sets that a run needs."""
    train: Optional[SlotSet]
    held_out: Dict[str, SlotSet]  # by the suffix of the results' names


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_string("data_dir", None, "Directory with train, dev and test, each .jsonl or "
                        ".tsv.", flag_values=values)
    for name in _SETS:
        flags.DEFINE_string(f"{name}_file", None, f"The {name} set, by default {name}.* in "
                            "--data_dir.", flag_values=values)
    flags.DEFINE_enum("objective", PAIRWISE, OBJECTIVES, "pairwise: classify each phrase as "
                      "fitting or not; listwise: choose among all phrases of a slot.",
                      flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on the train set.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Rank the phrases of the dev set.", flag_values=values)
    flags.DEFINE_bool("do_test", False, "Rank the phrases of the test set; the names of its "
                      "metrics end in _test.", flag_values=values)
    task_training.define_flags(values)
    device_flags.define_for_training(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains and ranks, as the flags ask."""
    if not (values.do_train or values.do_eval or values.do_test):
        raise UserError("nothing to do: set at least one of --do_train, --do_eval, --do_test; "
                        "--help explains all flags")
    paths = {name: _find_set(values, name) for name, wanted in zip(
        _SETS, (values.do_train, values.do_eval, values.do_test)) if wanted}
    job = _job(values)
    task_training.check_checkpoints(job)
    if not values.do_train:
        trained_checkpoint(job)  # before texts are tokenized for nothing
    data = _load(job, paths)
    if data.train:
        dev = data.held_out.get("")
        with evaluation.evaluator(job, dev, values.objective) as evaluate:
            training.train(job, data.train, values.objective, evaluate)
    if data.held_out:
        evaluation.evaluate_and_write(job, data.held_out, values.objective)


def _find_set(values: flags.FlagValues, name: str) -> str:
    given = values[f"{name}_file"].value
    if given:
        return files.require_file(given, f"--{name}_file")
    if not values.data_dir:
        raise UserError(f"--data_dir or --{name}_file is required")
    candidates = [os.path.join(values.data_dir, name + extension)
                  for extension in EXTENSIONS.values()]
    found = [path for path in candidates if os.path.exists(path)]
    if len(found) != 1:
        there = " and ".join(found) or f"neither {' nor '.join(candidates)}"
        raise UserError(f"--data_dir={values.data_dir} has {there}; name the file with "
                        f"--{name}_file")
    return found[0]


def _job(values: flags.FlagValues) -> Job:
    """Checks the flags; makes the output directory only if they are correct."""
    config, encoding = model_flags.load_model(values)
    pairs.check_vocabulary(encoding)
    devices = device_flags.find_devices(values, training=values.do_train)
    task = Task(Target(KIND.labels))
    return Job("rewriting", task, config, encoding, devices,
               run_settings(values, EpochSchedule, ranking.METRICS))


def _load(job: Job, paths: Mapping[str, str]) -> Data:
    """Loads all sets before the training, so that it does not end in an error about a bad line."""
    settings = job.settings
    loaded = {name: load_slots(path, job.encoding, settings.store_dir,
                               dynamic_padding=settings.training.dynamic_padding)
              for name, path in paths.items()}
    for name in loaded:
        if name != "train" and not loaded[name].is_ranked.any():
            raise UserError(f"{paths[name]}: no slot has a phrase that fits and one that does "
                            "not, so there is nothing to rank")
    return Data(loaded.get("train"), {suffix: loaded[name] for suffix, name in
                                      (("", "dev"), ("_test", "test")) if name in loaded})


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
