"""Commands with all that they read: files that a user supplies, and files of earlier runs."""

import json
import os
import random
import shutil
import sys
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from benchmarks import toy_task
from benchmarks.fuzzing import commands

LENGTH = 16
EXAMPLES = 24
VOCAB_SIZE = 40
_WORDS = [letter * 3 for letter in "bcdefghijklmnop"]

Flags = Dict[str, Any]


class Scene(NamedTuple):
    """A command that succeeds in about a second, if its files are not damaged.

    They are those of a folder, which stands in flags as {}.
    """
    name: str
    module: str
    flags: Flags
    files: Tuple[str, ...]  # those to damage: paths in the folder, or beginnings of them
    # Beginnings of the names of files with checksums, or that are made again: if one is damaged and
    # the command succeeds, the results are as without the damage.
    checked: Tuple[str, ...] = ()
    results: Tuple[str, ...] = ()
    folder: str = ""  # from which it is copied

    def arguments(self, folder: str) -> List[str]:
        """The command's arguments, for files in a folder."""
        return [f"--{name}={str(value).replace('{}', folder)}"
                for name, value in self.flags.items()]

    def copy_to(self, folder: str) -> str:
        """Makes the folder a copy of the scene's files, whatever was there; returns it."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        return folder


_MODEL = dict(vocab_file="{}/task/vocab.txt", bert_config_file="{}/task/bert_config.json")
_TRAIN = dict(do_train=True, num_cpu_replicas=1, train_batch_size=8, max_seq_length=LENGTH,
              num_train_epochs=1, learning_rate=1e-3, output_dir="{}/new", store_dir="{}/store")
_CLASSIFY = dict(_TRAIN, **_MODEL, task_name="cola", data_dir="{}/task", num_train_epochs=2,
                 save_checkpoints_steps=2, eval_every_steps=2, do_eval=True, do_predict=True,
                 output_dir="{}/out")
_PRETRAIN = dict(
    {name: value for name, value in _TRAIN.items() if name != "num_train_epochs"}, **_MODEL,
    input_file="{}/data.tfrecord", do_eval=True, max_eval_steps=2, num_train_steps=2,
    num_warmup_steps=1, max_predictions_per_seq=3)
_CHECKED = ("out/model.ckpt-", "store/", "out/checkpoint")
_RESULTS = ("out/eval_results.txt", "out/predict.txt", "out/test_results.tsv")


def prepare(folder: str) -> List[Scene]:
    """Makes the scenes' files in a folder, whatever was there, some of them by commands."""
    shutil.rmtree(folder, ignore_errors=True)
    scenes: List[Scene] = []
    for make in (_classifier, _own_data, _conversion, _distillation, _pretraining, _features,
                 _augmentation, _reading, _tagging, _rewriting):
        base = os.path.join(folder, make.__name__.strip("_"))
        scenes += [scene._replace(folder=base) if not scene.folder else scene
                   for scene in make(base)]
    return scenes


def _copy(made: str, base: str) -> None:
    """Begins a folder with what another function has made in its own."""
    shutil.copytree(os.path.join(os.path.dirname(base), made), base)


def _run(module: str, flags: Flags, base: str) -> None:
    arguments = Scene("", module, flags, ()).arguments(base)
    ended = commands.run(module, arguments, f"{base}.log", cwd=base)
    if ended.status:
        sys.exit(f"{module}: {ended.said}")


def _write(base: str, name: str, lines: Sequence[Any]) -> None:
    with open(os.path.join(base, name), "w", encoding="utf-8") as file:
        file.writelines(f"{line if isinstance(line, str) else json.dumps(line)}\n"
                        for line in lines)


def _sentences(count: int, seed: int = 0, last: str = "") -> List[str]:
    generator = random.Random(seed)
    return [" ".join(f"w{generator.randrange(VOCAB_SIZE - 5)}"
                     for _ in range(generator.randint(2, 12))) + last for _ in range(count)]


def _write_model(base: str) -> None:
    """CoLA's three sets in base/task, with a vocabulary and a config.

    Some words of the vocabulary have letters only, as augmentation asks of words.
    """
    task = os.path.join(base, "task")
    os.makedirs(task)
    toy_task.write(task, examples=EXAMPLES, length=12, layers=1, hidden=16, vocab_size=VOCAB_SIZE,
                   dropout=0.1)
    _write(task, "vocab.txt", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS, *(
        f"w{number}" for number in range(VOCAB_SIZE - 5 - len(_WORDS)))])
    shutil.copy(os.path.join(task, "train.tsv"), os.path.join(task, "dev.tsv"))
    _write(task, "test.tsv", ["index\tsentence"] + [
        f"{number}\t{text}" for number, text in enumerate(_sentences(9))])


def _classifier(base: str) -> List[Scene]:
    _write_model(base)
    _run("run_classifier", _CLASSIFY, base)
    of_run = ("out/model.ckpt-6", "out/checkpoint", "out/run.json", "out/task.json",
              "out/evaluations.json", "out/vocab.txt", "out/bert_config.json")
    half = f"{base}_half"
    shutil.copytree(base, half)
    for name in os.listdir(os.path.join(base, "out")):
        if name.startswith(("eval_results", "predict", "test_results", "report")):
            os.remove(os.path.join(base, "out", name))
            os.remove(os.path.join(half, "out", name))
        elif name.startswith("model.ckpt-6"):
            os.remove(os.path.join(half, "out", name))
    _write(base, "texts.txt", _sentences(9))
    later = dict(output_dir="{}/out", store_dir="{}/store")
    return [
        Scene("evaluating", "run_classifier",
              dict(later, do_eval=True, do_predict=True, data_dir="{}/task", task_name="cola",
                   num_cpu_replicas=1),
              (*of_run, "task/dev.tsv", "task/test.tsv", "store/"), _CHECKED, _RESULTS),
        Scene("resuming", "run_classifier", _CLASSIFY,
              ("out/model.ckpt-", "out/checkpoint", "out/run.json", "out/evaluations.json",
               "out/task.json", "store/", "task/"), _CHECKED, _RESULTS, half),
        Scene("exporting", "run_classifier", dict(output_dir="{}/out", do_export=True), of_run),
        Scene("predicting", "runs.predict",
              dict(output_dir="{}/out", input_file="{}/texts.txt", output_file="{}/new.tsv",
                   header=False, num_cpu_replicas=1), (*of_run, "texts.txt"))]


def _own_data(base: str) -> List[Scene]:
    _write_model(base)
    _write(base, "train.jsonl", [{"text": text, "label": ["a", "b"][number % 2]}
                                 for number, text in enumerate(_sentences(EXAMPLES))])
    _write(base, "dev.csv", ["text,label"] + [f'"{text}",a' for text in _sentences(8)])
    flags = dict(_TRAIN, **_MODEL, task_name="file", train_file="{}/train.jsonl",
                 dev_file="{}/dev.csv", do_eval=True)
    return [Scene("own data", "run_classifier", flags,
                  ("train.jsonl", "dev.csv", "task/vocab.txt", "task/bert_config.json"))]


def _conversion(base: str) -> List[Scene]:
    _copy("classifier", base)
    _run("encoder.convert", dict(from_tensorflow="{}/out", output_dir="{}/hf"), base)
    return [
        Scene("from Hugging Face", "encoder.convert",
              dict(from_huggingface="{}/hf", output_dir="{}/new"), ("hf/",)),
        Scene("to Hugging Face", "encoder.convert",
              dict(from_tensorflow="{}/out", output_dir="{}/new"),
              ("out/model.ckpt-6", "out/checkpoint", "out/task.json", "out/vocab.txt",
               "out/bert_config.json"))]


def _pretraining(base: str) -> List[Scene]:
    _write_model(base)
    _write(base, "text.txt", [line for number, text in enumerate(_sentences(30))
                              for line in ([text] if number % 6 else [text, ""])])
    data = dict(input_file="{}/text.txt", output_file="{}/new.tfrecord", num_processes=1,
                vocab_file=_MODEL["vocab_file"], max_seq_length=LENGTH, dupe_factor=1,
                max_predictions_per_seq=3)
    _run("pretraining.create_data", {**data, "output_file": "{}/data.tfrecord"}, base)
    return [Scene("creating data", "pretraining.create_data", data, ("text.txt", "task/vocab.txt")),
            Scene("pretraining", "pretraining.run", _PRETRAIN,
                  ("data.tfrecord", "data.tfrecord", "task/bert_config.json"))]


def _distillation(base: str) -> List[Scene]:
    _copy("classifier", base)
    flags = dict(_TRAIN, stage="prediction", teacher="{}/out", student="1,16,1,32", do_eval=True,
                 task_name="cola", data_dir="{}/task")
    return [Scene("distilling", "distillation.run", flags,
                  ("out/model.ckpt-6", "out/checkpoint", "out/task.json", "out/vocab.txt",
                   "out/bert_config.json", "task/"))]


def _features(base: str) -> List[Scene]:
    _copy("pretraining", base)
    _run("pretraining.run", _PRETRAIN, base)
    _write(base, "texts.txt", _sentences(9))
    return [Scene("features", "extract_features",
                  dict(init_checkpoint="{}/new", input_file="{}/texts.txt", layers="-1",
                       vocab_file="{}/new/vocab.txt", bert_config_file="{}/new/bert_config.json",
                       output_file="{}/features.jsonl", max_seq_length=LENGTH, num_cpu_replicas=1),
                  ("texts.txt", "new/model.ckpt", "new/vocab.txt", "new/bert_config.json",
                   "new/checkpoint"))]


def _augmentation(base: str) -> List[Scene]:
    _copy("features", base)
    _write(base, "glove.txt", [f"{word} {number / 7} 1 0" for number, word in enumerate(_WORDS)])
    _write(base, "task/train.tsv", [f"x\t{number % 2}\t\tbbb {text} ddd"
                                    for number, text in enumerate(_sentences(EXAMPLES))])
    return [Scene("augmenting", "augmentation.run",
                  dict(task_name="cola", data_dir="{}/task", init_checkpoint="{}/new", N=1, M=2,
                       glove_embs="{}/glove.txt", output_dir="{}/augmented", num_cpu_replicas=1),
                  ("glove.txt", "glove.txt", "task/train.tsv", "new/model.ckpt", "new/vocab.txt",
                   "new/bert_config.json"))]


def _reading(base: str) -> List[Scene]:
    _write_model(base)
    paragraphs = []
    for number, context in enumerate(_sentences(6, last=" w1 w2 w3")):
        answer = context.split()[1]
        paragraphs.append({"context": context, "qas": [{
            "id": f"q{number}", "question": "w1 w2 ?", "is_impossible": number == 2,
            "answers": [{"text": answer, "answer_start": context.index(answer)}]}]})
    for name in ("train.json", "dev.json"):
        _write(base, name, [{"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}])
    flags = dict(_TRAIN, **_MODEL, train_file="{}/train.json", predict_file="{}/dev.json",
                 do_predict=True, do_eval=True, version_2_with_negative=True, max_query_length=4,
                 doc_stride=4, train_batch_size=4)
    return [Scene("reading", "run_squad", flags,
                  ("train.json", "dev.json", "task/vocab.txt", "task/bert_config.json"))]


def _tagging(base: str) -> List[Scene]:
    _write_model(base)
    for name in ("train", "dev", "test"):
        _write(base, f"{name}.conll", [line for text in _sentences(16) for line in [
            *(f"{word} {'B-X' if word < 'w2' else 'O'}" for word in text.split()), ""]])
    lines = []
    for text in _sentences(12):
        word = text.split()[0]
        lines.append({"text": text, "label": {"X": {word: [[0, len(word) - 1]]}}})
    _write(base, "lines.jsonl", lines)
    flags = dict(_TRAIN, **_MODEL, do_eval=True, do_predict=True)
    return [
        Scene("tagging", "tagging.run",
              dict(flags, train_file="{}/train.conll", dev_file="{}/dev.conll",
                   test_file="{}/test.conll"), ("train.conll", "dev.conll", "test.conll")),
        Scene("tagging lines", "tagging.run",
              dict(flags, train_file="{}/lines.jsonl", dev_file="{}/dev.conll", do_predict=False),
              ("lines.jsonl",))]


def _rewriting(base: str) -> List[Scene]:
    _write_model(base)
    _write(base, "texts.txt", [f"{one}, {other}." for one, other in zip(
        _sentences(60), _sentences(60, seed=1))])
    slots = dict(input_file="{}/texts.txt", output_dir="{}/slots", num_negatives=1)
    _run("rewriting.create_data", slots, base)
    flags = dict(_TRAIN, **_MODEL, data_dir="{}/slots", do_eval=True)
    _run("rewriting.run", dict(flags, output_dir="{}/ranker", store_dir="{}/ranker/store"), base)
    _write(base, "pool.txt", _sentences(20, seed=2))
    _write(base, "inputs.txt", [f"{one}, {other}." for one, other in zip(
        _sentences(70, seed=3), _sentences(70, seed=4))])  # more than are rewritten at a time
    return [Scene("making slots", "rewriting.create_data", {**slots, "output_dir": "{}/new"},
                  ("texts.txt",)),
            Scene("ranking", "rewriting.run", flags, ("slots/",)),
            Scene("rewriting", "rewriting.rewrite",
                  dict(output_dir="{}/ranker", pool_file="{}/pool.txt", input_file="{}/inputs.txt",
                       output_file="{}/rewrites.tsv", num_candidates=4, num_cpu_replicas=1),
                  ("pool.txt", "inputs.txt", "ranker/model.ckpt", "ranker/task.json",
                   "ranker/bert_config.json", "ranker/vocab.txt", "ranker/checkpoint"))]
