"""Multiple choice as a capability (`runs.capability`): the model chooses one of a question's answers."""

import functools
import json
import os
from typing import Any, Dict, Iterator, List, Mapping, Sequence

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from choice import data, files, model
from choice.data import ChoiceSet
from choice.files import ChoiceFile, Layout
from encoder import classifier, task_json
from encoder.encoding import Encoding
from encoder.model_files import ModelFiles
from engine import log
from engine.errors import UserError
from engine.model import Forward, Mode
from modeling import BertConfig
from runs import model_card, results
from runs.capability import (
    Capability, Card, Encoded, Job, Measured, Predict, Reader, Result, Sets, Takes, Training, warning_of_loss)
from runs.report_page import Section, Table, items_at
from runs.rows import Example

_MOST_MISTAKES = 20


class Chooser(Capability):
    """A model that chooses an answer among those of a question.

    Attributes:
        files: of a run, by the names of the sets.
        trained: how the training file was read.
    """
    verb, unit, prediction_files = "Choosing", "choices", ("test_results.tsv", "predict.txt")
    inputs = {"input_ids": 3, "input_mask": 3, "segment_ids": 3}

    def __init__(self, opened: Mapping[str, ChoiceFile], trained: Layout, config: BertConfig, encoding: Encoding):
        super().__init__(config, encoding)
        self.files, self.trained = opened, trained

    @classmethod
    def open(cls, trained: ModelFiles) -> "Chooser":
        description = trained.description()
        if not description or not task_json.is_chooser(description):
            raise UserError(f"{trained.flag}={trained.path} was not trained to choose among answers; train it "
                            "(python -m choice.run with --do_train)")
        chooser = cls({}, trained_on(trained.folder), trained.config(), trained.encoding(description["max_seq_length"]))
        chooser.require(trained.checkpoint, trained.flag)
        return chooser

    def facts(self) -> Dict[str, Any]:
        return {"task": "multiple choice", **self.encoder_facts()}

    def num_outputs(self) -> int:
        return 1

    def metrics(self) -> Sequence[str]:
        return ["eval_accuracy"]

    def load(self, job: Job, values: flags.FlagValues, training: Any = None) -> Sets:
        loaded = {name: data.load(file, self.encoding, job.settings.store_dir)
                  for name, file in self.files.items()}
        questions = loaded.get("train")
        train = questions and Training(
            len(questions.records), questions.content_hash, model.training_forward_of(self.config),
            questions.training_source, baseline=questions.baseline())
        return Sets(train, *({"": loaded[name]} if name in loaded else {} for name in ("dev", "test")))

    def forward(self, *_: Any) -> Forward:
        return classifier.forward_of(self.config, num_outputs=1)

    def measure(self, job: Job, held_out: ChoiceSet, predict: Predict) -> Measured:
        """The accuracy, also of the questions with so many choices."""
        shares, answers, counts = _probabilities(held_out, predict), held_out.records.scalars("answer"), held_out.counts
        is_right = np.array([of_one.argmax() for of_one in shares]) == answers
        loss = -float(np.mean([np.log(max(of_one[answer], 1e-30)) for of_one, answer in zip(shares, answers)]))
        wrong = sorted(np.flatnonzero(~is_right).tolist(), key=lambda number: -shares[number].max())[:_MOST_MISTAKES]
        return Measured(
            {"eval_accuracy": float(is_right.mean()), "eval_loss": loss}, {"num_examples": len(answers)},
            [{"choices": int(count), "questions": int((counts == count).sum()),
              "accuracy": float(is_right[counts == count].mean())} for count in np.unique(counts)],
            (held_out.file, {number: (answers[number], shares[number]) for number in wrong}),
            warning_of_loss(loss, "choosing at random", float(np.log(counts).mean()), len(answers)))

    def write(self, job: Job, test: ChoiceSet, suffix: str, predict: Predict) -> None:
        """Writes each question's probabilities, and the label of the chosen one, or else its number from 0."""
        shares, folder = _probabilities(test, predict), job.settings.output_dir
        results.write_lines(os.path.join(folder, "test_results.tsv"), (
            "\t".join(f"{share:.9g}" for share in of_one) for of_one in shares))
        path = os.path.join(folder, "predict.txt")
        results.write_lines(path, (str((question.labels or range(len(of_one)))[int(of_one.argmax())])
                                   for of_one, question in zip(shares, test.file.questions())))
        log.info(f"Chose for {len(shares):,} questions: {path}")

    def page(self, job: Job, measured: Measured) -> List[Section]:
        file, wrong = measured.shown
        questions = items_at(wrong, file.questions())
        return [Table("Mistakes", "The most confident first, with the probability of what was chosen.",
                      ("Question", "Right", "Chosen", "Probability"),
                      [[" ".join(filter(None, questions[number][:2])), questions[number].choices[right],
                        questions[number].choices[int(shares.argmax())], float(shares.max())]
                       for number, (right, shares) in wrong.items()])]

    def describe(self) -> Dict[str, Any]:
        return {**task_json.OF_CHOOSER, **{name: value for name, value in self.trained._asdict().items() if value}}

    def outputs(self, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
        return {"probabilities": tf.nn.softmax(model.scores_of(self.config, inputs, mode))}

    def card(self) -> Card:
        return Card(
            "It chooses an answer to a question among several", (), model_card.inputs(
                self, "`[CLS] question [SEP] choice [SEP]` for each choice,", "1 on the choice and its `[SEP]`, else 0; "
                "a choice of padding alone is none", "[batch, choices, length]"),
            "`probabilities`, float32 `[batch, choices]`", "python -m runs.predict --output_dir=export < questions.tsv")

    def reader(self) -> Reader:
        def encode(examples: List[Example]) -> Encoded:
            questions = data.encode(examples, self.encoding)

            def decode(predictions: Dict[str, np.ndarray]) -> Iterator[Result]:
                for (texts, _), of_one in zip(examples, questions.probabilities(predictions["logits"])):
                    shares, best = [float(f"{share:.9g}") for share in of_one], int(of_one.argmax())
                    yield Result([str(best), json.dumps(shares)],
                                 {"choice": best, "text": texts[1 + best], "probabilities": shares},
                                 scores=list(zip(texts[1:], shares)))

            return Encoded(questions.source(), decode, questions.records.scalars("num_left_out"))

        return Reader(self.forward(), encode, Takes(3, None, ("Question", "Choice")), ["choice", "probabilities"],
                      "chooses an answer to a question", read=functools.partial(files.read_questions, self.trained))


def trained_on(folder: str) -> Layout:
    """The layout of a model's training file, from its task.json; UNKNOWN if there is none."""
    defaults = files.UNKNOWN._asdict()
    types = {name: (list, tuple) if value == () else type(value) for name, value in defaults.items()}
    description = task_json.read(folder, types, defaults)
    return Layout(*(description[name] for name in types)) if description else files.UNKNOWN


def _probabilities(questions: ChoiceSet, predict: Predict) -> List[np.ndarray]:
    return questions.probabilities(predict(questions.source())["logits"])
