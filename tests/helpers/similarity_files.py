"""Files of texts that belong together, for trainings of vectors."""

import json
import os
import shutil
from typing import Sequence

from conftest import TinyModel, sentences


def write_model(folder, model: TinyModel, **entries):
    """A model for similarity that nobody trained, with these entries of task.json; its folder."""
    shutil.copytree(os.path.dirname(model.vocab_file), str(folder))
    (folder / "task.json").write_text(json.dumps({
        "kind": "similarity", "pooling": "mean", "query_prefix": "", "matryoshka": [],
        "do_lower_case": True, "max_seq_length": 24, **entries}))
    return folder


def pairs(count: int, seed: int = 0):
    """Rows of an anchor, its positive and a hard negative; some have equal texts."""
    anchors, positives, negatives = (sentences(count, 3 * seed + place) for place in range(3))
    positives = [positives[number % max(1, count // 2)] for number in range(count)]
    for number in range(3, count, 9):
        anchors[number], negatives[number] = anchors[number - 2], positives[number - 1]
    return list(zip(anchors, positives, negatives))


def scored(count: int, seed: int = 0):
    """Rows of two texts and how many of all their words they share, from 0 to 1."""
    found = []
    for first, second in zip(sentences(count, 2 * seed), sentences(count, 2 * seed + 1)):
        words = set(first.split()), set(second.split())
        found.append((first, second, f"{len(words[0] & words[1]) / len(words[0] | words[1]):.2f}"))
    return found


def write(path, rows: Sequence[Sequence[str]], header: Sequence[str] = ()):
    """Writes rows separated by tabs; returns the path."""
    path.write_text("".join("\t".join(row) + "\n" for row in ([header] if header else []) + list(rows)))
    return path
