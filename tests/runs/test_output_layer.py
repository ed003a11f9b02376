"""A training that starts from a model with an output layer: the same labels, in any order, or a new layer."""

import json
import shutil

import numpy as np
import pytest

import run_squad
from commands import ends_with_error, results_in, results_of, run_here
from conftest import checkpoint_values, sentences, write_cola
from distillation import run as distillation
from encoder import task_json
from reading_files import write_made_up
from services import write_model
from tagging import run as tagging
from tagging_files import columns, made_up

LABELS = ("cat", "dog", "other")
STILL = dict(do_train=True, num_train_epochs=1, train_batch_size=8, num_cpu_replicas=1, max_seq_length=24,
             learning_rate=1e-9)  # the values stay as they are loaded


def write_labelled(path, labels=LABELS):
    """The label says which of two animals a text has first."""
    def label(text):
        animals = [labels[("cat", "dog").index(word)] for word in text.split() if word in ("cat", "dog")]
        return (animals or labels[2:] or labels[1:])[0]
    path.write_text("".join(f"{label(text)}\t{text}\n" for text in sentences(40, 5)))
    return path


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """A model whose labels are in another order than a file of the same labels gives them."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    write_model(str(folder), tiny_model, dict(
        kind="classes", labels=["other", "dog", "cat"], label_separator="", takes_pairs=False), bias=0.5)
    return folder


def start(model, train_file, output_dir, **flags):
    run_here({**STILL, "task_name": "file", "train_file": train_file, "output_dir": output_dir,
              "init_checkpoint": model, **flags})
    return checkpoint_values(str(output_dir))


def test_the_same_labels_in_another_order_keep_their_rows(trained, tmp_path, capsys):
    before = checkpoint_values(str(trained / "model.ckpt"))
    after = start(trained, write_labelled(tmp_path / "train.tsv"), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "task.json").read_text())["labels"] == list(LABELS)
    assert list(before["output_bias"]) == [0.0, 0.0, 0.5]
    for name in ("output_weights", "output_bias"):
        np.testing.assert_allclose(after[name], before[name][::-1], atol=1e-6)
    said = capsys.readouterr().err
    assert "its outputs are put in the order of this run's labels, cat, dog, other" in said and "WARNING" not in said


def test_predictions_and_metrics_are_in_the_order_of_the_task(trained, tmp_path, capsys):
    """MNLI's order is not that of most models of other code."""
    names = ["neutral", "entailment", "contradiction"]
    rows = "".join("\t".join(["x"] * 8 + [text, text, "x", names[number % 3]]) + "\n"
                   for number, text in enumerate(sentences(12, 2)))
    for name in ("dev_matched.tsv", "test_matched.tsv"):
        (tmp_path / name).write_text("\t".join(map(str, range(12))) + "\n" + rows)
    scores = {}
    for order in (names, sorted(names)):  # MNLI's
        model = tmp_path / order[0]
        shutil.copytree(str(trained), str(model))
        description = json.loads((model / "task.json").read_text())
        (model / "task.json").write_text(json.dumps(dict(description, labels=order, takes_pairs=True)))
        run_here(dict(task_name="mnli", data_dir=tmp_path, init_checkpoint=model, do_eval=True, do_predict=True,
                      num_cpu_replicas=2, output_dir=tmp_path / f"out_{order[0]}"))
        scores[order[0]] = np.loadtxt(str(tmp_path / f"out_{order[0]}" / "test_results.tsv"))
    np.testing.assert_allclose(scores["neutral"], scores["contradiction"][:, ::-1], atol=1e-6)
    (model / "task.json").write_text(json.dumps(dict(description, labels=["LABEL_0", "LABEL_1", "LABEL_2"])))
    capsys.readouterr()
    run_here(dict(task_name="mnli", data_dir=tmp_path, init_checkpoint=model, do_eval=True, num_cpu_replicas=1,
                  output_dir=tmp_path / "unnamed"))
    warning, = (line for line in capsys.readouterr().err.splitlines() if "does not name its labels" in line)
    assert warning.startswith("WARNING") and "for contradiction, entailment, neutral, in this order" in warning
    write_labelled(tmp_path / "dev.tsv", ("LABEL_0", "LABEL_1", "LABEL_2"))
    (model / "task.json").write_text(json.dumps(dict(description, labels=["LABEL_0", "LABEL_1", "LABEL_2"])))
    run_here(dict(task_name="file", data_dir=tmp_path, init_checkpoint=model, do_eval=True, num_cpu_replicas=1,
                  output_dir=tmp_path / "own"))
    assert "does not name its labels" not in capsys.readouterr().err  # they are its own


def test_further_tries_of_a_search_start_as_the_first_ones(trained, tmp_path):
    """With their rows in the order of the training's labels, and with --new_output_layer at random."""
    train = write_labelled(tmp_path / "train.tsv")
    for is_new in (False, True):
        out = tmp_path / str(is_new)
        for seeds in ("1", "1,2"):
            run_here({**STILL, "task_name": "file", "train_file": train, "dev_file": train, "output_dir": out,
                      "init_checkpoint": trained, "do_eval": True, "seeds": seeds, "new_output_layer": is_new})
        first, second = (each["eval_loss"] for each in results_of(out)["tries"])
        if is_new:
            assert first != second and abs(first - second) < 0.1  # near that of three labels, ln 3
        else:
            assert first == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize("labels, shown", [
    (("neg", "neutral", "pos"), "the labels other, dog, cat, and this run has neg, neutral, pos"),
    (("cat", "dog"), "3 labels"), (("1.5", "2.5", "3.5"), "for classes, and this run needs one for regression")])
def test_other_labels_are_refused_with_the_way_out(trained, tmp_path, capsys, labels, shown):
    train_file = write_labelled(tmp_path / "train.tsv", labels)
    parts = ("--new_output_layer",) if shown == "3 labels" else (shown, "--new_output_layer")
    with ends_with_error(capsys, f"--init_checkpoint={trained}", *parts) as lines:
        start(trained, train_file, tmp_path / "out")
    assert ("can be renamed" in lines[-1]) == (len(labels) == 3 and labels[0] != "1.5")
    after = start(trained, train_file, tmp_path / "out", new_output_layer=True)
    assert len(after["output_bias"]) == (1 if labels[0] == "1.5" else len(labels))
    np.testing.assert_allclose(after["bert/pooler/dense/kernel"], checkpoint_values(
        str(trained / "model.ckpt"))["bert/pooler/dense/kernel"], atol=1e-6)
    if labels[0] == "neg":
        start(trained, train_file, tmp_path / "out", num_train_epochs=2)  # resumed, with what it recorded
        assert checkpoint_values(str(tmp_path / "out"))["global_step"] == 2 * after["global_step"]


def test_pairs_for_a_layer_of_single_texts_are_a_warning(trained, tmp_path, capsys):
    train_file = write_labelled(tmp_path / "train.tsv")
    train_file.write_text("label\tsentence1\tsentence2\n" + "".join(f"{line}\tthe dog number {number}\n" for number, line in enumerate(
        train_file.read_text().splitlines())))
    warning = "was trained on single texts, and this run trains it on pairs of texts: "
    start(trained, train_file, tmp_path / "pairs")
    assert capsys.readouterr().err.count(warning) == 1
    start(trained, train_file, tmp_path / "new", new_output_layer=True)
    assert warning not in capsys.readouterr().err


def test_a_layer_without_names_is_taken_by_position(trained, tmp_path, capsys):
    shutil.copytree(str(trained), str(tmp_path / "google"))
    (tmp_path / "google" / "task.json").unlink()
    after = start(tmp_path / "google", write_labelled(tmp_path / "train.tsv"), tmp_path / "out")
    np.testing.assert_allclose(
        after["output_bias"], checkpoint_values(str(trained / "model.ckpt"))["output_bias"], atol=1e-6)
    said = capsys.readouterr().err
    assert said.count("does not name its labels: its outputs are taken for cat, dog, other, in this order") == 1


def test_a_classifier_s_encoder_starts_a_tagger_and_a_reader(trained, tmp_path, capsys):
    (tmp_path / "train.txt").write_text(columns(made_up(16, seed=1), "iob2"))
    flags = dict(STILL, train_file=tmp_path / "train.txt", init_checkpoint=trained, crf=True,
                 output_dir=tmp_path / "tagger")
    with ends_with_error(capsys, "for classes, and this run needs one for tags", "--new_output_layer"):
        run_here(flags, tagging)
    run_here(dict(flags, new_output_layer=True), tagging)
    run_here(dict(STILL, train_file=write_made_up(tmp_path / "asked.json", contexts=4), doc_stride=8,
                  max_query_length=8, init_checkpoint=tmp_path / "tagger", new_output_layer=True,
                  output_dir=tmp_path / "reader"), run_squad)
    assert "cls/squad/output_weights" in checkpoint_values(str(tmp_path / "reader"))

    # The tagger's types in another order: all its variables of labels follow.
    description = task_json.read(str(tmp_path / "tagger"))
    (tmp_path / "tagger" / "task.json").write_text(json.dumps(dict(description, types=description["types"][::-1])))
    before = checkpoint_values(str(tmp_path / "tagger"))
    run_here(dict(flags, init_checkpoint=tmp_path / "tagger", output_dir=tmp_path / "again"), tagging)
    after, order = checkpoint_values(str(tmp_path / "again")), [0, 3, 4, 1, 2]
    for name in ("output_weights", "output_bias", "crf/first"):
        np.testing.assert_allclose(after[name], before[name][order], atol=1e-6)
    np.testing.assert_allclose(after["crf/transitions"], before["crf/transitions"][order][:, order], atol=1e-6)


def test_a_student_learns_the_teacher_s_logits_in_the_task_s_order(tiny_classifier, tmp_path, capsys):
    """A teacher of CoLA that was trained with its labels in the other order, and its student's start."""
    teacher = tmp_path / "teacher"
    shutil.copytree(str(tiny_classifier), str(teacher), ignore=shutil.ignore_patterns("run.json"))
    description = json.loads((teacher / "task.json").read_text())
    (teacher / "task.json").write_text(json.dumps(dict(description, labels=["1", "0"])))
    data_dir = write_cola(tmp_path / "cola", train=24, dev=24)
    for name, model in (("plain", tiny_classifier), ("turned", teacher)):
        run_here(dict(task_name="cola", data_dir=data_dir, do_eval=True, init_checkpoint=model,
                      output_dir=tmp_path / f"{name}_teacher"))
        run_here(dict(STILL, stage="prediction", task_name="cola", data_dir=data_dir, teacher=model,
                      student="2,16,2,32", do_eval=True, output_dir=tmp_path / name,
                      store_dir=tmp_path / "store"), distillation)  # both runs': logits are kept there
    accuracies = {name: results_in(tmp_path / name)["eval_accuracy"] for name in (
        "plain", "turned", "plain_teacher", "turned_teacher")}
    assert accuracies["turned_teacher"] == pytest.approx(1.0 - accuracies["plain_teacher"])
    # The student starts from the teacher's layers, and so from its answers.
    assert accuracies["turned"] == accuracies["turned_teacher"]
    assert accuracies["plain"] == accuracies["plain_teacher"]
    losses = [results_in(tmp_path / name)["loss"] for name in ("plain", "turned")]
    assert losses[0] != losses[1] and np.isfinite(losses).all()
