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

CLASSIFIER = os.path.join(RELEASE, "classifier")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with texts, models and a task, which all commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(300)))
    (folder / "clauses.txt").write_text("".join(f"{text}\n" for text in made_up_texts(300)))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCAB))
    write_cola(folder / "cola", train=60)
    shutil.copytree(os.path.join(RELEASE, "scorer"), str(folder / "scorer"))
    return folder


@pytest.fixture(scope="module")
def language_model(tiny_model, tmp_path_factory):
    return write_tiny_masked_lm(tiny_model, tmp_path_factory.mktemp("lm") / "model")._asdict()


@pytest.fixture(scope="module")
def vectors(tiny_model, tmp_path_factory):
    return toy_models(tmp_path_factory.mktemp("models"), tiny_model)["vectors"]


# Each is a command, and the files that it writes, the one that takes longest at the end.


def predictions(get, folder):
    return ["-m", "runs.predict", *arguments(dict(
        output_dir=CLASSIFIER, input_file=get("inputs") / "texts.txt", header=False, shard="0/2",
        output_file=folder / "out.tsv", num_cpu_replicas=1))], ["out-00000-of-00002.tsv"]


def features(get, folder):
    return ["extract_features.py", *arguments(dict(
        get("language_model"), input_file=get("inputs") / "texts.txt", max_seq_length=16,
        output_file=folder / "out.npy", pooling="mean", num_cpu_replicas=1))], ["out.npy"]


def scores(get, folder):
    return ["-m", "pretraining.score", *arguments(dict(
        get("language_model"), input_file=get("inputs") / "texts.txt", max_seq_length=16,
        shard="1/2", output_file=folder / "out.jsonl", num_cpu_replicas=1))], ["out-00001-of-00002.jsonl"]


def variants(get, folder):
    return ["-m", "augmentation.run", *arguments(dict(
        get("language_model"), **{**SETTINGS, "N": 2}, task_name="cola",
        data_dir=get("inputs") / "cola", output_dir=folder, num_cpu_replicas=1))], ["train.tsv"]


def rewrites(get, folder):
    return ["-m", "rewriting.rewrite", *arguments(dict(
        output_dir=get("inputs") / "scorer", pool_file=get("inputs") / "clauses.txt",
        input_file=get("inputs") / "clauses.txt", output_file=folder / "out.tsv", num_candidates=2,
        top_k=1, num_cpu_replicas=1))], ["out.tsv"]


def index(get, folder):
    return ["-m", "similarity.search", *arguments(dict(
        model_dir=get("vectors"), documents=get("inputs") / "texts.txt", output_dir=folder,
        num_cpu_replicas=1))], ["texts.jsonl", "vectors.npy"]


def examples(get, folder):
    return ["-m", "pretraining.create_data", *arguments(dict(
        input_file=get("inputs") / "texts.txt", vocab_file=get("inputs") / "vocab.txt",
        output_file=f"{folder}/a,{folder}/b", objective="mlm", max_seq_length=32, dupe_factor=20,
        num_processes=1))], ["b", "a"]


def slots(get, folder):
    return ["-m", "rewriting.create_data", *arguments(dict(
        input_file=get("inputs") / "clauses.txt", output_dir=folder))], [
            "dev.jsonl", "test.jsonl", "pool.txt", "pairs.tsv", "train.jsonl"]


WRITERS = [pytest.param(writer, marks=on_tensorflow_1 if number % 2 else on_tensorflow_2, id=writer.__name__)
           for number, writer in enumerate((
               predictions, features, scores, variants, rewrites, index, examples, slots))]


def start(command):
    return processes.start(command, stdin=open(os.devnull),
                           env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize("writer", WRITERS)
def test_of_two_commands_one_writes_and_the_output_is_that_of_one_alone(writer, request, tmp_path):
    found = {}
    for name in ("alone", "apart", "together"):
        (tmp_path / name).mkdir()
        command, names = writer(request.getfixturevalue, tmp_path / name)
        first = start(command)
        if name == "apart":  # the second one comes while the first one writes
            lock = tmp_path / name / f".{names[-1]}.lock"
            processes.wait_until(first, lock.exists)
            first.send_signal(signal.SIGSTOP)
            second = start(command)
            said = second.communicate()[1]
            first.send_signal(signal.SIGCONT)
            assert second.returncode == 2, said
            assert "is being written by process" in said.splitlines()[-1] and "Traceback" not in said
        elif name == "together":
            second = start(command)
            said = second.communicate()[1]
            assert second.returncode == 0 or second.returncode == 2 and (
                "is being written by process" in said.splitlines()[-1]), said
        said = first.communicate()[1]
        assert first.returncode == 0 or name == "together" and second.returncode == 0 and (
            "is being written by process" in said.splitlines()[-1]), said
        found[name] = [(tmp_path / name / each).read_bytes() for each in names]
        assert not [path for path in (tmp_path / name).iterdir() if path.suffix in (".lock", ".part")]
    assert found["apart"] == found["together"] == found["alone"] and all(found["alone"])


def test_a_killed_writer_leaves_its_output_to_the_next_one(request, tmp_path):
    command, names = features(request.getfixturevalue, tmp_path)
    lock = tmp_path / f".{names[-1]}.lock"
    first = start(command)
    processes.wait_until(first, lock.exists)
    first.kill()
    first.communicate()
    assert lock.exists()
    second = start(command)
    said = second.communicate()[1]
    assert second.returncode == 0 and not lock.exists(), said
