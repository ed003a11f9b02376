"""The scorer as other commands see it: to predict, to distil and to compare with, its card."""

from typing import Dict, Iterator, List, Optional

import numpy as np

from encoder.encoding import Encoding
from engine.errors import UserError
from rewriting import data, evaluation, pairs, slot_files
from rewriting.data import KIND, PairwiseSet, load_slots
from rewriting.model import pairwise
from rewriting.training import PAIRWISE
from tasks import classification, kinds, model_folder
from tasks.capabilities import Capability, DevSet
from tasks.examples import Example
from tasks.model_card import Reading
from tasks.training import Job

TASK_NAME = "rewriting"
_NO_SLOT = ("the text has no slot, or several: it is [MASK], or as many "
            f"{slot_files.BERT_AD_MARK} as the phrase has characters")


def load(model_dir: str) -> model_folder.TrainedModel:
    """The scorer in an output directory or an export; raises a UserError if there is none."""
    model = model_folder.load(model_dir)
    if model.kind.name != KIND.name:
        raise UserError(f"--output_dir={model_dir} holds another kind of classifier (task.json has "
                        f'"kind": "{model.kind.name}", not "{KIND.name}"); it must be the output '
                        "of python -m rewriting.run")
    pairs.check_vocabulary(model.encoding)
    return model


def open_model(model_dir: str) -> kinds.Model:
    """See `tasks.kinds`. Of a pair of texts, the first is a phrase, the second has a slot for it."""
    model = load(model_dir)
    config, encoding = model.config, model.encoding

    def encode(examples: List[Example]) -> kinds.Encoded:
        some = [slot_files.slot_of(example.text_a, example.text_b) for example in examples]
        slots = data.encode_slots([slot or slot_files.UNREAD for slot in some], encoding)

        def decode(predictions: Dict[str, np.ndarray]) -> Iterator[kinds.AnyResult]:
            found = classification.results(model.kind, predictions["logits"])
            for result, is_read, slot, example in zip(found, slots.is_readable, some, examples):
                yield result if is_read else (f"the phrase {example.text_a[:40]!r}: "
                                              f"{data.unread(encoding) if slot else _NO_SLOT}")

        return kinds.Encoded(slots.pairs.source(), decode)

    return kinds.Model(pairwise(config), encode, True, ["label", *model.kind.labels])


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
