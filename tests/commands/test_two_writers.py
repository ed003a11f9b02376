"""Two processes on one output: one of them writes it, and the other is refused while it does."""

import os
import shutil
import signal

import pytest

import processes
from augmentations import SETTINGS
from commands import arguments
from conftest import VOCAB, on_tensorflow_1, on_tensorflow_2, sentences, write_cola
from masked_lm import write_tiny_masked_lm
from rewriting_files import made_up_texts
from services import RELEASE, toy_models


@pytest.fixture(scope="module")
def inputs(tiny_model, tmp_path_factory):
    """A folder with texts, models and a task, which all commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, lines in (("texts", sentences(300)), ("clauses", made_up_texts(300)), ("vocab", VOCAB)):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    write_cola(folder / "cola", train=60)
    shutil.copytree(os.path.join(RELEASE, "classifier"), str(folder / "classifier"))
    write_tiny_masked_lm(tiny_model, folder / "lm")
    (folder / "toys").mkdir()
    toy_models(folder / "toys", tiny_model)
    return folder


# Command → its flags, where {} is the folder of the inputs and <> that of the output, and the files that
# it writes, the one that takes longest at the end.
LM = dict(vocab_file="{}/lm/vocab.txt", bert_config_file="{}/lm/bert_config.json",
          init_checkpoint="{}/lm/bert_model.ckpt", num_cpu_replicas=1)
WRITERS = {
    "runs.predict": (dict(
        output_dir="{}/classifier", input_file="{}/texts.txt", header=False, shard="0/2",
        output_file="<>/out.tsv", num_cpu_replicas=1), ["out-00000-of-00002.tsv"]),
    "augmentation.run": (dict(
        LM, **{**SETTINGS, "N": 2}, task_name="cola", data_dir="{}/cola", output_dir="<>"), ["train.tsv"]),
    "similarity.search": (dict(
        model_dir="{}/toys/vectors", documents="{}/texts.txt", output_dir="<>", num_cpu_replicas=1),
        ["texts.jsonl", "vectors.npy"]),
    "pretraining.create_data": (dict(
        input_file="{}/texts.txt", vocab_file="{}/vocab.txt", output_file="<>/a,<>/b", objective="mlm",
        max_seq_length=32, dupe_factor=20, num_processes=1), ["b", "a"]),
    "rewriting.create_data": (dict(input_file="{}/clauses.txt", output_dir="<>"), [
        "dev.jsonl", "test.jsonl", "pool.txt", "pairs.tsv", "train.jsonl"]),
}


# Runs a command that stops when it has locked the file named first. A signal from here may come when it has written it.
STOPPING = f"""
import contextlib, os, signal, sys
from engine.disk import scratch
exclusive, lock = scratch.exclusive, sys.argv.pop(1)
@contextlib.contextmanager
def stopping(path, output):
    with exclusive(path, output):
        if os.path.basename(path) == lock:
            os.kill(os.getpid(), signal.SIGSTOP)
        yield
scratch.exclusive = stopping
{processes.RUN_MODULE}"""


def start(module, inputs, folder, program=("-m",)):
    flags = {name: str(value).replace("{}", str(inputs)).replace("<>", str(folder))
             for name, value in WRITERS[module][0].items()}
    return processes.start([*program, module, *arguments(flags)], stdin=open(os.devnull),
                           env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize("module", [
    pytest.param(module, marks=on_tensorflow_1 if number % 2 else on_tensorflow_2)
    for number, module in enumerate(WRITERS)])
def test_while_one_command_writes_another_is_refused_and_changes_nothing(module, inputs, tmp_path):
    def content():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    names = WRITERS[module][1]
    lock = tmp_path / f".{names[-1]}.lock"
    first = start(module, inputs, tmp_path, ["-c", STOPPING, lock.name])
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert lock.exists() and first.poll() is None, first.communicate()
    before = content()
    second = start(module, inputs, tmp_path)
    said = second.communicate()[1]
    assert second.returncode == 2 and content() == before, said
    assert "is being written by process" in said.splitlines()[-1] and "Traceback" not in said
    first.send_signal(signal.SIGCONT)
    said = first.communicate()[1]
    assert first.returncode == 0, said
    assert all((tmp_path / name).stat().st_size for name in names)
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".lock", ".part")]
