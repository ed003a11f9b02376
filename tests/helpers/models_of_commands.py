"""A model of each command that writes one, made by the commands from one another."""

import os
import re
import shutil

import run_classifier
import toy_runs
from commands import run_here
from encoder import convert
from pretraining_files import LENGTH

RELEASE = "Google's release, without heads"
# Toy run → what it starts from: the flag, and the writer of that model.
STARTS = {
    "pretraining.run": dict(init_checkpoint=RELEASE),
    "distillation.run --stage=general": dict(teacher="pretraining.run"),
    "distillation.run --stage=intermediate": dict(
        teacher="run_classifier --do_export", student="distillation.run --stage=general"),
    "distillation.run --stage=prediction": dict(
        teacher="run_classifier", student="distillation.run --stage=intermediate"),
    "rewriting.run": dict(init_checkpoint="pretraining.run"),
    "run_squad": dict(init_checkpoint="rewriting.run --do_export"),
    "tagging.run --crf": dict(init_checkpoint="run_squad"),
    "similarity.run": dict(init_checkpoint="tagging.run"),
    "choice.run": dict(init_checkpoint="similarity.run"),
}


class Models:
    """The models.

    Attributes:
        at: writer → folder.
        flags: those of a training on CoLA.
    """

    def __init__(self, folder, model):
        self.folder, self.model, self.at = folder, model, {RELEASE: os.path.dirname(model.vocab_file)}
        self.flags = {
            **toy_runs.SHARED, **toy_runs.RUNS["run_classifier"](folder), "num_train_epochs": 1,
            "num_cpu_replicas": 1, "train_batch_size": 8, "store_dir": folder / "store"}

    def train(self, run):
        """Makes a toy run, but from what STARTS says; exports the model, if the command does so.

        A tagger gets no CRF, whose export takes seconds: it takes no part in what is decided here.
        """
        module, writer = toy_runs.module_of(run), re.sub(" --crf", "", run)
        starts = {flag: self.at[start] for flag, start in STARTS[run].items()}
        self.at[writer] = str(self.folder / f"{len(self.at)}")
        toy_runs.train(run, self.folder, self.model, vocab_file=None, bert_config_file=None,
                       num_cpu_replicas=1, train_batch_size=20, crf=None, store_dir=self.folder / "store",
                       output_dir=self.at[writer], **starts)
        if "do_export" in module.define_flags() and writer == run.split(" ")[0]:
            self.export(writer, module)

    def run(self, writer, module, **flags):
        """Runs another command that writes a model."""
        self.at[writer] = str(self.folder / f"{len(self.at)}")
        run_here({**flags, "output_dir": self.at[writer]}, module)

    def export(self, writer, module):
        run_here(dict(output_dir=self.at[writer], do_export=True), module)
        self.at[f"{writer} --do_export"] = os.path.join(self.at[writer], "export")


def make_all(tiny_model, tiny_classifier, folder) -> Models:
    """Makes the models, from one another."""
    models = Models(folder, tiny_model)
    models.at["run_classifier"] = shutil.copytree(str(tiny_classifier), str(folder / "tuned"))
    models.at["Google's run_classifier"] = foreign_copy(tiny_classifier, folder / "google")
    models.export("run_classifier", run_classifier)
    for run in STARTS:
        models.train(run)
    models.run("encoder.convert --from_tensorflow", convert,
               from_tensorflow=models.at["run_classifier --do_export"])
    models.run("encoder.convert --from_huggingface", convert,
               from_huggingface=models.at["encoder.convert --from_tensorflow"])
    models.run("encoder.convert --from_checkpoint", convert,
               from_checkpoint=models.at["Google's run_classifier"], labels="0,1",
               max_seq_length=LENGTH)
    return models


def foreign_copy(trained, folder):
    """What Google's code leaves of a training, with the files of the model it started from."""
    os.makedirs(str(folder))
    for name in os.listdir(str(trained)):
        if name.startswith(("checkpoint", "model.ckpt", "vocab.txt", "bert_config.json")):
            shutil.copy(os.path.join(str(trained), name), str(folder))
    return str(folder)
