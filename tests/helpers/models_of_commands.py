"""A model of each command that writes one, made by the commands from one another."""

import os
import shutil

import run_classifier
import run_squad
from commands import run_here
from conftest import write_cola
from distillation import run as distillation
from encoder import convert
from pretraining import run as pretraining
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from reading_files import write_made_up
from rewriting import run as rewriting
from rewriting.slot_files import SlotExample
from rewriting_files import write_slots
from tagging import run as tagging


class Made:
    """The models.

    Attributes:
        at: writer → folder.
        train: the flags of every training.
        flags: those of a training on CoLA.
    """

    def __init__(self, folder):
        self.folder = folder
        self.at = {}
        self.train = dict(do_train=True, num_cpu_replicas=1, train_batch_size=8,
                          max_seq_length=LENGTH, learning_rate=1e-3)
        self.flags = dict(
            self.train, task_name="cola", data_dir=write_cola(folder / "cola", train=16, dev=9),
            num_train_epochs=1, store_dir=folder / "store")

    def run(self, writer, module, **flags):
        """Runs a command that writes a model."""
        self.at[writer] = str(self.folder / f"{len(self.at)}")
        run_here({**flags, "output_dir": self.at[writer]}, module)

    def export(self, command, module):
        """Exports the model that a command has trained."""
        trained = self.at.get(f"{command} --do_train") or self.at[command]
        run_here(dict(output_dir=trained, do_export=True), module)
        self.at[f"{command} --do_export"] = os.path.join(trained, "export")


def make_all(tiny_model, tiny_classifier, folder) -> Made:
    """Makes the models, from one another."""
    made = Made(folder)
    tuned = str(made.folder / "tuned")
    shutil.copytree(str(tiny_classifier), tuned)
    made.at.update({"Google's release, without heads": os.path.dirname(tiny_model.vocab_file),
                    "run_classifier --do_train": tuned,
                    "Google's run_classifier": foreign_copy(tuned, made.folder / "google")})
    made.export("run_classifier", run_classifier)
    pretrain_and_distil(made)
    rank_read_and_tag(made)
    convert_each(made)
    return made


def pretrain_and_distil(made):
    examples = write_frozen(made.folder / "examples.tfrecord", 24)
    made.run("pretraining.run", pretraining, **made.train, input_file=examples,
             init_checkpoint=made.at["Google's release, without heads"], num_train_steps=2,
             num_warmup_steps=1, max_predictions_per_seq=PREDICTIONS)
    made.run("distillation.run --stage=general", distillation, **made.train, stage="general",
             teacher=made.at["pretraining.run"], student="1,8,2,12", input_file=examples,
             num_train_epochs=1)
    made.run("distillation.run --stage=intermediate", distillation, **made.flags,
             stage="intermediate", teacher=made.at["run_classifier --do_export"],
             student=made.at["distillation.run --stage=general"])
    made.run("distillation.run --stage=prediction", distillation, **made.flags,
             stage="prediction", teacher=made.at["Google's run_classifier"],
             student=made.at["distillation.run --stage=intermediate"])


def rank_read_and_tag(made):
    write_slots(made.folder / "train.jsonl", [
        SlotExample("the cat ", f" the {word}.", ("sees", "likes", "old"), 1) for word in (
            "dog", "bird", "tree", "house")])
    made.run("rewriting.run", rewriting, **made.train, num_train_epochs=1,
             init_checkpoint=made.at["pretraining.run"], train_file=made.folder / "train.jsonl")
    made.export("rewriting.run", rewriting)
    made.run("run_squad --do_train", run_squad, **{**made.train, "max_seq_length": 32},
             num_train_epochs=1, init_checkpoint=made.at["rewriting.run --do_export"],
             max_query_length=8,
             train_file=write_made_up(made.folder / "questions.json", contexts=2))
    made.export("run_squad", run_squad)
    (made.folder / "tags.txt").write_text("old B-A\ncat I-A\nsees O\n\n" * 8)
    made.run("tagging.run", tagging, **made.train, num_train_epochs=1,
             init_checkpoint=made.at["run_squad --do_train"],
             train_file=made.folder / "tags.txt")
    made.export("tagging.run", tagging)


def convert_each(made):
    made.run("encoder.convert --from_tensorflow", convert,
             from_tensorflow=made.at["run_classifier --do_export"])
    made.run("encoder.convert --from_huggingface", convert,
             from_huggingface=made.at["encoder.convert --from_tensorflow"])
    made.run("encoder.convert --from_checkpoint", convert,
             from_checkpoint=made.at["Google's run_classifier"], labels="0,1",
             max_seq_length=LENGTH)


def foreign_copy(trained, folder):
    """What Google's code leaves of a training, with the files of the model it started from."""
    os.makedirs(str(folder))
    for name in os.listdir(trained):
        if name.startswith(("checkpoint", "model.ckpt", "vocab.txt", "bert_config.json")):
            shutil.copy(os.path.join(trained, name), str(folder))
    return str(folder)
