"""A trained model that answers questions, as other commands see it: see `tasks.kinds`.

Its texts are pairs: a question, and the context that the answer is in.
"""

from typing import Dict, Iterator, List

import numpy as np

from encoder import label_config, model_files
from engine.errors import UserError
from reading import answers, data, model, training
from reading.answers import Answers, AnswerSettings
from reading.data import QuestionSet, WindowSettings
from reading.squad_files import Paragraph, Question
from tasks import kinds
from tasks.examples import Example
from tasks.kinds import Encoded, Result


def open_model(model_dir: str) -> kinds.Model:
    """See `tasks.kinds`."""
    trained = model_files.open_model(model_dir, "--output_dir")
    model.require_head(trained.checkpoint, trained.flag)
    path = trained.file(label_config.FILE)
    config, windows = trained.config(), training.described(WindowSettings, path)
    answer_settings = training.described(AnswerSettings, path)
    encoding = trained.encoding(trained.description()["max_seq_length"])
    windows.check(encoding.max_seq_length)
    if encoding.max_seq_length > config.max_position_embeddings:
        raise UserError(f"{path}: max_seq_length is {encoding.max_seq_length}, and the model has "
                        f"{config.max_position_embeddings} positions")

    def encode(examples: List[Example]) -> Encoded:
        questions = data.encode(map(_paragraph, examples), encoding, windows)
        return Encoded(questions.source(slice(0, questions.num_questions)),
                       lambda logits: _results(questions, logits, answer_settings))

    odds = ["null_odds"] if windows.version_2_with_negative else []
    return kinds.Model(model.forward_of(config, encoding.max_seq_length), encode, True,
                       ["answer", "probability", *odds])


def _paragraph(example: Example) -> Paragraph:
    question = Question("", example.text_a, [], is_impossible=False, is_labelled=False)
    return Paragraph(example.text_b, [question])


def _results(questions: QuestionSet, logits: Dict[str, np.ndarray],
             settings: AnswerSettings) -> Iterator[Result]:
    every = slice(0, questions.num_questions)
    for _, _, found in answers.find_all(questions, every, logits, settings):
        yield _result(found)


def _result(found: Answers) -> Result:
    # A word that is in no context would pass for an answer.
    text = "" if answers.NONE_POSSIBLE in found.candidates else found.text
    probability = next((entry["probability"] for entry in found.n_best()
                        if entry["text"] == text), 0.0)
    entry = {"answer": text, "probability": float(f"{probability:.9g}")}
    if found.null_odds is not None:
        entry["null_odds"] = float(f"{found.null_odds:.9g}")
    return Result([entry["answer"], *(f"{value:.9g}" for name, value in entry.items()
                                      if name != "answer")], entry)
