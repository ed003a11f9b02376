"""Answers questions with a trained model, writes the answers, and scores them.

The questions are answered part by part, so that memory does not grow with their number; all windows
of a question are in the same part.
"""

import contextlib
import json
import os
from typing import Any, Callable, Iterator, Tuple

from engine import log
from engine.disk import files
from reading import answers, scores
from reading.answers import Answers
from reading.data import QuestionSet
from reading.measures import MEASURES
from reading.report import Miss, Shown
from reading.scores import Answered
from runs.head import Job, Measured, Predict

PREDICTIONS, N_BEST, NULL_ODDS = PREDICTION_FILES = (
    "predictions.json", "nbest_predictions.json", "null_odds.json")

_WINDOWS_AT_A_TIME = 2048


def metrics(may_have_none: bool) -> Tuple[str, ...]:
    """The results by which the best checkpoint can be chosen, the default first."""
    return ("f1", "exact", "best_f1", "best_exact") if may_have_none else ("f1", "exact_match")


def measure(job: Job, questions: QuestionSet, predict: Predict,
            write_answers: Callable[[str, Answers], None] = lambda identity, found: None
            ) -> Measured:
    """The scores of the answers; none if the file does not have the right ones.

    Args:
        write_answers: called with the id of each question and its answers.
    """
    own = job.model.own
    may_have_none = own.windows.version_2_with_negative
    compare, answered, misses = MEASURES[own.measure][may_have_none], [], []
    for part in questions.parts(_WINDOWS_AT_A_TIME):
        logits = predict(questions.source(part))
        for (identity, right, found), num_tokens in zip(
                answers.find_all(questions, part, logits, own.answers),
                questions.records.lengths("token_words", part).tolist()):
            write_answers(identity, found)
            agreement = compare(found.text, right)
            answered.append(Answered(agreement, bool(right), bool(found.text),
                                     found.null_odds or 0.0, num_tokens))
            if agreement.f1 < 1:
                predicted, probability = found.chosen()
                misses.append(Miss(identity, predicted, probability * (1 - agreement.f1)))
    if not questions.is_labelled:
        return Measured({})
    return Measured(scores.results(answered, may_have_none=may_have_none),
                    table=scores.table(answered, may_have_none=may_have_none),
                    shown=Shown(questions.path, misses))


def write(job: Job, questions: QuestionSet, suffix: str, predict: Predict) -> Measured:
    """Writes the answers into the files of the original; returns their scores."""
    del suffix
    with prediction_files(job.settings.output_dir,
                          job.model.own.windows.version_2_with_negative) as write_answers:
        measured = measure(job, questions, predict, write_answers)
    log.info(f"Answered: {job.settings.output_dir}/{PREDICTIONS}")
    return measured


@contextlib.contextmanager
def prediction_files(output_dir: str,
                     may_have_none: bool) -> Iterator[Callable[[str, Answers], None]]:
    """A function that writes the answers to a question.

    The files get their names when all is written.
    """
    with contextlib.ExitStack() as stack:
        entries = {name: stack.enter_context(_json_object(os.path.join(output_dir, name)))
                   for name in PREDICTION_FILES if may_have_none or name != NULL_ODDS}

        def write_answers(identity: str, found: Answers) -> None:
            entries[PREDICTIONS](identity, found.text)
            entries[N_BEST](identity, found.n_best())
            if may_have_none:
                entries[NULL_ODDS](identity, found.null_odds)

        yield write_answers


@contextlib.contextmanager
def _json_object(path: str) -> Iterator[Callable[[str, Any], None]]:
    """A function that writes an entry of a JSON object, in the layout of the original's files."""
    with files.output(path) as file:
        is_empty = [True]

        def write_entry(key: str, value: Any) -> None:
            entry = json.dumps({key: value}, indent=4)
            file.write(("{" if is_empty[0] else ",") + entry[1:-len("\n}")])
            is_empty[0] = False

        yield write_entry
        file.write("{}\n" if is_empty[0] else "\n}\n")
