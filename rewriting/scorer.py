"""The scorer as other commands see it: its card, and its sets to distil and to compare with."""

from typing import Optional

from encoder.encoding import Encoding
from engine.errors import UserError
from rewriting import evaluation, pairs, slot_files
from rewriting.data import KIND, PairwiseSet, load_slots
from rewriting.training import PAIRWISE
from tasks import model_folder
from tasks.capabilities import Capability, DevSet
from tasks.model_card import Reading
from tasks.training import Job

TASK_NAME = "rewriting"


def load(model_dir: str) -> model_folder.TrainedModel:
    """The scorer in an output directory or an export; raises a UserError if there is none."""
    model = model_folder.load(model_dir)
    if model.kind.labels != KIND.labels:
        raise UserError(f"--output_dir={model_dir} holds another kind of classifier; it must be "
                        "the output of python -m rewriting.run")
    pairs.check_vocabulary(model.encoding)
    return model


def _load_training_set(job: Job, data_dir: Optional[str], train_file: Optional[str]) -> PairwiseSet:
    pairs.check_vocabulary(job.encoding)
    return PairwiseSet(load_slots(
        slot_files.find_set("train", data_dir, train_file), job.encoding, job.settings.store_dir,
        dynamic_padding=job.settings.training.dynamic_padding))


def _load_dev_set(encoding: Encoding, store_dir: str, data_dir: Optional[str],
                  dev_file: Optional[str]) -> DevSet:
    slots = load_slots(slot_files.find_set("dev", data_dir, dev_file), encoding, store_dir,
                       dynamic_padding=True)
    return DevSet(slots.pairs.source(),
                  lambda logits: evaluation.results_of(slots, logits, PAIRWISE))


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
    _load_training_set, _load_dev_set)
