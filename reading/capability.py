"""Models that find answers to questions: see `runs.capability`.

A plain text is a pair: a question, and the context that the answer is in.
"""

import dataclasses
from typing import Any, Dict, List, Mapping, Sequence, Tuple, get_type_hints

import tensorflow.compat.v1 as tf
from absl import flags

from encoder import task_json
from encoder.encoding import Encoding
from encoder.model_files import ModelFiles
from engine.checkpoints.checkpoints import Checkpoint
from engine.errors import UserError
from engine.model import Forward, Mode
from modeling import BertConfig
from reading import data, evaluation, model, report
from reading.answers import NONE_POSSIBLE, Answers, AnswerSettings, find_all
from reading.data import QuestionSet, WindowSettings
from runs import model_card
from runs.capability import (
    Capability, Card, Encoded, Job, Measured, Predict, Reader, Result, Sets, Training)
from runs.report_page import Section
from runs.rows import Example
from runs.squad_files import Paragraph, Question


class AnswerFinder(Capability):
    """A model that finds the answer to a question in a text.

    Attributes:
        windows: how contexts are read.
        answers: how answers are chosen.
    """
    verb, unit, loss = "Answering", "windows", None
    prediction_files = evaluation.PREDICTION_FILES

    def __init__(self, windows: WindowSettings, answers: AnswerSettings, config: BertConfig,
                 encoding: Encoding):
        super().__init__(config, encoding)
        self.windows, self.answers = windows, answers

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
        length, positions = self.encoding.max_seq_length, self.config.max_position_embeddings
        query_length = self.windows.max_query_length
        if length <= query_length + data.NUM_SPECIAL:
            raise UserError(f"--max_seq_length={length} leaves no room for a context beside a "
                            f"question of --max_query_length={query_length} tokens and "
                            f"{data.NUM_SPECIAL} special ones; raise the one or lower the other")
        if length > positions:
            raise UserError(f"{task_json.FILE}: max_seq_length is {length}, and the model has "
                            f"{positions} positions")

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
                             is_training=is_training,
                             dynamic_padding=job.settings.training.dynamic_padding)

        train = held_out = None
        if values.do_train:
            questions = load(values.train_file, True)
            train = Training(
                len(questions), questions.content_hash, self.forward(), questions.training_source,
                facts={f"--{name}": value
                       for name, value in dataclasses.asdict(self.windows).items()},
                baseline=questions.baseline())
        if values.do_predict or values.do_eval:
            held_out = load(values.predict_file, False)
        if values.do_eval and not held_out.is_labelled:
            raise UserError(f"--do_eval: --predict_file={values.predict_file} does not have the "
                            "answers of all questions; --do_predict answers them")
        return Sets(train, {"": held_out} if values.do_eval else {},
                    {"": held_out} if values.do_predict else {})

    def forward(self, *_: Any) -> Forward:
        return model.forward_of(self.config)

    def measure(self, job: Job, held_out: QuestionSet, predict: Predict) -> Measured:
        return evaluation.measure(held_out, predict, self.answers)

    def write(self, job: Job, test: QuestionSet, suffix: str, predict: Predict) -> Measured:
        answers: Dict[str, Answers] = {}
        measured = evaluation.measure(test, predict, self.answers, answers)
        evaluation.write_answers(job.settings.output_dir, answers)
        return measured

    def page(self, job: Job, measured: Measured) -> List[Section]:
        return report.page(measured)

    def describe(self) -> Dict[str, Any]:
        return {"kind": task_json.ANSWERS, **dataclasses.asdict(self.windows),
                **dataclasses.asdict(self.answers)}

    def outputs(self, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
        return model.logits_of(self.config, inputs, mode)

    def card(self) -> Card:
        return Card(
            "It finds the answer to a question in a text", (),
            f"""\
A window is `[CLS] question [SEP] text [SEP]` as WordPiece ids of `assets.extra/vocab.txt`,
{model_card.casing(self)}.
Inputs, all int32 `[batch, length]`: `input_ids`, padded with 0; `input_mask`, 1 on ids and 0 on
padding; `segment_ids`, 1 on the text and its `[SEP]`, else 0.""",
            """\
float32 `[batch, length]`: `start_logits` and `end_logits`, how likely the answer begins and
ends at a token. The answer is the span of the text for which their sum is greatest; if questions may
have none, that of `[CLS]` is the score of having none""",
            model_card.PREDICT.format(input="questions.tsv"))

    def reader(self) -> Reader:
        """Of a pair of texts, the first is the question, the second the context."""

        def encode(examples: List[Example]) -> Encoded:
            paragraphs = [Paragraph(example.text_b, [Question("", example.text_a, None)])
                          for example in examples]
            questions = data.encode(paragraphs, self.encoding, self.windows)
            every = slice(0, len(questions.records))
            return Encoded(questions.source(every), lambda logits: (
                result(each) for _, each in find_all(questions, every, logits, self.answers)))

        odds = ["null_odds"] if self.windows.version_2_with_negative else []
        return Reader(self.forward(), encode, True, ["answer", "probability", *odds])


def saved_settings(folder: str, given: Mapping[str, Any] = {}
                   ) -> Tuple[WindowSettings, AnswerSettings]:
    """The settings that a trained model's description has, except those given."""
    types = {**get_type_hints(WindowSettings), **get_type_hints(AnswerSettings)}
    entries = {**task_json.read(folder, types), **given}
    windows, answers = (
        cls(**{field.name: entries[field.name] for field in dataclasses.fields(cls)})
        for cls in (WindowSettings, AnswerSettings))
    return windows, answers


def result(answers: Answers) -> Result:
    """What is predicted for a question, as a line of predictions."""
    probability = 0.0 if answers.candidates[0] is NONE_POSSIBLE else answers.chosen()[1]
    numbers = {"probability": probability, "null_odds": answers.null_odds}
    shown = {name: f"{value:.9g}" for name, value in numbers.items() if value is not None}
    return Result([answers.text, *shown.values()], {
        "answer": answers.text, **{name: float(number) for name, number in shown.items()}})
