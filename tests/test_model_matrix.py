"""Every command that writes a model × every command that takes one: a result, or one line why not.

The models are made by the commands from one another, so that making them already runs a part of
the pairs; the other pairs are decided as the commands decide them, without building a model.
"""

import os
import shutil

import numpy as np
import pytest

import modeling
import run_classifier
import run_squad
from commands import run_here
from conftest import on_tensorflow_2, sentences, write_cola
from distillation import compare, run as distillation, teacher
from encoder import convert, huggingface, model_files, vocabulary
from encoder.model_files import CLASSIFIER, ENCODER, MASKED_LM
from engine import files
from engine.errors import UserError
from pretraining import create_vocab, run as pretraining, score
from pretraining_files import LENGTH, PREDICTIONS, write_frozen
from reading import model as reading_model
from reading_files import write_made_up
from rewriting import data, rewrite, run as rewriting, scorer
from rewriting.slot_files import SlotExample
from tagging import run as tagging, tagger
from tasks import export, kinds, model_folder, predict
from tasks.table import TASKS
from test_rewriting_pairs import write_slots

pytestmark = on_tensorflow_2  # what is decided before a model is built, and the commands' tests do

# --- Who writes, who takes ---------------------------------------------------------------

# Writer → what its model is.
WRITERS = {
    "Google's release, without heads": "encoder",
    "pretraining.run": "pretrained",
    "pretraining.create_vocab --extend_vocab": "pretrained",
    "distillation.run --stage=general": "encoder",
    "distillation.run --stage=intermediate": "encoder",
    "distillation.run --stage=prediction": "classifier",
    "run_classifier --do_train": "classifier",
    "run_classifier --do_export": "export",
    "Google's run_classifier": "foreign",
    "rewriting.run": "scorer",
    "rewriting.run --do_export": "scorer's export",
    "run_squad --do_train": "reader",
    "run_squad --do_export": "reader's export",
    "tagging.run": "tagger",
    "tagging.run --do_export": "tagger's export",
    "encoder.convert --from_tensorflow": "huggingface",
    "encoder.convert --from_huggingface": "classifier",
    "encoder.convert --from_checkpoint": "classifier",
}
COLA = TASKS["cola"].kind


def opens(flag, needs):
    return lambda path: model_files.open_model(path, flag, needs)


def exports(path):
    export.export_folder(path)
    model_folder.check_labels(model_folder.load(path, labels=(COLA, False)).kind, COLA, path,
                              "--output_dir")


def teaches_slots(path):
    model_folder.check_labels(teacher.load(path).kind, data.KIND, path, "--teacher")


def teaches(path):
    model_folder.check_labels(teacher.load(path, (COLA, False)).kind, COLA, path, "--teacher")


def compares(path):
    model_folder.check_labels(model_folder.load(path, "--models").kind, COLA, path, "--models")


def evaluates(kind):
    def check(path):
        model = model_files.open_model(path, "--init_checkpoint", CLASSIFIER)
        known = model_folder.labels_beside(model.checkpoint, "--output_dir")
        model_folder.check_labels(known or kind, kind, path, "--init_checkpoint")
    return check


def compares_slots(path):
    model_folder.check_labels(model_folder.load(path, "--models").kind, data.KIND, path, "--models")


def exports_slots(path):
    export.export_folder(path)
    scorer.load(path)


def answers(path, flag="--init_checkpoint"):
    found = model_files.open_model(path, flag)
    reading_model.require_head(found.checkpoint, found.flag)


def exports_answers(path):
    export.export_folder(path)
    answers(path, "--output_dir")


def exports_tags(path):
    export.export_folder(path)
    tagger.open_files(path)


def tags(path):
    values = tagging.define_flags()
    values(["tagging", "--output_dir=nowhere", f"--init_checkpoint={path}"])
    tagging._saved_tagger(values)


def rewrites(path):
    values = rewrite.define_flags()
    values(["rewrite", f"--output_dir={path}"])
    rewrite._model(values)


def comes_from_transformers(path):
    files.read_json(os.path.join(path, huggingface.CONFIG), "Hugging Face configuration")


# Taker → how it decides; what it refuses, each with a part of the line.
NO_LAYER, NO_HEAD = "no classification layer", "no masked-LM head"
NOT_TRAINED = dict(encoder=NO_LAYER, pretrained=NO_LAYER)
OF_READERS = {"reader": NO_LAYER, "reader's export": NO_LAYER}
OF_TAGGERS = dict.fromkeys(("tagger", "tagger's export"), "no classifier of texts")
NO_WORDS = dict.fromkeys(("encoder", "classifier", "export", "foreign", "scorer",
                          "scorer's export", *OF_READERS, *OF_TAGGERS), NO_HEAD)
NO_TAGS = dict.fromkeys(set(WRITERS.values()) - set(OF_TAGGERS), "has no trained tagger")
NO_ANSWERS = dict.fromkeys(set(WRITERS.values()) - set(OF_READERS), "does not answer questions")
OTHER_LABELS, UNKNOWN = "the same task", "--from_checkpoint="
OF_TEXTS = dict(NOT_TRAINED, **OF_READERS, **OF_TAGGERS,
                **dict.fromkeys(("scorer", "scorer's export"), OTHER_LABELS))
OF_SLOTS = dict(NOT_TRAINED, **OF_READERS, **OF_TAGGERS, classifier=OTHER_LABELS, export=OTHER_LABELS)
NO_SCORER = dict(NOT_TRAINED, **OF_READERS, **OF_TAGGERS, classifier="another kind of classifier",
                 export="another kind of classifier", foreign=UNKNOWN)
NOT_TEXTS = "not plain texts: predict with python -m rewriting.run"
ARE_EXPORTS = dict.fromkeys(
    ("export", "scorer's export", "reader's export", "tagger's export"), "is an export")
TAKERS = {
    "run_classifier --do_train": (opens("--init_checkpoint", ENCODER), {}),
    "run_classifier --do_eval": (evaluates(COLA), OF_TEXTS),
    "run_classifier --do_export --task_name": (exports, {**OF_TEXTS, **ARE_EXPORTS}),
    "tasks.predict": (kinds.open_model, {
        **NOT_TRAINED, "foreign": UNKNOWN, "scorer": NOT_TEXTS, "scorer's export": NOT_TEXTS}),
    "distillation.compare": (compares, dict(OF_TEXTS, foreign=UNKNOWN)),
    "distillation.run --teacher --task_name": (teaches, OF_TEXTS),
    "distillation.run --teacher of slots": (teaches_slots, dict(OF_SLOTS, foreign=UNKNOWN)),
    "distillation.run --stage=general --teacher": (
        lambda path: teacher.load_encoder(path, LENGTH), {}),
    "distillation.run --student": (opens("--student", ENCODER), {}),
    "pretraining.run --do_train": (opens("--init_checkpoint", ENCODER), {}),
    "pretraining.run --do_eval": (opens("--init_checkpoint", MASKED_LM), NO_WORDS),
    "pretraining.score": (opens("--init_checkpoint", MASKED_LM), NO_WORDS),
    "pretraining.create_vocab --extend_vocab": (opens("--init_checkpoint", ENCODER), {}),
    "augmentation.run": (opens("--init_checkpoint", MASKED_LM), NO_WORDS),
    "extract_features": (opens("--init_checkpoint", ENCODER), {}),
    "rewriting.run --do_train": (opens("--init_checkpoint", ENCODER), {}),
    "rewriting.run --do_eval": (evaluates(data.KIND), OF_SLOTS),
    "distillation.compare of slots": (compares_slots, dict(OF_SLOTS, foreign=UNKNOWN)),
    "rewriting.run --do_export": (exports_slots, {**NO_SCORER, **ARE_EXPORTS}),
    "rewriting.rewrite": (rewrites, NO_SCORER),
    "run_squad --do_train": (opens("--init_checkpoint", ENCODER), {}),
    "run_squad --do_predict": (answers, NO_ANSWERS),
    "run_squad --do_export": (exports_answers, {**NO_ANSWERS, **ARE_EXPORTS}),
    "tagging.run --do_train": (opens("--init_checkpoint", ENCODER), {}),
    "tagging.run --do_predict": (tags, NO_TAGS),
    "tagging.run --do_export": (exports_tags, {**NO_TAGS, **ARE_EXPORTS}),
    "rewriting.baselines": (opens("--init_checkpoint", MASKED_LM), NO_WORDS),
    "encoder.convert --from_tensorflow": (opens("--from_tensorflow", ENCODER), {}),
    "encoder.convert --from_checkpoint": (opens("--from_checkpoint", CLASSIFIER), {
        **NOT_TRAINED, **OF_READERS, **OF_TAGGERS}),
    "encoder.convert --from_huggingface": (comes_from_transformers, dict.fromkeys(
        WRITERS.values(), "config.json: No such file")),
}


# Pairs that tests run, beside those that make the models.
ALSO_RUN = [
    ("run_classifier --do_train", "tasks.predict"),
    ("encoder.convert --from_huggingface", "tasks.predict"),
    ("encoder.convert --from_checkpoint", "tasks.predict"),
    ("tagging.run --do_export", "tagging.run --do_predict"),
    ("run_classifier --do_export", "run_classifier --do_train"),
    ("pretraining.run", "pretraining.score"),
    ("Google's run_classifier", "run_classifier --do_export --task_name"),
]


def refusal(taker, writer):
    """A part of the line with which the taker refuses the writer's model; None if it takes it."""
    kind = WRITERS[writer]
    if kind == "huggingface":
        return None if taker.endswith("--from_huggingface") else "is a Hugging Face folder"
    return TAKERS[taker][1].get(kind)


# --- The models --------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def made(tiny_model, tiny_classifier, tmp_path_factory):
    made = Made(tmp_path_factory.mktemp("models"))
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


# --- The pairs ---------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("taker", TAKERS)
def test_each_pair_is_taken_or_refused_for_its_reason(made, writer, taker, monkeypatch):
    def build(*args, **kwargs):
        raise AssertionError("a model is built to decide whether it can be")

    monkeypatch.setattr(modeling, "BertModel", build)
    expected, error = refusal(taker, writer), ""
    try:
        TAKERS[taker][0](made.at[writer])
    except UserError as refused:
        error = str(refused)
    if expected is None:
        assert not error
    else:
        assert expected in error and made.at[writer] in error and "\n" not in error


def test_what_the_commands_take_where_they_run_is_what_the_table_says(made):
    run = {*made.pairs, *ALSO_RUN}
    assert len(run) >= 20
    assert not [(writer, taker) for writer, taker in run if refusal(taker, writer)]


def test_every_folder_is_complete(made):
    for writer, path in made.at.items():
        if WRITERS[writer] in ("huggingface", "foreign") or writer.startswith("Google's release"):
            continue
        folder = model_files.folder_of(path)
        assert {"bert_config.json", "vocab.txt"} <= set(os.listdir(folder)), writer
        assert vocabulary.recorded_casing(folder) is True, writer


def answers_of(path, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in sentences(5)))
    run_here(dict(output_dir=path, input_file=tmp_path / "texts.txt", num_cpu_replicas=1,
                  output_file=tmp_path / "answers.tsv", header=False, text_column=1), predict)
    rows = [line.split("\t") for line in (tmp_path / "answers.tsv").read_text().splitlines()]
    return rows[0], np.array([row[1:] for row in rows[1:]], float)


def test_a_classifier_keeps_its_answers_on_every_way_through_the_commands(made, tmp_path):
    header, expected = answers_of(made.at["run_classifier --do_train"], tmp_path)
    assert header == ["label", "0", "1"]
    for writer in ("encoder.convert --from_huggingface", "encoder.convert --from_checkpoint"):
        same_header, scores = answers_of(made.at[writer], tmp_path)
        assert same_header == header
        np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_the_folder_alone_is_enough_to_start_from_it(made, tmp_path, capsys):
    run_here(dict(made.flags, init_checkpoint=made.at["run_classifier --do_export"],
                  output_dir=tmp_path / "tuned"))
    assert (tmp_path / "tuned" / "task.json").exists()
    (tmp_path / "texts.txt").write_text("the cat sees the dog .\n")
    run_here(dict(init_checkpoint=made.at["pretraining.run"], num_cpu_replicas=1,
                  max_seq_length=LENGTH, input_file=tmp_path / "texts.txt"), score)
    assert '"perplexity"' in capsys.readouterr().out


@pytest.mark.parametrize("module, flag, writer, flags", [
    (predict, "output_dir", "distillation.run --stage=intermediate", {}),
    (predict, "output_dir", "encoder.convert --from_tensorflow", {}),
    (run_classifier, "init_checkpoint", "rewriting.run", dict(do_train=None, do_eval=True)),
    (run_classifier, "init_checkpoint", "distillation.run --stage=general",
     dict(do_train=None, do_eval=True)),
    (distillation, "teacher", "rewriting.run", dict(stage="prediction", student="1,8,2,12")),
    (compare, "models", "rewriting.run", None),
    (score, "init_checkpoint", "run_classifier --do_export", {}),
])
def test_a_command_refuses_before_it_builds_a_model_with_one_line_and_status_2(
        made, module, flag, writer, flags, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(modeling, "BertModel", None)
    if module in (run_classifier, distillation):
        flags = {**made.flags, "output_dir": tmp_path / "out", **flags}
    elif module is compare:
        flags = dict(task_name="cola", data_dir=made.flags["data_dir"], num_cpu_replicas=1)
    with pytest.raises(SystemExit) as exit_info:
        run_here({**flags, flag: made.at[writer]}, module)
    assert exit_info.value.code == 2
    assert len([line for line in capsys.readouterr().err.splitlines()
                if line.startswith("error: ")]) == 1


# --- What other code has trained ---------------------------------------------------------


def test_a_folder_of_google_s_is_exported_with_the_labels_of_its_task(made, tmp_path):
    google = foreign_copy(made.at["Google's run_classifier"], tmp_path / "google")
    run_here(dict(output_dir=google, task_name="cola", do_export=True, max_seq_length=LENGTH))
    _, expected = answers_of(made.at["run_classifier --do_train"], tmp_path)
    _, scores = answers_of(os.path.join(google, "export"), tmp_path)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize("epochs, trains", [(1, False), (9, True)])
def test_training_on_makes_a_folder_of_google_s_one_of_ours(made, tmp_path, epochs, trains):
    google = foreign_copy(made.at["Google's run_classifier"], tmp_path / "google")
    before = model_files.open_model(google, "").checkpoint.global_step
    run_here(dict(made.flags, output_dir=google, num_train_epochs=epochs))
    assert (model_files.open_model(google, "").checkpoint.global_step > before) == trains
    assert model_folder.load(google).kind.labels == ("0", "1")


@pytest.mark.parametrize("module, flags", [
    (run_classifier, dict(do_export=True, do_train=None)), (run_classifier, {}),
    (distillation, dict(stage="prediction", student="1,8,2,12"))])
def test_another_number_of_labels_is_refused_and_nothing_is_written(
        made, tmp_path, capsys, module, flags):
    google = foreign_copy(made.at["Google's run_classifier"], tmp_path / "google")
    given = ({"output_dir": google} if module is run_classifier
             else {"output_dir": tmp_path / "out", "teacher": google})
    held = sorted(os.listdir(google))
    rows = "\t".join(map(str, range(12)))
    for name in ("train.tsv", "dev_matched.tsv"):
        (tmp_path / name).write_text(f"{rows}\n" + f"{rows[:-2]}neutral\n" * 8)
    with pytest.raises(SystemExit):
        run_here(dict(made.flags, task_name="mnli", data_dir=tmp_path, **flags, **given), module)
    assert "2 outputs, and the task's labels need 3" in capsys.readouterr().err
    assert [name for name in sorted(os.listdir(google)) if name != "store"] == held
