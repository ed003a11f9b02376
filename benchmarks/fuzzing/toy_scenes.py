"""The scenes: each toy run of the tests, and the other commands on the files and models of those.

A command that trains has a scene when it has a row in `tests/helpers/toy_runs.py`. To import this
configures TensorFlow's devices.
"""

import glob
import importlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

from benchmarks import report
from benchmarks.fuzzing.scenes import Flags, Scene

sys.path[:0] = [os.path.join(report.ROOT, "tests"), os.path.join(report.ROOT, "tests", "helpers")]

import toy_runs  # noqa: E402
from commands import run_here  # noqa: E402
from conftest import WORDS, sentences, write_tiny_model  # noqa: E402
from rewriting_files import made_up_texts  # noqa: E402

_CLASSIFIER, _MASKED_LM, _RANKER = _OWN = "run_classifier", "pretraining.run", "rewriting.run"
# Of a folder with a model: beginnings of the names of what describes and holds it.
_MODEL = ("model.ckpt", "checkpoint", "task.json", "vocab.txt", "bert_config.json", "run.json",
          "evaluations.json")
_RESULTS = ("eval_results.txt", "predict.txt", "test_results.tsv")
_NEW, _ONE = dict(output_dir="{}/new"), dict(num_cpu_replicas=1)
_TRAINED = dict(output_dir=f"{{}}/{_CLASSIFIER}")
# The commands that do not train, on what the trained ones have written and on `_files`.
_OTHERS: Dict[str, Tuple[str, Flags]] = {
    "exporting": ("run_classifier", dict(_TRAINED, do_export=True)),
    "predicting": ("runs.predict", dict(
        _TRAINED, **_ONE, input_file="{}/lines.txt", output_file="{}/new.tsv", header=False)),
    "from Hugging Face": ("encoder.convert", dict(_NEW, from_huggingface="{}/hf")),
    "to Hugging Face": ("encoder.convert", dict(_NEW, from_tensorflow=f"{{}}/{_CLASSIFIER}")),
    "creating data": ("pretraining.create_data", dict(
        input_file="{}/text.txt", output_file="{}/new.tfrecord", num_processes=1, dupe_factor=1,
        vocab_file="{}/model/vocab.txt", max_seq_length=16, max_predictions_per_seq=3)),
    "making slots": ("rewriting.create_data", dict(_NEW, input_file="{}/texts.txt", num_negatives=1)),
    "features": ("extract_features", dict(
        init_checkpoint=f"{{}}/{_MASKED_LM}", layers="-1", **_ONE, input_file="{}/lines.txt",
        output_file="{}/features.jsonl", max_seq_length=16)),
    "augmenting": ("augmentation.run", dict(
        task_name="cola", data_dir="{}/cola", init_checkpoint=f"{{}}/{_MASKED_LM}", N=1, M=2, **_ONE,
        glove_embs="{}/glove.txt", output_dir="{}/augmented")),
    "rewriting": ("rewriting.rewrite", dict(
        output_dir=f"{{}}/{_RANKER}", pool_file="{}/slots/pool.txt", **_ONE,
        input_file="{}/inputs.txt", output_file="{}/rewrites.tsv", num_candidates=4))}


def make(folder: str) -> List[Scene]:
    """Makes the scenes and their files, in a folder below this one."""
    base, half = Path(folder, "whole"), Path(folder, "half")
    (base / "model").mkdir(parents=True)
    for name, lines in _files().items():
        (base / name).write_text("".join(
            f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    runs = _trainings(base)
    for name in os.listdir(str(base / _CLASSIFIER)):
        if name.startswith(("eval_results", "predict", "test_results", "report")):
            (base / _CLASSIFIER / name).unlink()
    shutil.copytree(str(base), str(half))
    for path in glob.glob(f"{half / _CLASSIFIER}/model.ckpt-8*"):
        os.remove(path)
    _run("encoder.convert", dict(from_tensorflow=f"{{}}/{_CLASSIFIER}", output_dir="{}/hf"), base)

    def scene(name: str, module: str, flags: Flags, of: Path = base, **more: Any) -> Scene:
        return Scene(name, module, flags, str(of), **{"files": _files_of(flags, base), **more})

    resumed = runs[_CLASSIFIER]
    evaluated = dict(resumed, do_train=False)
    own = {name: value for name, value in resumed.items() if name != "data_dir"}
    own.update(_NEW, task_name="file", do_predict=False, train_file="{}/train.jsonl", dev_file="{}/dev.csv")
    tagged = dict(runs["tagging.run --crf"], **_NEW, do_predict=False, train_file="{}/tags.jsonl")
    of_run = dict(checked=("store/", *_below(_CLASSIFIER, "model.ckpt-", "checkpoint")),
                  results=_below(_CLASSIFIER, *_RESULTS))
    return [
        *(scene(run, run.split(" ")[0], {**flags, **_NEW}) for run, flags in runs.items()
          if run != _CLASSIFIER),
        scene("evaluating", "run_classifier", evaluated,
              files=(*_files_of(evaluated, base), "store/"), **of_run),
        scene("resuming", "run_classifier", resumed, half,
              files=(*_files_of(resumed, half), "store/"), **of_run),
        scene("own data", "run_classifier", own),
        scene("tagging lines", "tagging.run", tagged, files=("tags.jsonl",)),
        *(scene(name, module, flags) for name, (module, flags) in _OTHERS.items())]


def _files() -> Dict[str, List[Any]]:
    """Other formats of a user's own files, and what commands read besides: the lines, by name."""
    texts = sentences(32, seed=4)
    return {
        "lines.txt": sentences(30), "inputs.txt": made_up_texts(70, seed=3),  # more than one batch of them
        "text.txt": [line for number, text in enumerate(sentences(30, seed=5))
                     for line in ([text] if number % 6 else [text, ""])],
        "train.jsonl": [{"text": text, "label": "ab"[number % 2]} for number, text in enumerate(texts)],
        "dev.csv": ["text,label", *(f'"{text}",a' for text in texts[:8])],
        "tags.jsonl": [{"text": f"the cat or {text}",
                        "label": {"ANIMAL": {"cat": [[4, 6]]}, "PLACE": {"the": [[0, 2]]}}}
                       for text in texts],
        "glove.txt": [f"{word} {number / 7} 1 0" for number, word in enumerate(
            word for word in WORDS if word.isalpha())]}


def _trainings(base: Path) -> Dict[str, Flags]:
    """Trains what other scenes read; returns the flags of each run, with evaluation and prediction."""
    model, runs = write_tiny_model(base / "model", num_hidden_layers=1), {}
    for run in toy_runs.RUNS:
        known = toy_runs.module_of(run).define_flags()
        flags = {**toy_runs.flags_of(run, base, model), **_ONE, "train_batch_size": 20,
                 "store_dir": base / "store", "do_eval": "teacher" not in known, "do_predict": True}
        if run == _CLASSIFIER:
            flags.update(save_checkpoints_steps=2, eval_every_steps=2)
        runs[run] = {name: str(value).replace(str(base), "{}") for name, value in flags.items()
                     if name in known}
    read = {flags.get(name) for flags in runs.values() for name in ("teacher", "student")}
    for run, flags in runs.items():
        if run in _OWN or flags["output_dir"] in read:
            _run(run.split(" ")[0], flags, base)
    return runs


def _run(module: str, flags: Flags, base: Path) -> None:
    run_here({name: str(value).replace("{}", str(base)) for name, value in flags.items()},
             importlib.import_module(module))


def _files_of(flags: Flags, base: Path) -> Tuple[str, ...]:
    """The files that flags name and that are there, a store's left out; of a model's folder, its own."""
    paths = [str(value)[len("{}/"):] for name, value in flags.items()
             if str(value).startswith("{}/") and name != "store_dir"]
    return tuple(file for path in paths for file in (
        _below(path, *_MODEL) if (base / path / "bert_config.json").exists() else [path])
        if glob.glob(f"{base / file}*"))


def _below(folder: str, *names: str) -> Tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)
