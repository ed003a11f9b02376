"""The sets of `benchmarks.quality`: their files, our command and the peer's, and what they are measured by.

Three sets need files that are not in SHARED_DATA:
  emoji: the environment variable EMOJI_JSON names emoji.json of the npm package emoji.json 16.0.0;
  r52: R52_TXT names data/R52/test.txt of the GitHub repository yao8839836/text_gcn;
  mrpc: glue/MRPC/train.tsv and dev.tsv in --data are Microsoft's msr_paraphrase_train.txt and _test.txt.
"""

import collections
import itertools
import json
import os
import random
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from engine.data import text_files
from engine.disk import files

EXAMPLES, QUESTIONS = 2000, 2000
FOLDER = "{folder}"  # in a flag: where the parts of a set are
NEAR, FEWEST, MOST = 200, 5, 40  # lines around a sentence that has a next one; words of it

Write = Callable[[str, str], None]  # (--data, a folder) writes the parts of a set


def _nothing(data: str, folder: str) -> None:
    """Of a set that is read where it is."""


class DataSet(NamedTuple):
    """A training set, with its dev set."""
    ours: Tuple[str, ...]  # the command, which `benchmarks.quality` continues
    peer: Tuple[str, ...]  # its module and flags; (): there is none
    metrics: Tuple[str, ...]
    epochs: float
    batch_size: int = 16  # of a step
    write: Write = _nothing


def _part_of_glue(name: str, num_headers: int, dev: str = "dev") -> Write:
    """Writes training examples drawn by chance, and so many of the dev set, or all if there are fewer."""
    def write(data: str, folder: str) -> None:
        for part in ("train", dev):
            with open(f"{data}/glue/{name}/{part}.tsv", encoding="utf-8", newline="\n") as file:
                head, rows = list(itertools.islice(file, num_headers)), list(file)
            if len(rows) > EXAMPLES:
                rows = random.Random(0).sample(rows, EXAMPLES)
            files.write_text(f"{folder}/{part}.tsv", "".join(head + rows))
    return write


def _write_questions(data: str, folder: str) -> None:
    """Some paragraphs of New-Wiki, with so many questions."""
    with open(f"{data}/qa_en/newwiki_train.json", encoding="utf-8") as file:
        squad = json.load(file)
    paragraphs = [paragraph for article in squad["data"] for paragraph in article["paragraphs"]]
    random.Random(0).shuffle(paragraphs)
    ends = np.cumsum([len(paragraph["qas"]) for paragraph in paragraphs])
    part = paragraphs[:np.searchsorted(ends, QUESTIONS, side="right")]
    files.write_json(os.path.join(folder, "train.json"),
                     {"version": "1.1", "data": [{"title": "part", "paragraphs": part}]})


def _write_labelled(folder: str, rows: List[Tuple[str, str]], num_dev: int) -> None:
    """Writes texts with their labels, the dev set drawn by chance."""
    random.Random(0).shuffle(rows)
    seen = {label for _, label in rows[num_dev:]}
    for name, part in (("train", rows[num_dev:]), ("dev", [row for row in rows[:num_dev] if row[1] in seen])):
        files.write_text(f"{folder}/{name}.tsv", "sentence\tlabel\n" + "".join(
            "\t".join(" ".join(field.split()) for field in row) + "\n" for row in part))


def _write_topics(data: str, folder: str) -> None:
    """Questions of New-Wiki, 30 to 300 about each of 15 articles."""
    with open(f"{data}/qa_en/newwiki_train.json", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    rows: List[Tuple[str, str]] = []
    for number, article in enumerate(articles[:15]):
        questions = [asked["question"] for paragraph in article["paragraphs"] for asked in paragraph["qas"]]
        rows += [(question, article["title"]) for question in questions[:30 + 270 * number // 14]]
    _write_labelled(folder, rows, len(rows) // 4)


def _write_news(data: str, folder: str) -> None:
    """1,600 reports of Reuters, their 47 classes as uneven as they are: half of them with at most five."""
    with open(os.environ["R52_TXT"], encoding="utf-8") as file:
        rows = [tuple(line.rstrip("\n").split("\t")[::-1]) for line in file]
    _write_labelled(folder, random.Random(0).sample(rows, 1600), 400)


def _write_types(data: str, folder: str) -> None:
    """Sentences of CoNLL-2003, with the types of entities that they name: any number of four."""
    for name, part in (("train", "train_first5000"), ("dev", "testa_first1200")):
        with open(f"{data}/ner_en/conll2003_{part}.txt", encoding="utf-8") as file:
            sentences = [[line.split() for line in block.splitlines()] for block in file.read().split("\n\n")]
        files.write_text(f"{folder}/{name}.tsv", "sentence\tlabels\n" + "".join(
            " ".join(word[0] for word in words) + "\t"
            + ",".join(sorted({word[-1][2:] for word in words} - {""})) + "\n"
            for words in sentences[:EXAMPLES] if words and words[0][0] != "-DOCSTART-"))


def _write_emoji(data: str, folder: str) -> None:
    """Names of emoji with their subgroups, of which each has at least 12: 55 classes, the largest with 258 flags."""
    with open(os.environ["EMOJI_JSON"], encoding="utf-8") as file:
        rows = {(each["name"], each["subgroup"]) for each in json.load(file) if "skin tone" not in each["name"]}
    names = collections.Counter(subgroup for _, subgroup in rows)
    _write_labelled(folder, sorted(row for row in rows if names[row[1]] >= 12), 400)


def _next_sentences(sentences: Sequence[str], count: int, seed: int) -> Iterator[Dict[str, object]]:
    """So many questions; sentences are lines, and a blank one ends a paragraph."""
    generator = random.Random(seed)
    usable = [FEWEST <= len(sentence.split()) <= MOST for sentence in sentences]
    places = [place for place in range(len(sentences) - 1) if usable[place] and usable[place + 1]]
    for place in generator.sample(places, count):
        others = [other for other in range(max(0, place - NEAR), min(len(sentences), place + NEAR))
                  if usable[other] and other not in (place, place + 1)]
        choices = [place + 1, *generator.sample(others, 3)]
        generator.shuffle(choices)
        yield {"question": sentences[place], "choices": [sentences[choice] for choice in choices],
               "answer": choices.index(place + 1)}


def _write_choices(data: str, folder: str) -> None:
    """5,000 questions which of four sentences of a book comes next; the dev set is from its last tenth."""
    sentences = [line.strip() for _, line in text_files.lines(f"{data}/pretrain/en_books.txt")]
    end = len(sentences) * 9 // 10
    for name, part, count in (("train", sentences[:end], 4000), ("dev", sentences[end:], 1000)):
        files.write_text(f"{folder}/{name}.jsonl", "".join(
            json.dumps(question, ensure_ascii=False) + "\n" for question in _next_sentences(part, count, seed=len(name))))


def _classifier(task: str, metrics: Tuple[str, ...], epochs: float, write: Write = _nothing, folder: str = FOLDER
                ) -> DataSet:
    return DataSet(("run_classifier.py", f"--task_name={task}", f"--data_dir={folder}"),
                   ("benchmarks.peers.huggingface", f"--task={task}", f"--data_dir={folder}", "--epochs={epochs}"),
                   metrics, epochs, 32, write)


def _own_file(name: str, metric: str, epochs: float, write: Write, *more: str) -> DataSet:
    return DataSet(("run_classifier.py", "--task_name=file", f"--data_dir={FOLDER}", *more),
                   ("benchmarks.peers.huggingface", f"--task={name}", f"--data_dir={FOLDER}", "--epochs={epochs}"),
                   (metric,), epochs, write=write)


def _tagger(train: str, dev: str, epochs: float) -> DataSet:
    sets = f"--train_file={train}", f"--dev_file={dev}"
    return DataSet(("-m", "tagging.run", *sets), ("benchmarks.peers.huggingface_ner", *sets, "--epochs={epochs}"),
                   ("f1",), epochs)


def _reader(train: str, dev: str, epochs: float, *more: str, write: Write = _nothing) -> DataSet:
    """Windows of 192 tokens that advance by about 96."""
    return DataSet(("run_squad.py", "--max_seq_length=192", "--doc_stride=96", "--max_query_length=32",
                    f"--train_file={train}", f"--predict_file={dev}", *more),
                   ("benchmarks.peers.huggingface_qa", "--max_seq_length=192", "--doc_stride=80", "--num_steps={steps}",
                    f"--train_file={train}", f"--dev_file={dev}", "--output_file={out}.json", *more),
                   ("f1",), epochs, write=write)


_CLUENER = "{data}/ner_zh/cluener_"
_CONLL = "{data}/ner_en/conll2003_"
_RESUME = "{data}/ner_zh/resume_"
_QUESTIONS = "{data}/qa_en/"
_CHOICES = f"--train_file={FOLDER}/train.jsonl", f"--dev_file={FOLDER}/dev.jsonl", "--max_seq_length=96"
_COLA, _STS_B = ("accuracy", "matthews_correlation"), ("pearson", "spearman", "r2")
SETS: Dict[str, DataSet] = {
    "cola": _classifier("cola", _COLA, 2, _part_of_glue("CoLA", 0)),
    "sst-2": _classifier("sst-2", ("accuracy",), 1, _part_of_glue("SST-2", 1)),
    "sts-b": _classifier("sts-b", _STS_B, 1, _part_of_glue("STS-B", 1)),
    "whole-cola": _classifier("cola", _COLA, 3, folder="{data}/glue/CoLA"),
    "whole-sst-2": _classifier("sst-2", ("accuracy",), 0.1, folder="{data}/glue/SST-2"),
    "whole-sts-b": _classifier("sts-b", _STS_B, 3, folder="{data}/glue/STS-B"),
    "mrpc": _classifier("mrpc", ("accuracy",), 2, _part_of_glue("MRPC", 1))._replace(peer=()),
    "mnli": _classifier("mnli", ("accuracy",), 1, _part_of_glue("MNLI", 1, "dev_matched"))._replace(peer=()),
    "topics": _own_file("topics", "macro_f1", 2, _write_topics),
    "emoji": _own_file("emoji", "macro_f1", 2, _write_emoji),
    "r52": _own_file("r52", "macro_f1", 1.5, _write_news),
    "types": _own_file("types", "micro_f1", 1, _write_types, "--label_kind=multi_label")._replace(peer=()),
    "cluener": _tagger(f"{_CLUENER}train_first5000.json", f"{_CLUENER}dev.json", 0.5),
    "conll": _tagger(f"{_CONLL}train_first5000.txt", f"{_CONLL}testa_first1200.txt", 1),
    "resume": _tagger(f"{_RESUME}train_first1000.char.bmes", f"{_RESUME}dev.char.bmes", 3),
    "new-wiki": _reader(f"{FOLDER}/train.json", f"{_QUESTIONS}newwiki_dev.json", 0.5, write=_write_questions),
    "whole-new-wiki": _reader(f"{_QUESTIONS}newwiki_train.json", f"{_QUESTIONS}newwiki_dev.json", 0.5),
    "squad-2": _reader(f"{_QUESTIONS}squad2_train.json", f"{_QUESTIONS}squad2_dev.json", 1.5,
                       "--version_2_with_negative"),
    "choice": DataSet(("-m", "choice.run", *_CHOICES),
                      ("benchmarks.peers.huggingface_choice", "--num_steps={steps}", *_CHOICES),
                      ("accuracy",), 1, write=_write_choices)}
