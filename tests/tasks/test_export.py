"""`--do_export` writes a model that other programs can use, with the numbers of --do_predict, and a card.

What one runtime writes loads in the other: every op and attribute is known to TensorFlow 1.15,
by the list in `tensorflow_1_15_ops.json`, which is held against the real one there.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import sklearn.metrics
import tensorflow.compat.v1 as tf
from scipy import stats
from tensorflow.core.protobuf import saved_model_pb2

from commands import ends_with_error, results_of, run_here
from conftest import ROOT, checkpoint_values, on_tensorflow_2, sentences
from encoder import model_files, task_json
from engine.devices import runtime
from exports import INPUTS, run_saved_model, train
from pages import Page
from runs import model_card
from tasks import model_folder
from tasks.data import encode_texts
from runs.rows import Example

NUM_TEXTS = 30
TEXTS = [*sentences(NUM_TEXTS - 1, 3), "the dog <b>sees</b> & likes"]
# Kind of the labels → how a text is labelled.
KINDS = {
    "classes": lambda text: "cat" if "cat" in text else "none",
    "multi_label": lambda text: ",".join(animal for animal in ("cat", "dog", "bird") if animal in text),
    "regression": lambda text: str(len(text) / 50),
}
# Of a test of which the kind of the labels is not the point.
of_one_kind = pytest.mark.parametrize("exported", ["classes"], indirect=True)


@pytest.fixture(scope="module", params=["classes", *(
    pytest.param(kind, marks=on_tensorflow_2) for kind in ("multi_label", "regression"))])
def exported(request, tiny_model, tmp_path_factory):
    """The output directory of a training with --do_export, for each kind of label."""
    folder, label = tmp_path_factory.mktemp(request.param), KINDS[request.param]
    (folder / "data").mkdir()
    for name, texts in (("train", sentences(24, 1)), ("dev", TEXTS), ("test", TEXTS)):
        (folder / "data" / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(
            f"{text}\t{label(text)}\n" for text in texts))
    train(tiny_model, folder / "out", **flags_of(folder, request.param), do_eval=True, do_predict=True,
          num_cpu_replicas=2 if request.param == "classes" else 1)
    return folder / "out"


def flags_of(folder, label_kind):
    return dict(task_name="file", data_dir=folder / "data", label_kind=label_kind, do_train=True,
                do_export=True)


def features_of(export_dir):
    """The test set as the model's inputs, padded to one length."""
    classification, _, encoding = model_folder.load(model_files.open_folder(str(export_dir), ""))
    texts = encode_texts([Example((text,)) for text in TEXTS], classification.kind, encoding)
    source = texts.source(with_labels=False)
    return source.fetch(np.arange(NUM_TEXTS), 24)


def expected(output_dir):
    return np.loadtxt(str(output_dir / "test_results.tsv"), ndmin=2)


def scores_of(outputs):
    if "value" in outputs:
        return outputs["value"][:, np.newaxis]
    return outputs["probabilities"]


def read_saved_model(export_dir):
    message = saved_model_pb2.SavedModel()
    message.ParseFromString((export_dir / "saved_model.pb").read_bytes())
    return message.meta_graphs[0]


# --- Its numbers -------------------------------------------------------------------------


def test_the_results_are_those_of_scikit_learn_and_scipy_on_the_predictions(exported):
    results, scores = results_of(exported), expected(exported)
    task = task_json.read(str(exported))
    written = [KINDS[task["kind"]](text) for text in TEXTS]
    if task["kind"] == "regression":
        labels, predicted = np.array(written, float), scores[:, 0]
        figures = {"eval_loss": sklearn.metrics.mean_squared_error(labels, predicted),
                   "pearson": stats.pearsonr(labels, predicted)[0],
                   "spearman": stats.spearmanr(labels, predicted)[0],
                   "r2": sklearn.metrics.r2_score(labels, predicted)}
        assert results["per_class"] == []
    else:
        labels = np.array([[name in label.split(",") for name in task["labels"]] for label in written], int)
        predicted, is_single = (scores >= 0.5).astype(int), task["kind"] == "classes"
        figures = {f"{average}_f1": sklearn.metrics.f1_score(labels, predicted, average=average, zero_division=0)
                   for average in ("macro", "micro")}
        figures.update(eval_accuracy=sklearn.metrics.accuracy_score(labels, predicted),
                       eval_loss=sklearn.metrics.log_loss(*(
                           (labels, scores) if is_single else (labels.ravel(), scores.ravel()))))
        assert [row["num_examples"] for row in results["per_class"]] == labels.sum(axis=0).tolist()
        assert results["confusion_matrix"] == (sklearn.metrics.confusion_matrix(
            labels.argmax(axis=1), predicted.argmax(axis=1)).tolist() if is_single else [])
        assert (exported / "predict.txt").read_text().splitlines() == [
            ",".join(np.array(task["labels"])[row > 0]) for row in predicted]
    for name, value in figures.items():
        assert results[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_it_has_the_numbers_of_do_predict_whatever_the_sizes_of_the_batch(exported):
    features = features_of(exported / "export")
    outputs = run_saved_model(exported / "export", features)
    np.testing.assert_allclose(scores_of(outputs), expected(exported), atol=1e-5)
    kind = task_json.read(str(exported))["kind"]
    assert ("label_index" in outputs) == (kind == "classes")
    if "label_index" in outputs:
        np.testing.assert_array_equal(outputs["label_index"], expected(exported).argmax(axis=1))
    one = {name: value[:1, :int(features["input_mask"][0].sum())]
           for name, value in features.items()}
    np.testing.assert_allclose(scores_of(run_saved_model(exported / "export", one)),
                               expected(exported)[:1], atol=1e-5)


# --- Its files, and the report beside it --------------------------------------------------


@of_one_kind
def test_an_export_is_replaced_whole_by_one_of_the_newest_checkpoint(tiny_model, exported, finished):
    first = checkpoint_values(str(finished / "export" / "variables" / "variables"))
    train(tiny_model, finished, **{**flags_of(exported.parent, "classes"), "num_train_epochs": 2})
    second = checkpoint_values(str(finished / "export" / "variables" / "variables"))
    assert np.abs(second["output_weights"] - first["output_weights"]).max() > 0
    np.testing.assert_array_equal(second["output_weights"],
                                  checkpoint_values(str(finished))["output_weights"])
    assert sorted(os.listdir(str(finished / "export"))) == [
        "README.md", "assets.extra", "saved_model.pb", "variables"]
    assert sorted(name for name in os.listdir(str(finished / "export" / "assets.extra"))
                  if not name.startswith("serving-")) == [
        "bert_config.json", "run.json", "task.json", "tokenizer_config.json", "vocab.txt"]
    assert [name for name in os.listdir(str(finished)) if "export" in name] == ["export"]
    # The evaluation was of the earlier checkpoint.
    assert "not evaluated" in (finished / "export" / "README.md").read_text(encoding="utf-8")


@of_one_kind
@on_tensorflow_2
def test_the_model_card_and_the_report_say_what_the_run_s_files_say(exported):
    card = (exported / "export" / "README.md").read_text(encoding="utf-8")
    page = Page((exported / "report.html").read_text(encoding="utf-8"))
    results = results_of(exported)
    assert results["num_examples"] == NUM_TEXTS
    for name in ("eval_accuracy", "eval_loss", "macro_f1"):
        assert f"| {name} | {results[name]:.5g} |" in card
        assert name in page.text and f"{results[name]:.4f}" in page.text
    for said in ("# file: a fine-tuned BERT\n", "step 3.", "One of 2 labels", "0. `cat`\n1. `none`\n",
                 f"| num_examples | {NUM_TEXTS} |", "| --learning_rate | 0.001 |", "| global batch size | 8 |",
                 "| --optimizer | adamw |", "| --precision | tf32 |", "1 layer, hidden size 16",
                 f"TensorFlow {tf.VERSION}", "python -m runs.predict", "label_index"):
        assert said in card, said
    for said in ("CPU:0 CPU:1", "--learning_rate", "1 layer, hidden size 16", "adamw",
                 "Examples/s", "peak memory"):
        assert said in page.text, said
    predicted = (exported / "predict.txt").read_text().split()
    wrong = {text for text, label in zip(TEXTS, predicted) if label != KINDS["classes"](text)}
    assert wrong and round((1 - results["eval_accuracy"]) * NUM_TEXTS) == len(wrong)
    shown = {text for text in TEXTS if f"Text{text}" in page.text.splitlines()}
    assert shown <= wrong and len(shown) == min(20, len(wrong))
    assert "b" not in {tag for tag, _ in page.elements}


def test_labels_are_text_on_the_card_whatever_they_look_like():
    hostile = "<script>alert(1)</script> `a` | [b](javascript:c)"
    assert model_card._labels([hostile, "plain"])[1:3] == [
        f"0. ``{hostile}``", "1. `plain`"]
    assert model_card._text(hostile) == (
        r"&lt;script&gt;alert(1)&lt;/script&gt; \`a\` \| \[b\](javascript:c)")


def test_it_holds_one_set_of_the_model_s_variables_and_nothing_of_the_training(exported):
    variables = checkpoint_values(str(exported / "export" / "variables" / "variables"))
    held = checkpoint_values(str(exported))
    assert sorted(variables) == sorted(
        name for name in held if "adam" not in name and name != "global_step")
    np.testing.assert_equal(variables, {name: held[name] for name in variables})
    names = [node.name.lower() for node in read_saved_model(exported / "export").graph_def.node]
    assert not [name for name in names if "adam" in name or "gradient" in name
                or "replica" in name or "dropout" in name or "global_step" in name]


# --- The other runtime -------------------------------------------------------------------

@of_one_kind
def test_the_program_on_its_card_runs(exported, tmp_path):
    card = (exported / "export" / "README.md").read_text(encoding="utf-8")
    features, program = features_of(exported / "export"), re.search(r"```python\n(.*?)```", card, re.S)
    np.savez(str(tmp_path / "features.npz"), **{name: features[name] for name in INPUTS})
    result = subprocess.run(
        [sys.executable, "-c", "import numpy as np\nglobals().update(np.load('features.npz'))\n"
         + program.group(1).replace('"export"', repr(str(exported / "export")))
         + "np.save('answers.npy', outputs['probabilities'].numpy())"], cwd=str(tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert result.returncode == 0, result.stdout
    np.testing.assert_allclose(np.load(str(tmp_path / "answers.npy")), expected(exported), atol=1e-5)


def known_ops():
    """Op → the names of its attributes, of TensorFlow 1.15, for those that exports need."""
    with open(os.path.join(ROOT, "tests", "tensorflow_1_15_ops.json")) as file:
        return {op: set(attributes) for op, attributes in json.load(file).items()}


def test_every_op_and_attribute_is_known_to_tensorflow_1_15(exported):
    known = known_ops()
    graph = read_saved_model(exported / "export").graph_def
    assert not graph.library.function
    assert graph.versions.min_consumer <= 134  # the version of 1.15
    unknown = {(node.op, attribute) for node in graph.node for attribute in node.attr
               if not attribute.startswith("_")  # these belong to any op
               and attribute not in known.get(node.op, ())}
    assert not unknown
    assert not {node.op for node in graph.node} - set(known)


@pytest.mark.skipif(not runtime.IS_TENSORFLOW_1, reason="needs TensorFlow 1.15 to compare with")
def test_the_list_of_ops_is_tensorflow_1_15_s():
    from tensorflow.python.framework import op_def_registry
    registered = op_def_registry.get_registered_ops()
    for op, attributes in known_ops().items():
        assert {attribute.name for attribute in registered[op].attr} == attributes, op


# --- Bad input ---------------------------------------------------------------------------


@pytest.fixture
def finished(exported, tmp_path):
    """A copy of a training's directory, to spoil."""
    shutil.copytree(str(exported), str(tmp_path / "out"))
    return tmp_path / "out"


@pytest.mark.parametrize("flags, words", [
    (dict(do_export=True, output_dir="."), ["no trained model"]),
    (dict(do_export=True), ["--output_dir is required"]),
    (dict(do_eval=True, export_int8=True), ["--export_int8", "--do_export"])])
def test_what_cannot_be_exported_is_said_and_nothing_written(
        flags, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with ends_with_error(capsys, *words):
        run_here(flags)
    assert os.listdir(str(tmp_path)) == []


@of_one_kind
def test_what_is_no_export_is_not_replaced(finished, capsys):
    shutil.rmtree(str(finished / "export"))
    (finished / "export").mkdir()
    (finished / "export" / "notes").write_text("mine")
    with ends_with_error(capsys, str(finished / "export"), "is no export"):
        run_here({"do_export": True, "output_dir": finished})
    assert os.listdir(str(finished / "export")) == ["notes"]


@of_one_kind
def test_an_export_that_fails_leaves_the_earlier_one(finished, capsys):
    before = (finished / "export" / "saved_model.pb").read_bytes()
    for name in os.listdir(str(finished)):
        if ".data-" in name:
            os.truncate(str(finished / name), 10)
    with ends_with_error(capsys, "cut short"):
        run_here({"do_export": True, "output_dir": finished})
    assert (finished / "export" / "saved_model.pb").read_bytes() == before
