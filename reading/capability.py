"""Models that find answers to questions: see `runs.capability`.

A plain text is a pair: a question, and the context that the answer is in.
"""

import dataclasses
import json
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, get_type_hints

import tensorflow.compat.v1 as tf
from absl import flags

from encoder import task_json
from encoder.encoding import Encoding
from encoder.model_files import ModelFiles
from engine import log
from engine.checkpoints.checkpoints import Checkpoint
from engine.disk import files
from engine.errors import UserError
from engine.model import FittedLayer, Forward, Mode
from modeling import BertConfig
from reading import data, model, report, scores
from reading.answers import NONE_POSSIBLE, Answers, AnswerSettings, find_all
from reading.data import QuestionSet, WindowSettings
from reading.report import Miss, Shown
from reading.scores import Answered
from runs import linear_probe, model_card
from runs.capability import (
    Capability, Card, Encoded, Job, Measured, Predict, Reader, Result, Sets, Takes, Training)
from runs.report_page import Section
from runs.rows import Example
from runs.squad_files import Paragraph, Question


PREDICTIONS, N_BEST, NULL_ODDS = PREDICTION_FILES = (
    "predictions.json", "nbest_predictions.json", "null_odds.json")

_WINDOWS_AT_A_TIME = 2048


class AnswerFinder(Capability):
    """A model that finds the answer to a question in a text.

    Attributes:
        windows: how contexts are read.
        answers: how answers are chosen.
    """
    verb, unit, loss = "Answering", "windows", None
    prediction_files = PREDICTION_FILES

    def __init__(self, windows: WindowSettings, answers: AnswerSettings, config: BertConfig,
                 encoding: Encoding):
        super().__init__(config, encoding)
        self.windows, self.answers, self.settings = windows, answers, [windows]

    @classmethod
    def open(cls, trained: ModelFiles) -> "AnswerFinder":
        """See `Capability`; the settings of a model of Google's code are the defaults."""
        model.require_head(trained.checkpoint, trained.flag)
        config, description = trained.config(), trained.description()
        if not description:
            return cls(WindowSettings(), AnswerSettings(), config,
                       trained.encoding(config.max_position_embeddings))
        finder = cls(*saved_settings(trained.folder), config,
                     trained.encoding(description["max_seq_length"]))
        finder.check()
        return finder

    def check(self) -> None:
        length = self.encoding.max_seq_length
        query_length = self.windows.max_query_length
        if length <= query_length + data.NUM_SPECIAL:
            raise UserError(f"--max_seq_length={length} leaves no room for a context beside a "
                            f"question of --max_query_length={query_length} tokens and "
                            f"{data.NUM_SPECIAL} special ones; raise the one or lower the other")

    def facts(self) -> Dict[str, Any]:
        return {"task": "reading comprehension", **self.encoder_facts()}

    def metrics(self) -> Sequence[str]:
        return (("f1", "exact", "best_f1", "best_exact")
                if self.windows.version_2_with_negative else ("f1", "exact_match"))

    def require(self, checkpoint: Checkpoint, flag: str) -> None:
        model.require_head(checkpoint, flag)

    def load(self, job: Job, values: flags.FlagValues, training: Any = None) -> Sets:

        def load(path: str, is_training: bool) -> QuestionSet:
            return data.load(path, self.encoding, self.windows, job.settings.store_dir,
                             is_training=is_training)

        train = held_out = None
        if values.do_train:
            questions = load(values.train_file, True)
            train = Training(
                len(questions), questions.content_hash, self.forward(), questions.training_source,
                baseline=questions.baseline(), fit=self._fit(job, questions))
        if values.do_predict or values.do_eval:
            held_out = load(values.predict_file, False)
        if values.do_eval and not held_out.is_labelled:
            raise UserError(f"--do_eval: --predict_file={values.predict_file} does not have the "
                            "answers of all questions; --do_predict answers them")
        return Sets(train, {"": held_out} if values.do_eval else {},
                    {"": held_out} if values.do_predict else {})

    def _fit(self, job: Job, questions: QuestionSet) -> Callable[[float], Optional[FittedLayer]]:
        """Fits what says where an answer begins and ends to tokens of all windows, or of a sample of them."""
        layer = linear_probe.OneOf(model.NUM_OUTPUTS)
        return linear_probe.fitting(
            job, layer, "tokens", positions="positions", has_dropout=False, names=model.HEAD,
            find=lambda: questions.sample(linear_probe.most_rows(layer.num_outputs)))

    def forward(self, *_: Any) -> Forward:
        return model.forward_of(self.config)

    def measure(self, job: Job, held_out: QuestionSet, predict: Predict,
                all_answers: Optional[Dict[str, Answers]] = None) -> Measured:
        """The scores of the answers; none if the file does not have the right ones.

        Args:
            all_answers: gets the answers to each question, by its id.
        """
        may_have_none = self.windows.version_2_with_negative
        compare = scores.MEASURES[self.answers.measure][may_have_none]
        answered, misses = [], []
        for part in held_out.parts(_WINDOWS_AT_A_TIME):  # to bound the memory for logits
            logits = predict(held_out.source(part))
            for question, answers in find_all(held_out, part, logits, self.answers):
                if all_answers is not None:
                    all_answers[question.id] = answers
                agreement = compare(answers.text, question.answers)
                answered.append(Answered(agreement, question.answers, bool(answers.text),
                                         answers.null_odds or 0.0, len(question.token_words)))
                if agreement.f1 < 1:
                    predicted, probability = answers.chosen()
                    misses.append(Miss(question.id, predicted, probability * (1 - agreement.f1)))
        num_unanswerable = sum(not question.answers for question in answered)
        if held_out.is_labelled and num_unanswerable and not may_have_none:
            log.warn(f"{held_out.path}: {num_unanswerable:,} of {len(answered):,} questions have no answer, and count as "
                     "mistakes: --version_2_with_negative lets the model leave them unanswered")
        if not held_out.is_labelled:
            if any(question.answers for question in answered):
                log.warn(f"{held_out.path}: {held_out.records.facts['num_unlabelled']:,} of "
                         f"{len(answered):,} questions lack \"answers\", so there are no scores")
            return Measured({})
        return Measured(scores.results(answered, may_have_none=may_have_none),
                        warning=scores.warning(answered, compare),
                        table=scores.table(answered, may_have_none=may_have_none),
                        shown=Shown(held_out.path, misses))

    def write(self, job: Job, test: QuestionSet, suffix: str, predict: Predict) -> Measured:
        answers: Dict[str, Answers] = {}
        measured = self.measure(job, test, predict, answers)
        write_answers(job.settings.output_dir, answers)
        return measured

    def page(self, job: Job, measured: Measured) -> List[Section]:
        return report.page(measured)

    def describe(self) -> Dict[str, Any]:
        return task_json.of_reader({**dataclasses.asdict(self.windows), **dataclasses.asdict(self.answers)})

    def outputs(self, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
        return model.logits_of(self.config, inputs, mode)

    def card(self) -> Card:
        return Card(
            "It finds the answer to a question in a text", (),
            model_card.inputs(self, "A window is `[CLS] question [SEP] text [SEP]`", "1 on the text and its `[SEP]`, else 0"),
            """\
float32 `[batch, length]`: `start_logits` and `end_logits`, how likely the answer begins and
ends at a token. The answer is the span of the text for which their sum is greatest; if questions may
have none, that of `[CLS]` is the score of having none""",
            "python -m runs.predict --output_dir=export < questions.tsv")

    def reader(self) -> Reader:
        """Of a pair of texts, the first is the question, the second the context."""

        def encode(examples: List[Example]) -> Encoded:
            paragraphs = [Paragraph(context, [Question("", question, None)])
                          for (question, context), _ in examples]
            questions = data.encode(paragraphs, self.encoding, self.windows)
            every = slice(0, len(questions.records))
            return Encoded(questions.source(every), lambda logits: (
                result(each) for _, each in find_all(questions, every, logits, self.answers)))

        odds = ["null_odds"] if self.windows.version_2_with_negative else []
        return Reader(self.forward(), encode, Takes(2, 2, ("Question", "Context")),
                      ["answer", "probability", *odds], "finds the answer to a question in a text")


def saved_settings(folder: str, given: Mapping[str, Any] = {}
                   ) -> Tuple[WindowSettings, AnswerSettings]:
    """The settings that a trained model's description has, except those given."""
    types = {**get_type_hints(WindowSettings), **get_type_hints(AnswerSettings)}
    defaults = {**dataclasses.asdict(WindowSettings()), **dataclasses.asdict(AnswerSettings())}
    entries = {**task_json.read(folder, types, defaults), **given}
    windows, answers = (
        cls(**{field.name: entries[field.name] for field in dataclasses.fields(cls)})
        for cls in (WindowSettings, AnswerSettings))
    return windows, answers


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


def result(answers: Answers) -> Result:
    """What is predicted for a question, as a line of predictions."""
    probability = 0.0 if answers.candidates[0] is NONE_POSSIBLE else answers.chosen()[1]
    numbers = {"probability": probability, "null_odds": answers.null_odds}
    shown = {name: f"{value:.9g}" for name, value in numbers.items() if value is not None}
    return Result([answers.text, *shown.values()], {
        "answer": answers.text, **{name: float(number) for name, number in shown.items()}})
