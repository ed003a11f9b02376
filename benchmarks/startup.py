"""Start-up: seconds from the start of run_classifier.py to the end of step 1, of 12 layers 64 wide.

  python -m benchmarks.startup --vocab_file=VOCAB --data_dir=glue/CoLA --num_replicas=8

Also the seconds of processor time, which vary less on a machine with other work.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Sequence

from benchmarks import report
from engine.disk import files

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


def write_task(folder: str, config: Dict[str, Any], length: int, count: int) -> List[str]:
    """Writes a model's shape and a task of so many examples, full of random words.

    Returns the flags with which `run_classifier.py` trains on it.
    """
    words = [f"w{number}" for number in range(config["vocab_size"] - 5)]
    vocabulary, generator = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], random.Random(1)
    examples = (f"x\t{row % 2}\t\t{' '.join(generator.choices(words, k=length - 2))}\n"
                for row in range(count))
    files.write_text(f"{folder}/vocab.txt", "".join(f"{word}\n" for word in vocabulary))
    files.write_text(f"{folder}/train.tsv", "".join(examples))
    files.write_json(f"{folder}/bert_config.json", config)
    return ["--task_name=cola", "--do_train", f"--data_dir={folder}",
            f"--vocab_file={folder}/vocab.txt", f"--bert_config_file={folder}/bert_config.json",
            f"--store_dir={folder}/store", f"--max_seq_length={length}"]


def main() -> None:
    parser = report.parser_of(__doc__, "vocab_file", "data_dir")
    parser.add_argument("--num_replicas", type=int, default=8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "bert_config.json")
        files.write_json(config, CONFIG)
        flags = ["--task_name=cola", "--do_train", f"--data_dir={args.data_dir}",
                 f"--vocab_file={args.vocab_file}", f"--bert_config_file={config}",
                 f"--store_dir={folder}/store", f"--num_cpu_replicas={args.num_replicas}",
                 "--train_batch_size=4", "--max_seq_length=32", "--dynamic_padding=false"]
        our_seconds(flags)  # makes the store
        before = _cpu_seconds()
        print(json.dumps({"rate": our_seconds(flags), "cpu_seconds": _cpu_seconds() - before}))


def _cpu_seconds() -> float:
    """Of all programs that this one has run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
