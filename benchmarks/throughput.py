"""How fast, beside a peer: two programs that do the same run alternately, on the same cores.

  python -m benchmarks.throughput training --set=cola --model=MINILM_TF --data=SHARED_DATA
  python -m benchmarks.throughput training --set=full --peer=huggingface --peer_python=PYTHON ...
  python -m benchmarks.throughput training --set=full --peer=ours --precision=bfloat16 ...

A comparison is a row of the table below: what is made once, our command, and those of the peers.
Each command prints its figure: a last line {"rate": …}, or examples/s in its log. The first peer is
the default. Google's code runs in this interpreter (TensorFlow 1.15, `bert-tensorflow==1.0.1`), the
peers on PyTorch in --peer_python. `--peer=ours` is our command with one replica in float32.

Sets of texts: CoLA, SST-2, ChnSentiCorp (Chinese vocabulary, random weights), and CoLA's sentences
joined up so that each example fills all 128 tokens (full).
"""

import argparse
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Dict, List, NamedTuple, Tuple

import numpy as np

from benchmarks import report
from engine.devices.devices import FLOAT32, PRECISIONS
from engine.disk import files

# File, columns of label and text, lines of header, steps of a training of ours.
SETS = {"cola": ("glue/CoLA/train.tsv", 1, 3, 0, 120),
        "sst2": ("glue/SST-2/train.tsv", 1, 0, 1, 120),
        "chnsenticorp": ("zh/ChnSentiCorp/train.tsv", 0, 1, 1, 25),
        "full": ("glue/CoLA/train.tsv", 1, 3, 0, 25)}
STEPS_OF_SET = 130  # of 32 examples
NUM_DEV = 1043  # as CoLA has


class Comparison(NamedTuple):
    """What is measured.

    In the commands {model} is the encoder, {texts} a folder with a set of texts in CoLA's layout,
    {data} that of the data sets, {work} a folder for all commands, {out} a new one for each.
    """
    title: str
    ours: str
    peers: Dict[str, str]
    once: Tuple[str, ...] = ()
    default_set: str = "cola"


_MODEL = "--vocab_file={model}/vocab.txt --bert_config_file={model}/bert_config.json "
_PROGRAM = "-m benchmarks.programs "
_COLA, _SQUAD = "{data}/glue/CoLA ", "{work}/squad.json "
_SST = "{data}/glue/SST-2/train.tsv "
# So few steps would come in random order. These are the windows of three epochs of CoLA.
_IN_WINDOWS = ("-c \"import runpy; from engine.data import plan; plan.window_batches = lambda steps: 16; "
               "runpy.run_module('run_classifier', run_name='__main__')\" ")
_CLASSIFIER = "run_classifier.py --task_name=cola --data_dir={texts} {start} --do_train " + _MODEL
_TRAINED = (f"{_CLASSIFIER} --output_dir={{work}}/trained --num_gpus=0 "
            f"--num_train_epochs={1.5 / STEPS_OF_SET}")
_OURS = ("--output_dir={out} --precision={precision} --num_cpu_replicas={replicas} "
         "--train_batch_size={batch} --num_train_epochs={epochs} ")
_GOOGLE = "-m benchmarks.peers.google classifier --model={model} --data_dir={texts} --measure="
_STUDENT = "--student=2,384,12,1536"
_PRETRAINING = "--max_seq_length=128 --max_predictions_per_seq=20"
_BOOKS = "--input_file={data}/pretrain/en_books.txt --vocab_file={data}/vocab/uncased_en/vocab.txt "
_CREATION = _PROGRAM + f"create_data {_BOOKS} --max_seq_length=128 --output_file={{out}}/examples"
_READING = f"-m benchmarks.peers.google squad --train_file={_SQUAD} --model={{model}} --measure="
_QUESTIONS = _PROGRAM + f"one_answer --source={{data}}/qa_en/squad2_train.json --copy={_SQUAD}"
_SLOTS = f"--texts={_SST} --pool_file={{work}}/slots/pool.txt --trained={{work}}/scorer"
_TOKENIZING = _PROGRAM + f"tokenize --model={{model}} --data_dir={_COLA}"
_AUGMENTATION = f"augment --model={{model}} --data_dir={_COLA}"
_STARTUP = "--data_dir={data}/glue/CoLA --vocab_file={data}/vocab/uncased_en/vocab.txt "

COMPARISONS = {
    "training": Comparison(
        "Fine-tuning, examples/s", _IN_WINDOWS + _CLASSIFIER.split(" ", 1)[1] + _OURS,
        {"google": _GOOGLE + "train",
         "huggingface": "{peer_python} -m benchmarks.peers.huggingface --model_dir={peer_model} "
                        "--data_dir={texts} --max_steps=70 {autocast}"}),
    "evaluation": Comparison(
        "Evaluation of 1,043 texts, 8 at a time, examples/s",
        _PROGRAM + "evaluate --model={model} --data_dir={texts} --trained={work}/trained "
        "--precision={precision}", {"google": _GOOGLE + "evaluate"}, (_TRAINED,)),
    "preparation": Comparison(
        "CoLA, text file to ready to train, sentences/s",
        _PROGRAM + f"prepare --model={{model}} --data_dir={_COLA}",
        {"google": _GOOGLE.replace("{texts}", _COLA) + "prepare"}),
    "tokenizing": Comparison(
        "CoLA's sentences tokenized, sentences/s", _TOKENIZING,
        {"tokenizers": _TOKENIZING + "--package=tokenizers"}),
    "pretraining_data": Comparison(
        "Novels to TFRecords, examples/s", _CREATION + " --module=pretraining.create_data",
        {"google": _CREATION + " --module=bert.create_pretraining_data"}),
    "pretraining": Comparison(
        "Pretraining with random weights, both objectives, full examples, 1 × 32, examples/s",
        f"-m pretraining.run {_PRETRAINING} --input_file={{work}}/books --do_train "
        "--output_dir={out} --bert_config_file={model}/bert_config.json --num_train_steps=10 "
        "--num_warmup_steps=1 --num_cpu_replicas=1",
        {"google": "-m benchmarks.peers.google pretraining --input_file={work}/books --model={model}"},
        (f"-m pretraining.create_data {_PRETRAINING} {_BOOKS} --output_file={{work}}/books "
         "--dupe_factor=1 --short_seq_prob=0",)),
    "distillation": Comparison(
        "Stage 1 of distillation, 6 layers to 2, 1 × 32, examples/s",
        f"-m distillation.run --stage=intermediate --task_name=cola --data_dir={{texts}} "
        f"{_STUDENT} --teacher={{work}}/trained --do_train --max_seq_length=128 " + _OURS,
        {"google": "-m benchmarks.peers.google distillation --data_dir={texts} --model={model} "
                   f"{_STUDENT} --layers=3,6"}, (_TRAINED,), default_set="sst2"),
    "reading_preparation": Comparison(
        "SQuAD 2.0 to windows of 384 tokens, questions/s",
        _PROGRAM + f"prepare_questions --model={{model}} --train_file={_SQUAD}",
        {"google": _READING + "prepare"}, (_QUESTIONS,)),
    "reading": Comparison(
        "Reading, windows of 384 tokens, 12 a step, windows/s",
        f"run_squad.py --do_train --train_file={_SQUAD} --version_2_with_negative {_MODEL} "
        "{start} --output_dir={out} --store_dir={work}/store --max_seq_length=384 "
        "--num_cpu_replicas=1 --train_batch_size=12 --num_train_epochs=0.1 "
        "--dynamic_padding={dynamic_padding}",
        {"google": _READING + "train"}, (_QUESTIONS,)),
    "features": Comparison(
        "Vectors of texts, 32 at a time, texts/s",
        _PROGRAM + "features --model={model} --input_file={input_file}",
        {"sentence-transformers": "{peer_python} -m benchmarks.peers.sentences encode "
                                  "--model_dir={peer_model} --input_file={input_file}"}),
    "augmentation": Comparison(
        "Augmentation of CoLA, masked words/s",
        _PROGRAM + _AUGMENTATION,
        {"published": f"-m benchmarks.peers.one_at_a_time {_AUGMENTATION} --shows_text=true",
         "our_input": f"-m benchmarks.peers.one_at_a_time {_AUGMENTATION}"}),
    "rewriting": Comparison(
        "Rewriting 64 texts of SST-2, pairs of slot and phrase/s", f"{_PROGRAM} rewrite {_SLOTS}",
        {"one_at_a_time": f"-m benchmarks.peers.one_at_a_time rewrite {_SLOTS}"},
        (f"-m rewriting.create_data --input_file={_SST} --output_dir={{work}}/slots "
         "--num_negatives=1 --num_eval_negatives=1",
         "-m rewriting.run --train_file={work}/slots/test.jsonl --do_train --num_gpus=0 {start} "
         f"{_MODEL} --output_dir={{work}}/scorer --num_train_epochs=0.1 --max_seq_length=128")),
    "update": Comparison(
        "The optimizer's update alone, clipping included, BERT-base, updates/s",
        f"{_PROGRAM} update", {"google": f"{_PROGRAM} update --whose=google"}),
    # 12 layers, 64 wide, so that it is overhead that counts.
    "startup": Comparison(
        "Start to the end of step 1, 8 replicas, seconds",
        "-m benchmarks.startup --num_replicas=8 " + _STARTUP,
        {"recipe": "-m benchmarks.peers.mirrored_recipe --num_replicas=8",
         "ours": "-m benchmarks.startup --num_replicas=1 " + _STARTUP}),
}


def write_texts(name: str, data: str, folder: str) -> None:
    """Writes the parts of a set, in an order that does not follow the file's."""
    file_name, label, text, header, _ = SETS[name]
    with open(os.path.join(data, file_name), encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\r\n").split("\t") for line in file][header:]
    examples = [(row[label], row[text]) for row in rows]
    if name == "full":
        examples = [(row[label], " ".join(rows[(number + k) % len(rows)][text] for k in range(40)))
                    for number, row in enumerate(rows)]
    order = np.random.RandomState(0).permutation(len(examples))[:32 * STEPS_OF_SET]
    lines = ["x\t{}\t\t{}\n".format(*examples[place]) for place in order]
    os.makedirs(folder)
    for part, end in (("train", len(lines)), ("dev", NUM_DEV)):
        files.write_text(os.path.join(folder, f"{part}.tsv"), "".join(lines[:end]))


def write_model(name: str, model: str, data: str, folder: str) -> str:
    """Writes the model as Google's code takes it, with the tanh form of gelu.

    Returns the flag that starts from its weights, "" for Chinese: it has only the shape.
    """
    shutil.copytree(model, folder)
    path, start = f"{folder}/bert_config.json", f"--init_checkpoint={folder}/bert_model.ckpt"
    config = {**files.read_json(path, "--model"), "hidden_act": "gelu"}
    if name == "chnsenticorp":
        config["vocab_size"], start = 21128, ""
        shutil.copy(os.path.join(data, "vocab/chinese/vocab.txt"), folder)
        for file in glob.glob(f"{glob.escape(folder)}/bert_model.ckpt*"):
            os.remove(file)  # the peer would start from it
    files.write_json(path, config)
    return start


def figure_of(command: str, values: Dict[str, object]) -> float:
    """Runs a command; its figure."""
    with tempfile.TemporaryDirectory() as out:
        words = shlex.split(command.format(out=out, **values))
        if words[0] != values["peer_python"]:
            words.insert(0, sys.executable)
        answer = subprocess.run(words, cwd=report.ROOT, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, universal_newlines=True)
    if answer.returncode:
        sys.exit(f"{' '.join(words)}\n{answer.stderr}")
    last = (answer.stdout.splitlines() or [""])[-1]
    if last.startswith("{"):
        return json.loads(last)["rate"]
    rates = re.findall(r"([\d,.]+) examples/s", answer.stderr) or ["nan"]
    return float(rates[-1].replace(",", ""))


def measure(args: argparse.Namespace, name: str, work: str) -> List[Dict[str, str]]:
    comparison = COMPARISONS[name]
    peer = args.peer or next(iter(comparison.peers))
    texts = args.set or comparison.default_set
    values = dict(vars(args), work=work, texts=f"{work}/texts", model=f"{work}/model", start="",
                  batch=32 // args.replicas, epochs=(SETS[texts][4] + 0.5) / STEPS_OF_SET,
                  autocast="--autocast" if args.precision == "bfloat16" else "")
    if args.model:
        values["start"] = write_model(texts, args.model, args.data, values["model"])
        write_texts(texts, args.data, values["texts"])
    one = dict(values, replicas=1, batch=32, precision=FLOAT32)
    for command in comparison.once:
        figure_of(command, one)
    ours, theirs = [], []
    for _ in range(args.pairs):
        theirs.append(figure_of(comparison.peers.get(peer, comparison.ours), one))
        ours.append(figure_of(comparison.ours, values))
        print(f"ours {ours[-1]:.4g}, {peer} {theirs[-1]:.4g}", flush=True)
    return [{"": comparison.title, "ours (median)": f"{np.median(ours):,.4g}", "the peer is": peer,
             "peer": f"{np.median(theirs):,.4g}", "ours / peer": report.ratios(ours, theirs)}]


def main() -> None:
    parser = report.parser_of(__doc__)
    parser.add_argument("comparison", choices=COMPARISONS)
    parser.add_argument("--set", choices=SETS, help="of texts")
    parser.add_argument("--model", type=os.path.abspath, help="a folder with an encoder")
    parser.add_argument("--data", type=os.path.abspath, help="the data sets' folder")
    parser.add_argument("--input_file", type=os.path.abspath, help="of features: a text a line")
    parser.add_argument("--peer", help="one of the comparison's, or ours")
    parser.add_argument("--peer_python", help="with PyTorch")
    parser.add_argument("--peer_model", type=os.path.abspath, help="in Hugging Face's layout")
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help="of ours")
    parser.add_argument("--replicas", type=int, default=1, help="of ours, which share 32 examples")
    parser.add_argument("--dynamic_padding", choices=("true", "false"), default="true",
                        help="of reading")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    peers = [*COMPARISONS[args.comparison].peers, "ours"]
    if args.peer not in (None, *peers):
        parser.error(f"the peers of {args.comparison} are {', '.join(peers)}")
    with tempfile.TemporaryDirectory() as work:
        rows = measure(args, args.comparison, work)
    report.append("Speed beside a peer", rows,
                  **report.versions_of(args.peer_python, "torch", "transformers"))


if __name__ == "__main__":
    main()
