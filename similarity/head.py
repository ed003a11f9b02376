"""The head that gives each text a vector, as `runs` sees it: see `runs.head`."""

import functools
import json
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

from encoder import bert, label_config
from encoder.model_files import ModelFiles
from engine import log
from engine.checkpoints.checkpoints import Checkpoint
from engine.disk import files as disk
from engine.errors import UserError
from engine.model import Baseline, Forward, Mode
from runs import model_card, results, sets
from runs.head import (
    Card, Encoded, Head, Job, Model, Predict, Reader, Result, Sets, Training)
from runs.rows import Example
from similarity import data, evaluation, files, model, report, rows
from similarity.data import TextSet
from similarity.files import Given, TextFile
from similarity.model import Objective
from similarity.rows import Rows

_RESULTS = "test_results.tsv"


class Similarity(NamedTuple):
    """The description of a model, and the files and the objective of a run."""
    pooling: str = "mean"  # one of bert.POOLINGS
    query_prefix: str = ""  # before anchors
    matryoshka: Tuple[int, ...] = ()  # the numbers of components that it is trained for; (): all
    objective: Optional[Objective] = None  # None without a training
    spreads: bool = False  # whether equal texts shall not share a step
    files: Mapping[str, TextFile] = {}  # by the names of the sets


def _facts(trained: Model) -> Dict[str, Any]:
    own = trained.own
    return {"task": "similarity", "--pooling": own.pooling, "--query_prefix": own.query_prefix,
            "--matryoshka": list(own.matryoshka), **trained.encoder_facts()}


def _check(trained: Model) -> None:
    largest, size = max(trained.own.matryoshka, default=1), trained.config.hidden_size
    if largest > size:
        raise UserError(f"--matryoshka={','.join(map(str, trained.own.matryoshka))}: the model's "
                        f"vectors have {size} components")


def _require(trained: Model, checkpoint: Checkpoint, flag: str) -> None:
    """Any BERT gives vectors."""


def _load(job: Job, values: flags.FlagValues,
          training: Optional[Callable[[Job, TextSet], Training]] = None) -> Sets:
    """See `Head.load`; a distillation names its file with the flags of its own, and reads no scores."""
    named = job.model.own.files
    if training:
        columns = [name for name in (values.text_column, values.text_pair_column) if name]
        named = {"train": files.open_file(
            sets.find(values, "train", files.EXTENSIONS), Given(columns, None, values.header),
            labelled=False)}
    found = {name: data.load(
        file, job.model.encoding, job.model.own.query_prefix, job.settings.store_dir,
        dynamic_padding=job.settings.training.dynamic_padding) for name, file in named.items()}
    train = found.get("train") and (training or _training)(job, found["train"])
    return Sets(train, *({"": found[name]} if name in found else {} for name in ("dev", "test")))


def _training(job: Job, texts: TextSet) -> Training:
    own, config = job.model.own, job.model.config
    num_texts = max(2, texts.num_texts)
    if job.settings.global_batch_size(job.devices.num_replicas) < 2 and texts.num_texts < 3:
        raise UserError("--train_batch_size=1: a step with one example has nothing to compare it "
                        "with; the larger the batch, the more each example learns from")
    return Training(
        texts.num_examples, texts.content_hash,
        model.training_forward_of(config, own.pooling, own.objective, num_texts),
        functools.partial(texts.training_source, spread=own.spreads),
        facts={"--loss": own.objective.loss, "--temperature": own.objective.temperature,
               "--symmetric": own.objective.symmetric, "--spread_duplicates": own.spreads},
        baseline=Baseline("giving all texts the same vector", lambda indices: _loss_of_equals(
            texts, own.objective, indices)))


def _loss_of_equals(texts: TextSet, objective: Objective, indices: np.ndarray) -> float:
    """The loss of a step if all vectors are equal; equal texts are not looked at."""
    if objective.loss == model.RANKING:
        return float(np.log(len(indices) * max(1, texts.num_texts - 1)))
    scores = np.sort(texts.scores[indices])
    return float(np.log1p(np.searchsorted(scores, scores, side="left").sum()))


def _forward(trained: Model, *_: Any) -> Forward:
    return model.forward_of(trained.config, trained.own.pooling)


def _metrics(own: Similarity) -> List[str]:
    dev = own.files.get("dev")
    scored = dev and dev.has_scores
    return (["spearman", "pearson"] if scored else
            ["mrr_at_10", "ndcg_at_10", "recall_at_1", "recall_at_5", "recall_at_10"])


def _write(job: Job, texts: TextSet, suffix: str, predict: Predict) -> None:
    """Writes the similarities of a line's first text and its others, or a single text's vector."""
    is_single, numbers = texts.num_texts == 1, texts.numbers
    path = os.path.join(job.settings.output_dir, _RESULTS)
    with rows.predicted(texts.source(), predict, job.settings.output_dir) as vectors:
        found = (Rows(vectors, vectors.shape[1], numbers[:, 0]) if is_single
                 else evaluation.similarities(vectors, numbers))
        results.write_lines(path, ("\t".join(f"{value:.9g}" for value in row) for row in found))
    log.info(f"Predicted {len(numbers):,} {'vectors' if is_single else 'lines'}: {path}")


def _describe(own: Similarity) -> Dict[str, Any]:
    return {"kind": label_config.SIMILARITY, "pooling": own.pooling,
            "query_prefix": own.query_prefix, "matryoshka": list(own.matryoshka)}


def described(folder: str) -> Optional[Similarity]:
    """The description in a folder's task.json; None for another kind of model."""
    description = label_config.read(folder)
    if not description or description["kind"] != label_config.SIMILARITY:
        return None
    path = os.path.join(folder, label_config.FILE)
    record = disk.read_record(path, "the model's description", {
        "pooling": str, "query_prefix": str, "matryoshka": list})
    sizes = record["matryoshka"]
    if record["pooling"] not in bert.POOLINGS or not all(
            isinstance(size, int) and size > 0 for size in sizes):
        raise UserError(f"{path} is damaged: its pooling is {record['pooling'][:20]!r}, its matryoshka "
                        f"{str(sizes)[:40]}")
    return Similarity(record["pooling"], record["query_prefix"], tuple(sizes))


def open_model(trained: ModelFiles) -> Model:
    """See `Head.open`."""
    own = described(trained.folder)
    if not own:
        raise UserError(f"{trained.flag}={trained.path} was not trained for similarity; train it "
                        "(python -m similarity.run with --do_train)")
    return Model(own, trained.config(), trained.encoding(trained.description()["max_seq_length"]))


def _outputs(trained: Model, inputs: Dict[str, tf.Tensor], mode: Mode) -> Dict[str, tf.Tensor]:
    return _forward(trained)(inputs, mode).predictions


def _card(trained: Model) -> Card:
    own = trained.own
    prefix = f" A query begins with `{log.visible(own.query_prefix)}`." if own.query_prefix else ""
    sizes = ("" if not own.matryoshka else ". Their first "
             f"{', '.join(map(str, own.matryoshka))} components are vectors, too, once they are "
             "made as long as 1")
    return Card(
        "It gives each text a vector; the product of two vectors is the similarity of their texts", (),
        f"""\
`[CLS] text [SEP]` as WordPiece ids of `assets.extra/vocab.txt`, {model_card.casing(trained)},
at most {trained.encoding.max_seq_length} of them.{prefix}
Inputs, all int32 `[batch, length]`: `input_ids`, padded with 0; `input_mask`, 1 on ids and 0 on
padding; `segment_ids`, all 0.""",
        f"`vectors`, float32 `[batch, {trained.config.hidden_size}]`, of length 1{sizes}",
        model_card.PREDICT.format(input="texts.txt"))


def _reader(trained: Model) -> Reader:
    def encode(examples: List[Example]) -> Encoded:
        is_pair = any(example.text_b is not None for example in examples)
        texts = data.encode([files.Example(
            (example.text_a, example.text_b or "") if is_pair else (example.text_a,))
            for example in examples], trained.encoding, trained.own.query_prefix)
        return Encoded(texts.source(), lambda predictions: _results(texts, predictions["vectors"]),
                       texts.num_left_out)

    return Reader(_forward(trained), encode, None, ["vector"], pair_columns=["similarity"])


def _results(texts: TextSet, vectors: np.ndarray) -> Iterator[Result]:
    if texts.num_texts == 1:
        for number in texts.numbers[:, 0]:
            values = [float(f"{value:.9g}") for value in vectors[number]]
            yield Result([json.dumps(values)], {"vector": values})
    else:
        for similarity in evaluation.similarities(vectors, texts.numbers)[:, 0]:
            yield Result([f"{similarity:.9g}"], {"similarity": float(f"{similarity:.9g}")})


HEAD = Head(
    "Encoding", "texts",
    facts=_facts, require=_require, load=_load, forward=_forward, measure=evaluation.measure,
    write=_write, prediction_files=[_RESULTS], describe=_describe, open=open_model, outputs=_outputs,
    card=_card, reader=_reader, page=report.page,
    check=_check, metrics=_metrics, loss=None)
