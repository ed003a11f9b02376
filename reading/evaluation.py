"""Answers questions with a trained model, writes the answers, and scores them.

The questions are answered part by part, to bound the memory for logits; all windows of a question are
in the same part.
"""

import json
import os
from typing import Dict, Mapping, Optional

from engine import log
from engine.disk import files
from reading import answers, scores
from reading.answers import Answers
from reading.data import QuestionSet
from reading.report import Miss, Shown
from reading.scores import Answered
from runs.capability import Job, Measured, Predict

PREDICTIONS, N_BEST, NULL_ODDS = PREDICTION_FILES = (
    "predictions.json", "nbest_predictions.json", "null_odds.json")

_WINDOWS_AT_A_TIME = 2048


def measure(job: Job, questions: QuestionSet, predict: Predict,
            all_found: Optional[Dict[str, Answers]] = None) -> Measured:
    """The scores of the answers; none if the file does not have the right ones.

    Args:
        all_found: gets the answers to each question, by its id.
    """
    windows, settings = job.model.reading
    may_have_none = windows.version_2_with_negative
    compare, answered, misses = scores.MEASURES[settings.measure][may_have_none], [], []
    for part in questions.parts(_WINDOWS_AT_A_TIME):
        logits = predict(questions.source(part))
        for question, found in answers.find_all(questions, part, logits, settings):
            if all_found is not None:
                all_found[question.id] = found
            agreement = compare(found.text, question.answers)
            answered.append(Answered(agreement, bool(question.answers), bool(found.text),
                                     found.null_odds or 0.0, len(question.token_words)))
            if agreement.f1 < 1:
                predicted, probability = found.chosen()
                misses.append(Miss(question.id, predicted, probability * (1 - agreement.f1)))
    if not questions.is_labelled:
        if any(one.has_answer for one in answered):
            log.warn(f"{questions.path}: {questions.records.facts['num_unlabelled']:,} of "
                     f"{len(answered):,} questions lack \"answers\", so there are no scores")
        return Measured({})
    return Measured(scores.results(answered, may_have_none=may_have_none),
                    table=scores.table(answered, may_have_none=may_have_none),
                    shown=Shown(questions.path, misses))


def write(job: Job, questions: QuestionSet, predict: Predict) -> Measured:
    """Writes the answers into the files of the original; returns their scores."""
    found: Dict[str, Answers] = {}
    measured = measure(job, questions, predict, found)
    write_answers(job.settings.output_dir, found)
    return measured


def write_answers(output_dir: str, found: Mapping[str, Answers]) -> None:
    """Writes the answers to each question, by its id, in the layout of the original's files."""
    contents = {PREDICTIONS: {key: one.text for key, one in found.items()},
                N_BEST: {key: one.n_best() for key, one in found.items()},
                NULL_ODDS: {key: one.null_odds for key, one in found.items()
                            if one.null_odds is not None}}
    for name, content in contents.items():
        if content:
            files.write_text(os.path.join(output_dir, name), json.dumps(content, indent=4) + "\n")
    log.info(f"Answered: {output_dir}/{PREDICTIONS}")
