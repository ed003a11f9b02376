"""Start-up: seconds from the start of run_classifier.py to the end of step 1, of 12 layers 64 wide.

  python -m benchmarks.startup --vocab_file=VOCAB --data_dir=glue/CoLA --num_replicas=8
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Sequence

from benchmarks import report

CONFIG = dict(vocab_size=30522, hidden_size=64, num_hidden_layers=12, num_attention_heads=4,
              intermediate_size=256, max_position_embeddings=128, type_vocab_size=2)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("vocab_file", "data_dir"):
        parser.add_argument(f"--{name}", required=True, type=os.path.abspath)
    parser.add_argument("--num_replicas", type=int, default=8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "bert_config.json")
        with open(config, "w") as file:
            json.dump(CONFIG, file)
        flags = ["--task_name=cola", "--do_train", f"--data_dir={args.data_dir}",
                 f"--vocab_file={args.vocab_file}", f"--bert_config_file={config}",
                 f"--store_dir={folder}/store", f"--num_cpu_replicas={args.num_replicas}",
                 "--train_batch_size=4", "--max_seq_length=32", "--dynamic_padding=false"]
        our_seconds(flags)  # makes the store
        print(json.dumps({"rate": our_seconds(flags)}))


if __name__ == "__main__":
    main()
