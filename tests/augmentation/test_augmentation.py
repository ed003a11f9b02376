"""The augmentation is TinyBERT's algorithm on any replicas, also killed and with bad input."""

import csv
import json
import os
import random
import re
import signal
import subprocess

import numpy as np
import pytest

import processes
from augmentation import run
from augmentation.masked_lm import WordPositions
from augmentations import SETTINGS, augment_here, write_cola
from commands import arguments, ends_with_error
from conftest import on_tensorflow_1, on_tensorflow_2, sentences
from masked_lm import OneAtATime, write_tiny_masked_lm
from task_files import user_task
from tasks.table import TASKS
from tokenization import FullTokenizer

# Of the tiny vocabulary: words of one piece, of several ("cats" is cat ##s), an unknown one.
TEXTS = ["The cat sees old trees .", "Cats likes the small green house ,", "cat", ". , ?",
         "Birds slowly finds a river today , the unlike dogs !", "zebra finds Tree", "the and or",
         "old old old old small", "\"Dog\" sees \" river"]
KEPT = ("the", "a", "and", "or", "not")


@pytest.fixture(scope="module")
def model(tiny_model, tmp_path_factory):
    return write_tiny_masked_lm(tiny_model, tmp_path_factory.mktemp("lm") / "model")


@pytest.fixture(scope="module")
def glove(tmp_path_factory):
    """Vectors of some words of several pieces and their neighbours; "dogs" has none."""
    path = tmp_path_factory.mktemp("glove") / "glove.txt"
    values = np.random.RandomState(1).normal(size=[9, 4])
    path.write_text("".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(
        "cats trees birds unlike kittens parrots zebra forests dislike".split(), values)))
    return str(path)


class Plain:
    """TinyBERT's augmentation as the paper says it: a word, a round, a draw at a time."""

    def __init__(self, model, glove, settings):
        self.tokenizer = FullTokenizer(model.vocab_file)
        self.reference = OneAtATime(model.config()).__enter__().restore(model.init_checkpoint)
        self.vectors = {line.split()[0]: np.array(line.split()[1:], float) for line in open(glove)}
        self.settings = settings

    def masked_words(self, words, index):
        pieces = [self.tokenizer.tokenize(word) for word in words]
        own, = pieces[index]
        pieces[index] = ["[MASK]"]
        ids = self.tokenizer.convert_tokens_to_ids(["[CLS]"] + sum(pieces, []) + ["[SEP]"])
        scores = self.reference.scores(ids, 1 + len(sum(pieces[:index], [])))
        best = self.tokenizer.convert_ids_to_tokens(np.argsort(-scores))
        others = [token for token in best if token.isalpha() and token != own]
        return sorted(others[:self.settings["M"]], key=self.tokenizer.vocab.get)

    def neighbours(self, word):
        def cosine(other):
            a, b = self.vectors[word], self.vectors[other]
            return a @ b / np.sqrt((a @ a) * (b @ b))
        others = [other for other in self.vectors if other != word]
        return sorted(others, key=cosine, reverse=True)[:self.settings["M"]]

    def candidates(self, words, index):
        word = words[index].lower()
        if not word.isalpha() or word in KEPT:
            return None
        if len(self.tokenizer.tokenize(word)) == 1 and self.tokenizer.tokenize(word) != ["[UNK]"]:
            return self.masked_words(words, index)
        return self.neighbours(word) if word in self.vectors else []

    def variants(self, text, line_number):
        words = text.replace('"', ' " ').split()
        found = [text]
        candidates = [self.candidates(words, index) for index in range(len(words))]
        places = [index for index in range(len(words)) if candidates[index] is not None]
        generator = np.random.RandomState([self.settings["seed"], line_number, 0])
        rounds = range(self.settings["N"])
        thresholds = [[generator.random_sample() for _ in places] for _ in rounds]
        draws = [[generator.random_sample() for _ in places] for _ in rounds]
        for round_number in rounds:
            varied = list(words)
            for index, threshold, draw in zip(
                    places, thresholds[round_number], draws[round_number]):
                if threshold < self.settings["p"] and candidates[index]:
                    word = candidates[index][int(draw * len(candidates[index]))]
                    varied[index] = word.capitalize() if words[index].istitle() else word
            variant = " ".join(varied)
            if '"' in text:  # as the text has it
                variant = variant.replace('" ', '"', 1).replace(' "', '"', 1)
            if variant not in found:
                found.append(variant)
        return found


@on_tensorflow_2
def test_it_is_the_plain_algorithm(model, glove, tmp_path):
    plain = Plain(model, glove, SETTINGS)
    expected = [f"x\t{index % 2}\t*\t{variant}" for index, text in enumerate(TEXTS)
                for variant in plain.variants(text, index + 1)]
    write_cola(tmp_path / "cola", TEXTS)
    lines = augment_here(model, tmp_path / "out", task_name="cola", data_dir=tmp_path / "cola",
                         glove_embs=glove)
    assert lines == expected
    assert len(lines) > 3 * len(TEXTS)


def test_replicas_batches_and_pieces_of_work_change_no_byte(model, glove, tmp_path, monkeypatch):
    write_cola(tmp_path / "cola", TEXTS * 3)
    flags = {"task_name": "cola", "data_dir": tmp_path / "cola", "glove_embs": glove}
    expected = augment_here(model, tmp_path / "expected", num_cpu_replicas=2, **flags)
    monkeypatch.setattr(run, "_WORDS_AT_A_TIME", {"CPU": 5})
    assert expected == augment_here(model, tmp_path / "out", num_cpu_replicas=3,
                                    predict_batch_size=1, **flags)
    write_cola(tmp_path / "short", TEXTS)
    assert expected == augment_here(model, tmp_path / "named", **{
        **flags, "data_dir": tmp_path / "short", "train_file": tmp_path / "cola" / "train.tsv"})
    assert expected != augment_here(model, tmp_path / "other", **{**flags, "seed": 8})


def language_model(model, **flags):
    values = run.define_flags()
    values(["augment", *arguments({**model._asdict(), "M": 4, "predict_batch_size": 2,
                                   "num_cpu_replicas": 1, **flags})])
    return run.open_model(values)


def random_places(lengths):
    """Each piece of texts of random pieces."""
    starts = np.cumsum(lengths) - lengths
    return WordPositions(
        np.random.RandomState(0).randint(5, 26, sum(lengths)), np.repeat(starts, lengths),
        np.repeat(lengths, lengths), np.concatenate([np.arange(n) for n in lengths]))


def test_a_long_text_is_seen_through_a_window_around_the_word(model):
    max_seq_length = 8
    places = random_places([600, 5, 38, 39])
    is_word = np.array([token.isalpha() for token in FullTokenizer(model.vocab_file).vocab])
    with language_model(model, max_seq_length=max_seq_length) as lm, OneAtATime(
            model.config()) as reference:
        candidates = lm.candidates(places)
        reference.restore(model.init_checkpoint)
        for index in [*range(0, len(candidates), 37), 18, 19, 20, 580, 599, 604, 605, 681]:
            start, length, position = (column[index] for column in places[1:])
            text = list(places.token_ids[start:start + length])
            width = max_seq_length - 2
            first = min(max(0, position - width // 2), max(0, length - width))
            window = text[first:first + width]
            window[position - first] = 4
            scores = reference.scores([2, *window, 3], position - first + 1)
            scores[~is_word] = scores[text[position]] = -np.inf
            assert candidates[index].tolist() == sorted(np.argsort(-scores)[:4].tolist())


@on_tensorflow_2
def test_both_texts_of_a_pair_vary_beside_the_other_as_it_is(model, tmp_path):
    """In QNLI's file, with its header; one of its answers has 600 tokens."""
    long = " ".join(["old dog sees small river ,"] * 100)
    pairs = [("The cat sees a \"bird\" ?", "old house .", "entailment"),
             ("cat ?", long, "not_entailment")]
    (tmp_path / "qnli").mkdir()
    (tmp_path / "qnli" / "train.tsv").write_text("index\tquestion\tsentence\tlabel\n" + "".join(
        f"{index}\t{a}\t{b}\t{label}\n" for index, (a, b, label) in enumerate(pairs)))
    (tmp_path / "qnli" / "dev.tsv").write_text("the dev set")
    augment_here(model, tmp_path / "out", task_name="qnli", data_dir=tmp_path / "qnli")
    task = TASKS["qnli"].within(str(tmp_path / "out"))
    examples = list(task.train.examples(task.kind))
    for a, b, label in pairs:
        index = task.kind.labels.index(label)
        rows = [row for row in examples if row.texts[0] == a or row.texts[1] == b]
        assert rows[0] == ((a, b), index) and {row.label for row in rows} == {index}
        varied = ([row.texts[0] for row in rows[1:] if row.texts[1] == b],
                  [row.texts[1] for row in rows[1:] if row.texts[0] == a])
        assert len(rows) == 1 + sum(map(len, varied))
        for variants in varied:
            assert 1 <= len(set(variants)) == len(variants) <= SETTINGS["N"]
    assert len([row for row in examples if row.texts[0] == "cat ?"]) == 1 + SETTINGS["N"]
    assert (tmp_path / "out" / "dev.tsv").read_text() == "the dev set"


ROWS = [('He said "the cat, old" ', "x, \"y\"", ["a", "b"]), ("dog\tsees\nriver 'small", "2", [])]


@on_tensorflow_2
@pytest.mark.parametrize("name", ["train.csv", "train.jsonl"])
def test_a_file_of_ones_own_keeps_its_format_its_columns_and_its_labels(name, model, tmp_path):
    (tmp_path / "data").mkdir()
    rows = [("left out", "3", ["a"], "reject"), *((*row, "accept") for row in ROWS)]  # as Prodigy writes them
    with open(str(tmp_path / "data" / name), "w", newline="") as file:
        if name.endswith("csv"):
            csv.writer(file).writerows([("text", "more", "label", "answer"), *(
                (text, more, ",".join(labels), answer) for text, more, labels, answer in rows)])
        else:
            file.writelines(json.dumps(dict(zip(("text", "more", "label", "answer"), row))) + "\n"
                            for row in rows)
    flags = {"label_kind": "multi_label", "text_column": "text"}
    augment_here(model, tmp_path / "out", task_name="file", data_dir=tmp_path / "data", **flags)
    task = user_task(tmp_path / "out", ["train"], **flags)
    assert task.kind.labels == ("a", "b")
    examples = list(task.train.examples(task.kind))
    for text, _, labels in ROWS:
        variants = [row for row in examples
                    if row.texts[0][:2] == text[:2] or "\t" in row.texts[0] and "\t" in text]
        assert variants[0].texts[0] == text and len(variants) >= 3
        assert {tuple(task.kind.labels[index] for index in row.label) for row in variants} == {
            tuple(labels)}
        assert {re.sub(r"[^\W\d_]+", "", row.texts[0]) for row in variants} == {
            re.sub(r"[^\W\d_]+", "", text)}
    if name.endswith("jsonl"):
        lines = (tmp_path / "out" / name).read_text().splitlines()
        assert {json.loads(line)["more"] for line in lines} == {"x, \"y\"", "2"}


# --- As people run it --------------------------------------------------------------------


NUM_ROWS = 200


@pytest.fixture(scope="module")
def flags(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    write_cola(directory / "cola", sentences(NUM_ROWS))
    (directory / "glove.txt").write_text("cats 1 0\ndogs 0 1\ntrees 1 1\n")
    return {**model._asdict(), **SETTINGS, "N": 3, "task_name": "cola",
            "data_dir": directory / "cola", "glove_embs": directory / "glove.txt",
            "num_cpu_replicas": 2, "predict_batch_size": 8}


# Small chunks: as the command is, a test would need a large set to be killed amid it.
PROGRAM = """
import sys
from augmentation import run
from engine.cli import command
run._WORDS_AT_A_TIME = {"CPU": 30}
command.run(run.main, run.define_flags(), usage="", argv=sys.argv)
"""


def start(flags, output_dir, code: str) -> subprocess.Popen:
    return processes.start(
        ["-c", code + PROGRAM, *arguments({**flags, "output_dir": output_dir})],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


def num_lines(path) -> int:
    if not os.path.exists(path):
        return 0
    with open(path) as file:
        return len(file.readlines())


@on_tensorflow_1
def test_killed_and_told_to_end_it_ends_with_the_bytes_of_the_uninterrupted_run(
        model, flags, tmp_path, capsys):
    augment_here(model, tmp_path / "whole", **flags)
    out = tmp_path / "out"
    generator = random.Random(1)
    for number in (signal.SIGKILL, signal.SIGTERM):
        part = str(out / "train.tsv.part")
        wanted = num_lines(part) + generator.randint(1, 150)
        process = start(flags, out, processes.strike(
            number, f"os.path.exists({part!r}) and len(open({part!r}).readlines()) >= {wanted}"))
        said = process.communicate()[1]
        assert process.returncode == (-9 if number == signal.SIGKILL else 143), said
        assert not (out / "train.tsv").exists()
    assert f"of {NUM_ROWS} examples are done; the same command goes on" in said
    assert "Traceback" not in said
    done = int(said.splitlines()[-1].split(": ")[1].split(" ")[0])
    capsys.readouterr()
    augment_here(model, out, **flags)  # with other chunks
    assert f"Augmenting train.tsv: {NUM_ROWS - done} examples in " in capsys.readouterr().err  # and none again
    assert (out / "train.tsv").read_bytes() == (
        tmp_path / "whole" / "train.tsv").read_bytes()
    augment_here(model, out, **flags)
    assert "is whole: nothing is left to do" in capsys.readouterr().err
    assert sorted(os.listdir(str(out))) == ["train.tsv", "train.tsv.json"]


@pytest.mark.parametrize("changes, words", [
    ({"glove_embs": "broken.txt"}, ("broken.txt, line 2", "must be a word and 2 numbers")),
    ({"init_checkpoint": "encoder"}, ("no masked-LM head (cls/predictions/...)",)),
    ({"vocab_file": "unmasked.txt"}, ("unmasked.txt lacks [MASK]",)),
    ({"M": 20}, ("--M=20", "only 21 words")),
    ({"p": 1.5}, ("--p=1.5", "between 0 and 1")),
    ({"max_seq_length": 41}, ("--max_seq_length=41", "only 40 positions")),
    ({"output_dir": "good"}, ("--output_dir: good/train.tsv is also an input",)),
    ({"output_dir": "other"}, ("other/train.tsv has no record of what it was made from", "name another output")),
    ({"output_dir": "sets"}, ("sets/dev.tsv is another file than good/dev.tsv, which is copied there",)),
])
def test_wrong_input_is_one_line(
        changes, words, model, tiny_model, flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_cola(tmp_path / "good", ["old cat", "small dog"])
    write_cola(tmp_path / "other", ["mine"])
    for folder in ("good", "sets"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "dev.tsv").write_text(f"x\t1\t*\t{folder}\n")
    (tmp_path / "broken.txt").write_text("cats 1 0\ndogs 0 o.5\n")
    with open(model.vocab_file) as file:
        (tmp_path / "unmasked.txt").write_text(file.read().replace("[MASK]", "[mask]"))
    if "init_checkpoint" in changes:
        changes = {"init_checkpoint": tiny_model.init_checkpoint}
    with ends_with_error(capsys, *words):
        augment_here(model, tmp_path / "out", **{**flags, "data_dir": "good", **changes})
    assert not (tmp_path / "out" / "train.tsv").exists()
    assert (tmp_path / "sets" / "dev.tsv").read_text().endswith("sets\n")
