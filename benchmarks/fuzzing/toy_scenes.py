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
from typing import Any, Dict, List, Sequence, Tuple

from benchmarks import report
from benchmarks.fuzzing.scenes import Flags, Scene

sys.path[:0] = [os.path.join(report.ROOT, "tests"), os.path.join(report.ROOT, "tests", "helpers")]

import toy_runs  # noqa: E402
from commands import run_here  # noqa: E402
from conftest import WORDS, sentences, write_tiny_model  # noqa: E402
from rewriting_files import made_up_texts  # noqa: E402

_CLASSIFIER, _MASKED_LM, _RANKER, _TAGGER = (
    "run_classifier", "pretraining.run", "rewriting.run", "tagging.run --crf")
_MODEL = ("model.ckpt", "checkpoint", "task.json", "vocab.txt", "bert_config.json")
_RUN = (*_MODEL, "run.json", "evaluations.json")
_RESULTS = ("eval_results.txt", "predict.txt", "test_results.tsv")
_NEW, _ONE = dict(output_dir="{}/new"), dict(num_cpu_replicas=1)


def make(folder: str) -> List[Scene]:
    """Makes the scenes and their files, in a folder below this one."""
    base = Path(folder, "made")
    base.mkdir(parents=True)
    _write(base, "lines.txt", sentences(30))
    runs = _trainings(base)
    scenes = [Scene(run, run.split(" ")[0], {**flags, **_NEW}, _files_of(flags, base))
              for run, flags in runs.items() if run != _CLASSIFIER]
    scenes += [*_of_classifier(base, runs), *_of_files(base, runs), *_of_models(base, runs)]
    return [scene if scene.folder else scene._replace(folder=str(base)) for scene in scenes]


def _trainings(base: Path) -> Dict[str, Flags]:
    """Trains what other scenes read; returns the flags of each run, with evaluation and prediction."""
    (base / "model").mkdir()
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
        if run in (_CLASSIFIER, _MASKED_LM, _RANKER) or flags["output_dir"] in read:
            _run(run.split(" ")[0], flags, base)
    return runs


def _run(module: str, flags: Flags, base: Path) -> None:
    run_here({name: str(value).replace("{}", str(base)) for name, value in flags.items()},
             importlib.import_module(module))


def _files_of(flags: Flags, base: Path) -> Tuple[str, ...]:
    """The files that a training reads; of a model's folder, those that describe and hold it."""
    paths = [value[len("{}/"):] for name, value in flags.items()
             if value.startswith("{}/") and name not in ("output_dir", "store_dir")]
    return tuple(file for path in paths for file in (
        _below(path, _MODEL) if (base / path / "bert_config.json").exists() else [path])
        if glob.glob(f"{base / file}*"))


def _below(folder: str, names: Sequence[str]) -> Tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


def _write(base: Path, name: str, lines: Sequence[Any]) -> str:
    (base / name).write_text("".join(
        f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return f"{{}}/{name}"


def _of_classifier(base: Path, runs: Dict[str, Flags]) -> List[Scene]:
    """What is done with a trained model, or a half-trained one."""
    out, results, half = base / _CLASSIFIER, _below(_CLASSIFIER, _RESULTS), base.parent / "half"
    for name in os.listdir(str(out)):
        if name.startswith(("eval_results", "predict", "test_results", "report")):
            (out / name).unlink()
    shutil.copytree(str(base), str(half))
    for path in glob.glob(f"{half / _CLASSIFIER}/model.ckpt-8*"):
        os.remove(path)
    _run("encoder.convert", dict(from_tensorflow=f"{{}}/{_CLASSIFIER}", output_dir="{}/hf"), base)
    checked = ("store/", *_below(_CLASSIFIER, ("model.ckpt-", "checkpoint")))
    flags, of_run = runs[_CLASSIFIER], _below(_CLASSIFIER, ("model.ckpt-8", *_RUN[1:]))
    later = dict(output_dir=flags["output_dir"])
    again = dict(later, store_dir=flags["store_dir"], data_dir=flags["data_dir"], task_name="cola",
                 do_eval=True, do_predict=True, **_ONE)
    return [
        Scene("evaluating", "run_classifier", again,
              (*of_run, "cola/dev.tsv", "cola/test.tsv", "store/"), checked, results),
        Scene("resuming", "run_classifier", flags,
              (*_below(_CLASSIFIER, _RUN), "store/", "cola/"), checked, results, str(half)),
        Scene("exporting", "run_classifier", dict(later, do_export=True), of_run),
        Scene("predicting", "runs.predict", dict(
            later, **_ONE, input_file="{}/lines.txt", output_file="{}/new.tsv", header=False),
            (*of_run, "lines.txt")),
        Scene("from Hugging Face", "encoder.convert", dict(_NEW, from_huggingface="{}/hf"), ("hf/",)),
        Scene("to Hugging Face", "encoder.convert",
              dict(_NEW, from_tensorflow=f"{{}}/{_CLASSIFIER}"), _below(_CLASSIFIER, _MODEL))]


def _of_files(base: Path, runs: Dict[str, Flags]) -> List[Scene]:
    """Other formats of a user's own files, and commands that read texts."""
    texts = sentences(32, seed=4)
    labelled = dict(
        runs[_CLASSIFIER], **_NEW, task_name="file", do_predict=False,
        train_file=_write(base, "train.jsonl", [{"text": text, "label": ["a", "b"][number % 2]}
                                                for number, text in enumerate(texts)]),
        dev_file=_write(base, "dev.csv", ["text,label", *(f'"{text}",a' for text in texts[:8])]))
    del labelled["data_dir"]
    tagged = dict(runs[_TAGGER], **_NEW, do_predict=False, train_file=_write(base, "tags.jsonl", [
        {"text": f"the cat or {text}",
         "label": {"ANIMAL": {"cat": [[4, 6]]}, "PLACE": {"the": [[0, 2]]}}} for text in texts]))
    text = _write(base, "text.txt", [line for number, text in enumerate(sentences(30, seed=5))
                                     for line in ([text] if number % 6 else [text, ""])])
    return [
        Scene("own data", "run_classifier", labelled,
              ("train.jsonl", "dev.csv", "model/vocab.txt", "model/bert_config.json")),
        Scene("tagging lines", "tagging.run", tagged, ("tags.jsonl",)),
        Scene("creating data", "pretraining.create_data",
              dict(input_file=text, output_file="{}/new.tfrecord", num_processes=1, dupe_factor=1,
                   vocab_file="{}/model/vocab.txt", max_seq_length=16, max_predictions_per_seq=3),
              ("text.txt", "model/vocab.txt")),
        Scene("making slots", "rewriting.create_data",
              dict(_NEW, input_file="{}/texts.txt", num_negatives=1), ("texts.txt",))]


def _of_models(base: Path, runs: Dict[str, Flags]) -> List[Scene]:
    """What the models of pretraining and of rewriting are for."""
    vectors = _write(base, "glove.txt", [f"{word} {number / 7} 1 0" for number, word in enumerate(
        word for word in WORDS if word.isalpha())])
    inputs = _write(base, "inputs.txt", made_up_texts(70, seed=3))  # more than one batch of them
    model = runs[_MASKED_LM]["output_dir"]
    return [
        Scene("features", "extract_features",
              dict(init_checkpoint=model, vocab_file=f"{model}/vocab.txt", layers="-1", **_ONE,
                   bert_config_file=f"{model}/bert_config.json", input_file="{}/lines.txt",
                   output_file="{}/features.jsonl", max_seq_length=16),
              ("lines.txt", *_below(_MASKED_LM, _MODEL))),
        Scene("augmenting", "augmentation.run",
              dict(task_name="cola", data_dir="{}/cola", init_checkpoint=model, N=1, M=2, **_ONE,
                   glove_embs=vectors, output_dir="{}/augmented"),
              ("glove.txt", "glove.txt", "cola/train.tsv", *_below(_MASKED_LM, _MODEL))),
        Scene("rewriting", "rewriting.rewrite",
              dict(output_dir=runs[_RANKER]["output_dir"], pool_file="{}/slots/pool.txt", **_ONE,
                   input_file=inputs, output_file="{}/rewrites.tsv", num_candidates=4),
              ("slots/pool.txt", "inputs.txt", *_below(_RANKER, _MODEL)))]
