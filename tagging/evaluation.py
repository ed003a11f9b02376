"""Tags sentences with a trained model, scores them by entity, and writes the predictions."""

import os
from typing import Dict, Iterable, Iterator, List, NamedTuple, Tuple

import numpy as np

from engine import log
from engine.data.batches import Features
from engine.data.chunks import in_chunks
from engine.disk import files
from runs.head import Job, Measured, Predict
from tagging import decoding, schemes, scores, windows
from tagging.data import SentenceSet
from tagging.formats import TaggedFile
from tagging.schemes import Entity

_WINDOWS_AT_A_TIME = 4096


class Found(NamedTuple):
    """The entities of each sentence of a file, for the report."""
    file: TaggedFile
    true: List[List[Entity]]
    predicted: List[List[Entity]]


class Tagged(NamedTuple):
    """What is predicted for a set."""
    labels: List[np.ndarray]  # of each sentence's words, int32 [words]
    loss: float  # the sum over all windows


def measure(job: Job, sentences: SentenceSet, predict: Predict) -> Measured:
    """Precision, recall and F1 of the entities, and the accuracy of the words' tags."""
    labels, tagged = job.model.own.tags.labels, _tag(sentences, predict)
    true, predicted = [], []
    num_words = num_right = 0
    for expected, actual in zip(true_labels(sentences), tagged.labels):
        num_words += len(expected)
        num_right += int((expected == actual).sum())
        true.append(schemes.entities([labels[index] for index in expected]))
        predicted.append(schemes.entities([labels[index] for index in actual]))
    total, per_type = scores.score(zip(true, predicted), sentences.missed)
    words_of_windows = sentences.records.lengths("first_pieces").sum()
    rows = [{"type": name, "precision": one.precision, "recall": one.recall, "f1": one.f1,
             "num_true": one.num_true, "num_predicted": one.num_predicted}
            for name, one in per_type.items()]
    return Measured(
        {"eval_f1": total.f1, "eval_precision": total.precision, "eval_recall": total.recall,
         "eval_accuracy": num_right / num_words,
         "eval_loss": tagged.loss / float(words_of_windows)},
        {"num_sentences": len(true), "per_type": rows}, rows,
        Found(sentences.file, true, predicted))


def write(job: Job, sentences: SentenceSet, suffix: str, predict: Predict) -> None:
    """Writes every line of the file, with the predictions added, to predict.<its extension>."""
    file, tags, tagged = sentences.file, job.model.own.tags, _tag(sentences, predict)

    def spelled() -> Iterator[List[str]]:
        for indices in tagged.labels:
            found = schemes.entities([tags.labels[index] for index in indices])
            yield schemes.spell(found, len(indices), tags.scheme)

    path = os.path.join(job.settings.output_dir,
                        f"predict{suffix}{os.path.splitext(file.path)[1]}")
    with files.output(path) as output:
        output.writelines(f"{line}\n" for line in file.with_predictions(
            spelled(), lists_mentions=tags.lists_mentions))
    log.info(f"Tagged {len(tagged.labels):,} sentences: {path}")


def true_labels(sentences: SentenceSet) -> Iterator[np.ndarray]:
    """The labels of each sentence's words."""
    records = sentences.records
    for first, end in sentences.sentences():
        if end == first + 1:
            yield records.values("labels", slice(first, end))[0]
            continue
        starts = records.scalars("first_word", slice(first, end))
        labels = np.zeros(starts[-1] + records.lengths("labels", slice(end - 1, end))[0], np.int64)
        for window, start in zip(range(first, end), starts):
            some = records.values("labels", slice(window, window + 1))[0]
            labels[start:start + len(some)] = some
        yield labels


def _tag(sentences: SentenceSet, predict: Predict) -> Tagged:
    """Tags a set, some sentences at a time, so that predictions take bounded memory."""
    source, parts = sentences.source(), []
    for some in in_chunks(sentences.sentences(), _WINDOWS_AT_A_TIME,
                          lambda sentence: sentence[1] - sentence[0]):
        predictions = predict(source.part(some[0][0], some[-1][1]))
        parts.append(decoded(sentences, some, predictions))
    return Tagged([labels for part in parts for labels in part.labels],
                  sum(part.loss for part in parts))


def decoded(sentences: SentenceSet, some: Iterable[Tuple[int, int]],
            predictions: Features) -> Tagged:
    """What is predicted for some consecutive sentences.

    The labels of a sentence with several windows are decoded again, from the emissions that each
    word has in the window where it has most context.

    Args:
        some: the windows of each sentence, see `SentenceSet.sentences`.
        predictions: of all their windows.
    """
    num_words = sentences.records.lengths("first_pieces")
    some, labels = list(some), []
    offset = some[0][0]
    for first, end in some:
        if end == first + 1:
            labels.append(predictions["labels"][first - offset, :num_words[first]].copy())
            continue
        emissions = _best_emissions(
            sentences, predictions["emissions"][first - offset:end - offset], first, end)
        trained = predictions["scores"][first - offset] if "scores" in predictions else 0.0
        labels.append(decoding.best_labels_of_one(emissions, sentences.tags.transitions, trained))
    return Tagged(labels, float(predictions["loss"].sum(dtype=np.float64)))


def _best_emissions(sentences: SentenceSet, emissions: np.ndarray, first: int,
                    end: int) -> np.ndarray:
    """The emissions of a sentence's words, each from its deciding window, [words, labels].

    Args:
        emissions: of the sentence's windows, `first` to `end` - 1, [windows, most words, labels].
    """
    records = sentences.records
    starts = records.scalars("first_word", slice(first, end)).tolist()
    pieces: Dict[int, int] = {}  # of each word
    cut = []
    for window, start in zip(range(first, end), starts):
        positions = records.values("first_pieces", slice(window, window + 1))[0].astype(np.int64)
        last = records.lengths("input_ids", slice(window, window + 1)) - 1  # [SEP]
        pieces.update(enumerate(np.diff(np.append(positions, last)).tolist(), start))
        cut.append(windows.Window(start, start + len(positions)))
    chosen = windows.deciding([pieces[word] for word in range(len(pieces))], cut)
    words = np.arange(len(pieces))
    return emissions[chosen, words - np.array(starts)[chosen]]
