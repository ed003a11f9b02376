"""The head that finds answers to questions, as `runs` sees it: see `runs.head`.

A plain text is a pair: a question, and the context that the answer is in.
"""

import dataclasses
import os
from typing import Any, Dict, List, Mapping, NamedTuple, get_type_hints

from absl import flags

from encoder import label_config
from encoder.model_files import ModelFiles
from engine.disk import files
from engine.errors import UserError
from engine.model import Forward
from reading import answers, data, evaluation, model, report
from reading.answers import Answers, AnswerSettings
from reading.data import QuestionSet, WindowSettings
from runs import kinds, model_card
from runs.head import Card, Encoded, Head, Job, Model, Reader, Result, Sets, Training
from runs.rows import Example
from runs.squad_files import Paragraph, Question


class Reading(NamedTuple):
    """How contexts are read and answers chosen."""
    windows: WindowSettings
    answers: AnswerSettings


def _check(trained: Model) -> None:
    """Raises a UserError if a window has no room for a context, or the model too few positions."""
    length, positions = trained.encoding.max_seq_length, trained.config.max_position_embeddings
    query_length = trained.own.windows.max_query_length
    if length <= query_length + data.NUM_SPECIAL:
        raise UserError(f"--max_seq_length={length} leaves no room for a context beside a question "
                        f"of --max_query_length={query_length} tokens and {data.NUM_SPECIAL} "
                        "special ones; raise the one or lower the other")
    if length > positions:
        raise UserError(f"{label_config.FILE}: max_seq_length is {length}, and the model has "
                        f"{positions} positions")


def _load(job: Job, values: flags.FlagValues) -> Sets:
    own, settings = job.model.own, job.settings

    def load(path: str, is_training: bool) -> QuestionSet:
        return data.load(path, job.model.encoding, own.windows, settings.store_dir,
                         is_training=is_training,
                         dynamic_padding=settings.training.dynamic_padding)

    train = held_out = None
    if values.do_train:
        train = _training(job, load(values.train_file, True))
    if values.do_predict or values.do_eval:
        held_out = load(values.predict_file, False)
    if values.do_eval and not held_out.is_labelled:
        raise UserError(f"--do_eval: --predict_file={values.predict_file} does not have the "
                        "answers of all questions; --do_predict answers them")
    return Sets(train, {"": held_out} if values.do_eval else {},
                {"": held_out} if values.do_predict else {})


def _training(job: Job, questions: QuestionSet) -> Training:
    own = job.model.own
    return Training(
        len(questions), questions.content_hash, _forward(job.model), questions.training_source,
        facts={f"--{name}": value for name, value in dataclasses.asdict(own.windows).items()},
        baseline=questions.baseline())


def _forward(trained: Model, *_: Any) -> Forward:
    return model.forward_of(trained.config)


def _describe(own: Reading) -> Dict[str, Any]:
    return {"kind": kinds.ANSWERS, **dataclasses.asdict(own.windows),
            **dataclasses.asdict(own.answers)}


def open_model(trained: ModelFiles) -> Model:
    """See `Head.open`; the settings of a model of Google's code are the defaults."""
    model.require_head(trained.checkpoint, trained.flag)
    config, description = trained.config(), trained.description()
    if not description:
        return Model(Reading(WindowSettings(), AnswerSettings()), config,
                     trained.encoding(config.max_position_embeddings))
    own = described(trained.folder)
    found = Model(own, config, trained.encoding(description["max_seq_length"]))
    _check(found)
    return found


def described(folder: str, given: Mapping[str, Any] = {}) -> Reading:
    """The settings that a trained model's description has, except those given.

    Raises:
        UserError: the description is damaged.
    """
    types = {**get_type_hints(WindowSettings), **get_type_hints(AnswerSettings)}
    path = os.path.join(folder, label_config.FILE)
    record = {**files.read_record(path, "the model's description", types), **given}
    return Reading(*(cls(**{field.name: record[field.name] for field in dataclasses.fields(cls)})
                     for cls in (WindowSettings, AnswerSettings)))


def _card(trained: Model) -> Card:
    return Card(
        "It finds the answer to a question in a text", (),
        f"""\
A window is `[CLS] question [SEP] text [SEP]` as WordPiece ids of `assets.extra/vocab.txt`,
{model_card.casing(trained)}.
Inputs, all int32 `[batch, length]`: `input_ids`, padded with 0; `input_mask`, 1 on ids and 0 on
padding; `segment_ids`, 1 on the text and its `[SEP]`, else 0.""",
        """\
float32 `[batch, length]`: `start_logits` and `end_logits`, how likely the answer begins and
ends at a token. The answer is the span of the text for which their sum is greatest; if questions may
have none, that of `[CLS]` is the score of having none""",
        model_card.PREDICT.format(input="questions.tsv"))


def _reader(trained: Model) -> Reader:
    own = trained.own

    def encode(examples: List[Example]) -> Encoded:
        paragraphs = [Paragraph(example.text_b, [Question("", example.text_a, None)])
                      for example in examples]
        questions = data.encode(paragraphs, trained.encoding, own.windows)
        every = slice(0, len(questions.records))
        return Encoded(questions.source(every), lambda logits: (
            result(found) for _, found in answers.find_all(questions, every, logits,
                                                              own.answers)))

    odds = ["null_odds"] if own.windows.version_2_with_negative else []
    return Reader(_forward(trained), encode, True, ["answer", "probability", *odds])


def result(found: Answers) -> Result:
    """The answer to a question, as a line of predictions."""
    probability = 0.0 if found.candidates[0] is answers.NONE_POSSIBLE else found.chosen()[1]
    numbers = {"probability": probability, "null_odds": found.null_odds}
    shown = {name: f"{value:.9g}" for name, value in numbers.items() if value is not None}
    return Result([found.text, *shown.values()],
                  {"answer": found.text, **{name: float(number) for name, number in shown.items()}})


HEAD = Head(
    "Answering", "windows",
    facts=lambda trained: {"task": "reading comprehension", **trained.encoder_facts()},
    require=lambda trained, checkpoint, flag: model.require_head(checkpoint, flag),
    load=_load, forward=_forward, measure=evaluation.measure, write=evaluation.write,
    prediction_files=evaluation.PREDICTION_FILES, describe=_describe, open=open_model,
    outputs=lambda trained, inputs, mode: model.logits_of(trained.config, inputs, mode),
    card=_card, reader=_reader, page=report.page, check=_check,
    # The first is the default of --metric_for_best.
    metrics=lambda own: (("f1", "exact", "best_f1", "best_exact")
                         if own.windows.version_2_with_negative else ("f1", "exact_match")),
    loss=None)
