"""Models that give each text a vector: see `runs.capability`."""

import json
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from encoder import bert, task_json
from encoder.encoding import Encoding
from encoder.model_files import ModelFiles
from engine import log
from engine.checkpoints.checkpoints import Checkpoint
from engine.errors import UserError
from engine.model import Baseline, Forward, Mode
from modeling import BertConfig
from runs import model_card, results, sets
from runs.capability import (
    TEXT_OR_PAIR, Capability, Card, Encoded, Job, Measured, Predict, Reader, Result, Sets, Training)
from runs.report_page import Section
from runs.rows import Example
from similarity import data, evaluation, files, model, report
from similarity.data import TextSet
from similarity.files import TextFile
from similarity.model import Objective

_RESULTS = "test_results.tsv"


class Similarity(NamedTuple):
    """The description of a model, and the files and the objective of a run."""
    pooling: str = "mean"  # one of bert.POOLINGS
    query_prefix: str = ""  # before anchors
    matryoshka: Tuple[int, ...] = ()  # the numbers of components that it is trained for; (): all
    objective: Objective = Objective()  # of a training
    files: Mapping[str, TextFile] = {}  # by the names of the sets


class TextEncoder(Capability):
    """A model that gives each text a vector.

    Attributes:
        similarity: what is in its description, and what a run trains on.
    """
    verb, unit, prediction_files, loss = "Encoding", "texts", (_RESULTS,), None

    def __init__(self, similarity: Similarity, config: BertConfig, encoding: Encoding):
        super().__init__(config, encoding)
        self.similarity, self.settings = similarity, [similarity.objective]

    @classmethod
    def open(cls, trained: ModelFiles) -> "TextEncoder":
        similarity = described(trained.folder)
        if not similarity:
            raise UserError(f"{trained.flag}={trained.path} was not trained for similarity; train it "
                            "(python -m similarity.run with --do_train)")
        return cls(similarity, trained.config(),
                   trained.encoding(trained.description()["max_seq_length"]))

    def check(self) -> None:
        """Raises a UserError if vectors have fewer components than --matryoshka."""
        sizes, size = self.similarity.matryoshka, self.config.hidden_size
        if max(sizes, default=1) > size:
            raise UserError(f"--matryoshka={','.join(map(str, sizes))}: the model's vectors have "
                            f"{size} components")

    def facts(self) -> Dict[str, Any]:
        """How vectors are made, and the encoder."""
        description = self.describe()
        return {"task": description.pop("kind"), **self.encoder_facts(),
                **{f"--{name}": value for name, value in description.items()}}

    def metrics(self) -> Sequence[str]:
        """Of the scores of the dev set, or else of ranking."""
        dev = self.similarity.files.get("dev")
        return (["spearman", "pearson"] if dev and dev.has_scores else
                ["mrr_at_10", "ndcg_at_10", "recall_at_1", "recall_at_5", "recall_at_10"])

    def require(self, checkpoint: Checkpoint, flag: str) -> None:
        """Any BERT gives vectors."""

    def load(self, job: Job, values: flags.FlagValues,
             training: Optional[Callable[[Job, TextSet], Training]] = None) -> Sets:
        open_files = self.similarity.files
        if training:  # a distillation names its file with its own flags, and reads no scores
            columns = [name for name in (values.text_column, values.text_pair_column) if name]
            open_files = {"train": files.open_file(
                sets.find(values, "train", files.EXTENSIONS), {"text": columns}, values.header, labelled=False)}
        texts = {name: data.load(file, self.encoding, self.similarity.query_prefix,
                                 job.settings.store_dir) for name, file in open_files.items()}
        train = texts.get("train") and (training or self._training)(job, texts["train"])
        return Sets(train, *({"": texts[name]} if name in texts else {}
                             for name in ("dev", "test")))

    def _training(self, job: Job, texts: TextSet) -> Training:
        objective = self.similarity.objective
        return Training(
            texts.num_examples, texts.content_hash,
            model.training_forward_of(self.config, self.similarity.pooling, objective,
                                      max(2, texts.num_texts), self.similarity.matryoshka),
            lambda: texts.training_source(spread=objective.spread_duplicates),
            least_batch=2 if texts.num_texts < 3 else 1,
            baseline=Baseline("giving all texts the same vector", lambda indices: loss_of_equals(
                texts, objective, indices)))

    def forward(self, *_: Any) -> Forward:
        return model.forward_of(self.config, self.similarity.pooling)

    def measure(self, job: Job, held_out: TextSet, predict: Predict) -> Measured:
        return evaluation.measure(job, held_out, predict)

    def write(self, job: Job, test: TextSet, suffix: str, predict: Predict) -> None:
        """Writes the similarities of a line's first text and its others, or a single text's vector."""
        is_single, numbers = test.num_texts == 1, test.numbers
        path = os.path.join(job.settings.output_dir, _RESULTS)
        vectors = predict(test.source())["vectors"]
        lines = vectors[numbers[:, 0]] if is_single else evaluation.similarities(vectors, numbers)
        results.write_lines(path, (
            "\t".join(f"{value:.9g}" for value in line) for line in lines))
        log.info(f"Predicted {len(numbers):,} {'vectors' if is_single else 'lines'}: {path}")

    def page(self, job: Job, measured: Measured) -> List[Section]:
        return report.page(measured)

    def describe(self) -> Dict[str, Any]:
        """How vectors are made."""
        similarity = self.similarity
        return task_json.of_vectors(similarity.pooling, similarity.query_prefix, similarity.matryoshka)

    def outputs(self, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
        """The vectors."""
        return {"vectors": self.forward()(inputs, mode).predictions["vectors"]}

    def card(self) -> Card:
        prefix, sizes = self.similarity.query_prefix, self.similarity.matryoshka
        of_query = f" A query begins with `{log.visible(prefix)}`." if prefix else ""
        of_sizes = ("" if not sizes else f". Their first {', '.join(map(str, sizes))} components are "
                    "vectors, too, once they are made as long as 1")
        return Card(
            "It gives each text a vector; the product of two vectors is the similarity of their texts",
            (), model_card.inputs(self, "`[CLS] text [SEP]`") + of_query,
            f"`vectors`, float32 `[batch, {self.config.hidden_size}]`, of length 1{of_sizes}")

    def reader(self) -> Reader:
        """Texts have vectors, pairs a similarity."""
        def encode(examples: List[Example]) -> Encoded:
            texts = data.encode(examples, self.encoding, self.similarity.query_prefix)
            return Encoded(texts.source(), lambda predictions: _results(texts, **predictions),
                           texts.num_left_out)

        return Reader(self.forward(), encode, TEXT_OR_PAIR, ["vector"], "compares texts by their vectors",
                      pair_columns=["similarity"])


def described(folder: str) -> Optional[Similarity]:
    """The description in a folder's task.json; None for another kind of model."""
    description = task_json.read(folder)
    if not description or description["kind"] != task_json.SIMILARITY:
        return None
    description = task_json.read(folder, {"pooling": str, "query_prefix": str, "matryoshka": list},
                                 {"query_prefix": "", "matryoshka": []})
    pooling, sizes = description["pooling"], description["matryoshka"]
    if pooling not in bert.POOLINGS or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise UserError(f"{os.path.join(folder, task_json.FILE)} is damaged: its pooling is {pooling[:20]!r}, "
                        f"its matryoshka {str(sizes)[:40]}")
    return Similarity(pooling, description["query_prefix"], tuple(sizes))


def loss_of_equals(texts: TextSet, objective: Objective, indices: np.ndarray) -> float:
    """The loss of a step if all vectors are equal; equal texts are not looked at."""
    if objective.loss == model.RANKING:
        among_candidates = np.log(len(indices) * max(1, texts.num_texts - 1))
        return float((among_candidates + np.log(len(indices))) / 2 if objective.symmetric
                     else among_candidates)
    scores = np.sort(texts.scores[indices])
    return float(np.log1p(np.searchsorted(scores, scores, side="left").sum()))


def _results(texts: TextSet, vectors: np.ndarray, norms: np.ndarray) -> Iterator[Result]:
    if texts.num_texts == 1:
        for number in texts.numbers[:, 0]:
            values = [float(f"{value:.9g}") for value in vectors[number]]
            yield Result([json.dumps(values)], {"vector": values}, float(norms[number]))
    else:
        for similarity in evaluation.similarities(vectors, texts.numbers)[:, 0]:
            yield Result([f"{similarity:.9g}"], {"similarity": float(f"{similarity:.9g}")})
