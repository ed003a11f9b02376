"""Texts with slots, their candidates, and small scorers."""

import math
import random
from collections import Counter

import commands
from conftest import WORDS
from rewriting import create_data, run
from rewriting.slot_files import write_slot


def write_slots(path, slots):
    with open(str(path), "w", encoding="utf-8") as file:
        for slot in slots:
            assert write_slot(slot, "jsonl", file)
    return str(path)


def made_up_texts(count: int, seed: int = 0):
    generator = random.Random(seed)
    words = [word for word in WORDS if word.isalpha()]

    def clause():
        return " ".join(generator.choice(words) for _ in range(generator.randint(2, 6)))
    return [", ".join(clause() for _ in range(generator.randint(1, 4))) + "."
            for _ in range(count)]


def create_here(**flags):
    commands.run_here(flags, create_data)


def run_here(model, slots_dir, output_dir, **flags):
    commands.run_here({
        **model._asdict(), "data_dir": slots_dir, "output_dir": output_dir, "max_seq_length": 32,
        "train_batch_size": 4, "num_cpu_replicas": 2, "num_train_epochs": 1,
        "learning_rate": 1e-3, **flags}, run)


def score(query, phrase, phrases):
    """The formula, word for word."""
    mean = sum(len(text.split()) for text in phrases) / len(phrases)
    counts, total = Counter(phrase.split()), 0.0
    for word in query.split():
        having = sum(word in text.split() for text in phrases)
        idf = math.log(1 + (len(phrases) - having + 0.5) / (having + 0.5))
        damping = 1.2 * (1 - 0.75 + 0.75 * len(phrase.split()) / mean)
        total += idf * counts[word] * 2.2 / (counts[word] + damping)
    return total
