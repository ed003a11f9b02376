"""Rewriting: pairs of slot and phrase a second, ours and one at a time, in turn, in one run.

  python -m benchmarks.rewriting_throughput --model=MINILM_TF --texts=glue/SST-2/train.tsv

The peer works as bert-ad's worker does: a pair is tokenized, padded to --max_seq_length and
scored, then the next, in a process of its own. Ours is all of `python -m rewriting.rewrite`,
its search included, on one replica. With --pool_sizes: the memory of ours with pools of these sizes instead, made of the
texts' clauses over and over, with a number added so that no phrase repeats.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import List, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

import tokenization
from benchmarks import report
from benchmarks.large_set import AnonymousMemory
from encoder import model_files
from engine.devices import devices
from engine.inference import Predictor
from engine.model import INFERENCE
from rewriting import data, rewriter, texts
from rewriting.scorer import PhraseScorer

MAX_SEQ_LENGTH = 128
NUM_SLOW_PAIRS = 100


def train_one_step(model: str, texts_file: str, work_dir: str) -> None:
    """A scorer in work_dir/out and a pool in work_dir/slots."""
    def run(module: str, *flags: str) -> None:
        subprocess.run([sys.executable, "-m", module, *flags], cwd=report.ROOT, check=True,
                       stderr=subprocess.DEVNULL)

    run("rewriting.create_data", f"--input_file={texts_file}", f"--output_dir={work_dir}/slots",
        "--num_negatives=1", "--num_eval_negatives=1")
    with open(f"{work_dir}/slots/train.jsonl", encoding="utf-8") as file:
        lines = list(itertools.islice(file, 32))
    with open(f"{work_dir}/few.jsonl", "w", encoding="utf-8") as file:
        file.writelines(lines)
    run("rewriting.run", f"--train_file={work_dir}/few.jsonl", "--do_train", "--num_gpus=0",
        f"--vocab_file={model}/vocab.txt", f"--bert_config_file={model}/bert_config.json",
        f"--init_checkpoint={model}", f"--output_dir={work_dir}/out", "--num_train_epochs=0.5",
        f"--max_seq_length={MAX_SEQ_LENGTH}")


def rewriter_of(model: PhraseScorer, phrases: rewriter.Pool) -> rewriter.Rewriter:
    return rewriter.Rewriter(model.encoding, phrases, num_candidates=50, top_k=5)


class OneAtATime:
    """The peer."""

    def __init__(self, model: PhraseScorer, checkpoint_path: str):
        self._tokenizer = tokenization.FullTokenizer(model.encoding.vocab_file)
        graph = tf.Graph()
        with graph.as_default():
            self._inputs = {name: tf.placeholder(tf.int32, [None, MAX_SEQ_LENGTH])
                            for name in ("input_ids", "input_mask", "segment_ids")}
            self._logits = model.forward()(
                self._inputs, INFERENCE).predictions["logits"]
            self._session = tf.Session(graph=graph)
            tf.train.Saver().restore(self._session, checkpoint_path)

    def score(self, before: str, phrase: str, after: str) -> float:
        ids = self._tokenizer.convert_tokens_to_ids
        first = ["[CLS]", *self._tokenizer.tokenize(phrase), "[SEP]"]
        tokens = [*first, *self._tokenizer.tokenize(before), *["[MASK]"] * (len(first) - 2),
                  *self._tokenizer.tokenize(after), "[SEP]"][:MAX_SEQ_LENGTH]
        padding = [0] * (MAX_SEQ_LENGTH - len(tokens))
        features = {"input_ids": ids(tokens) + padding,
                    "input_mask": [1] * len(tokens) + padding,
                    "segment_ids": ([0] * len(first) + [1] * len(tokens))[:len(tokens)] + padding}
        logits = self._session.run(self._logits, {
            self._inputs[name]: [values] for name, values in features.items()})
        return float(data.KIND.scores(logits)[0, 1])


_peer: List[OneAtATime] = []


def make_peer(output_dir: str) -> None:
    trained = model_files.open_model(output_dir, "--output_dir")
    _peer.append(OneAtATime(PhraseScorer.open(trained), trained.checkpoint.path))


def their_rate(pairs: List[Tuple[str, str, str]]) -> float:
    start = time.time()
    for pair in pairs:
        _peer[0].score(*pair)
    return len(pairs) / (time.time() - start)


def compare(args, work_dir: str) -> None:
    train_one_step(args.model, args.texts, work_dir)
    trained = model_files.open_model(f"{work_dir}/out", "--output_dir")
    model, checkpoint = PhraseScorer.open(trained), trained.checkpoint
    phrases = rewriter.load_pool(f"{work_dir}/slots/pool.txt", model.encoding, work_dir)
    ours = rewriter_of(model, phrases)
    lines = list(itertools.islice(texts.read_texts(args.texts, "--texts"), args.num_texts))
    found, tried = ours.candidates(lines)
    slow_pairs = []
    for pair in np.linspace(0, len(tried) - 1, NUM_SLOW_PAIRS).astype(int):
        slot = found[tried.slots[pair]][1]
        slow_pairs.append((slot.before, phrases.phrases([tried.phrases[pair]])[0], slot.after))
    rates: List[float] = []
    peers: List[float] = []
    with report.peers_process(make_peer, f"{work_dir}/out") as process, Predictor(
            model.forward(),
            devices.find_devices(num_gpus=0, training=False)) as predictor:
        predictor.restore(checkpoint)

        def rewrite(texts):
            encoded = ours.encode(texts)
            return encoded.decode(predictor.predict(encoded.source, 8))

        rewrite(lines[:8])
        process.submit(their_rate, slow_pairs[:1]).result()
        for _ in range(args.pairs):
            peers.append(process.submit(their_rate, slow_pairs).result())
            start = time.time()
            rewrite(lines)
            rates.append(len(tried) / (time.time() - start))
            print(f"ours {rates[-1]:.1f}, one at a time {peers[-1]:.1f} pairs/s", flush=True)
    report.append(
        f"Rewriting, {len(lines)} texts of {os.path.basename(os.path.dirname(args.texts))}, "
        "1 replica: pairs/s (median)",
        [{"ours": f"{np.median(rates):.1f}", "one at a time": f"{np.median(peers):.1f}",
          "ours / one at a time": report.ratios(rates, peers),
          "tokens of a pair (mean)": f"{tried.lengths().mean():.1f} of {MAX_SEQ_LENGTH}"}],
        command="python -m benchmarks.rewriting_throughput",
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


def write_pool(clauses: List[str], size: int, path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for number in range(size):
            file.write(f"{clauses[number % len(clauses)]} {number}\n")


def search(args) -> dict:
    """Prepares a pool and finds the candidates of some texts; its memory and times."""
    memory = AnonymousMemory()
    memory.start()
    model = PhraseScorer.open(model_files.open_model(f"{args.work_dir}/out", "--output_dir"))
    start = time.time()
    ours = rewriter_of(model, rewriter.load_pool(args.pool_file, model.encoding, args.work_dir))
    prepared = time.time() - start
    lines = list(itertools.islice(texts.read_texts(args.texts, "--texts"), args.num_texts))
    start = time.time()
    ours.candidates(lines)
    return {"prepare_seconds": prepared, "search_seconds": time.time() - start,
            "peak_mb": memory.peak_mb}


def measure_memory(args, work_dir: str) -> None:
    train_one_step(args.model, args.texts, work_dir)
    with open(f"{work_dir}/slots/pool.txt", encoding="utf-8") as file:
        clauses = file.read().splitlines()
    rows = []
    for size in map(int, args.pool_sizes.split(",")):
        path = f"{work_dir}/pool-{size}.txt"
        write_pool(clauses, size, path)
        answer = subprocess.run(
            [sys.executable, "-m", "benchmarks.rewriting_throughput", f"--model={args.model}",
             f"--texts={args.texts}", f"--num_texts={args.num_texts}", f"--pool_file={path}",
             f"--work_dir={work_dir}"],
            cwd=report.ROOT, stdout=subprocess.PIPE, universal_newlines=True, check=True)
        found = json.loads(answer.stdout.splitlines()[-1])
        rows.append({"phrases": f"{size:,}", "prepared in, s": f"{found['prepare_seconds']:.1f}",
                     f"search for {args.num_texts} texts, s": f"{found['search_seconds']:.2f}",
                     "anonymous resident memory at most, MB": f"{found['peak_mb']:.0f}"})
        print(rows[-1], flush=True)
    report.append("Rewriting, pools of several sizes", rows,
                  command="python -m benchmarks.rewriting_throughput "
                          f"--pool_sizes={args.pool_sizes}",
                  versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--num_texts", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--pool_sizes", help="measure the memory with pools of these sizes")
    parser.add_argument("--pool_file", help="only search in this pool")
    parser.add_argument("--work_dir", help="with --pool_file: where the model is")
    args = parser.parse_args()
    args.model, args.texts = map(os.path.abspath, (args.model, args.texts))
    if args.pool_file:
        print(json.dumps(search(args)))
        return
    with tempfile.TemporaryDirectory() as work_dir:
        (measure_memory if args.pool_sizes else compare)(args, work_dir)


if __name__ == "__main__":
    main()
