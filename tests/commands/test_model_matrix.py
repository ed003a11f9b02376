"""Every command that writes a model × every command that takes one: a result, or one line why not.

The models are made by the commands from one another, so that making them already runs a part of
the pairs; the other pairs are decided as the commands decide them, without building a model.
"""

import os

import pytest

import modeling
from choice.capability import Chooser
from commands import ends_with_error, run_here
from conftest import on_tensorflow_2
from distillation import teacher
from encoder import huggingface, model_files, task_json, vocabulary
from encoder.pretraining_heads import require_masked_lm_head
from engine.disk import files
from engine.errors import UserError
from models_of_commands import RELEASE, foreign_copy
from pretraining_files import LENGTH
from reading import model as reading_model
from rewriting.scorer import PhraseScorer
from similarity.capability import TextEncoder
from tagging.capability import EntityTagger
from runs import kinds, output_layer
from tasks import model_folder
from tasks.capability import Classifier
from tasks.model_folder import Classification
from tasks.table import TASKS

pytestmark = on_tensorflow_2  # the decisions depend on no runtime; the commands have tests on both

# --- Who writes, who takes ---------------------------------------------------------------

# Kind in task.json → what a model is, in the tables below. An export is "<...>'s export".
OF_KIND = {"classes": "classifier", "scorer": "scorer", "answers": "reader", "tags": "tagger",
           "similarity": "similarity", "multiple_choice": "chooser"}
# The writers of models without a task.json.
OTHERS = {
    RELEASE: "encoder",
    "pretraining.run": "pretrained",
    "distillation.run --stage=general": "encoder",
    "distillation.run --stage=intermediate": "encoder",
    "Google's run_classifier": "foreign",
    "encoder.convert --from_tensorflow": "huggingface",
}
KINDS = {*OF_KIND.values(), *(f"{kind}'s export" for kind in OF_KIND.values()), *OTHERS.values()}


def kind_of(models, writer):
    if writer in OTHERS:
        return OTHERS[writer]
    kind = OF_KIND[task_json.read(model_files.folder_of(models.at[writer]))["kind"]]
    return kind + "'s export" * writer.endswith("--do_export")


COLA = Classifier(Classification(TASKS["cola"].kind), None, None)


def opens(flag, **options):
    return lambda path: model_files.open_folder(path, flag, **options)


def opens_as(kind):
    return lambda path: kind.open(model_files.open_folder(path, "--output_dir"))


def predicts_words(path):
    require_masked_lm_head(model_files.open_folder(path, "--init_checkpoint").checkpoint)


def teaches(path):
    model = teacher.load(path)
    if model.outputs == "logits":
        output_layer.taken_over(COLA, model.checkpoint, "--teacher")


def evaluates(path):
    model_folder.saved(path)
    model = model_files.open_folder(path, "--init_checkpoint")
    COLA.require(model.checkpoint, model.flag)
    output_layer.taken_over(COLA, model.checkpoint, "--init_checkpoint")


def answers(path):
    model = model_files.open_folder(path, "--init_checkpoint")
    reading_model.require_head(model.checkpoint, model.flag)


def comes_from_transformers(path):
    files.read_json(os.path.join(path, huggingface.CONFIG), "Hugging Face configuration")


def all_but(*kinds_taken):
    return KINDS - {*kinds_taken, *(f"{kind}'s export" for kind in kinds_taken)}


# Kinds that a taker refuses, each with a part of the line.
NO_LAYER = dict.fromkeys(all_but("classifier", "scorer", "tagger", "chooser", "foreign", "huggingface"),
                         "no classification layer")
NO_TEXTS = dict.fromkeys(("tagger", "tagger's export", "chooser", "chooser's export"), "no classifier of texts")
OF_SCORERS = dict.fromkeys(("scorer", "scorer's export"), "the same task")
OF_CLASSIFIERS = dict.fromkeys(("classifier", "classifier's export"), "another kind of classifier")
UNKNOWN = dict(foreign="--from_checkpoint=")
OF_TEXTS = {**NO_LAYER, **NO_TEXTS, **OF_SCORERS}
OF_VECTORS = ("similarity", "similarity's export")

# Taker → how it decides; what it refuses.
TAKERS = {
    "what starts from an encoder": (opens("--init_checkpoint"), {}),
    "what predicts words": (predicts_words, dict.fromkeys(
        all_but("pretrained", "huggingface"), "no masked-LM head")),
    "run_classifier --do_eval": (evaluates, {
        **dict.fromkeys(NO_LAYER, "no classifier of texts"), **NO_TEXTS, **OF_SCORERS,
        **dict.fromkeys(("encoder", "pretrained"), "no classification layer")}),
    "runs.predict": (kinds.open_reader, {
        **dict.fromkeys(("encoder", "pretrained"), "no classification layer"), **UNKNOWN}),
    "distillation.run --teacher": (teaches, {  # whose vectors can teach, too
        kind: line for kind, line in {**OF_TEXTS, **UNKNOWN}.items() if kind not in OF_VECTORS}),
    "distillation.run --stage=general --teacher": (
        lambda path: teacher.load_encoder(path, LENGTH), {}),
    "rewriting.rewrite": (opens_as(PhraseScorer), {
        **NO_LAYER, **NO_TEXTS, **OF_CLASSIFIERS, **UNKNOWN}),
    "run_squad --do_predict": (answers, dict.fromkeys(all_but("reader"), "does not answer questions")),
    "tagging.run --do_predict": (opens_as(EntityTagger), dict.fromkeys(
        all_but("tagger"), "has no trained tagger")),
    "similarity.search": (opens_as(TextEncoder), dict.fromkeys(
        all_but("similarity"), "was not trained for similarity")),
    "choice.run --do_predict": (opens_as(Chooser), dict.fromkeys(
        all_but("chooser"), "was not trained to choose among answers")),
    "encoder.convert --from_checkpoint": (
        opens("--from_checkpoint", is_foreign=True), {**NO_LAYER, **NO_TEXTS}),
    "encoder.convert --from_huggingface": (
        comes_from_transformers, dict.fromkeys(KINDS, "config.json: No such file")),
}


def refusal(taker, kind):
    """A part of the line with which the taker refuses a model; None if it takes it."""
    if kind == "huggingface":
        return None if taker.endswith("--from_huggingface") else "is a Hugging Face folder"
    return TAKERS[taker][1].get(kind)


# --- The pairs ---------------------------------------------------------------------------


@pytest.mark.parametrize("taker", TAKERS)
def test_each_model_is_taken_or_refused_for_its_reason(models, taker, monkeypatch):
    monkeypatch.setattr(modeling, "BertModel", None)  # to decide, no model is built
    assert {kind_of(models, writer) for writer in models.at} == KINDS
    for writer, path in models.at.items():
        expected, error = refusal(taker, kind_of(models, writer)), ""
        try:
            TAKERS[taker][0](path)
        except UserError as refused:
            error = str(refused)
        if expected is None:
            assert not error, writer
        else:
            assert expected in error and path in error and "\n" not in error, writer


def test_every_folder_is_complete(models):
    for writer, path in models.at.items():
        if kind_of(models, writer) in ("huggingface", "foreign") or writer == RELEASE:
            continue
        folder = model_files.folder_of(path)
        assert {"bert_config.json", "vocab.txt"} <= set(os.listdir(folder)), writer
        assert vocabulary.recorded_casing(folder) is True, writer


# --- What other code has trained ---------------------------------------------------------


@pytest.mark.parametrize("epochs, trains", [(1, False), (9, True)])
def test_training_on_makes_a_folder_of_google_s_one_of_ours(models, tmp_path, epochs, trains):
    google = foreign_copy(models.at["Google's run_classifier"], tmp_path / "google")
    before = model_files.open_folder(google, "").checkpoint.global_step
    run_here(dict(models.flags, output_dir=google, num_train_epochs=epochs))
    assert (model_files.open_folder(google, "").checkpoint.global_step > before) == trains
    assert model_folder.load(model_files.open_folder(google, ""))[0].kind.labels == ("0", "1")


def test_another_number_of_labels_is_refused_and_nothing_is_written(models, tmp_path, capsys):
    google = foreign_copy(models.at["Google's run_classifier"], tmp_path / "google")
    held = sorted(os.listdir(google))
    rows = "\t".join(map(str, range(12)))
    for name in ("train.tsv", "dev_matched.tsv"):
        (tmp_path / name).write_text(f"{rows}\n" + f"{rows[:-2]}neutral\n" * 8)
    with ends_with_error(capsys, "2 outputs, and the task's labels need 3"):
        run_here(dict(models.flags, task_name="mnli", data_dir=tmp_path, output_dir=google))
    assert [name for name in sorted(os.listdir(google)) if name != "store"] == held
