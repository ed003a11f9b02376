"""Fine-tunes a scorer of phrases for slots, and ranks a slot's phrases with it.

  python -m rewriting.run --data_dir=slots --do_train --do_eval ...
"""

import os
from typing import Dict, Mapping, NamedTuple, Optional

import numpy as np
from absl import flags

from engine import runtime  # noqa: F401 (before anything that imports TensorFlow)

from engine import command, files, inference, log, run_flags
from engine.errors import UserError
from engine.inference import Predictor
from engine.progress import Counter
from rewriting import model, pairs, ranking
from rewriting.data import KIND, PairwiseSet, SlotSet, listwise_set, load_slots
from rewriting.slot_files import EXTENSIONS
from tasks import evaluation, training
from tasks.table import Target, Task
from tasks.training import Job, Settings

USAGE = """Fine-tunes a scorer: does a phrase fit a slot of a text? On every GPU that
CUDA_VISIBLE_DEVICES shows, from any BERT checkpoint.

  python -m rewriting.run --data_dir=slots --do_train --do_eval --vocab_file=$BERT/vocab.txt \\
    --bert_config_file=$BERT/bert_config.json --init_checkpoint=$BERT/bert_model.ckpt \\
    --output_dir=out

--data_dir is what `python -m rewriting.create_data` has written, or files in bert-ad's format.
Batch sizes are per replica (GPU), in pairs of slot and phrase; with --objective=listwise
--train_batch_size counts slots, each with all its phrases."""

PAIRWISE, LISTWISE = OBJECTIVES = ("pairwise", "listwise")
_SETS = ("train", "dev", "test")


class Data(NamedTuple):
    """The sets that a run needs."""
    train: Optional[SlotSet]
    # By the suffix of their results.
    held_out: Dict[str, SlotSet]


def define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("data_dir", None, "Directory with train, dev and test, each .jsonl or "
                        ".tsv.", flag_values=values)
    for name in _SETS:
        flags.DEFINE_string(f"{name}_file", None, f"The {name} set; {name}.* in --data_dir where "
                            "left out.", flag_values=values)
    flags.DEFINE_enum("objective", PAIRWISE, OBJECTIVES, "pairwise: does this phrase fit, yes or "
                      "no; listwise: which of a slot's phrases does.", flag_values=values)
    flags.DEFINE_bool("do_train", False, "Train on the train set.", flag_values=values)
    flags.DEFINE_bool("do_eval", False, "Rank the dev set.", flag_values=values)
    flags.DEFINE_bool("do_test", False, "Rank the test set; its figures end in _test.",
                      flag_values=values)
    training.define_flags(values)
    run_flags.define_training_flags(values)
    run_flags.define_evaluation_flags(values)
    run_flags.define_device_flags(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Trains and ranks, as the flags ask."""
    if not (values.do_train or values.do_eval or values.do_test):
        raise UserError("nothing to do: set at least one of --do_train, --do_eval, --do_test; "
                        "--help explains all flags")
    paths = {name: _find_set(values, name) for name, wanted in zip(
        _SETS, (values.do_train, values.do_eval, values.do_test)) if wanted}
    job = _job(values)
    data = _load(job, paths)
    if data.train:
        _train(job, data, values.objective)
    if data.held_out:
        _rank(job, data.held_out, values.objective)


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
        raise UserError(f"--data_dir={values.data_dir} holds {there}; say with --{name}_file "
                        "which file is meant")
    return found[0]


def _job(values: flags.FlagValues) -> Job:
    """Checks what the flags say; the output directory is made last, when all is well."""
    config, encoding = training.load_model(values)
    pairs.check_vocabulary(encoding)
    devices = run_flags.find_devices(values, training=values.do_train)
    task = Task(Target(KIND.labels))
    return Job("rewriting", task, config, encoding, devices,
               Settings.of_flags(values, ranking.METRICS))


def _load(job: Job, paths: Mapping[str, str]) -> Data:
    """Loads all sets before the first is used: a bad line must not surface after the training."""
    settings = job.settings
    loaded = {name: load_slots(path, job.encoding, settings.store_dir,
                               dynamic_padding=settings.dynamic_padding)
              for name, path in paths.items()}
    for name in loaded:
        if name != "train" and not loaded[name].is_ranked.any():
            raise UserError(f"{paths[name]}: no slot has a phrase that fits and one that does "
                            "not, so there is nothing to rank")
    return Data(loaded.get("train"), {suffix: loaded[name] for suffix, name in
                                      (("", "dev"), ("_test", "test")) if name in loaded})


def _train(job: Job, data: Data, objective: str) -> None:
    if objective == LISTWISE:
        train_set, forward = listwise_set(data.train), model.listwise(job.config)
    else:
        train_set, forward = PairwiseSet(data.train), model.pairwise(job.config)
    dev = data.held_out.get("")
    with inference.evaluator(
            lambda checkpoint: job.forward, lambda: dev.pairs.source(), job.devices,
            job.settings.batch_sizes.evaluate,
            lambda predictions: results_of(dev, predictions["logits"], objective)) as evaluate:
        training.train(job, train_set, evaluate, forward, facts={"--objective": objective})


def _rank(job: Job, held_out: Mapping[str, SlotSet], objective: str) -> None:
    """Writes eval_results.txt and eval_results.json."""
    checkpoint = evaluation.trained_checkpoint(job)
    log.info(f"Scoring {checkpoint.path} (step {checkpoint.global_step})")
    results, details = {}, {}
    any_source = next(iter(held_out.values())).pairs.source()
    with Predictor(job.forward, any_source, job.devices) as predictor:
        predictor.restore(checkpoint)
        for suffix, questions in held_out.items():
            with Counter("Scoring", unit="pairs", total=len(questions.pairs)) as counter:
                logits = predictor.predict(questions.pairs.source(),
                                           job.settings.batch_sizes.evaluate,
                                           counter.advance)["logits"]
            found = results_of(questions, logits, objective)
            results.update({name + suffix: value for name, value in found.items()})
            details.update({"num_slots" + suffix: int(questions.is_ranked.sum()),
                            "num_pairs" + suffix: len(questions.pairs),
                            "chance" + suffix: ranking.chance(questions.num_phrases,
                                                              questions.num_fitting)})
    results.setdefault("eval_loss", results.get("eval_loss_test"))
    evaluation.write_results(job.settings.output_dir, results, details, checkpoint.global_step)


def results_of(questions: SlotSet, logits: np.ndarray, objective: str) -> Dict[str, float]:
    """The figures of a set: ranking.METRICS, eval_accuracy of the pairs, the objective's loss.

    Args:
        logits: of each pair, [pairs, 2].
    """
    odds, labels = model.log_odds(logits.astype(np.float64)), questions.labels
    if objective == LISTWISE:
        loss = _listwise_loss(questions, odds)
    else:
        loss = float(np.mean(KIND.losses(logits.astype(np.float64), labels)))
    return {"eval_accuracy": float(np.mean((odds > 0) == labels)), "eval_loss": loss,
            **ranking.evaluate(questions.num_phrases, questions.num_fitting, odds)}


def _listwise_loss(questions: SlotSet, odds: np.ndarray) -> float:
    """Mean over the ranked slots of the cross-entropy of a softmax over their phrases."""
    largest = np.maximum.reduceat(odds, questions.starts)
    powers = np.exp(odds - np.repeat(largest, questions.num_phrases))
    losses = (np.log(np.add.reduceat(powers, questions.starts)) + largest
              - odds[questions.starts])
    return float(np.mean(losses[questions.is_ranked]))


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
