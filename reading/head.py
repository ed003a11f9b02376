"""The head that finds answers to questions, as `runs` sees it: see `runs.head`.

A plain text is a pair: a question, and the context that the answer is in.
"""

import dataclasses
from typing import Any, Dict, List, NamedTuple, Type, get_type_hints

import tensorflow.compat.v1 as tf
from absl import flags

from encoder import label_config
from encoder.model_files import ModelFiles
from engine.checkpoints.checkpoints import Checkpoint
from engine.disk import files
from engine.errors import UserError
from engine.model import Forward, Mode
from engine.settings import Settings
from reading import answers, data, evaluation, measures, model, report
from reading.answers import Answers, AnswerSettings
from reading.data import QuestionSet, WindowSettings
from reading.squad_files import Paragraph, Question
from runs import kinds, model_card
from runs.head import Card, Encoded, Head, Job, Model, Reader, Result, Sets, Training
from runs.rows import Example


class Reading(NamedTuple):
    """How contexts are read and answers chosen."""
    windows: WindowSettings
    answers: AnswerSettings
    measure: str = "squad"  # one of `measures.MEASURES`


def _facts(trained: Model) -> Dict[str, Any]:
    return {"task": "reading comprehension", **trained.encoder_facts()}


def check(trained: Model) -> None:
    """Raises a UserError if a window has no room for a context, or the model too few positions."""
    length, positions = trained.encoding.max_seq_length, trained.config.max_position_embeddings
    trained.own.windows.check(length)
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
        # Too few examples are reported before the other file is read.
        settings.schedule(train.num_examples, job.devices.num_replicas)
    if values.do_predict or values.do_eval:
        held_out = load(values.predict_file, False)
    if values.do_eval and not held_out.is_labelled:
        raise UserError(f"--do_eval: --predict_file={values.predict_file} does not have the "
                        "answers of all questions; --do_predict answers them")
    return Sets(train, {"": held_out} if values.do_eval else {},
                {"": held_out} if values.do_predict else {})


def _training(job: Job, questions: QuestionSet) -> Training:
    trained = job.model
    return Training(
        len(questions), questions.content_hash, _forward(trained), questions.training_source,
        facts={f"--{name}": value
               for name, value in dataclasses.asdict(trained.own.windows).items()})


def _forward(trained: Model, *_: Any) -> Forward:
    return model.forward_of(trained.config, trained.encoding.max_seq_length)


def _require(trained: Model, checkpoint: Checkpoint, flag: str) -> None:
    del trained
    model.require_head(checkpoint, flag)


def _describe(own: Reading) -> Dict[str, Any]:
    return {"kind": kinds.ANSWERS, "measure": own.measure, **dataclasses.asdict(own.windows),
            **dataclasses.asdict(own.answers)}


def open_model(trained: ModelFiles) -> Model:
    """See `Head.open`; the settings of a model of Google's code are the defaults."""
    model.require_head(trained.checkpoint, trained.flag)
    config, description = trained.config(), trained.description()
    if not description:
        return Model(Reading(WindowSettings(), AnswerSettings()), config,
                     trained.encoding(config.max_position_embeddings))
    own = described(trained.file(label_config.FILE), description)
    found = Model(own, config, trained.encoding(description["max_seq_length"]))
    check(found)
    return found


def described(path: str, description: Dict[str, Any]) -> Reading:
    """The settings in a model's description; raises a UserError if it is damaged."""
    measure = description.get("measure", "squad")  # older models do not have it
    if measure not in list(measures.MEASURES):
        raise UserError(f"{path} is damaged: measure is {measure!r}")
    return Reading(_settings(WindowSettings, path), _settings(AnswerSettings, path), measure)


def _settings(cls: Type[Settings], path: str) -> Settings:
    types = {name: (int, float) if kind is float else kind
             for name, kind in get_type_hints(cls).items()}
    record = files.read_record(path, "the model's description", types)
    for field in dataclasses.fields(cls):
        if field.metadata["positive"] and record[field.name] < 1:
            raise UserError(f"{path} is damaged: {field.name} is {record[field.name]}")
    return cls(**{name: record[name] for name in types})


def _outputs(trained: Model, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
    start, end = model.start_and_end(trained.config, inputs, mode)
    return {"start_logits": start, "end_logits": end}


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
        questions = data.encode(map(_paragraph, examples), trained.encoding, own.windows)
        every = slice(0, questions.num_questions)
        return Encoded(questions.source(every), lambda logits: (
            result(found) for _, _, found in answers.find_all(questions, every, logits,
                                                              own.answers)))

    odds = ["null_odds"] if own.windows.version_2_with_negative else []
    return Reader(_forward(trained), encode, True, ["answer", "probability", *odds])


def _paragraph(example: Example) -> Paragraph:
    question = Question("", example.text_a, [], is_impossible=False, is_labelled=False)
    return Paragraph(example.text_b, [question])


def result(found: Answers) -> Result:
    """The answer to a question, as a line of predictions."""
    # 'empty' is Google's placeholder for no possible span.
    text, probability = found.text, found.chosen()[1]
    if answers.NONE_POSSIBLE in found.candidates:
        text, probability = "", 0.0
    entry = {"answer": text, "probability": float(f"{probability:.9g}")}
    if found.null_odds is not None:
        entry["null_odds"] = float(f"{found.null_odds:.9g}")
    return Result([entry["answer"], *(f"{value:.9g}" for name, value in entry.items()
                                      if name != "answer")], entry)


HEAD = Head(
    "Answering", "windows",
    facts=_facts, require=_require, load=_load, forward=_forward,
    measure=evaluation.measure, write=evaluation.write,
    prediction_files=evaluation.PREDICTION_FILES,
    describe=_describe, open=open_model, outputs=_outputs, card=_card, reader=_reader,
    page=report.page, check=check,
    metrics=lambda own: evaluation.metrics(own.windows.version_2_with_negative), loss=None)
