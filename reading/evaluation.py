"""Answers questions with a trained model, writes the answers, and scores them.

The questions are answered part by part, to bound the memory for logits; all windows of a question are
in the same part.
"""

import json
import os
from typing import Dict, Mapping, Optional

from engine import log
from engine.disk import files
from reading import scores
from reading.answers import Answers, AnswerSettings, find_all
from reading.data import QuestionSet
from reading.report import Miss, Shown
from reading.scores import Answered
from runs.capability import Measured, Predict

PREDICTIONS, N_BEST, NULL_ODDS = PREDICTION_FILES = (
    "predictions.json", "nbest_predictions.json", "null_odds.json")

_WINDOWS_AT_A_TIME = 2048


def measure(questions: QuestionSet, predict: Predict, settings: AnswerSettings,
            all_answers: Optional[Dict[str, Answers]] = None) -> Measured:
    """The scores of the answers; none if the file does not have the right ones.

    Args:
        all_answers: gets the answers to each question, by its id.
    """
    may_have_none = questions.settings.version_2_with_negative
    compare = scores.MEASURES[settings.measure][may_have_none]
    answered, misses = [], []
    for part in questions.parts(_WINDOWS_AT_A_TIME):
        logits = predict(questions.source(part))
        for question, answers in find_all(questions, part, logits, settings):
            if all_answers is not None:
                all_answers[question.id] = answers
            agreement = compare(answers.text, question.answers)
            answered.append(Answered(agreement, bool(question.answers), bool(answers.text),
                                     answers.null_odds or 0.0, len(question.token_words)))
            if agreement.f1 < 1:
                predicted, probability = answers.chosen()
                misses.append(Miss(question.id, predicted, probability * (1 - agreement.f1)))
    if not questions.is_labelled:
        if any(question.has_answer for question in answered):
            log.warn(f"{questions.path}: {questions.records.facts['num_unlabelled']:,} of "
                     f"{len(answered):,} questions lack \"answers\", so there are no scores")
        return Measured({})
    return Measured(scores.results(answered, may_have_none=may_have_none),
                    table=scores.table(answered, may_have_none=may_have_none),
                    shown=Shown(questions.path, misses))


def write_answers(output_dir: str, all_answers: Mapping[str, Answers]) -> None:
    """Writes the answers to each question, by its id, in the layout of the original's files."""
    contents = {PREDICTIONS: {key: answers.text for key, answers in all_answers.items()},
                N_BEST: {key: answers.n_best() for key, answers in all_answers.items()},
                NULL_ODDS: {key: answers.null_odds for key, answers in all_answers.items()
                            if answers.null_odds is not None}}
    for name, content in contents.items():
        if content:
            files.write_text(os.path.join(output_dir, name), json.dumps(content, indent=4) + "\n")
    log.info(f"Answered: {output_dir}/{PREDICTIONS}")
