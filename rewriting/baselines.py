"""Ranks a slot's phrases without a trained scorer, as baselines for one.

  python -m rewriting.baselines --slots_file=slots/test.jsonl
"""

from typing import Dict, List

import numpy as np
from absl import flags

from encoder import model_files, model_flags
from encoder.encoding import Encoding
from engine import settings
from engine.checkpoints import checkpoints
from engine.cli import command, device_flags
from engine.data.store import Records
from engine.disk import files
from engine.errors import UserError
from engine.inference import Predictor
from engine.progress import Counter
from engine.training.settings import EvaluationSettings
from modeling import BertConfig
from rewriting import bm25, data, masked_lm, pairs, ranking
from rewriting.clauses import clauses, count_words
from rewriting.slot_files import SlotExample, read_slots

USAGE = """Ranks the phrases of slots by chance, by their length, by BM25 and, with a model that has
a masked-LM head, by their probability; prints a table.

  python -m rewriting.baselines --slots_file=slots/test.jsonl
  python -m rewriting.baselines --slots_file=slots/test.jsonl --output_dir=baselines \\
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \\
    --init_checkpoint=$BERT/bert_model.ckpt"""


def define_flags() -> flags.FlagValues:
    """The flags of this command."""
    values = flags.FlagValues()
    flags.DEFINE_string("slots_file", None, "Slots with phrases, in a format of rewriting.run.",
                        flag_values=values)
    model_flags.define(values, "a model with a masked-LM head")
    flags.DEFINE_string("output_dir", None, "Where the tokenized slots are kept; needed with "
                        "--init_checkpoint.", flag_values=values)
    model_flags.define_max_seq_length(values)
    settings.define_flags(values, EvaluationSettings, "eval_batch_size")
    device_flags.define(values)
    return values


def main(values: flags.FlagValues) -> None:
    """Scores every phrase in each way, and prints the figures."""
    path = settings.required(values, "slots_file")
    _check_model_flags(values)
    slots = list(read_slots(path))
    if values.init_checkpoint:
        config, encoding = model_flags.load_model(values, model_files.MASKED_LM)
        checkpoint = checkpoints.open_checkpoint(values.init_checkpoint)
        pairs.check_vocabulary(encoding)
        # Every row of the table ranks the same phrases: those that the model can read.
        slots = data.readable_slots(slots, encoding)
    num_phrases = np.array([len(slot.phrases) for slot in slots])
    num_fitting = np.array([slot.num_fitting for slot in slots])
    if not ranking.is_ranked(num_phrases, num_fitting).any():
        raise UserError(f"--slots_file={path}: no slot has a phrase that fits and one that does "
                        "not, so there is nothing to rank")
    results = {"chance": ranking.chance(num_phrases, num_fitting)}
    for name, score in (("length", by_length), ("BM25", by_bm25)):
        results[name] = ranking.evaluate(num_phrases, num_fitting, score(slots))
    if values.init_checkpoint:
        results["masked LM"] = _by_masked_lm(values, config, encoding, checkpoint)
    _print(results)


def by_length(slots: List[SlotExample]) -> np.ndarray:
    """The score by length: higher if the phrase is about as long as the clauses around its slot."""
    scores = []
    for slot in slots:
        around = [*clauses(slot.before), *clauses(slot.after)]
        expected = np.mean([count_words(clause) for clause in around] or [0])
        scores += [-abs(np.log((count_words(phrase) + 1) / (expected + 1)))
                   for phrase in slot.phrases]
    return np.array(scores)


def by_bm25(slots: List[SlotExample]) -> np.ndarray:
    """The BM25 score of a phrase for the text around its slot."""
    phrases = [phrase for slot in slots for phrase in slot.phrases]
    contexts = [f"{slot.before} {slot.after}" for slot in slots
                for _ in slot.phrases]
    index = bm25.Index(Records.of_chunk(bm25.encode(phrases)))
    return index.scores(contexts, np.arange(len(phrases)))


def _check_model_flags(values: flags.FlagValues) -> None:
    for name in ("vocab_file", "bert_config_file"):
        if values[name].value and not values.init_checkpoint:
            raise UserError(f"--{name} is for the masked LM: set --init_checkpoint, too")


def _by_masked_lm(values: flags.FlagValues, config: BertConfig, encoding: Encoding,
                  checkpoint: checkpoints.Checkpoint) -> Dict[str, float]:
    store_dir = files.make_directory(settings.required(values, "output_dir"), "--output_dir")
    devices = device_flags.find_devices(values, training=False)
    slot_set = data.load_slots(values.slots_file, encoding, store_dir, dynamic_padding=True)
    source = masked_lm.source_of(slot_set.pairs)
    with Predictor(masked_lm.forward_of(config), source, devices) as predictor:
        predictor.restore(checkpoint)
        with Counter("Scoring", unit="pairs", total=len(slot_set.pairs)) as counter:
            scores = predictor.predict(source, settings.positive(values, "eval_batch_size"),
                                       counter.advance)["log_likelihood"]
    return ranking.evaluate(slot_set.num_phrases, slot_set.num_fitting, scores)


def _print(results: Dict[str, Dict[str, float]]) -> None:
    print("\t".join(["ranked by", *ranking.METRICS]))
    for name, figures in results.items():
        print("\t".join([name, *(f"{figures[metric]:.3f}" for metric in ranking.METRICS)]))


if __name__ == "__main__":
    command.run(main, define_flags(), usage=USAGE)
