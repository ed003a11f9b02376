"""Does each benchmark still run? All of them at toy size, one after another, in a copy of the project.

  python -m benchmarks.rehearse --data=SHARED_DATA --work_dir=DIR --tensorflow1_python=PYTHON

The model has 6 layers, hidden size 24 and random weights; of each data set there are the first lines.
Figures mean nothing here, and benchmarks/results.md stays as it is. Not among them: disk_faults, which
takes half an hour; search_speed and http_servers, which need faiss and waitress; similarity_agreement,
similarity_quality, pool_of_negatives, ray_overhead and serving, which need MiniLM or minutes. Benchmarks whose peer is Google's code
run in --tensorflow1_python, which needs `bert-tensorflow==1.0.1`; without it, and without
--huggingface_python, those with such peers are left out. --only=NAME runs some. Ends with status 1 if
one fails; DIR/<name>.log has what it printed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from typing import Dict, Iterator, List, NamedTuple, Optional

from benchmarks.report import ROOT

_LINES = 5000  # of each file of the data: some benchmarks take a hundredth of an epoch
_SECONDS = 600

# What follows the name; {…} are the paths of `main`. The interpreter is this one if nothing is said.
_GOOGLE, _HUGGINGFACE = "tensorflow1_python", "huggingface_python"


class Row(NamedTuple):
    """A benchmark at toy size."""
    name: str
    arguments: str
    python: Optional[str] = None
    peer: Optional[str] = None  # an interpreter that it needs besides


_ROWS = [
    Row("agreement", "--task=cola --model={model} --data_dir={data}/glue/CoLA --work_dir={work} "
        "--precision=bfloat16 --optimizers --epochs=0.1"),
    Row("aids", "--model={model} --data={data} --rounds=1 --examples=64 --long_steps=2 "
        "--aids none xla"),
    Row("augmentation", "--model={model} --data_dir={data}/glue/CoLA --sentences=20 --pairs=1"),
    Row("compiled_lengths", "--model={model} --data={data}"),
    Row("connection_fuzz", "--cases=1000"),
    Row("create_pretraining_data", "--input_file={data}/pretrain/en_books.txt --pairs=1 "
        "--vocab_file={model}/vocab.txt --work_dir={work} --gigabytes=0.001 --dupe_factor=1",
        _GOOGLE),
    Row("distillation_throughput", "--model={model} --data={data} --pairs=1", _GOOGLE),
    Row("durability", "--work_dir={work} --repeats=1"),
    Row("evaluation_throughput", "--model={model} --data={data} --pairs=1", _GOOGLE),
    Row("faults", "--work_dir={work} --runs=1"),
    Row("feature_throughput", "--model={model} --huggingface_model={huggingface_model} --name=texts --pairs=1 "
        "--sentence_transformers_python={huggingface_python} --input_file={data}/texts.txt",
        peer=_HUGGINGFACE),
    Row("fuzz", "--work_dir={work} --cases=20"),
    Row("gpu", "--toy --minutes=4 --output_dir={work} --stages=fine-tuning-mini"),
    Row("large_set", "--model={model} --data_dir={data}/glue/MNLI --work_dir={work} --num_pairs=20000"),
    Row("long_texts", "--model={model} --data={data}/qa_en/newwiki_train.json"),
    Row("machine_faults", "--work_dir={work} --runs=1"),
    Row("machines", "--replicas=1,2 --pairs=1"),
    Row("memory", "--count"),
    Row("optimizer_update", "--pairs=1", _GOOGLE),
    Row("preparation", "--model={model} --data_dir={data}/glue/CoLA --pairs=1", _GOOGLE),
    Row("pretraining_quality", "--language=en --data={data} --work_dir={work} --num_train_steps=20"),
    Row("distillation_quality", "--task=cola --data={data} --model={model} --work_dir={work} "
        "--masked_lm={work}/../pretraining_quality/en --num_examples=96 --epochs=3"),
    Row("pretraining_throughput", "--model={model} --data={data} --pairs=1", _GOOGLE),
    Row("reading_quality", "--model={model} --huggingface_model={huggingface_model} --work_dir={work} "
        "--huggingface_python={huggingface_python} --train_file={data}/qa_en/newwiki_train.json "
        "--dev_file={data}/qa_en/newwiki_dev.json", peer=_HUGGINGFACE),
    Row("reading_throughput", "--model={model} --train_file={data}/qa_en/squad2_train.json --pairs=1",
        _GOOGLE),
    Row("rewriting_quality", "--name=novels --texts {data}/pretrain/en_books.txt --model={model} "
        "--work_dir={work} --num_texts=60 --pretrain_steps=4"),
    Row("rewriting_throughput", "--model={model} --texts={data}/glue/SST-2/train.tsv --num_texts=8 "
        "--pairs=1"),
    Row("scaling", ""),
    Row("served_answers", "--models classifier=tests/files_of_1.0.0/classifier --texts={data}/texts.txt "
        "--requests=100"),
    Row("stability", "--model={model} --data={data} --work_dir={work} --sets sst-2 --minutes=0.1 "
        "--huggingface_model={huggingface_model} --huggingface_python={huggingface_python}", peer=_HUGGINGFACE),
    Row("startup", "--vocab_file={model}/vocab.txt --data_dir={data}/glue/CoLA --num_replicas=2 "
        "--pairs=1 --alone"),
    Row("tagging_quality", "--model={model} --huggingface_model={huggingface_model} --work_dir={work} "
        "--huggingface_python={huggingface_python} --train_file={data}/ner_en/train.txt "
        "--dev_file={data}/ner_en/dev.txt", peer=_HUGGINGFACE),
    Row("training_throughput", "--set=cola --model={model} --data={data} --pairs=1", _GOOGLE),
    Row("two_versions", "--before=. --model={model} --data={data} --pairs=1"),
    Row("xla_modules", ""),
]


def main() -> None:
    """Runs the benchmarks, prints a line for each, and exits."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "work_dir"):
        parser.add_argument(f"--{name}", required=True, type=os.path.abspath)
    for name in (_GOOGLE, _HUGGINGFACE):
        parser.add_argument(f"--{name}", type=os.path.abspath)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    os.makedirs(args.work_dir, exist_ok=True)
    checkout, model, huggingface_model, data = (os.path.join(args.work_dir, name) for name in (
        "checkout", "model", "huggingface_model", "data"))
    _copy_project(checkout)
    _cut_data(args.data, data)
    _write_model(args.data, model)
    subprocess.run([sys.executable, "-m", "encoder.convert", f"--from_tensorflow={model}",
                    f"--output_dir={huggingface_model}"], cwd=ROOT, check=True)
    failed = 0
    for row in _ROWS:
        if args.only and row.name not in args.only:
            continue
        missing = [name for name in (row.python, row.peer) if name and not getattr(args, name)]
        if missing:
            print(f"{row.name}: left out, needs --{missing[0]}", flush=True)
            continue
        work = os.path.join(args.work_dir, row.name)
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        failed += not _run(row, checkout, f"{work}.log", {
            "model": model, "huggingface_model": huggingface_model, "data": data, "work": work,
            _HUGGINGFACE: args.huggingface_python,
            "python": row.python and getattr(args, row.python) or sys.executable})
    sys.exit(min(failed, 1))


def _run(row: Row, checkout: str, log: str, paths: Dict[str, str]) -> bool:
    started = time.time()
    command = [paths["python"], "-m", f"benchmarks.{row.name}", *row.arguments.format(**paths).split()]
    with open(log, "w") as file:
        try:
            status = subprocess.run(command, cwd=checkout, stdout=file, stderr=subprocess.STDOUT,
                                    timeout=_SECONDS).returncode
        except subprocess.TimeoutExpired:
            status = None
    print(f"{row.name}: {'runs' if status == 0 else f'FAILED ({status}), see {log}'}, "
          f"{time.time() - started:.0f} s", flush=True)
    return status == 0


def _copy_project(checkout: str) -> None:
    """The project's files, without what git ignores, in a folder of their own."""
    shutil.rmtree(checkout, ignore_errors=True)
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, check=True,
                           universal_newlines=True).stdout.splitlines()
    for name in names:
        os.makedirs(os.path.dirname(os.path.join(checkout, name)), exist_ok=True)
        shutil.copy2(os.path.join(ROOT, name), os.path.join(checkout, name))


def _cut_data(data: str, small: str) -> None:
    """The first lines of each file, or the first articles of one in SQuAD's format."""
    shutil.rmtree(small, ignore_errors=True)
    for folder, _, names in os.walk(data):
        for name in names:
            target = os.path.join(small, os.path.relpath(folder, data), name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(os.path.join(folder, name), encoding="utf-8") as file, open(
                    target, "w", encoding="utf-8") as cut:
                if name.startswith(("newwiki", "squad", "cmrc")):
                    whole = json.load(file)
                    json.dump({**whole, "data": whole["data"][:2]}, cut)
                else:
                    cut.writelines(file if name == "vocab.txt" else _first(file))
    for new, old in (("ner_en/train.txt", "ner_en/conll2003_train_first5000.txt"),
                     ("ner_en/dev.txt", "ner_en/conll2003_testb.txt"),
                     ("texts.txt", "pretrain/en_books.txt")):
        shutil.copy(os.path.join(small, old), os.path.join(small, new))


def _first(lines: Iterator[str]) -> List[str]:
    return [line for line, _ in zip(lines, range(_LINES))]


def _write_model(data: str, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    vocab = os.path.join(folder, "vocab.txt")
    shutil.copyfile(os.path.join(data, "vocab", "uncased_en", "vocab.txt"), vocab)
    with open(vocab, encoding="utf-8") as file:
        vocab_size = sum(1 for _ in file)
    with open(os.path.join(folder, "bert_config.json"), "w") as file:
        json.dump(dict(vocab_size=vocab_size, hidden_size=24, num_hidden_layers=6,
                       num_attention_heads=12, intermediate_size=48), file)
    subprocess.run([sys.executable, "-c", _MODEL, folder], cwd=ROOT, check=True)


_MODEL = """
import sys
import numpy as np
import modeling
from encoder import pretraining_heads
from engine.devices import runtime
import tensorflow.compat.v1 as tf
config = modeling.BertConfig.from_json_file(sys.argv[1] + "/bert_config.json")
ids = tf.zeros([1, 4], tf.int32)
model = modeling.BertModel(config, False, ids)
pretraining_heads.masked_lm_logits(
    model.get_sequence_output()[0], model.get_embedding_table(), config)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, sys.argv[1] + "/bert_model.ckpt", write_state=False)
"""

if __name__ == "__main__":
    main()
