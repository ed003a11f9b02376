"""Tags sentences with a trained model, scores them by entity, and writes the results."""

import contextlib
import os
from typing import (
    Any, Callable, ContextManager, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple)

import numpy as np

from encoder import model_files
from engine import checkpoints, files, inference, log
from engine.data.batches import Features, Source
from engine.data.chunks import in_chunks
from engine.inference import Predictor
from engine.progress import Counter
from engine.training import run
from engine.training.evaluations import Evaluate
from tagging import schemes, scores, windows
from tagging.data import SentenceSet
from tagging.formats import TaggedFile
from tagging.model import LongDecoder
from tagging.schemes import Entity
from tagging.training import Job
from tasks.evaluation import write_results

_WINDOWS_AT_A_TIME = 4096


class Evaluation(NamedTuple):
    """The evaluation of a model on the dev set."""
    results: Dict[str, float]
    per_type: List[Dict[str, Any]]
    true: List[List[Entity]]  # of each sentence
    predicted: List[List[Entity]]


class Tagged(NamedTuple):
    """What is predicted for a set."""
    labels: List[np.ndarray]  # of each sentence's words, int32 [words]
    loss: float  # the sum over all windows


class Sets(NamedTuple):
    """The sets that a run needs, tokenized."""
    train: Optional[SentenceSet] = None
    dev: Optional[SentenceSet] = None
    test: Optional[SentenceSet] = None

    @property
    def has_long_sentences(self) -> bool:
        """Whether any sentence that is to be tagged has several windows."""
        return any(found is not None and found.has_long_sentences
                   for found in (self.dev, self.test))


def score(job: Job, sets: Sets, test_file: Optional[TaggedFile],
          predict_batch_size: int) -> Optional[Evaluation]:
    """Evaluates on the dev set and tags the test set, as far as there are such.

    Raises:
        UserError: there is no trained model, or it does not match the job.
    """
    checkpoint = trained_checkpoint(job)
    log.info(f"Tagging with {checkpoint.path} (step {checkpoint.global_step})")
    any_set = sets.dev or sets.test
    forward = job.forward(gives_scores=sets.has_long_sentences)
    with Predictor(forward, any_set.source(), job.devices) as predictor:
        predictor.restore(checkpoint)
        evaluation = None
        if sets.dev:
            found = _tag_visibly(predictor, sets.dev, job.settings.evaluation.eval_batch_size)
            evaluation = evaluate(job, sets.dev, found)
            details = {"num_sentences": len(evaluation.true), "per_type": evaluation.per_type}
            write_results(job.settings.output_dir, evaluation.results, details,
                          checkpoint.global_step)
            _log_types(evaluation.per_type)
        if sets.test:
            _write_predictions(job, test_file,
                               _tag_visibly(predictor, sets.test, predict_batch_size))
        return evaluation


def evaluator(job: Job, dev: Optional[SentenceSet]) -> ContextManager[Evaluate]:
    """A function that evaluates checkpoints on the dev set."""
    def results_of(predictor: Predictor, advance: Callable[[int], None]) -> Dict[str, float]:
        return evaluate(job, dev, _tag(
            predictor, dev, job.settings.evaluation.eval_batch_size, advance)).results

    return inference.scorer(
        lambda checkpoint: job.forward(gives_scores=dev.has_long_sentences), lambda: dev.source(),
        job.devices, results_of)


def trained_checkpoint(job: Job) -> checkpoints.Checkpoint:
    """The best or else the newest checkpoint of the output directory, or else --init_checkpoint.

    Raises:
        UserError: there is none, or it belongs to another run.
    """
    checkpoint, flag = run.find_trained(job.settings, job.facts())
    model_files.require_classifier(checkpoint, flag)
    model_files.check_outputs(checkpoint, len(job.tagger.tags.labels), flag)
    model_files.check_layers(checkpoint, job.config, flag)
    return checkpoint


def evaluate(job: Job, sentences: SentenceSet, tagged: Tagged) -> Evaluation:
    """The evaluation of what is predicted for a set with tags."""
    labels = job.tagger.tags.labels
    true, predicted = [], []
    num_words = num_right = 0
    for expected, actual in zip(true_labels(sentences), tagged.labels):
        num_words += len(expected)
        num_right += int((expected == actual).sum())
        true.append(schemes.entities([labels[index] for index in expected]))
        predicted.append(schemes.entities([labels[index] for index in actual]))
    total, per_type = scores.score(zip(true, predicted), sentences.missed)
    words_of_windows = sentences.records.lengths("first_pieces").sum()
    results = {"eval_f1": total.f1, "eval_precision": total.precision,
               "eval_recall": total.recall, "eval_accuracy": num_right / num_words,
               "eval_loss": tagged.loss / float(words_of_windows)}
    rows = [{"type": name, "precision": one.precision, "recall": one.recall, "f1": one.f1,
             "num_true": one.num_true, "num_predicted": one.num_predicted}
            for name, one in per_type.items()]
    return Evaluation(results, rows, true, predicted)


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


def _tag_visibly(predictor: Predictor, sentences: SentenceSet, batch_size: int) -> Tagged:
    with Counter("Tagging", unit="windows", total=len(sentences)) as counter:
        return _tag(predictor, sentences, batch_size, counter.advance)


def _tag(predictor: Predictor, sentences: SentenceSet, batch_size: int,
         advance: Callable[[int], None]) -> Tagged:
    """Tags a set, some sentences at a time, so that predictions take bounded memory."""
    source, parts = sentences.source(), []
    for some in in_chunks(sentences.sentences(), _WINDOWS_AT_A_TIME,
                          lambda sentence: sentence[1] - sentence[0]):
        predictions = predictor.predict(_part(source, slice(some[0][0], some[-1][1])), batch_size,
                                        advance)
        parts.append(decoded(sentences, some, predictions))
    return Tagged([labels for part in parts for labels in part.labels],
                  sum(part.loss for part in parts))


def _part(source: Source, some: slice) -> Source:
    return source._replace(
        lengths=source.lengths[some],
        fetch=lambda indices, length: source.fetch(indices + some.start, length))


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
    with contextlib.ExitStack() as stack:
        if any(end > first + 1 for first, end in some):
            decoder = stack.enter_context(LongDecoder(sentences.tags))
        for first, end in some:
            if end == first + 1:
                labels.append(predictions["labels"][first - offset, :num_words[first]].copy())
            else:
                emissions = _best_emissions(
                    sentences, predictions["emissions"][first - offset:end - offset], first, end)
                scores_of = predictions.get("scores")
                labels.append(decoder.decode(
                    emissions, None if scores_of is None else scores_of[first - offset]))
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


def _write_predictions(job: Job, file: TaggedFile, tagged: Tagged) -> None:
    """Writes every line of the file, with the predictions added, to predict.<its extension>."""
    tags = job.tagger.tags

    def spelled() -> Iterator[List[str]]:
        for indices in tagged.labels:
            found = schemes.entities([tags.labels[index] for index in indices])
            yield schemes.spell(found, len(indices), tags.scheme)

    path = os.path.join(job.settings.output_dir, f"predict{os.path.splitext(file.path)[1]}")
    with files.output(path) as output:
        output.writelines(f"{line}\n" for line in file.with_predictions(
            spelled(), lists_mentions=tags.lists_mentions))
    log.info(f"Tagged {len(tagged.labels):,} sentences: {path}")


def _log_types(rows: List[Dict[str, Any]]) -> None:
    """Logs a line for each type, below the names of the columns."""
    shown = [list(rows[0])] + [[f"{value:.4f}" if isinstance(value, float) else str(value)
                                for value in row.values()] for row in rows] if rows else []
    widths = [max(map(len, column)) for column in zip(*shown)]
    for cells in shown:
        log.info("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())
