"""A model of each command that writes one, made by the commands from one another."""

import os
import shutil

import run_classifier
import run_squad
from commands import run_here
from conftest import write_cola
from distillation import run as distillation
from encoder import convert
from pretraining import create_vocab, run as pretraining
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from reading_files import write_made_up
from rewriting import run as rewriting
from rewriting.slot_files import SlotExample
from rewriting_files import write_slots
from tagging import run as tagging


class Made:
    """The models, and the pairs that were run to make them.

    Attributes:
        at: writer → folder.
        pairs: (writer, taker).
        train: the flags of every training.
        flags: those of a training on CoLA.
    """

    def __init__(self, folder):
        self.folder = folder
        self.at, self.pairs = {}, []
        self.train = dict(do_train=True, num_cpu_replicas=1, train_batch_size=8,
                          max_seq_length=LENGTH, learning_rate=1e-3)
        self.flags = dict(
            self.train, task_name="cola", data_dir=write_cola(folder / "cola", train=16, dev=9),
            num_train_epochs=1, store_dir=folder / "store")

    def run(self, writer, module, takes, **flags):
        """Runs a command that writes a model; `takes` maps its flags to the models they name."""
        self.at[writer] = str(self.folder / f"{len(self.at)}")
        for flag, (source, taker) in takes.items():
            self.pairs.append((source, taker))
            flags[flag] = self.at[source]
        run_here({**flags, "output_dir": self.at[writer]}, module)

    def export(self, command, taker, module):
        """Exports the model that a command has trained."""
        trained = f"{command} --do_train" if f"{command} --do_train" in self.at else command
        run_here(dict(output_dir=self.at[trained], do_export=True), module)
        self.pairs.append((trained, taker))
        self.at[f"{command} --do_export"] = os.path.join(self.at[trained], "export")


def make_all(tiny_model, tiny_classifier, folder) -> Made:
    """Makes the models, from one another."""
    made = Made(folder)
    tuned = str(made.folder / "tuned")
    shutil.copytree(str(tiny_classifier), tuned)
    made.at.update({"Google's release, without heads": os.path.dirname(tiny_model.vocab_file),
                    "run_classifier --do_train": tuned,
                    "Google's run_classifier": foreign_copy(tuned, made.folder / "google")})
    made.pairs.append(("Google's release, without heads", "run_classifier --do_train"))
    made.export("run_classifier", "run_classifier --do_export --task_name", run_classifier)
    pretrain_and_distil(made)
    rank_read_and_tag(made)
    convert_each(made)
    return made


def pretrain_and_distil(made):
    examples = write_frozen(made.folder / "examples.tfrecord", 24)
    made.run("pretraining.run", pretraining, {"init_checkpoint": (
        "Google's release, without heads", "pretraining.run --do_train")}, **made.train,
        input_file=examples, max_predictions_per_seq=PREDICTIONS, num_train_steps=2,
        num_warmup_steps=1)
    made.run("distillation.run --stage=general", distillation, {"teacher": (
        "pretraining.run", "distillation.run --stage=general --teacher")}, **made.train,
        stage="general", student="1,8,2,12", input_file=examples, num_train_epochs=1)
    made.run("distillation.run --stage=intermediate", distillation, {
        "teacher": ("run_classifier --do_export", "distillation.run --teacher --task_name"),
        "student": ("distillation.run --stage=general", "distillation.run --student")},
        **made.flags, stage="intermediate")
    made.run("distillation.run --stage=prediction", distillation, {
        "teacher": ("Google's run_classifier", "distillation.run --teacher --task_name"),
        "student": ("distillation.run --stage=intermediate", "distillation.run --student")},
        **made.flags, stage="prediction")


def rank_read_and_tag(made):
    write_slots(made.folder / "train.jsonl", [
        SlotExample("the cat ", f" the {word}.", ("sees", "likes", "old"), 1) for word in (
            "dog", "bird", "tree", "house")])
    made.run("rewriting.run", rewriting, {"init_checkpoint": (
        "pretraining.run", "rewriting.run --do_train")}, **made.train, num_train_epochs=1,
        train_file=made.folder / "train.jsonl")
    made.export("rewriting.run", "rewriting.run --do_export", rewriting)
    made.run("run_squad --do_train", run_squad, {"init_checkpoint": (
        "rewriting.run --do_export", "run_squad --do_train")},
        **{**made.train, "max_seq_length": 32}, num_train_epochs=1, max_query_length=8,
        train_file=write_made_up(made.folder / "questions.json", contexts=2))
    made.export("run_squad", "run_squad --do_export", run_squad)
    (made.folder / "tags.txt").write_text("old B-A\ncat I-A\nsees O\n\n" * 8)
    made.run("tagging.run", tagging, {"init_checkpoint": (
        "run_squad --do_train", "tagging.run --do_train")}, **made.train, num_train_epochs=1,
        train_file=made.folder / "tags.txt")
    made.export("tagging.run", "tagging.run --do_export", tagging)


def convert_each(made):
    made.run("encoder.convert --from_tensorflow", convert, {"from_tensorflow": (
        "run_classifier --do_export", "encoder.convert --from_tensorflow")})
    made.run("encoder.convert --from_huggingface", convert, {"from_huggingface": (
        "encoder.convert --from_tensorflow", "encoder.convert --from_huggingface")})
    made.run("encoder.convert --from_checkpoint", convert, {"from_checkpoint": (
        "Google's run_classifier", "encoder.convert --from_checkpoint")}, labels="0,1",
        max_seq_length=LENGTH)
    (made.folder / "words.txt").write_text("sailor\n")
    unused = made.folder / "unused.txt"
    with open(made.at["pretraining.run"] + "/vocab.txt") as file:
        unused.write_text(file.read().replace("##like", "[unused0]"))
    made.run("pretraining.create_vocab --extend_vocab", create_vocab, {"init_checkpoint": (
        "pretraining.run", "pretraining.create_vocab --extend_vocab")}, extend_vocab=True,
        vocab_file=unused, words_file=made.folder / "words.txt")


def foreign_copy(trained, folder):
    """What Google's code leaves of a training, with the files of the model it started from."""
    os.makedirs(str(folder))
    for name in os.listdir(trained):
        if name.startswith(("checkpoint", "model.ckpt", "vocab.txt", "bert_config.json")):
            shutil.copy(os.path.join(trained, name), str(folder))
    return str(folder)
