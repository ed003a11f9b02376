"""A task and an encoder of any size for benchmarks that ask how long steps take, not what they teach.

Made up here, so that they need no files: random words, labels at random.
"""

import json
import os
import random
from typing import List


def write(directory: str, *, examples: int, length: int, layers: int, hidden: int,
          vocab_size: int, dropout: float) -> List[str]:
    """Writes the files, and returns the flags with which `run_classifier.py` trains on them.

    Args:
        length: tokens of each example, [CLS] and [SEP] included.
        hidden: a multiple of 16; the feed-forward width is 4 times as much.
    """
    generator = random.Random(1)
    words = [f"w{number}" for number in range(vocab_size - 5)]
    _write(directory, "vocab.txt", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    _write(directory, "train.tsv", [
        f"x\t{row % 2}\t\t{' '.join(generator.choices(words, k=length - 2))}"
        for row in range(examples)])
    _write(directory, "bert_config.json", [json.dumps(dict(
        vocab_size=vocab_size, hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 16, intermediate_size=4 * hidden, hidden_act="gelu",
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        max_position_embeddings=512, type_vocab_size=2, initializer_range=0.02))])
    return ["--task_name=cola", "--do_train", f"--data_dir={directory}",
            f"--vocab_file={directory}/vocab.txt",
            f"--bert_config_file={directory}/bert_config.json",
            f"--store_dir={directory}/store", f"--max_seq_length={length}"]


def _write(directory: str, name: str, lines: List[str]) -> None:
    with open(os.path.join(directory, name), "w") as file:
        file.writelines(f"{line}\n" for line in lines)
