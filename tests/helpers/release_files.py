"""Files of a release, which every later one must read: a model of each kind and what it predicts.

Made once for a release, and never again:

  PYTHONPATH=.:tests:tests/helpers python tests/helpers/release_files.py tests/files_of_2.0.0
"""

import contextlib
import functools
import glob
import io
import json
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, NamedTuple

import choice_files
import run_classifier
import run_squad
import similarity_files
from choice import run as choice
from commands import run_here
from conftest import VOCAB, write_cola
from pretraining import run as pretraining, score
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from reading_files import write_made_up
from rewriting import run as rewriting
from runs import predict
from similarity import run as similarity
from tagging import run as tagging

CONFIG = dict(vocab_size=len(VOCAB), hidden_size=4, num_hidden_layers=1, num_attention_heads=2,
              intermediate_size=8, hidden_act="gelu", max_position_embeddings=LENGTH,
              hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, type_vocab_size=2,
              initializer_range=0.3)
# Each other than its default: a resumed run keeps them.
SETTINGS = dict(learning_rate=2e-2, seed=7, dynamic_padding=False)


class Kind(NamedTuple):
    """A kind of model: how it is trained, and how a model in a folder is read."""
    trainer: ModuleType
    training: Dict[str, Any]
    reader: ModuleType
    reading: Callable[[str], Dict[str, Any]]
    output: str = ""  # the file of predictions; empty: standard output


def kinds(files: str) -> Dict[str, Kind]:
    """The kinds, by name; their data are in a folder."""
    def data(name: str) -> str:
        return os.path.join(files, "data", name)

    def of_texts(folder: str) -> Dict[str, Any]:
        return dict(output_dir=folder, input_file=data("texts.txt"))

    def of_set(folder: str, **flags: Any) -> Dict[str, Any]:
        return dict(output_dir=folder, do_predict=True, num_cpu_replicas=1, **flags)

    def masked(folder: str) -> Dict[str, Any]:
        return dict(init_checkpoint=os.path.join(folder, "model.ckpt-20"), max_seq_length=LENGTH,
                    vocab_file=os.path.join(folder, "vocab.txt"), input_file=data("texts.txt"),
                    bert_config_file=os.path.join(folder, "bert_config.json"))

    return {
        "classifier": Kind(run_classifier, dict(
            task_name="cola", data_dir=data("cola"), do_eval=True, eval_every_steps=10,
            keep_checkpoint_max=1), predict, of_texts),
        "tagger": Kind(tagging, dict(train_file=data("tags.txt"), crf=True), predict, of_texts),
        "reader": Kind(
            run_squad, dict(train_file=data("questions.json"), max_query_length=8, doc_stride=8),
            run_squad, functools.partial(of_set, predict_file=data("questions.json")),
            "predictions.json"),
        "scorer": Kind(
            rewriting, dict(train_file=data("slots.jsonl")),
            rewriting, functools.partial(of_set, test_file=data("slots.jsonl")),
            "predict.txt"),
        "chooser": Kind(
            choice, dict(train_file=data("choices.jsonl")),
            choice, functools.partial(of_set, test_file=data("choices.jsonl")), "test_results.tsv"),
        "vectors": Kind(similarity, dict(train_file=data("pairs.tsv")), predict, of_texts),
        "pretrained": Kind(pretraining, dict(
            input_file=data("examples.tfrecord"), max_predictions_per_seq=PREDICTIONS,
            num_warmup_steps=1), score, masked),
    }


def train(kind: Kind, files: str, output_dir: str, **flags) -> None:
    """Runs the training command of a kind."""
    run_here({"max_seq_length": LENGTH, **kind.training, "do_train": True, "num_cpu_replicas": 1,
              "vocab_file": os.path.join(files, "vocab.txt"), "output_dir": output_dir,
              "bert_config_file": os.path.join(files, "bert_config.json"), **flags}, kind.trainer)


def read(kind: Kind, output_dir: str) -> str:
    """What a trained model predicts."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_here(kind.reading(output_dir), kind.reader)
    if not kind.output:
        return printed.getvalue()
    with open(os.path.join(output_dir, kind.output), encoding="utf-8") as file:
        return file.read()


def length(kind: Kind, steps: int) -> Dict[str, int]:
    """The flag for a training of so many steps of 8 examples."""
    if kind.trainer is pretraining:
        return {"num_train_steps": steps}
    return {"num_train_epochs": steps // 2}  # 16 examples


def _write_data(files: str) -> None:
    os.makedirs(os.path.join(files, "data"))
    with open(os.path.join(files, "bert_config.json"), "w") as file:
        json.dump(CONFIG, file, indent=2)
    written = {
        "vocab.txt": VOCAB,
        "data/texts.txt": ["the old cat sees a dog", "a bird quickly likes the river"],
        "data/tags.txt": ["old B-A", "cat I-A", "sees O", ""] * 16,
        "data/slots.jsonl": [json.dumps({
            "before": "the cat ", "clause": "sees", "after": f" the {word} .",
            "negatives": ["likes", "old"]}) for word in ("dog", "bird") * 8]}
    for name, lines in written.items():
        with open(os.path.join(files, name), "w") as file:
            file.writelines(f"{line}\n" for line in lines)
    write_cola(os.path.join(files, "data", "cola"), train=16, dev=8)
    write_frozen(os.path.join(files, "data", "examples.tfrecord"), 16)
    choice_files.write(Path(files, "data", "choices.jsonl"), choice_files.made_up(16, most=3))
    similarity_files.write(Path(files, "data", "pairs.tsv"), similarity_files.pairs(16))
    write_made_up(Path(files, "data", "questions.json"), contexts=2, per_context=4)


def _make(files: str) -> None:
    _write_data(files)
    for name, kind in kinds(files).items():
        output_dir = os.path.join(files, name)
        train(kind, files, output_dir, train_batch_size=8, **SETTINGS, **length(kind, 20))
        with open(os.path.join(files, f"{name}.expected"), "w", encoding="utf-8") as file:
            file.write(read(kind, output_dir))
        if name != "classifier":  # one is enough to show that stores are used again
            shutil.rmtree(os.path.join(output_dir, "store"))
        shutil.rmtree(os.path.join(output_dir, "eval"), ignore_errors=True)
        for name in ("report.html", "store/hashes.json", kind.output or "-", "nbest_*",
                     "events.out.*"):
            for path in glob.glob(os.path.join(output_dir, name)):
                os.remove(path)


if __name__ == "__main__":
    if os.path.exists(sys.argv[1]):
        sys.exit(f"{sys.argv[1]} exists: files of a release are made once")
    _make(sys.argv[1])
