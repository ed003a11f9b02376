"""Writes what a user of this commit may have on disk: finished and unfinished output directories.

  WRITE_EARLIER_FILES=1 scripts/test.sh tests/test_earlier_files.py

runs small commands and packs their files into tests/data/earlier/<commit>-tensorflow-<version>.zip;
once for each runtime, before a change that could touch them. test_earlier_files.py then holds
later code against them. An archive is never written anew: it is what an earlier commit wrote.
"""

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from commands import Flags, arguments, run_here
from conftest import ROOT, sentences, write_cola
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from reproducible_model import write_model
from test_rewriting_data import made_up_texts

import tensorflow.compat.v1 as tf

FOLDER = os.path.join(ROOT, "tests", "data", "earlier")

# Names are relative to the folder in which all of it lies, which is the current one.
_TRAINING = dict(do_train=True, train_batch_size=4, num_cpu_replicas=2, learning_rate=1e-3,
                 keep_checkpoint_max=1)
_ON_THE_WAY = dict(do_eval=True, save_checkpoints_steps=10, eval_every_steps=10)
_MODEL = dict(vocab_file="model/vocab.txt", bert_config_file="model/bert_config.json",
              init_checkpoint="model/bert_model.ckpt")
_COLA = dict(_TRAINING, task_name="cola", data_dir="cola", max_seq_length=LENGTH)
_GENERAL = dict(_TRAINING, stage="general", student="1,8,2,12", max_seq_length=LENGTH,
                input_file="examples.tfrecord")

# Output directory -> what makes it, in this order: (module, flags).
FINISHED = {
    "finished": ("run_classifier", dict(
        _COLA, **_MODEL, do_predict=True, do_export=True, num_train_epochs=2)),
    "general": ("distillation.run", dict(_GENERAL, teacher="model", num_train_epochs=1)),
    "prediction": ("distillation.run", dict(
        _COLA, stage="prediction", teacher="finished", student="general", num_train_epochs=1)),
    "scorer": ("rewriting.run", dict(
        _TRAINING, **_MODEL, do_eval=True, data_dir="slots", max_seq_length=32,
        num_train_epochs=1)),
}
UNFINISHED_STEPS = 60  # of which some are done
UNFINISHED = {
    "unfinished": ("run_classifier", dict(
        _COLA, **_MODEL, **_ON_THE_WAY, num_train_epochs=10, early_stopping_patience=100)),
    "pretraining": ("pretraining.run", dict(
        _TRAINING, **_ON_THE_WAY, bert_config_file=_MODEL["bert_config_file"],
        init_checkpoint=_MODEL["init_checkpoint"], input_file="examples.tfrecord",
        eval_input_file="held_out.tfrecord", max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS, num_train_steps=UNFINISHED_STEPS,
        num_warmup_steps=6)),
    "intermediate": ("distillation.run", dict(
        _COLA, stage="intermediate", teacher="finished", student="general", num_train_epochs=10,
        save_checkpoints_steps=10)),
}


def run(output_dir: str, **changes) -> None:
    """Runs in this process, in the current directory, what makes an output directory."""
    module, flags = {**FINISHED, **UNFINISHED}[output_dir]
    run_here({**flags, "output_dir": output_dir, **changes}, importlib.import_module(module))


def write_all(folder: Path) -> None:
    """Writes data and model into a folder, and runs every command there."""
    write_model(folder / "model")
    write_cola(folder / "cola", train=48, dev=9, test=9)
    write_frozen(folder / "examples.tfrecord", 48)
    write_frozen(folder / "held_out.tfrecord", 9, seed=1)
    (folder / "new_texts.txt").write_text("".join(f"{text}\n" for text in sentences(9, seed=3)))
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in made_up_texts(40)))
    start(folder, "rewriting.create_data", dict(
        input_file="texts.txt", output_dir="slots", num_negatives=1, num_eval_negatives=3)).wait()
    for output_dir, (module, flags) in FINISHED.items():
        assert start(folder, module, {**flags, "output_dir": output_dir}).wait() == 0
    for output_dir, (module, flags) in UNFINISHED.items():
        interrupt(start(folder, module, {**flags, "output_dir": output_dir}),
                  folder / output_dir / ("evaluations.json" if "do_eval" in flags else "checkpoint"))


def start(folder: Path, module: str, flags: Flags) -> subprocess.Popen:
    """Starts a command as people do."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments(flags)], cwd=str(folder),
        env={**os.environ, "PYTHONPATH": ROOT, "CUDA_VISIBLE_DEVICES": ""})


def interrupt(process: subprocess.Popen, when: Path) -> None:
    """Ends a training once it has written a file."""
    while not when.exists():
        assert process.poll() is None, f"it ended without {when}"
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM, "it was finished too soon"


def pack(folder: Path, path: str) -> None:
    """Without what runs make anew: prepared examples and curves."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(folder)
            if file.is_file() and "store" not in name.parts and "tfevents" not in name.name:
                archive.write(str(file), str(name))


def write() -> None:
    """Adds this commit's archive."""
    commit = subprocess.check_output(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT,
                                     universal_newlines=True).strip()
    version = ".".join(tf.__version__.split(".")[:2])
    os.makedirs(FOLDER, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write_all(Path(folder))
        pack(Path(folder), os.path.join(FOLDER, f"{commit}-tensorflow-{version}.zip"))

