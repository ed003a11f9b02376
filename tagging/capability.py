"""Taggers of the words of sentences: see `runs.capability`."""

import json
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from encoder import label_types, tag_set, task_json
from encoder.encoding import Encoding
from encoder.model_files import ModelFiles
from engine.data import text_files
from engine.errors import UserError
from engine.model import FittedLayer, Forward, Mode
from modeling import BertConfig
from runs import linear_probe, model_card
from runs.capability import (
    TEXT, Capability, Card, Encoded, Job, Measured, Predict, Reader, Result, Sets, Training)
from runs.report_page import Section
from runs.rows import Example
from tagging import data, evaluation, formats, model, report
from tagging.data import SentenceSet
from tagging.formats import TaggedFile
from tagging.model import Tagger


class EntityTagger(Capability):
    """A model that finds entities in sentences by tagging their words.

    Attributes:
        files: of a run, by the names of the sets.
    """
    verb, unit = "Tagging", "windows"
    prediction_files = tuple(f"predict{extension}" for extension in formats.EXTENSIONS)
    inputs = {"input_ids": 2, "input_mask": 2, "segment_ids": 2, "first_pieces": 2, "num_words": 1}

    def __init__(self, files: Mapping[str, TaggedFile], tagger: Tagger, config: BertConfig, encoding: Encoding):
        super().__init__(config, encoding)
        self.files, self.tagger = files, tagger

    @classmethod
    def open(cls, trained: ModelFiles) -> "EntityTagger":
        description = trained.description()
        if not description or description["kind"] != task_json.TAGS:
            raise UserError(f"{trained.flag}={trained.path} has no trained tagger; train one "
                            "(--do_train)")
        description = task_json.read(trained.folder, {"types": list, "scheme": str, "crf": bool})
        tags = tag_set.of_description(description, f"{trained.flag}={trained.path}")
        model = cls({}, Tagger(tags, description["crf"]), trained.config(),
                    trained.encoding(description["max_seq_length"]))
        model.require(trained.checkpoint, trained.flag)
        return model

    def facts(self) -> Dict[str, Any]:
        tags = self.tagger.tags
        return {"task": "tagging", "label set": list(tags.labels), "scheme": tags.scheme,
                "--crf": self.tagger.crf, **self.encoder_facts()}

    def num_outputs(self) -> int:
        return len(self.tagger.tags.labels)

    def labels_of(self, description: Mapping[str, Any], where: str) -> Sequence[str]:
        return tag_set.of_description(description, where).labels

    def metrics(self) -> Sequence[str]:
        return "eval_f1", "eval_precision", "eval_recall", "eval_accuracy"

    def load(self, job: Job, values: flags.FlagValues, training: Any = None) -> Sets:
        loaded = {name: data.load_sentences(
            file, self.tagger.tags, self.encoding, job.settings.store_dir)
            for name, file in self.files.items()}
        sentences = loaded.get("train")
        train = sentences and Training(
            len(sentences), sentences.content_hash, self.forward(), sentences.source,
            baseline=sentences.baseline(), fit=self._fit(job, sentences))
        return Sets(train, *(
            {"": loaded[name]} if name in loaded else {} for name in ("dev", "test")))

    def _fit(self, job: Job, sentences: SentenceSet) -> Callable[[float], Optional[FittedLayer]]:
        """Fits the emissions of the tags to the words of all windows, or of a sample of them."""
        labels = label_types.SingleLabel(self.tagger.tags.labels)
        words = sentences.records.lengths("labels")

        def find() -> linear_probe.Sample:
            most = linear_probe.most_rows(labels.num_outputs) // words.mean()
            indices = linear_probe.sample(len(sentences), max(1, int(most)))

            def rows_of(features: np.ndarray) -> linear_probe.Rows:
                is_word = np.arange(features.shape[1]) < words[indices][:, np.newaxis]
                return linear_probe.Rows(features[is_word], sentences.records.values("labels", indices)[0])

            return linear_probe.Sample(sentences.source(), indices, rows_of)

        return linear_probe.fitting(job, labels, "words", positions="first_pieces", find=find)

    def forward(self, *_: Any) -> Forward:
        return model.forward_of(self.config, self.tagger)

    def measure(self, job: Job, held_out: SentenceSet, predict: Predict) -> Measured:
        return evaluation.measure(held_out, predict)

    def write(self, job: Job, test: SentenceSet, suffix: str, predict: Predict) -> None:
        evaluation.write(job, test, predict)

    def page(self, job: Job, measured: Measured) -> List[Section]:
        return report.page(measured)

    def describe(self) -> Dict[str, Any]:
        tags = self.tagger.tags
        return task_json.of_tagger(tags.types, tags.scheme, self.tagger.crf, tags.own_tags)

    def outputs(self, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
        """The best sequence of labels, and each label's score by itself."""
        whole = tf.ones_like(inputs["num_words"], tf.float32)
        words, scores = model.words_of(
            self.config, self.tagger, {**inputs, "opens": whole, "closes": whole}, mode)
        # Decoding goes from word to word, and needs two: one more is added, which is in no sentence.
        padded = words._replace(emissions=tf.pad(words.emissions, [[0, 0], [0, 1], [0, 0]]))
        return {"label_index": model.best_labels(self.tagger, padded, scores)[:, :-1],
                "scores": words.emissions}

    def card(self) -> Card:
        labels = self.tagger.tags.labels
        return Card(
            "It finds entities in sentences", labels,
            model_card.inputs(self, "`[CLS] sentence [SEP]`") + """ The others, int32, are
`first_pieces` `[batch, words]`, the position in `input_ids` of each word's first piece, padded with 0, and
`num_words` `[batch]`, at least 1. The program below cuts a longer sentence into windows.""",
            f"""\
`label_index`, int32 `[batch, words]`, the labels of the words, by their numbers above: of
the sequences that the scheme allows the best one; what stands after a sentence's last word means
nothing. `scores`, float32 `[batch, words, {len(labels)}]`, of each label by itself""")

    def reader(self) -> Reader:
        def encode(examples: List[Example]) -> Encoded:
            texts = [text_files.whole_characters(example.texts[0]) for example in examples]
            units = [formats.units_of(text) for text in texts]
            # A text without words becomes one [UNK]; its tag is ignored.
            words = [[text[start:end] for start, end in its_units] or [""]
                     for text, its_units in zip(texts, units)]
            sentences = data.encode_words(words, self.tagger.tags, self.encoding)

            def decode(predictions: Dict[str, np.ndarray]) -> Iterator[Result]:
                labels = sentences.of_sentences(predictions["labels"])
                for text, its_units, entities in zip(
                        texts, units, evaluation.entities_of(sentences, labels)):
                    entries = [formats.entry_of(text, its_units, entity)
                               for entity in entities if its_units]
                    yield Result([json.dumps(entries, ensure_ascii=False)], {"entities": entries})

            return Encoded(sentences.source(), decode)

        return Reader(self.forward(), encode, TEXT, ["entities"], "finds entities in a text")
