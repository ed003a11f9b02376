"""Every command that writes a model × every command that takes one: a result, or one line why not.

The models are made by the commands from one another, so that making them already runs a part of
the pairs; the other pairs are decided as the commands decide them, without building a model.
"""

import os

import pytest

import modeling
from commands import ends_with_error, run_here
from conftest import on_tensorflow_2
from distillation import teacher
from encoder import huggingface, model_files, task_json, vocabulary
from encoder.model_files import CLASSIFIER, ENCODER, MASKED_LM
from engine.disk import files
from engine.errors import UserError
from models_of_commands import RELEASE, foreign_copy
from pretraining_files import LENGTH
from reading import model as reading_model
from rewriting import data
from rewriting.scorer import PhraseScorer
from similarity.capability import TextEncoder
from tagging import run as tagging
from tagging.capability import EntityTagger
from runs import kinds
from runs import export
from tasks import model_folder
from tasks.table import TASKS

pytestmark = on_tensorflow_2  # the decisions depend on no runtime; the commands have tests on both

# --- Who writes, who takes ---------------------------------------------------------------

# Kind in task.json → what a model is, in the tables below. An export is "<...>'s export".
OF_KIND = {"classes": "classifier", "scorer": "scorer", "answers": "reader", "tags": "tagger",
           "similarity": "similarity"}
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


def kind_of(made, writer):
    if writer in OTHERS:
        return OTHERS[writer]
    kind = OF_KIND[task_json.read(model_files.folder_of(made.at[writer]))["kind"]]
    return kind + "'s export" * writer.endswith("--do_export")


COLA = TASKS["cola"].kind


def opens(flag, needs):
    return lambda path: model_files.open_folder(path, flag, needs)


def exports(check):
    return lambda path: (export._export_folder(path, None), check(path))


def teaches(kind):
    def check(path):
        found = teacher.load(path)
        if found.outputs == "logits":
            model_folder.check_labels(found.model.kind, kind, path, "--teacher")
    return check


def evaluates(kind):
    def check(path):
        model = model_files.open_folder(path, "--init_checkpoint", CLASSIFIER)
        model_folder.check_labels_beside(model.checkpoint, kind, "--init_checkpoint")
    return check


def has_labels(path):
    classification = model_folder.load(model_files.open_folder(path, "--output_dir"))[0]
    model_folder.check_labels(classification.kind, COLA, path, "--output_dir")


def answers(path):
    found = model_files.open_folder(path, "--init_checkpoint")
    reading_model.require_head(found.checkpoint, found.flag)


def opens_as(kind):
    return lambda path: kind.open(model_files.open_folder(path, "--output_dir"))


def tags(path):
    values = tagging.define_flags()
    values(["tagging", "--output_dir=nowhere", f"--init_checkpoint={path}"])
    tagging._tagger(values)


def rewrites(path):
    PhraseScorer.open(model_files.open_folder(path, "--output_dir", CLASSIFIER))


def comes_from_transformers(path):
    files.read_json(os.path.join(path, huggingface.CONFIG), "Hugging Face configuration")


# Taker → how it decides; what it refuses, each with a part of the line.
NO_LAYER, NO_HEAD = "no classification layer", "no masked-LM head"
NOT_TRAINED = dict(encoder=NO_LAYER, pretrained=NO_LAYER)
OF_READERS = {"reader": NO_LAYER, "reader's export": NO_LAYER}
OF_TAGGERS = dict.fromkeys(("tagger", "tagger's export"), "no classifier of texts")
# An encoder, but for what asks for a classifier by its description.
OF_VECTORS = dict.fromkeys(("similarity", "similarity's export"), NO_LAYER)
NO_WORDS = dict.fromkeys(("encoder", "classifier", "classifier's export", "foreign", "scorer",
                          "scorer's export", *OF_READERS, *OF_TAGGERS, *OF_VECTORS), NO_HEAD)
NO_TAGS = dict.fromkeys(KINDS - set(OF_TAGGERS), "has no trained tagger")
NO_ANSWERS = dict.fromkeys(KINDS - set(OF_READERS), "does not answer questions")
OTHER_LABELS, UNKNOWN = "the same task", "--from_checkpoint="
NO_SIMILARITY = dict.fromkeys(KINDS - set(OF_VECTORS), "was not trained for similarity")
OF_TEXTS = dict(NOT_TRAINED, **OF_READERS, **OF_TAGGERS, **OF_VECTORS,
                **dict.fromkeys(("scorer", "scorer's export"), OTHER_LABELS))
CLASSIFIERS = ("classifier", "classifier's export")
OF_SLOTS = dict(NOT_TRAINED, **OF_READERS, **OF_TAGGERS, **OF_VECTORS,
                **dict.fromkeys(CLASSIFIERS, OTHER_LABELS))
NO_SCORER = dict(NOT_TRAINED, **OF_READERS, **OF_TAGGERS, **OF_VECTORS, foreign=UNKNOWN,
                 **dict.fromkeys(CLASSIFIERS, "another kind of classifier"))
ARE_EXPORTS = dict.fromkeys((f"{kind}'s export" for kind in OF_KIND.values()), "is an export")


def without_vectors(refused):
    """What refuses a teacher: its vectors can teach, too."""
    return {kind: line for kind, line in dict(refused, foreign=UNKNOWN).items()
            if kind not in OF_VECTORS}


TAKERS = {
    "what starts from an encoder": (opens("--init_checkpoint", ENCODER), {}),
    "what predicts words": (opens("--init_checkpoint", MASKED_LM), NO_WORDS),
    "run_classifier --do_eval": (evaluates(COLA), OF_TEXTS),
    "run_classifier --do_export": (exports(has_labels), {
        **OF_TEXTS, **ARE_EXPORTS, "foreign": UNKNOWN}),
    "runs.predict": (kinds.open_reader, {**NOT_TRAINED, "foreign": UNKNOWN}),
    "distillation.run --teacher": (teaches(COLA), without_vectors(OF_TEXTS)),
    "distillation.run --teacher of slots": (teaches(data.KIND), without_vectors(OF_SLOTS)),
    "distillation.run --stage=general --teacher": (
        lambda path: teacher.load_encoder(path, LENGTH), {}),
    "rewriting.run --do_eval": (evaluates(data.KIND), OF_SLOTS),
    "rewriting.run --do_export": (exports(opens_as(PhraseScorer)), {**NO_SCORER, **ARE_EXPORTS}),
    "rewriting.rewrite": (rewrites, NO_SCORER),
    "run_squad --do_predict": (answers, NO_ANSWERS),
    "run_squad --do_export": (exports(answers), {**NO_ANSWERS, **ARE_EXPORTS}),
    "tagging.run --do_predict": (tags, NO_TAGS),
    "tagging.run --do_export": (exports(opens_as(EntityTagger)), {**NO_TAGS, **ARE_EXPORTS}),
    "similarity.search": (opens_as(TextEncoder), NO_SIMILARITY),
    "similarity.run --do_export": (exports(opens_as(TextEncoder)), {
        **NO_SIMILARITY, **ARE_EXPORTS}),
    "encoder.convert --from_checkpoint": (opens("--from_checkpoint", CLASSIFIER), {
        **NOT_TRAINED, **OF_READERS, **OF_TAGGERS, **OF_VECTORS}),
    "encoder.convert --from_huggingface": (comes_from_transformers, dict.fromkeys(
        KINDS, "config.json: No such file")),
}


def refusal(taker, kind):
    """A part of the line with which the taker refuses a model; None if it takes it."""
    if kind == "huggingface":
        return None if taker.endswith("--from_huggingface") else "is a Hugging Face folder"
    return TAKERS[taker][1].get(kind)


# --- The pairs ---------------------------------------------------------------------------


@pytest.mark.parametrize("taker", TAKERS)
def test_each_model_is_taken_or_refused_for_its_reason(made, taker, monkeypatch):
    monkeypatch.setattr(modeling, "BertModel", None)  # to decide, no model is built
    assert {kind_of(made, writer) for writer in made.at} == KINDS
    for writer, path in made.at.items():
        expected, error = refusal(taker, kind_of(made, writer)), ""
        try:
            TAKERS[taker][0](path)
        except UserError as refused:
            error = str(refused)
        if expected is None:
            assert not error, writer
        else:
            assert expected in error and path in error and "\n" not in error, writer


@pytest.mark.parametrize("kind", kinds.CLASSES)
def test_every_kind_of_the_table_can_be_opened(kind, made):
    assert callable(kinds.class_of(kind).open)
    of_kind = [path for writer, path in made.at.items()
               if OF_KIND.get(kind) == kind_of(made, writer)]
    assert of_kind or kind in ("multi_label", "regression")  # of the module of "classes"
    for path in of_kind:
        assert kinds.open_reader(path)[1].columns


def test_every_folder_is_complete(made):
    for writer, path in made.at.items():
        if kind_of(made, writer) in ("huggingface", "foreign") or writer == RELEASE:
            continue
        folder = model_files.folder_of(path)
        assert {"bert_config.json", "vocab.txt"} <= set(os.listdir(folder)), writer
        assert vocabulary.recorded_casing(folder) is True, writer


# --- What other code has trained ---------------------------------------------------------


@pytest.mark.parametrize("epochs, trains", [(1, False), (9, True)])
def test_training_on_makes_a_folder_of_google_s_one_of_ours(made, tmp_path, epochs, trains):
    google = foreign_copy(made.at["Google's run_classifier"], tmp_path / "google")
    before = model_files.open_folder(google, "").checkpoint.global_step
    run_here(dict(made.flags, output_dir=google, num_train_epochs=epochs))
    assert (model_files.open_folder(google, "").checkpoint.global_step > before) == trains
    assert model_folder.load(model_files.open_folder(google, ""))[0].kind.labels == ("0", "1")


def test_another_number_of_labels_is_refused_and_nothing_is_written(made, tmp_path, capsys):
    google = foreign_copy(made.at["Google's run_classifier"], tmp_path / "google")
    held = sorted(os.listdir(google))
    rows = "\t".join(map(str, range(12)))
    for name in ("train.tsv", "dev_matched.tsv"):
        (tmp_path / name).write_text(f"{rows}\n" + f"{rows[:-2]}neutral\n" * 8)
    with ends_with_error(capsys, "2 outputs, and the task's labels need 3"):
        run_here(dict(made.flags, task_name="mnli", data_dir=tmp_path, output_dir=google))
    assert [name for name in sorted(os.listdir(google)) if name != "store"] == held
