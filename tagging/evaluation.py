"""Tags sentences with a trained model, scores them by entity, and writes the predictions.

Precision, recall and F1 equal those of CoNLL-2000's and 2003's conlleval: an entity is found if it
is predicted with the same type, first and last word.
"""

import collections
import os
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from engine import log
from engine.disk import files
from runs.capability import Job, Measured, Predict, warning_of_loss
from tagging import schemes
from tagging.data import SentenceSet
from tagging.formats import TaggedFile
from tagging.schemes import Entity


def score(sentences: Iterable[Tuple[Sequence[Entity], Sequence[Entity]]],
          missed: Mapping[str, int]) -> Tuple[Sequence[float], List[Dict[str, Any]]]:
    """Precision, recall and F1 of all entities (micro), and a row for each type, in alphabetical order.

    A share of nothing is 0, as in conlleval.

    Args:
        sentences: true and predicted entities of each sentence.
        missed: type → the number of true entities that no tags can spell.
    """
    from sklearn.metrics import precision_recall_fscore_support  # takes a second
    true = [name for name, count in missed.items() for _ in range(count)]
    predicted = [""] * len(true)
    for expected, actual in sentences:
        for entity in {*expected, *actual}:
            true.append(entity.type if entity in expected else "")
            predicted.append(entity.type if entity in actual else "")
    types, counts = sorted({*true, *predicted} - {""}), collections.Counter(predicted)
    if not types:
        return (0.0, 0.0, 0.0), []
    columns = precision_recall_fscore_support(true, predicted, labels=types, zero_division=0)
    total = precision_recall_fscore_support(true, predicted, labels=types, average="micro", zero_division=0)
    return tuple(map(float, total[:3])), [
        {"type": name, "precision": float(precision), "recall": float(recall), "f1": float(f1),
         "num_true": int(count), "num_predicted": counts[name]}
        for name, precision, recall, f1, count in zip(types, *columns)]


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
    (precision, recall, f1), rows = score(zip(true, predicted), records.facts["missed"])
    loss = predictions["loss"].sum(dtype=np.float64) / records.lengths("first_pieces").sum()
    baseline = sentences.baseline()
    return Measured(
        {"eval_f1": f1, "eval_precision": precision, "eval_recall": recall,
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
