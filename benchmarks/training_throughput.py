"""Fine-tuning throughput, examples/s: ours and a peer's, in turn, in one run.

  python -m benchmarks.training_throughput --set=cola --model=MINILM_TF --data=SHARED_DATA

The MiniLM shape, max_seq_length 128, batch 32. Sets: CoLA, SST-2, ChnSentiCorp (Chinese
vocabulary, random weights), and CoLA's sentences joined up so that each example fills all
128 tokens. Peers: Google's run_classifier on TensorFlow 1.15; `--peer=huggingface`, PyTorch
on CoLA and "full"; `--peer=one_replica`, ours with 1 x 32 against ours with 2 x 16;
`--peer=float32`, ours in float32 against ours with --precision, which is PyTorch's, too.

Beside it the share of the machine's limit: multiply-adds of the encoder on real tokens per
second over the rate of a large matrix product in the same TensorFlow.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import List, Sequence

import numpy as np

from benchmarks import report, scaling
from encoder.config import load_config
from engine.devices.precision import FLOAT32, PRECISIONS

SETS = {"cola": "glue/CoLA/train.tsv", "sst2": "glue/SST-2/train.tsv",
        "chnsenticorp": "zh/ChnSentiCorp/train.tsv", "full": "glue/CoLA/train.tsv"}
OUR_STEPS = {"cola": 120, "sst2": 120, "chnsenticorp": 25, "full": 25}


def examples_of(name: str, data: str) -> List[tuple]:
    """(label, text) of a set's training file, in an order that does not follow the file's."""
    with open(os.path.join(data, SETS[name]), encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\r\n").split("\t") for line in file]
    if name in ("cola", "full"):
        examples = [(row[1], row[3]) for row in rows]
    elif name == "sst2":
        examples = [(row[1], row[0]) for row in rows[1:]]
    else:
        examples = [(row[0], row[1]) for row in rows[1:]]
    if name == "full":
        texts = [text for _, text in examples]
        examples = [(label, " ".join(texts[(i + k) % len(texts)] for k in range(40)))
                    for i, (label, _) in enumerate(examples)]
    order = np.random.RandomState(0).permutation(len(examples))
    return [examples[i] for i in order[:32 * 130]]


def write_cola_layout(examples, directory: str) -> None:
    os.makedirs(directory)
    with open(os.path.join(directory, "train.tsv"), "w", encoding="utf-8") as file:
        file.writelines(f"x\t{label}\t\t{text}\n" for label, text in examples)


def prepare_model(name: str, model: str, data: str, directory: str) -> str:
    """The model as Google's code takes it: the tanh form of gelu. For Chinese, the shape alone."""
    os.makedirs(directory)
    with open(os.path.join(model, "bert_config.json")) as file:
        config = {**json.load(file), "hidden_act": "gelu"}
    if name == "chnsenticorp":
        config["vocab_size"] = 21128
        shutil.copy(os.path.join(data, "vocab/chinese/vocab.txt"), directory)
    else:
        for file_name in os.listdir(model):
            if file_name != "bert_config.json":
                shutil.copy(os.path.join(model, file_name), directory)
    with open(os.path.join(directory, "bert_config.json"), "w") as file:
        json.dump(config, file)
    return directory


def our_rate(model: str, data_dir: str, steps: int, num_replicas: int = 1,
             precision: str = "float32", more: Sequence[str] = ()) -> float:
    checkpoint = os.path.join(model, "bert_model.ckpt")
    with tempfile.TemporaryDirectory() as output_dir:
        answer = subprocess.run(
            [sys.executable, "run_classifier.py", "--task_name=cola", f"--data_dir={data_dir}",
             f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
             f"--output_dir={output_dir}", "--do_train", f"--precision={precision}",
             f"--num_cpu_replicas={num_replicas}", f"--train_batch_size={32 // num_replicas}",
             f"--num_train_epochs={(steps + 0.5) * 32 / (32 * 130)}", *more]
            + ([f"--init_checkpoint={checkpoint}"] if os.path.exists(checkpoint + ".index") else []),
            cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True, check=True)
    return float(re.findall(r"([\d,.]+) examples/s", answer.stderr)[-1].replace(",", ""))


def googles_rate(model: str, data_dir: str, measure: str) -> float:
    with tempfile.TemporaryDirectory() as work_dir:
        return answer_of(
            sys.executable, "google_classifier", f"--data_dir={data_dir}", f"--model={model}",
            f"--work_dir={work_dir}", f"--measure={measure}")["rate"]


def huggingfaces_rate(args, data_dir: str) -> float:
    return answer_of(
        args.huggingface_python, "huggingface", f"--model_dir={args.huggingface_model}",
        f"--data_dir={data_dir}", f"--max_steps={min(70, OUR_STEPS[args.set])}",
        *(["--autocast"] if args.precision == "bfloat16" else []))["examples_per_second"]


def answer_of(python: str, peer: str, *flags: str) -> dict:
    answer = subprocess.run(
        [python, "-m", f"benchmarks.peers.{peer}", *flags], cwd=report.ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


# Name, and (flags, model, data_dir) -> examples/s.
PEERS = {
    "google": ("Google's run_classifier",
               lambda args, model, data_dir: googles_rate(model, data_dir, "train")),
    "huggingface": ("Hugging Face (PyTorch)",
                    lambda args, model, data_dir: huggingfaces_rate(args, data_dir)),
    "one_replica": ("ours, 1 × 32",
                    lambda args, model, data_dir: our_rate(model, data_dir, OUR_STEPS[args.set])),
    "float32": ("ours in float32",
                lambda args, model, data_dir: our_rate(model, data_dir, OUR_STEPS[args.set])),
}


def machine_limit_gflops() -> float:
    """Multiply-adds of a large matrix product per second, in billions, two operations each."""
    from engine.devices import runtime  # noqa: F401
    import tensorflow.compat.v1 as tf
    size = 2048
    with tf.Graph().as_default(), tf.Session() as session:
        a = tf.get_variable("a", [size, size])
        product = tf.matmul(a, a).op
        session.run(tf.global_variables_initializer())
        session.run(product)
        start = time.time()
        for _ in range(10):
            session.run(product)
        return 10 * 2 * size**3 / (time.time() - start) / 1e9


def useful_gflops(rate: float, model: str, examples) -> float:
    """Operations of the encoder on real tokens per second, forward and backward."""
    from tokenization import BatchTokenizer
    config = load_config(os.path.join(model, "bert_config.json"))
    shape = scaling.Shape("", config.num_hidden_layers, config.hidden_size)
    _, lengths = BatchTokenizer(os.path.join(model, "vocab.txt")).encode_batch(
        [text for _, text in examples])
    lengths = np.minimum(lengths, 126) + 2
    return rate * scaling.our_flops(shape, lengths).mean() / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=sorted(SETS), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--peer", choices=sorted(PEERS), default="google")
    parser.add_argument("--precision", choices=PRECISIONS, default=FLOAT32, help="of ours")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--huggingface_python")
    parser.add_argument("--huggingface_model")
    args = parser.parse_args()
    peers_name, peers_rate = PEERS[args.peer]
    num_replicas = 2 if args.peer == "one_replica" else 1
    ours, theirs, limits = [], [], []
    with tempfile.TemporaryDirectory() as work_dir:
        examples = examples_of(args.set, args.data)
        data_dir = os.path.join(work_dir, "data")
        write_cola_layout(examples, data_dir)
        model = prepare_model(args.set, args.model, args.data, os.path.join(work_dir, "model"))
        for _ in range(args.pairs):
            theirs.append(peers_rate(args, model, data_dir))
            ours.append(our_rate(model, data_dir, OUR_STEPS[args.set], num_replicas,
                                 args.precision))
            limits.append(machine_limit_gflops())
            print(f"ours {ours[-1]:.1f}, peer {theirs[-1]:.1f} examples/s", flush=True)
        share = [f"{useful_gflops(np.median(rates), model, examples) / max(limits):.0%}"
                 for rates in (ours, theirs)]
    report.append(
        f"Fine-tuning throughput, {args.set}, {num_replicas} × {32 // num_replicas}, "
        f"{args.precision}, against {peers_name}: examples/s (median)",
        [{"set": args.set, "ours": f"{np.median(ours):.1f}", "peer": f"{np.median(theirs):.1f}",
          "ours / peer": report.ratios(ours, theirs),
          "share of the machine's limit, ours and peer": " and ".join(share)}],
        command=f"python -m benchmarks.training_throughput --set={args.set} --peer={args.peer} "
                f"--precision={args.precision}",
        versions=_versions(args))


def _versions(args) -> dict:
    versions = {"TensorFlow": report.version_of(sys.executable, "tensorflow")}
    if args.peer == "huggingface":
        versions.update({name: report.version_of(args.huggingface_python, name)
                         for name in ("torch", "transformers")})
    return versions


if __name__ == "__main__":
    main()
