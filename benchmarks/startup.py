"""Start-up: seconds from process start to the end of step 1, ours and the recipe's, in turn.

  python -m benchmarks.startup --vocab_file=VOCAB --data_dir=glue/CoLA

12 layers with hidden size 64, so that it is overhead that counts; batch 4 x 32 on 8 virtual
CPU devices. The peer is `benchmarks.peers.mirrored_recipe` (TensorFlow 1.15), which takes minutes each
time; --alone leaves it out. Ours with one replica stands beside it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import List, Sequence

import numpy as np

from benchmarks import report

CONFIG = dict(vocab_size=30522, hidden_size=64, num_hidden_layers=12, num_attention_heads=4,
              intermediate_size=256, hidden_act="gelu", hidden_dropout_prob=0.1,
              attention_probs_dropout_prob=0.1, max_position_embeddings=128, type_vocab_size=2,
              initializer_range=0.02)


def our_seconds(flags: Sequence[str]) -> float:
    """Seconds until `run_classifier` with these flags has ended step 1."""
    with tempfile.TemporaryDirectory() as output_dir:
        start = time.time()
        process = subprocess.Popen(
            [sys.executable, "run_classifier.py", f"--output_dir={output_dir}", *flags],
            cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True)
        log = []
        for line in process.stderr:
            log.append(line)
            if line.startswith("step 1/"):
                break
        seconds = time.time() - start
        process.kill()
        process.communicate()
    if not log[-1].startswith("step 1/"):
        sys.exit("".join(log))
    return seconds


def our_flags(args, config: str, num_replicas: int, store_dir: str) -> List[str]:
    return ["--task_name=cola", "--do_train", f"--data_dir={args.data_dir}",
            f"--vocab_file={args.vocab_file}", f"--bert_config_file={config}",
            f"--store_dir={store_dir}", f"--num_cpu_replicas={num_replicas}",
            "--train_batch_size=4", "--max_seq_length=32", "--dynamic_padding=false"]


def recipes_seconds(config: str, num_replicas: int) -> float:
    start = time.time()
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.mirrored_recipe", f"--config={config}",
         f"--num_replicas={num_replicas}"], cwd=report.ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, universal_newlines=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])["first_step_ended"] - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--num_replicas", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="without the recipe")
    args = parser.parse_args()
    args.data_dir, args.vocab_file = map(os.path.abspath, (args.data_dir, args.vocab_file))
    ours, one_replica, theirs = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        config = os.path.join(directory, "bert_config.json")
        with open(config, "w") as file:
            json.dump(CONFIG, file)
        for _ in range(args.pairs):
            if not args.alone:
                theirs.append(recipes_seconds(config, args.num_replicas))
            ours.append(our_seconds(our_flags(args, config, args.num_replicas, directory)))
            one_replica.append(our_seconds(our_flags(args, config, 1, directory)))
            print(f"recipe {theirs[-1:]}, ours {ours[-1]:.1f} s, "
                  f"ours with 1 replica {one_replica[-1]:.1f} s", flush=True)
    of_recipe = {} if args.alone else {"the recipe": f"{np.median(theirs):.1f}",
                                       "ours / the recipe": report.ratios(ours, theirs)}
    report.append(
        f"Start-up, {args.num_replicas} replicas: seconds to the end of step 1 (median)",
        [{"ours": f"{np.median(ours):.1f}", "ours with 1 replica": f"{np.median(one_replica):.1f}",
          f"ours, {args.num_replicas} replicas / 1": report.ratios(ours, one_replica),
          **of_recipe}],
        command="python -m benchmarks.startup" + (" --alone" if args.alone else ""),
        versions={"TensorFlow": report.version_of(sys.executable, "tensorflow")})


if __name__ == "__main__":
    main()
