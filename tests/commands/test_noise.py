"""Standard error holds what our log writes, and no line of any library's, whatever command runs.

The log's lines are marked where it writes them; a line without a mark is another's.
"""

import json
import os
import subprocess
import sys
import urllib.request


import processes
import toy_runs
from commands import arguments
from conftest import ROOT, sentences
from engine.devices import runtime
from masked_lm import write_tiny_masked_lm
from noise_of_commands import RUN_MARKED, noise
from reproducible_model import write_model
from scripts.flags_page import commands
from shell_scripts import forking_python_fixture, run  # noqa: F401 (a fixture)
from toy_runs import RUNS


class Folder:
    """Runs commands in a folder, and notes what each says that is no line of our log's."""

    def __init__(self, folder):
        self.folder = folder
        self.noise = {}

    def run(self, module, *more, **flags):
        if not module.startswith(("encoder.", "pretraining.create", "rewriting.create",
                                  "engine.")):
            flags.setdefault("num_cpu_replicas", 2)
        process = processes.run(["-c", RUN_MARKED, module, *arguments(flags), *more],
                                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.noise.setdefault(module, []).extend(noise(process.stderr))
        if process.returncode:
            self.noise[module].append(f"it ended with status {process.returncode}")


def train_all(of: Folder, model):
    """A toy run of each command, with all that it can do beside it; on 1.15 the first one alone."""
    trained = set()
    for run_name in RUNS:
        if run_name.split(" ")[0] in trained:
            continue
        trained.add(run_name.split(" ")[0])
        known = toy_runs.module_of(run_name).define_flags()
        more = ("do_eval", "do_predict", "do_test", "do_export")
        if "teacher" in known or runtime.IS_TENSORFLOW_1 and of.noise:
            more = ()
        of.run(run_name.split(" ")[0], **toy_runs.flags_of(run_name, of.folder, model),
               **{flag: True for flag in more if flag in known})


def use_what_was_trained(of: Folder, model, masked_lm):
    folder, classifier = of.folder, of.folder / "run_classifier"
    task = dict(task_name="cola", data_dir=folder / "cola")
    (folder / "lines.txt").write_text("".join(f"{text}\n" for text in sentences(9)))
    of.run("runs.predict", output_dir=classifier, input_file=folder / "lines.txt",
           output_file=folder / "answers.tsv")
    of.run("extract_features", **model._asdict(), input_file=folder / "lines.txt",
           output_file=folder / "features.jsonl", layers=-1, max_seq_length=16)
    of.run("encoder.convert", from_tensorflow=classifier, output_dir=folder / "hf")
    of.run("augmentation.run", **task, init_checkpoint=os.path.dirname(masked_lm.vocab_file),
           M=2, N=2, output_dir=folder / "augmented")
    of.run("pretraining.score", init_checkpoint=folder / "pretraining.run", max_seq_length=24,
           input_file=folder / "lines.txt", output_file=folder / "scores.jsonl")
    of.run("similarity.search", model_dir=folder / "similarity.run", output_dir=folder / "index",
           documents=folder / "lines.txt", output_file=folder / "found.tsv")
    of.run("rewriting.rewrite", output_dir=folder / "rewriting.run",
           input_file=folder / "texts.txt", pool_file=folder / "slots" / "pool.txt",
           output_file=folder / "rewritten.tsv")


def ask_a_service(of: Folder):
    process = processes.start(["-c", RUN_MARKED, "serving.run", f"--model={of.folder}/run_classifier",
                               "--port=0", "--num_cpu_replicas=2"],
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    said = process.stderr.readline()
    while said and " at http://" not in said.splitlines()[-1]:
        said += process.stderr.readline()
    with urllib.request.urlopen(urllib.request.Request(
            said.split(" at ")[-1].strip() + "/predict", json.dumps({"inputs": "the cat"}).encode(),
            {"Content-Type": "application/json"})) as answer:
        assert answer.status == 200
    process.terminate()
    of.noise["serving.run"] = noise(said + process.communicate()[1])


def make_data(of: Folder, model):
    (of.folder / "books.txt").write_text("\n".join(
        line + "\n" * (number % 8 == 0) for number, line in enumerate(sentences(80))) + "\n")
    of.run("pretraining.create_vocab", input_file=of.folder / "books.txt", vocab_size=130,
           output_dir=of.folder / "vocabulary")
    of.run("pretraining.create_data", input_file=of.folder / "books.txt", max_seq_length=24,
           vocab_file=model.vocab_file, output_file=of.folder / "created.tfrecord",
           max_predictions_per_seq=4, dupe_factor=1)
    of.run("rewriting.create_data", input_file=of.folder / "texts.txt", num_negatives=1,
           output_dir=of.folder / "other_slots")
    of.run("engine.count_gpus")


def test_every_command_says_what_our_log_says_and_nothing_else(tiny_model, tmp_path):
    of, model = Folder(tmp_path), write_model(tmp_path / "model")
    train_all(of, model)
    use_what_was_trained(of, model, write_tiny_masked_lm(tiny_model, tmp_path / "masked_lm"))
    ask_a_service(of)
    make_data(of, model)
    assert {module: lines for module, lines in of.noise.items() if lines} == {}
    assert {*of.noise, "engine.launch"} == {*commands(), "engine.count_gpus"}


def test_a_new_process_says_no_more_than_one_that_had_loaded_everything():
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    wrong = subprocess.run([sys.executable, "run_classifier.py", "--misspelt"], cwd=ROOT,
                           env=environment, stderr=subprocess.PIPE, universal_newlines=True)
    assert wrong.stderr == "error: Unknown command line flag 'misspelt'\n"
