"""The scorer as other commands see it: its card, and its training set for a distillation."""

from typing import Optional

from rewriting import pairs, slot_files
from rewriting.data import PairwiseSet, load_slots
from tasks.capabilities import Capability
from tasks.model_card import Reading
from tasks.training import Job

TASK_NAME = "rewriting"


def _load_training_set(job: Job, data_dir: Optional[str], train_file: Optional[str]) -> PairwiseSet:
    pairs.check_vocabulary(job.encoding)
    return PairwiseSet(load_slots(
        slot_files.find_set("train", data_dir, train_file), job.encoding, job.settings.store_dir,
        dynamic_padding=job.settings.training.dynamic_padding))


CAPABILITY = Capability(
    TASK_NAME, "python -m rewriting.run",
    Reading(
        "phrases in slots of texts",
        "`[CLS] phrase [SEP] before [MASK] ... [MASK] after [SEP]`, with as many `[MASK]` as the "
        "phrase has tokens, and a context that is too long cut at its far ends,",
        "all after the first `[SEP]`",
        ". The second probability says how well the phrase fits; to rank phrases, compare "
        "log(second) - log(first), which keeps its digits near 1. Trained with "
        "`--objective=listwise`, the model only ranks the phrases of a slot",
        "python -m rewriting.rewrite --output_dir=export --pool_file=phrases.txt < texts.txt"),
    _load_training_set)
