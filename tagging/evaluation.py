"""Tags sentences with a trained model, scores them by entity, and writes the predictions.

Precision, recall and F1 equal those of CoNLL-2000's and 2003's conlleval: an entity is found if it
is predicted with the same type, first and last word.
"""

import collections
import os
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from engine import log
from engine.disk import files
from runs.capability import Job, Measured, Predict, warning_of_loss
from tagging import schemes
from tagging.data import SentenceSet
from tagging.formats import TaggedFile
from tagging.schemes import Entity


class Score(NamedTuple):
    """Counts of entities, and what follows from them; a share of nothing is 0, as in conlleval."""
    num_true: int
    num_predicted: int
    num_found: int  # both true and predicted

    @property
    def precision(self) -> float:
        """The share of the predicted entities that are true."""
        return self.num_found / self.num_predicted if self.num_predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the true entities that are predicted."""
        return self.num_found / self.num_true if self.num_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def score(sentences: Iterable[Tuple[Sequence[Entity], Sequence[Entity]]],
          missed: Mapping[str, int]) -> Tuple[Score, Dict[str, Score]]:
    """The score of all entities (micro), and one for each type, in alphabetical order.

    Args:
        sentences: true and predicted entities of each sentence.
        missed: type → the number of true entities that no tags can spell.
    """
    true, predicted, both = (collections.Counter() for _ in range(3))
    true.update(missed)
    for expected, actual in sentences:
        true.update(entity.type for entity in expected)
        predicted.update(entity.type for entity in actual)
        both.update(entity.type for entity in set(expected) & set(actual))
    types: List[str] = sorted({*true, *predicted})
    return (Score(*(sum(counts.values()) for counts in (true, predicted, both))),
            {name: Score(true[name], predicted[name], both[name]) for name in types})


class Found(NamedTuple):
    """The entities of each sentence of a file, for the report."""
    file: TaggedFile
    true: List[List[Entity]]
    predicted: List[List[Entity]]


def measure(sentences: SentenceSet, predict: Predict) -> Measured:
    """Precision, recall and F1 of the entities, and the accuracy of the words' tags."""
    predictions = predict(sentences.source())
    records, actual = sentences.records, sentences.of_sentences(predictions["labels"])
    expected = sentences.of_sentences(records.padded(
        "labels", np.arange(len(records)), predictions["labels"].shape[1]))
    num_right = sum(int((one == other).sum()) for one, other in zip(expected, actual))
    true, predicted = (list(entities_of(sentences, labels)) for labels in (expected, actual))
    total, per_type = score(zip(true, predicted), records.facts["missed"])
    rows = [{"type": name, "precision": one.precision, "recall": one.recall, "f1": one.f1,
             "num_true": one.num_true, "num_predicted": one.num_predicted}
            for name, one in per_type.items()]
    loss = predictions["loss"].sum(dtype=np.float64) / records.lengths("first_pieces").sum()
    baseline = sentences.baseline()
    return Measured(
        {"eval_f1": total.f1, "eval_precision": total.precision, "eval_recall": total.recall,
         "eval_accuracy": num_right / sum(map(len, expected)), "eval_loss": float(loss)},
        {"num_sentences": len(true), "per_type": rows}, rows,
        Found(sentences.file, true, predicted),
        warning_of_loss(loss, baseline.description, baseline.loss(np.arange(len(records))), len(true)))


def write(job: Job, sentences: SentenceSet, predict: Predict) -> None:
    """Writes every line of the file, with the predictions added, to predict.<its extension>."""
    file, tags = sentences.file, job.model.tagger.tags
    labels = sentences.of_sentences(predict(sentences.source())["labels"])
    spelled = (schemes.spell(entities, len(words), tags.scheme)
               for words, entities in zip(labels, entities_of(sentences, labels)))
    path = os.path.join(job.settings.output_dir, f"predict{os.path.splitext(file.path)[1]}")
    with files.output(path) as output:
        output.writelines(f"{line}\n" for line in file.with_predictions(spelled))
    log.info(f"Tagged {len(labels):,} sentences: {path}")


def entities_of(sentences: SentenceSet, labels: List[np.ndarray]) -> Iterator[List[Entity]]:
    """The entities that the labels of each sentence spell."""
    names = sentences.tags.labels
    return (schemes.entities([names[index] for index in row]) for row in labels)
