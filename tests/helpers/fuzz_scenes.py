"""The scenes: each toy run of the tests, and the other commands on the files and models of those.

A command that trains has a scene when it has a row in `tests/helpers/toy_runs.py`.
"""

import contextlib
import glob
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import processes
import toy_runs
from commands import Flags, arguments, run_here
from conftest import ROOT, WORDS, sentences, write_tiny_model
from encoder import convert
from engine.errors import USER_ERROR_STATUS
from rewriting_files import made_up_texts

SECONDS, RESIDENT_BYTES = 60.0, 2e9  # that a command may take
MOST_BYTES = 8 << 30  # of its data: more is refused by the system
_PROGRAM = f"""import ctypes, resource, runpy, sys
sys.path.insert(0, {ROOT!r})
resource.setrlimit(resource.RLIMIT_DATA, ({MOST_BYTES}, {MOST_BYTES}))
sys.modules.pop({{module!r}}, None)
{{before}}
runpy.run_module({{module!r}}, run_name="__main__", alter_sys=True)"""


class Ended(NamedTuple):
    """How a command has ended."""
    status: int  # negative after a signal
    said: str
    seconds: float
    peak: float  # bytes

    def wrong(self) -> str:
        """What no command may do, whatever its files hold; "" if it has done none of it."""
        if self.seconds > SECONDS or self.peak > RESIDENT_BYTES:
            return f"{self.seconds:.0f} s, {self.peak / 1e9:.1f} GB"
        if "Traceback" in self.said or self.status not in (0, USER_ERROR_STATUS):
            return f"status {self.status}, a traceback or a crash"
        lines = self.said.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        return "not one line at the end" if self.status and errors != lines[-1:] else ""


class Scene(NamedTuple):
    """A command that succeeds in seconds on undamaged files of a folder, which flags name {}."""
    name: str
    module: str
    flags: Flags
    folder: str  # from which it is copied
    files: Tuple[str, ...]  # those to damage: paths in the folder, or beginnings of them
    # Beginnings of the names of files with checksums, or that are made again: if one is damaged and
    # the command succeeds, the results are as without the damage.
    checked: Tuple[str, ...] = ()
    results: Tuple[str, ...] = ()

    def arguments(self, folder: str) -> List[str]:
        """The command's arguments, for files in a folder."""
        return [argument.replace("{}", folder) for argument in arguments(self.flags)]

    def copy_to(self, folder: str) -> str:
        """Replaces the folder by a copy of the files that the flags name; returns its path."""
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name in {str(value).split("/")[1] for value in self.flags.values()
                     if str(value).startswith("{}/")}:
            path, copy = os.path.join(self.folder, name), os.path.join(folder, name)
            if os.path.isdir(path):
                shutil.copytree(path, copy)
            elif os.path.exists(path):
                shutil.copy(path, copy)
        return folder

    def run(self, folder: str, changed: Sequence[str] = (), *, before: str = "", library: str = "",
            strike: Tuple[float, int] = (SECONDS, signal.SIGKILL)) -> Ended:
        """Runs the command in a folder, and kills it if it takes too long.

        Args:
            changed: arguments in place of the scene's own.
            before: code that its process runs before it.
            library: that its process loads first.
            strike: after how many seconds it gets which signal; a second later SIGCONT follows.
        """
        program = _PROGRAM.format(module=self.module, before=before)
        log, start = os.path.join(os.path.dirname(folder), "log"), time.time()
        with open(log, "w") as file:
            process = processes.start(["-c", program, *(changed or self.arguments(folder))],
                                      cwd=folder, stdout=file, stderr=file,
                                      env={**os.environ, "LD_PRELOAD": library} if library else None)
        signals, ended = [strike, (strike[0] + 1, signal.SIGCONT), (SECONDS, signal.SIGKILL)], 0
        while not ended:
            time.sleep(0.01)
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if not ended and signals and time.time() - start > signals[0][0]:
                os.kill(process.pid, signals.pop(0)[1])
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        process.returncode = code  # it is not waited for again
        said = Path(log).read_text(encoding="utf-8", errors="replace")
        return Ended(code, said, time.time() - start, usage.ru_maxrss * 1024.0)


_CLASSIFIER, _MASKED_LM, _RANKER = _OWN = "run_classifier", "pretraining.run", "rewriting.run"
# Of a folder with a model: beginnings of the names of what describes and holds it.
_MODEL = ("model.ckpt", "checkpoint", "task.json", "vocab.txt", "bert_config.json", "run.json",
          "evaluations.json")
_NEW, _TRAINED = dict(output_dir="{}/new"), dict(output_dir=f"{{}}/{_CLASSIFIER}")
_ONE = dict(num_cpu_replicas=1)
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
    "making slots": ("rewriting.create_data", dict(
        _NEW, input_file="{}/texts.txt", num_negatives=1)),
    "features": ("extract_features", dict(
        init_checkpoint=f"{{}}/{_MASKED_LM}", layers="-1", **_ONE, input_file="{}/lines.txt",
        output_file="{}/features.jsonl", max_seq_length=16)),
    "augmenting": ("augmentation.run", dict(
        _NEW, task_name="cola", data_dir="{}/cola", init_checkpoint=f"{{}}/{_MASKED_LM}", N=1, M=2,
        glove_embs="{}/glove.txt", **_ONE)),
    "rewriting": ("rewriting.rewrite", dict(
        output_dir=f"{{}}/{_RANKER}", pool_file="{}/slots/pool.txt", **_ONE,
        input_file="{}/inputs.txt", output_file="{}/rewrites.tsv", num_candidates=4))}


def make(folder: str) -> List[Scene]:
    """Makes the scenes and their files in a folder, whatever was there."""
    shutil.rmtree(folder, ignore_errors=True)
    base, half = (Path(os.path.realpath(folder), name) for name in ("whole", "half"))
    (base / "model").mkdir(parents=True)
    for name, lines in _files().items():
        (base / name).write_text("".join(
            f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        runs = _trainings(base)
    for pattern in ("eval_results*", "predict*", "test_results*", "report*"):
        for path in list((base / _CLASSIFIER).glob(pattern)):  # commands shall write them again
            path.unlink()
    shutil.copytree(str(base), str(half), ignore=shutil.ignore_patterns("model.ckpt-8*"))
    convert.convert_from_tensorflow(str(base / _CLASSIFIER), str(base / "hf"))

    def scene(name: str, module: str, flags: Flags, of: Path = base, **more: Any) -> Scene:
        files = *_files_of(flags, base), *["store/"] * bool(more)
        return Scene(name, module, flags, str(of), files, **more)

    resumed, evaluated = runs[_CLASSIFIER], dict(runs[_CLASSIFIER], do_train=False)
    own = dict(resumed, **_NEW, task_name="file", data_dir=None, do_predict=False,
               train_file="{}/train.jsonl", dev_file="{}/dev.csv")
    tagged = dict(runs["tagging.run --crf"], **_NEW, do_predict=False, train_file="{}/tags.jsonl")
    of_run = dict(
        checked=("store/", *_below(_CLASSIFIER, "model.ckpt-", "checkpoint")),
        results=_below(_CLASSIFIER, "eval_results.txt", "predict.txt", "test_results.tsv"))
    return [
        *(scene(run, run.split(" ")[0], {**flags, **_NEW}) for run, flags in runs.items()
          if run != _CLASSIFIER),
        scene("evaluating", "run_classifier", evaluated, **of_run),
        scene("resuming", "run_classifier", resumed, half, **of_run),
        scene("own data", "run_classifier", own), scene("tagging lines", "tagging.run", tagged),
        *(scene(name, module, flags) for name, (module, flags) in _OTHERS.items())]


def _files() -> Dict[str, List[Any]]:
    """Other formats of a user's own files, and what commands read besides: the lines, by name."""
    texts = sentences(32, seed=4)
    return {
        "lines.txt": sentences(30),
        "inputs.txt": made_up_texts(70, seed=3),  # more than one batch of them
        "text.txt": [line for number, text in enumerate(sentences(30, seed=5))
                     for line in ([text] if number % 6 else [text, ""])],
        "train.jsonl": [{"text": text, "label": "ab"[len(text) % 2]} for text in texts],
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
            run_here({name: value.replace("{}", str(base)) for name, value in flags.items()},
                     toy_runs.module_of(run))
    return runs


def _files_of(flags: Flags, base: Path) -> Tuple[str, ...]:
    """The files that flags name and that are there, but stores; of a model's folder, its own."""
    paths = [str(value)[len("{}/"):] for name, value in flags.items()
             if str(value).startswith("{}/") and name != "store_dir"]
    return tuple(file for path in paths for file in (
        _below(path, *_MODEL) if (base / path / "bert_config.json").exists() else [path])
        if glob.glob(f"{base / file}*"))


def _below(folder: str, *names: str) -> Tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)
