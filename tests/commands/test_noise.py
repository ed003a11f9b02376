"""Standard error holds what our log writes, and no line of any library's, whatever command runs.

The log's lines are marked where it writes them; a line without a mark is another's.
"""

import os
import subprocess
import sys

import pytest

import processes
from commands import arguments
from conftest import ROOT, on_tensorflow_2, sentences, write_cola
from masked_lm import write_tiny_masked_lm
from noise_of_commands import MARK, RUN_MARKED, noise
from reading_files import write_made_up
from rewriting_files import made_up_texts
from scripts.flags_page import commands
from shell_scripts import forking_python_fixture, run  # noqa: F401 (a fixture)
from tagging_files import columns, made_up

WITHOUT_PAGE = ("scripts.make_demonstration_data",)


class Folder:
    """Runs commands in a folder, and notes what each says that is no line of our log's."""

    def __init__(self, folder):
        self.folder = folder
        self.noise = {}

    def run(self, module, *more, **flags):
        if not module.startswith(("scripts.", "encoder.", "pretraining.create", "rewriting.create",
                                  "engine.")):
            flags.setdefault("num_cpu_replicas", 2)
        process = processes.run(["-c", RUN_MARKED, module, *arguments(flags), *more],
                                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.noise.setdefault(module, []).extend(noise(process.stderr))
        if process.returncode:
            self.noise[module].append(f"it ended with status {process.returncode}")

    def train(self, module, **flags):
        self.run(module, **{**dict(do_train=True, train_batch_size=4, max_seq_length=24,
                                   num_train_epochs=1), **flags})


def classify_distil_and_augment(of: Folder, model, masked_lm):
    task = dict(task_name="cola", data_dir=write_cola(of.folder / "cola", train=16, dev=5, test=5))
    of.train("run_classifier", **task, **model._asdict(), do_eval=True, do_predict=True,
             do_export=True, output_dir=of.folder / "classifier")
    (of.folder / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(9)))
    of.run("runs.predict", output_dir=of.folder / "classifier", input_file=of.folder / "texts.txt",
           output_file=of.folder / "answers.tsv")
    of.run("extract_features", **model._asdict(), input_file=of.folder / "texts.txt",
           output_file=of.folder / "features.jsonl", layers=-1, max_seq_length=16)
    of.run("encoder.convert", from_tensorflow=of.folder / "classifier", output_dir=of.folder / "hf")
    for stage, student in (("intermediate", "1,8,2,12"), ("prediction", of.folder / "intermediate")):
        of.train("distillation.run", **task, stage=stage, teacher=of.folder / "classifier",
                 student=student, output_dir=of.folder / stage)
    of.run("distillation.compare", **task, models=f"{of.folder}/classifier,{of.folder}/prediction")
    of.run("augmentation.run", **task, init_checkpoint=os.path.dirname(masked_lm.vocab_file),
           M=2, N=2, output_dir=of.folder / "augmented")
    of.run("scripts.make_demonstration_data", output_dir=of.folder / "made")


def pretrain_rewrite_read_and_tag(of: Folder, model, masked_lm):
    (of.folder / "books.txt").write_text("\n".join(
        line + "\n" * (number % 8 == 0) for number, line in enumerate(sentences(80))) + "\n")
    of.run("pretraining.create_vocab", input_file=of.folder / "books.txt", vocab_size=130,
           output_dir=of.folder / "vocabulary")
    of.run("pretraining.create_data", input_file=of.folder / "books.txt", max_seq_length=24,
           vocab_file=model.vocab_file, output_file=of.folder / "examples.tfrecord",
           max_predictions_per_seq=4, dupe_factor=1)
    of.train("pretraining.run", input_file=of.folder / "examples.tfrecord", do_eval=True,
             init_checkpoint=os.path.dirname(model.vocab_file), max_predictions_per_seq=4,
             num_train_epochs=None, num_train_steps=2, num_warmup_steps=1,
             output_dir=of.folder / "pretrained")
    of.run("pretraining.score", init_checkpoint=of.folder / "pretrained", max_seq_length=24,
           input_file=of.folder / "texts.txt", output_file=of.folder / "scores.jsonl")
    (of.folder / "slots.txt").write_text("".join(f"{text}\n" for text in made_up_texts(60)))
    of.run("rewriting.create_data", input_file=of.folder / "slots.txt", num_negatives=1,
           output_dir=of.folder / "slots")
    of.train("rewriting.run", data_dir=of.folder / "slots", do_eval=True, do_test=True,
             init_checkpoint=of.folder / "pretrained", max_seq_length=32,
             output_dir=of.folder / "scorer")
    of.run("rewriting.rewrite", output_dir=of.folder / "scorer", input_file=of.folder / "slots.txt",
           pool_file=of.folder / "slots" / "pool.txt", output_file=of.folder / "rewritten.tsv")
    (of.folder / "tags.txt").write_text(columns(made_up(16, seed=1), "iob1"))
    of.train("tagging.run", **model._asdict(), train_file=of.folder / "tags.txt",
             dev_file=of.folder / "tags.txt", do_eval=True, output_dir=of.folder / "tagger")
    questions = write_made_up(of.folder / "questions.json", contexts=2)
    of.train("run_squad", **model._asdict(), train_file=questions, predict_file=questions,
             do_predict=True, max_query_length=8, doc_stride=8, output_dir=of.folder / "reader")


def test_every_command_says_what_our_log_says_and_nothing_else(tiny_model, tmp_path):
    of = Folder(tmp_path)
    masked_lm = write_tiny_masked_lm(tiny_model, tmp_path / "masked_lm")
    classify_distil_and_augment(of, tiny_model, masked_lm)
    pretrain_rewrite_read_and_tag(of, tiny_model, masked_lm)
    of.run("engine.count_gpus")
    assert {module: lines for module, lines in of.noise.items() if lines} == {}
    assert {*of.noise, "engine.launch"} == {*commands(), *WITHOUT_PAGE, "engine.count_gpus"}


@pytest.mark.parametrize("module", [*commands(), *WITHOUT_PAGE])
def test_help_says_nothing_beside_itself_and_a_wrong_flag_gets_one_line(module):
    wrong, helped = (processes.run(["-m", module, flag]) for flag in ("--version", "--help"))
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ")
    assert len(wrong.stderr.splitlines()) == 1 and not wrong.stdout
    assert (helped.returncode, helped.stderr) == (0, "") and "--" in helped.stdout


@on_tensorflow_2
def test_a_new_process_says_no_more_than_one_that_had_loaded_everything():
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    wrong = subprocess.run([sys.executable, "run_classifier.py", "--version"], cwd=ROOT,
                           env=environment, stderr=subprocess.PIPE, universal_newlines=True)
    assert wrong.stderr == "error: Unknown command line flag 'version'\n"


@on_tensorflow_2
@pytest.mark.parametrize("script", ["quickstart", "rewrite"])
def test_a_script_says_what_our_log_says_and_nothing_else(
        script, tiny_model, forking_python, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in made_up_texts(60)))
    settings = {"quickstart": dict(TASK="cola", DATA_DIR=write_cola(
        tmp_path / "cola", train=40, dev=5, test=5)), "rewrite": dict(
        TEXTS=str(tmp_path / "texts.txt"), MAX_SEQ_LENGTH="32")}[script]
    process = run(os.environ, f"scripts/{script}.sh --num_train_epochs=1" + (
        " --max_seq_length=16" if script == "quickstart" else ""), **settings,
        PYTHON=forking_python, MODEL=os.path.dirname(tiny_model.vocab_file),
        OUTPUT_DIR=str(tmp_path / "out"), CUDA_VISIBLE_DEVICES="")
    assert process.returncode == 0, process.stderr
    assert noise(process.stderr) == [] and MARK in process.stderr
