"""A regression learns its labels in any unit alike, and every way out speaks the label's unit."""

import json
import os
import shutil

import numpy as np
import onnxruntime
import pytest
import tensorflow.compat.v1 as tf

from commands import answers_of, ends_with_error, results_in, run_here
from conftest import sentences
from distillation import run as distillation
from encoder import classifier, convert, label_types, model_files
from engine.checkpoints import checkpoints
from engine.model import INFERENCE
from engine.training import summaries
from exports import run_saved_model
from golden import losses_of
from runs.rows import Example
from runs.text_predictor import TextPredictor
from tasks import model_folder
from tasks.capability import Classifier
from tasks.data import encode_texts

UNIT, OFFSET = 1000.0, 12_000.0  # of prices, that are the plain labels in another unit
TEXTS = sentences(9, 5)


def write_files(folder, unit=1.0, offset=0.0):
    folder.mkdir()
    for name, count, seed in (("train", 40, 7), ("dev", 12, 8)):
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(
            f"{text}\t{offset + unit * len(text.split()) / 4!r}\n" for text in sentences(count, seed)))
    (folder / "test.tsv").write_text("text\n" + "".join(f"{text}\n" for text in TEXTS))
    return folder


def train(model, data_dir, output_dir, **flags):
    run_here({**model._asdict(), "task_name": "file", "data_dir": data_dir, "output_dir": output_dir,
              "do_train": True, "do_eval": True, "do_predict": True, "max_seq_length": 24,
              "train_batch_size": 4, "num_cpu_replicas": 2, "num_train_epochs": 2,
              "learning_rate": 1e-3, "label_kind": "regression", **flags})
    return output_dir


def numbers_in(folder):
    return np.loadtxt(str(folder / "predict.txt"))


def values_of(model, folder):
    return [answer["value"] for answer in answers_of(model, TEXTS, folder)]


@pytest.fixture(scope="module")
def plain(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return train(tiny_model, write_files(folder / "data"), folder / "out")


@pytest.fixture(scope="module")
def priced(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("priced")
    return train(tiny_model, write_files(folder / "data", UNIT, OFFSET), folder / "out", do_export=True)


def test_the_loss_of_standardized_labels_has_the_gradient_of_numpy(tiny_model):
    features = {name: tf.ones([3, 6], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    features["input_ids"] += tf.range(3)[:, tf.newaxis]
    labels, mean, deviation = np.float32([11_000, 12_500, 14_500]), 12_000.0, 1_500.0
    outputs = classifier.forward_of(tiny_model.config(), 1, mean=mean, deviation=deviation)(
        {**features, "label_ids": tf.constant(labels)}, INFERENCE)
    variables = {variable.op.name: variable for variable in tf.trainable_variables()}
    weights, bias = variables["output_weights"], variables["output_bias"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        loss, logits, *gradients = session.run(
            [outputs.loss, outputs.predictions["logits"],
             *tf.gradients(outputs.loss, [weights, bias])])
    errors = (logits[:, 0].astype(np.float64) - labels) / deviation
    assert loss == pytest.approx(np.mean(errors**2), rel=1e-4)
    assert gradients[1][0] == pytest.approx(2 * errors.mean(), rel=1e-4)


def test_another_unit_trains_alike(plain, priced):
    np.testing.assert_allclose(losses_of(priced, 10), UNIT**2 * np.array(losses_of(plain, 10)), rtol=2e-3)
    np.testing.assert_allclose(numbers_in(priced), OFFSET + UNIT * numbers_in(plain), atol=UNIT * 2e-3)
    ours, theirs = results_in(priced), results_in(plain)
    for name, factor in (("pearson", 1), ("spearman", 1), ("r2", 1), ("eval_loss", UNIT**2)):
        assert ours[name] == pytest.approx(factor * theirs[name], rel=1e-2), name
    assert np.ptp(numbers_in(plain)) > 0.01


def test_the_description_and_the_record_have_mean_and_deviation_of_the_training_set(priced):
    labels = OFFSET + UNIT / 4 * np.array([len(text.split()) for text in sentences(40, 7)])
    for entries, names in (
            (json.loads((priced / "task.json").read_text()), ("mean", "deviation")),
            (json.loads((priced / "run.json").read_text())["facts"],
             ("labels' mean", "labels' deviation"))):
        assert [entries[name] for name in names] == pytest.approx([labels.mean(), labels.std()])


def test_every_way_out_has_the_unit_of_the_labels(priced, tmp_path):
    expected = numbers_in(priced)
    assert abs(expected.mean() - OFFSET) < 3 * UNIT
    for folder in (priced, priced / "export"):
        np.testing.assert_allclose(values_of(folder, tmp_path), expected, rtol=1e-5)
    predictor = TextPredictor(str(priced), num_cpu_replicas=1)
    np.testing.assert_allclose([each["value"] for each in predictor(TEXTS)], expected, rtol=1e-5)
    predictor.close()
    model = Classifier.open(model_files.open_folder(str(priced), ""))
    source = encode_texts([Example((text,)) for text in TEXTS], model.kind,
                          model.encoding).source(with_labels=False)
    features = source.fetch(np.arange(len(TEXTS)), int(source.lengths.max()))
    np.testing.assert_allclose(run_saved_model(priced / "export", features)["value"], expected, rtol=1e-5)
    run_here(dict(from_tensorflow=priced / "export", to_onnx=tmp_path / "model.onnx"), convert)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    values, = session.run(["value"], {
        name: features[ours].astype(np.int64) for name, ours in (
            ("input_ids", "input_ids"), ("attention_mask", "input_mask"), ("token_type_ids", "segment_ids"))})
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    run_here(dict(from_tensorflow=priced, output_dir=tmp_path / "theirs"), convert)
    run_here(dict(from_huggingface=tmp_path / "theirs", output_dir=tmp_path / "back"), convert)
    assert "mean" not in json.loads((tmp_path / "back" / "task.json").read_text())
    np.testing.assert_allclose(values_of(tmp_path / "back", tmp_path), expected, rtol=1e-5)


def test_a_model_of_1_0_0_evaluates_resumes_and_exports_as_before(priced, tiny_model, tmp_path):
    old, data_dir = tmp_path / "old", priced.parent / "data"
    shutil.copytree(str(priced), str(old))
    task, record = (json.loads((old / name).read_text()) for name in ("task.json", "run.json"))
    mean, deviation = task.pop("mean"), task.pop("deviation")
    for name in ("labels' mean", "labels' deviation"):
        del record["facts"][name]
    (old / "task.json").write_text(json.dumps(task))
    (old / "run.json").write_text(json.dumps(record))
    expected = (numbers_in(priced) - mean) / deviation  # what its output layer gives
    train(tiny_model, data_dir, old, do_train=False, do_export=True)
    np.testing.assert_allclose(numbers_in(old), expected, atol=1e-5)
    train(tiny_model, data_dir, old, num_train_epochs=3)
    assert "mean" not in json.loads((old / "task.json").read_text())
    assert not any(name.startswith("labels'") for name in json.loads((old / "run.json").read_text())["facts"])
    # Its numbers are far from the labels.
    assert summaries.read_history(str(old))["loss"][-1][1] > (OFFSET / 2) ** 2


def test_a_model_that_starts_from_a_regression_keeps_its_unit(
        priced, plain, tiny_model, tmp_path, capsys):
    capsys.readouterr()
    more = train(tiny_model, write_files(tmp_path / "data", UNIT, OFFSET + 50), tmp_path / "out",
                 init_checkpoint=str(priced), num_train_epochs=0.2, learning_rate=1e-9)
    np.testing.assert_allclose(numbers_in(more), numbers_in(priced), rtol=1e-4)
    means = [json.loads((folder / "task.json").read_text())["mean"] for folder in (more, priced)]
    assert means[0] == means[1]
    assert "WARNING" not in capsys.readouterr().err
    train(tiny_model, plain.parent / "data", tmp_path / "other", init_checkpoint=str(priced),
          num_train_epochs=0.2, do_eval=False, do_predict=False)
    assert "--new_output_layer learns a new one" in capsys.readouterr().err


def test_a_checkpoint_without_its_description_says_that_its_numbers_have_no_unit(priced, tmp_path, capsys):
    for path in priced.glob("model.ckpt-10.*"):
        shutil.copy(str(path), str(tmp_path))
    kind = model_folder.kind_of(
        checkpoints.open_checkpoint(str(tmp_path / "model.ckpt-10")), label_types.Regression())
    assert (kind.mean, kind.deviation) == (0, 1)
    assert "has no task.json beside it" in capsys.readouterr().err


def test_a_student_learns_in_the_unit_of_its_own_labels(priced, tiny_model, tmp_path, capsys):
    run_here(dict(stage="prediction", task_name="file", data_dir=priced.parent / "data", teacher=priced,
                  student="1,8,2,12", do_train=True, do_eval=True, output_dir=tmp_path / "student",
                  train_batch_size=4, num_cpu_replicas=2, num_train_epochs=6, learning_rate=1e-2),
             distillation)
    variance = np.var(UNIT / 4 * np.array([len(text.split()) for text in sentences(40, 7)]))
    losses = losses_of(tmp_path / "student", 30)
    assert np.mean(losses[:3]) < 2 * variance  # it begins at the labels' mean
    assert results_in(tmp_path / "student")["r2"] > -1.0
    assert "mean" in json.loads((tmp_path / "student" / "task.json").read_text())


def test_equal_labels_are_an_error(tiny_model, tmp_path, capsys):
    folder = write_files(tmp_path / "data", unit=0.0, offset=2.5)
    with ends_with_error(capsys, "train.tsv: every label is 2.5", "nothing to learn"):
        train(tiny_model, folder, tmp_path / "out")
    assert not os.path.exists(str(tmp_path / "out" / "run.json"))


@pytest.mark.parametrize("entries", [{"deviation": 0}, {"mean": float("nan")}])
def test_a_damaged_description_is_an_error(entries, priced, tmp_path, capsys):
    shutil.copytree(str(priced), str(tmp_path / "model"))
    task = json.loads((tmp_path / "model" / "task.json").read_text())
    (tmp_path / "model" / "task.json").write_text(json.dumps({**task, **entries}))
    with ends_with_error(capsys, "task.json is damaged", "deviation"):
        values_of(tmp_path / "model", tmp_path)
