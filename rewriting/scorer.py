"""The scorer as `runs` and other commands see it: see `runs.head`."""

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import numpy as np
from absl import flags

from encoder.model_files import ModelFiles
from engine.errors import UserError
from rewriting import data, evaluation, pairs, slot_files
from rewriting.data import KIND, PairSet, SlotSet, load_slots
from runs import sets
from runs.head import AnyResult, Encoded, Job, Model, Reader, Sets, Training
from runs.rows import Example
from tasks import head, model_folder
from tasks.head import Reading

TASK_NAME = "rewriting"
_NO_SLOT = ("the text has no slot, or several: it is [MASK], or as many "
            f"{slot_files.BERT_AD_MARK} as the phrase has characters")


class Scoring(NamedTuple):
    """How phrases are scored, with what `tasks.head` reads of a classifier."""
    predict_labels: str = model_folder.NAME
    kind: Any = KIND
    task_name: str = TASK_NAME
    takes_pairs: bool = True
    trained_columns: None = None


def open_model(trained: ModelFiles) -> Model:
    """See `Head.open`; raises a UserError if the model is no scorer."""
    found = model_folder.load(trained.path, trained.flag)
    if found.own.kind.name != KIND.name:
        raise UserError(f"{trained.flag}={trained.path} holds another kind of classifier "
                        f'(task.json has "kind": "{found.own.kind.name}", not "{KIND.name}"); it '
                        "must be the output of python -m rewriting.run")
    check(found)
    return found._replace(own=Scoring())


def check(found: Model) -> None:
    """Raises a UserError if the vocabulary lacks what slots need."""
    pairs.check_vocabulary(found.encoding)


def find(values: flags.FlagValues, name: str) -> str:
    """The file of the train, dev or test set; raises a UserError if there is none, or several."""
    return sets.find(values, name, list(slot_files.EXTENSIONS.values()))


def load(job: Job, values: flags.FlagValues,
         training: Optional[Callable[[Job, PairSet], Training]] = None) -> Sets:
    """See `tasks.head.load`."""
    check(job.model)
    train, ranked, wanted = None, {}, sets.wanted(values)
    if "train" in wanted:
        train = (training or head.training_of)(job, PairSet(_load_set(job, values, "train")))
    for suffix, name, flag in (("", "dev", "do_eval"), ("_test", "test", "do_test")):
        if flag in values and values[flag].value:
            ranked[suffix] = _load_set(job, values, name)
            if not ranked[suffix].is_ranked.any():
                raise UserError(f"{find(values, name)}: no slot has a phrase that fits and one "
                                "that does not, so there is nothing to rank")
    return Sets(train, ranked,
                {"": _load_set(job, values, "test", labelled=False)} if "test" in wanted else {})


def _load_set(job: Job, values: flags.FlagValues, name: str, *, labelled: bool = True) -> SlotSet:
    return load_slots(find(values, name), job.model.encoding, job.settings.store_dir,
                      labelled=labelled, dynamic_padding=job.settings.training.dynamic_padding)


def _reader(found: Model) -> Reader:
    """Of a pair of texts, the first is a phrase, the second has a slot for it."""
    encoding = found.encoding

    def encode(examples: List[Example]) -> Encoded:
        some = [slot_files.slot_of(example.text_a, example.text_b) for example in examples]
        slots = data.encode_slots([slot or slot_files.UNREAD for slot in some], encoding)

        def decode(predictions: Dict[str, np.ndarray]) -> Iterator[AnyResult]:
            results = head.results_of(KIND, predictions["logits"])
            for result, is_read, slot, example in zip(results, slots.is_readable, some, examples):
                yield result if is_read else (f"the phrase {example.text_a[:40]!r}: "
                                              f"{data.unread(encoding) if slot else _NO_SLOT}")

        return Encoded(slots.pairs.source(), decode)

    return Reader(head.forward_of(found), encode, True, ["label", *KIND.labels], ranks_first=True)


_SLOTS = Reading(
    "phrases in slots of texts",
    "`[CLS] phrase [SEP] before [MASK] ... [MASK] after [SEP]`, with as many `[MASK]` as the "
    "phrase has tokens, and a context that is too long cut at its far ends,",
    "all after the first `[SEP]`",
    ". The second probability says how well the phrase fits; to rank phrases, compare "
    "log(second) - log(first), which keeps its digits near 1",
    "python -m rewriting.rewrite --output_dir=export --pool_file=phrases.txt < texts.txt")

HEAD = head.HEAD._replace(
    verb="Scoring", unit="pairs", load=load, measure=evaluation.measure, write=evaluation.write,
    open=open_model, reader=_reader, page=evaluation.page,
    card=lambda found: head.card(found, _SLOTS), check=check,
    metrics=lambda own: evaluation.METRICS)
