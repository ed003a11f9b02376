"""The scorer of phrases, a kind of classifier: see `runs.capability`."""

from typing import Callable, Dict, Iterator, List, Optional, Sequence

import numpy as np
from absl import flags

from encoder.model_files import ModelFiles
from engine.errors import UserError
from rewriting import data, evaluation, pairs, slot_files
from rewriting.data import KIND, PairSet, SlotSet, load_slots
from runs import model_card, sets
from runs.capability import (
    AnyResult, Card, Encoded, Job, Measured, Predict, Reader, Sets, Takes, Training)
from runs.report_page import Section
from runs.rows import Example
from tasks import model_folder
from tasks.capability import Classifier, does_of, results_of, training_of
from tasks.model_folder import Classification

CLASSIFICATION = Classification(KIND, takes_pairs=True, task_name="rewriting")
_TAKES = Takes(2, 2, ("Phrase", "Text with [MASK] in the place of the phrase"))
_NO_SLOT = ("the text has no slot, or several: it is [MASK], or as many "
            f"{slot_files.BERT_AD_MARK} as the phrase has characters")


def find(values: flags.FlagValues, name: str) -> str:
    """The file of the train, dev or test set; raises a UserError if there is none, or several."""
    return sets.find(values, name, list(slot_files.EXTENSIONS.values()))


class PhraseScorer(Classifier):
    """A classifier that tells how well a phrase fits a slot of a text."""
    verb, unit = "Scoring", "pairs"

    @classmethod
    def open(cls, trained: ModelFiles) -> "PhraseScorer":
        loaded, config, encoding = model_folder.load(trained)
        if loaded.kind.name != KIND.name:
            raise UserError(f"{trained.flag}={trained.path} holds another kind of classifier "
                            f'(task.json has "kind": "{loaded.kind.name}", not "{KIND.name}"); it '
                            "must be the output of python -m rewriting.run")
        model = cls(CLASSIFICATION, config, encoding)
        model.check()
        return model

    def check(self) -> None:
        pairs.check_vocabulary(self.encoding)

    def metrics(self) -> Sequence[str]:
        return evaluation.METRICS

    def load(self, job: Job, values: flags.FlagValues,
             training: Optional[Callable[[Job, PairSet], Training]] = None) -> Sets:
        def load(name: str, *, labelled: bool = True) -> SlotSet:
            return load_slots(
                find(values, name), self.encoding, job.settings.store_dir, labelled=labelled)

        train, ranked, wanted = None, {}, sets.wanted(values)
        if "train" in wanted:
            train = (training or training_of)(job, PairSet(load("train")))
        for suffix, name, flag in (("", "dev", "do_eval"), ("_test", "test", "do_test")):
            if flag in values and values[flag].value:
                ranked[suffix] = load(name)
                if not ranked[suffix].is_ranked.any():
                    raise UserError(f"{find(values, name)}: no slot has a phrase that fits and one "
                                    "that does not, so there is nothing to rank")
        return Sets(train, ranked, {"": load("test", labelled=False)} if "test" in wanted else {})

    def measure(self, job: Job, held_out: SlotSet, predict: Predict) -> Measured:
        return evaluation.measure(held_out, predict)

    def write(self, job: Job, test: SlotSet, suffix: str, predict: Predict) -> None:
        logits = predict(test.pairs.source())["logits"]
        self.write_predictions(job, logits, suffix, test.is_readable)

    def page(self, job: Job, measured: Measured) -> List[Section]:
        return evaluation.page(measured)

    def reader(self) -> Reader:
        """Of a pair of texts, the first is a phrase, the second has a slot for it."""
        encoding = self.encoding

        def encode(examples: List[Example]) -> Encoded:
            slots = [slot_files.slot_of(*example.texts) for example in examples]
            encoded = data.encode_slots([slot or slot_files.UNREAD for slot in slots], encoding)

            def decode(predictions: Dict[str, np.ndarray]) -> Iterator[AnyResult]:
                results = results_of(KIND, predictions["logits"])
                for result, is_read, slot, example in zip(
                        results, encoded.is_readable, slots, examples):
                    yield result if is_read else (f"the phrase {example.texts[0][:40]!r}: "
                                                  f"{data.unread(encoding) if slot else _NO_SLOT}")

            return Encoded(encoded.pairs.source(), decode)

        return Reader(self.forward(), encode, _TAKES, ["label", *KIND.labels], does_of(KIND), ranks_first=True)

    def card(self) -> Card:
        return Card(
            "Whether a phrase fits a slot of a text, for phrases in slots of texts", KIND.labels,
            model_card.inputs(
                self, "`[CLS] phrase [SEP] before [MASK] ... [MASK] after [SEP]`, with as many `[MASK]` as the phrase has "
                "tokens, and a context that is too long cut at its far ends,", "1 on all after the first `[SEP]`, else 0"),
            super().card().outputs + ". The second probability says how well the phrase fits; to rank "
            "phrases, compare log(second) - log(first), which keeps its digits near 1",
            "python -m rewriting.rewrite --output_dir=export --pool_file=phrases.txt < texts.txt")
