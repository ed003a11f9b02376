"""Commands that train are interrupted and go on, and no command says what is no line of our log.

The log's lines are marked where it writes them; a line on standard error without a mark is another's.
"""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import processes
from commands import arguments, results_in
from conftest import ROOT, sentences
from engine.devices import runtime
from masked_lm import write_tiny_masked_lm
from noise_of_commands import RUN_MARKED, noise
from pages import blocks
from processes import step_of
from reproducible_model import write_model
from rewriting_files import made_up_texts
from scripts.flags_page import commands
from toy_runs import RUNS, flags_of, module_of

# Each on one runtime, but for the classifier, which is a teacher. No page's training has a --loss; the stages
# of distillation after the first are part of its recipe, and test_scripts.py hears what that says.
OF_TENSORFLOW_1 = {"pretraining.run", "tagging.run --crf", "similarity.run"}
TRIED = [run for run in RUNS if not re.search("--loss|--stage=[^g]", run) and (
    run == "run_classifier" or (run in OF_TENSORFLOW_1) == runtime.IS_TENSORFLOW_1)]
# Told to end on the way; test_release_files.py resumes the others.
INTERRUPTED = {"run_classifier", "pretraining.run", "distillation.run --stage=general"}
# Others are named as their room.
PAGES = {"run_classifier": "fine-tuning", "run_squad": "reading", "choice.run": "multiple-choice"}
# It has few steps, and can be interrupted after each.
CHANGES = dict(save_checkpoints_steps=1, num_cpu_replicas=1, train_batch_size=16)
# Which command reads texts with what another one has trained; the classifier is read by others, too.
READERS = {"pretraining.run": "pretraining.score", "similarity.run": "similarity.search",
           "rewriting.run": "rewriting.rewrite"}


def switches_of(run):
    """The flags without a value, such as --do_eval, of the training on a command's page."""
    command = run.split(" ")[0]
    shell = "".join(blocks(f"docs/{PAGES.get(command, command.split('.')[0])}.md", "shell"))
    stage, = re.findall(r"--stage=\w+", run) or [""]
    training = next(line for line in shell.replace("\\\n", "").splitlines()
                    if re.match(rf"python (-m )?{command}(\.py)? ", line)
                    and "--do_train" in line and stage in line)
    return dict.fromkeys(re.findall(r"--(\w+)(?= |$)", training), True)


class Folder:
    """Runs commands in a folder, and notes what each says that is no line of our log's."""

    def __init__(self, folder):
        self.folder, self.noise = folder, {}

    def start(self, module, flags, code=""):
        return processes.start(["-c", code + RUN_MARKED, module, *arguments(flags)],
                               env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})

    def end(self, module, process, status=0):
        """Waits for a command's end; returns what it said."""
        said = process.communicate()[1]
        assert process.returncode == status, f"{module}: {said}"
        self.noise.setdefault(module, []).extend(noise(said, *["interrupted by SIGTERM: "] * bool(status)))
        return said

    def run(self, module, **flags):
        return self.end(module, self.start(module, flags))


def train(of: Folder, run, model):
    """A training with all that its command does beside it; some are told to end, and go on for more steps."""
    module, known = module_of(run).__name__, module_of(run).define_flags()
    flags = {**flags_of(run, of.folder, model), **switches_of(run), **CHANGES}
    assert flags["do_train"]
    output_dir, end, resumed = flags["output_dir"], 0, ""
    if run == "run_classifier":
        flags.update(num_cpu_replicas=2, train_batch_size=8)
    if run in INTERRUPTED:
        process = of.start(module, flags, processes.strike(signal.SIGTERM, f"step_of({str(output_dir)!r})"))
        said, step = of.end(module, process, 128 + signal.SIGTERM), step_of(output_dir)
        end = int(re.search(rf"has a checkpoint at step {step} of (\d+)", said.splitlines()[-1]).group(1))
        resumed = f"Resuming from {output_dir}/model.ckpt-{step}"
        length = "num_train_epochs" if "num_train_epochs" in flags else "num_train_steps"
        flags[length] = flags[length] * 3 // 2 + 1
    if "teacher" not in known and (run == "run_classifier" or not runtime.IS_TENSORFLOW_1):
        flags.update((flag, True) for flag in ("do_predict", "do_test", "do_export") if flag in known)
    assert resumed in of.run(module, **flags)
    longer = step_of(output_dir)
    assert longer > end
    if run == "run_classifier":  # what a repetition does is the same for all commands
        results = results_in(output_dir)
        assert f"already trained to step {longer}" in of.run(module, **flags)
        assert results_in(output_dir) == results and step_of(output_dir) == longer


def use_what_was_trained(of: Folder, model, masked_lm):
    folder, lines = of.folder, of.folder / "lines.txt"
    lines.write_text("".join(f"{text}\n" for text in sentences(9)))
    one = dict(num_cpu_replicas=1)
    of.run("runs.predict", output_dir=folder / "run_classifier", input_file=lines,
           output_file=folder / "answers.tsv", num_cpu_replicas=2)
    of.run("extract_features", **one, **model._asdict(), input_file=lines,
           output_file=folder / "features.jsonl", layers=-1, max_seq_length=16)
    of.run("encoder.convert", from_tensorflow=folder / "run_classifier", output_dir=folder / "hf")
    of.run("augmentation.run", **one, task_name="cola", data_dir=folder / "cola", M=2, N=2,
           init_checkpoint=os.path.dirname(masked_lm.vocab_file), output_dir=folder / "augmented")
    for run, flags in {
            "pretraining.run": dict(init_checkpoint=folder / "pretraining.run", max_seq_length=24, input_file=lines,
                                    output_file=folder / "scores.jsonl"),
            "similarity.run": dict(model_dir=folder / "similarity.run", output_dir=folder / "index",
                                   documents=lines, output_file=folder / "found.tsv"),
            "rewriting.run": dict(output_dir=folder / "rewriting.run", pool_file=folder / "slots" / "pool.txt",
                                  input_file=folder / "texts.txt", output_file=folder / "rewritten.tsv")}.items():
        if run in TRIED:
            of.run(READERS[run], **one, **flags)


def ask_a_service(of: Folder):
    process = of.start("serving.run", dict(model=of.folder / "run_classifier", port=0, num_cpu_replicas=2))
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
    for name, text in (
            ("books.txt", "\n".join(line + "\n" * (number % 8 == 0) for number, line in enumerate(sentences(80)))),
            ("clauses.txt", "\n".join(made_up_texts(60)))):
        (of.folder / name).write_text(f"{text}\n")
    of.run("pretraining.create_data", input_file=of.folder / "books.txt", max_seq_length=24,
           vocab_file=model.vocab_file, output_file=of.folder / "created.tfrecord",
           max_predictions_per_seq=4, dupe_factor=1)
    of.run("rewriting.create_data", input_file=of.folder / "clauses.txt", num_negatives=1,
           output_dir=of.folder / "other_slots")
    of.run("engine.count_replicas")


def test_a_signal_more_steps_and_a_repetition_lose_nothing_and_commands_say_what_our_log_says(tiny_model, tmp_path):
    of, model = Folder(tmp_path), write_model(tmp_path / "model")  # which is also a teacher
    for run in TRIED:
        train(of, run, model)
    use_what_was_trained(of, model, write_tiny_masked_lm(tiny_model, tmp_path / "masked_lm"))
    ask_a_service(of)
    make_data(of, model)
    assert {module: lines for module, lines in of.noise.items() if lines} == {}
    others = {run.split(" ")[0] for run in RUNS} - {run.split(" ")[0] for run in TRIED}
    assert {*of.noise, *others, *(READERS[run] for run in READERS if run in others)} == {
        *commands(), "engine.count_replicas"}


def test_a_new_process_says_no_more_than_one_that_had_loaded_everything():
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    wrong = subprocess.run([sys.executable, "run_classifier.py", "--misspelt"], cwd=ROOT,
                           env=environment, stderr=subprocess.PIPE, universal_newlines=True)
    assert wrong.stderr == "error: Unknown command line flag 'misspelt'\n"
