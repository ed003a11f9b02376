"""A new output layer is fitted to the encoder's features before the first step."""

import json
import os

import numpy as np
import pytest
import scipy.optimize

from commands import results_in, run_here
from conftest import checkpoint_values, write_cola
from encoder import label_types
from engine.checkpoints import checkpoints
from engine.errors import UserError
from engine.training import run_record
from runs import linear_probe
from runs.linear_probe import Rows, fit_probe

TWO = label_types.SingleLabel(["no", "yes"])


def rows(count=90, size=5, classes=3, seed=0):
    """Features whose components have different scales, and as many examples of each class."""
    generator = np.random.RandomState(seed)
    labels = np.arange(count) % classes
    features = generator.randn(count, size) + generator.randn(classes, size)[labels]
    return Rows((features * [1, 2, 0.5, 3, 1] + 2).astype(np.float32), labels)


def scaled(features):
    return (features.astype(np.float64) - features.mean(0)) / features.std(0)


def fit(rows, kind):
    return fit_probe(rows, kind, "examples", began=0.0).output_layer(learning_rate=0.0)


def test_a_logistic_regression_is_that_of_scikit_learn(monkeypatch):
    from sklearn.linear_model import LogisticRegression
    monkeypatch.setattr(linear_probe, "_PENALTIES", (0.01,))
    features, labels = rows()[:2]
    values = fit(Rows(features, labels), label_types.SingleLabel("abc")).values
    # Equal classes: the penalty of the bias is that of a weight, whose feature is always 1.
    both = np.hstack([scaled(features), np.ones((len(labels), 1))])
    reference = LogisticRegression(C=1 / (0.01 * len(labels)), fit_intercept=False, tol=1e-8, max_iter=1000)
    expected = reference.fit(both, labels).predict_proba(both)
    logits = features @ values["output_weights"].T + values["output_bias"]
    actual = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_several_labels_are_as_many_logistic_regressions(monkeypatch):
    from sklearn.linear_model import LogisticRegression
    monkeypatch.setattr(linear_probe, "_PENALTIES", (0.01,))
    features, first = rows(classes=2)[:2]
    labels = np.stack([first, 1 - first], axis=1).astype(np.float32)
    values = fit(Rows(features, labels), label_types.MultiLabel(["a", "b"], ",")).values
    both = np.hstack([scaled(features), np.ones((len(first), 1))])
    reference = LogisticRegression(C=1 / (0.01 * len(first)), fit_intercept=False, tol=1e-8).fit(both, first)
    logits = features @ values["output_weights"].T + values["output_bias"]
    np.testing.assert_allclose(logits[:, 0], both @ reference.coef_[0], atol=1e-4)
    np.testing.assert_allclose(logits[:, 1], -logits[:, 0], atol=1e-4)


def test_a_regression_of_numbers_is_a_ridge_regression(monkeypatch):
    from sklearn.linear_model import Ridge
    monkeypatch.setattr(linear_probe, "_PENALTIES", (0.01,))
    features = rows().features
    labels = features @ [1, 0.2, 3, 0, 1] + np.random.RandomState(1).randn(len(features))
    labels = ((labels - labels.mean()) / labels.std()).astype(np.float32)
    layer = fit(Rows(features, labels), label_types.Regression())
    expected = Ridge(alpha=0.01 * len(labels)).fit(scaled(features), labels).predict(scaled(features))
    actual = features @ layer.values["output_weights"][0] + layer.values["output_bias"]
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert layer.summary["metric"] == "R²" and 0.5 < layer.summary["cross_validated"] < 1


def test_which_of_two_rows_is_right_is_a_logistic_regression_of_their_difference(monkeypatch):
    from sklearn.linear_model import LogisticRegression
    monkeypatch.setattr(linear_probe, "_PENALTIES", (0.01,))
    features, counts = rows(count=120).features, np.full(60, 2)
    scaled = (features.astype(np.float64) - features.mean(0)) / features.std(0)
    difference = scaled[::2] - scaled[1::2]
    is_first = difference @ [1, -2, 0, 0.5, 1] + np.random.RandomState(1).randn(60) > 0
    layer = fit(Rows(features, np.stack([is_first, ~is_first], axis=1).ravel(), counts), linear_probe.OneOf(1))
    reference = LogisticRegression(C=1 / (0.01 * 60), fit_intercept=False, tol=1e-8).fit(difference, is_first)
    logits = features @ layer.values["output_weights"][0]
    np.testing.assert_allclose(logits[::2] - logits[1::2], difference @ reference.coef_[0], atol=1e-4)
    assert layer.summary["cross_validated"] > 0.7 and layer.summary["of_that"] == 0.5


def test_questions_have_as_many_rows_as_they_have_and_each_output_its_own_answer():
    generator = np.random.RandomState(0)
    counts = generator.randint(1, 6, 90)
    starts, features = np.cumsum(counts) - counts, generator.randn(counts.sum(), 4).astype(np.float32)
    right = [starts + [(sign * part[:, 0]).argmax() for part in np.split(features, starts[1:])] for sign in (1, -1)]
    labels = np.stack([np.isin(np.arange(len(features)), rows) for rows in right], axis=1)
    layer = fit(Rows(features, labels, counts), linear_probe.OneOf(2))
    logits = features @ layer.values["output_weights"].T
    for output in (0, 1):
        chosen = [start + part[:, output].argmax() for start, part in zip(starts, np.split(logits, starts[1:]))]
        assert np.mean(chosen == right[output]) > 0.95
    assert layer.summary["of_that"] == pytest.approx((1 / counts).mean())


def test_a_feature_that_is_nearly_constant_gets_no_large_weight():
    features, labels = rows()[:2]
    features[:, 4] = 1 + 1e-6 * (labels == 1)
    weights = fit(Rows(features, labels), label_types.SingleLabel("abc")).values["output_weights"]
    assert np.abs(weights[:, 4]).max() < 1e-3


def test_a_step_of_the_training_changes_an_answer_by_no_more_than_one():
    features, labels = rows()[:2]
    probe = fit_probe(Rows(features / 100, labels), label_types.SingleLabel("abc"), "examples", began=0.0)
    free, bounded, of_tiny_rate = (probe.output_layer(rate).values for rate in (0.0, 0.1, 1e-6))
    # Each of the layer's five features has five inputs of about 1, whose weights Adam changes by the rate.
    changes = 0.1 * 5 * np.abs(free["output_weights"]).sum(axis=1)
    assert changes.mean() > 10
    np.testing.assert_allclose(bounded["output_weights"], free["output_weights"] / changes.mean(), rtol=1e-5)
    np.testing.assert_array_equal(of_tiny_rate["output_weights"], free["output_weights"])
    mean = features.mean(axis=0) / 100  # for which the answer stays
    np.testing.assert_allclose(*(mean @ each["output_weights"].T + each["output_bias"] for each in (free, bounded)),
                               atol=1e-5)


@pytest.mark.parametrize("features, labels, kind", [
    (np.ones((60, 3)), np.arange(60) % 2, TWO),  # constant features
    (np.random.RandomState(0).randn(60, 3), np.arange(60) % 2, TWO),  # which say nothing of the labels
    (np.random.RandomState(0).randn(60, 3), np.zeros(60, int), label_types.SingleLabel(["only"])),
    (np.eye(2), np.arange(2), TWO),  # two examples
    (np.eye(9), np.eye(9)[:, :1], linear_probe.OneOf(1))])  # one question
def test_a_layer_that_is_no_better_than_a_constant_starts_at_random(features, labels, kind, capsys):
    counts = np.array([9]) if isinstance(kind, linear_probe.OneOf) else None
    layer = fit(Rows(features.astype(np.float32), labels, counts), kind)
    assert layer.values == {} and not layer.summary["is_used"]
    assert "The output layer starts at random: fitted to" in capsys.readouterr().err


def test_a_label_with_one_example_is_learnt_and_no_reason_for_a_bad_start():
    features, labels = rows()[:2]
    labels[0], features[0] = 3, 20
    layer = fit(Rows(features, labels), label_types.SingleLabel("abcd"))
    logits = features @ layer.values["output_weights"].T + layer.values["output_bias"]
    assert logits[0].argmax() == 3 and np.abs(layer.values["output_bias"]).max() < 50


def test_five_hundred_classes_are_fitted(monkeypatch):
    monkeypatch.setattr(linear_probe, "_PENALTIES", (1e-3,))
    generator = np.random.RandomState(0)
    labels = np.repeat(np.arange(500), 3)
    features = generator.randn(500, 8)[labels] + 0.1 * generator.randn(1500, 8)
    layer = fit(Rows(features.astype(np.float32), labels), label_types.SingleLabel(list(map(str, range(500)))))
    assert layer.values["output_weights"].shape == (500, 8)
    assert layer.summary["cross_validated"] > 0.5 > 0.01 > layer.summary["of_that"]


def test_a_sample_has_the_same_share_of_each_class_and_at_least_one_example():
    classes = np.random.RandomState(0).permutation(np.repeat([0, 1, 2, 3], [700_000, 299_000, 999, 1]))
    taken = linear_probe.sample(len(classes), 20_000, classes)
    assert np.bincount(classes[taken]).tolist() == [14_001, 5_981, 20, 1]
    assert (np.diff(taken) > 0).all()
    assert linear_probe.sample(7, 20_000, classes[:7]).tolist() == list(range(7))


# --- Commands ----------------------------------------------------------------------------


def train(model, folder, data_dir, **flags):
    run_here({**dict(task_name="cola", data_dir=data_dir, max_seq_length=24, do_train=True, train_batch_size=16,
                     num_cpu_replicas=1, output_dir=folder, fit_output_layer=True), **model._asdict(), **flags})
    return checkpoint_values(str(folder))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return write_cola(tmp_path_factory.mktemp("probe") / "cola", train=200, dev=40)


# TensorFlow 1.15 draws another toy encoder, whose output says less of these texts.
def test_the_layer_does_not_depend_on_the_number_of_replicas(two_layers, data_dir, tmp_path, capsys):
    first, *others = (
        train(two_layers, tmp_path / str(replicas), data_dir, num_cpu_replicas=replicas, learning_rate=1e-30,
              train_batch_size=16 // replicas, num_train_epochs=0.08)
        for replicas in (1, 2, 4))
    assert "Output layer fitted to 200 examples" in capsys.readouterr().err
    assert np.abs(first["output_weights"]).max() > 0.1
    for other in others:
        for name in ("output_weights", "output_bias"):
            assert np.abs(other[name] - first[name]).max() <= 1e-6


def test_a_new_layer_alone_is_fitted_and_never_again(two_layers, data_dir, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "first"
    train(two_layers, folder, data_dir, num_train_epochs=1, do_eval=True, learning_rate=1e-4)
    summary = run_record.load(str(folder)).output_layer
    assert summary["is_used"] and summary["rows"] == 200
    with open(os.path.join(folder, "eval_results.json")) as file:
        assert json.load(file)["output_layer_before_training"] == summary
    assert "Output layer fitted to 200 examples" in (folder / "report.html").read_text()
    assert "Output layer" in capsys.readouterr().err
    # A longer training resumes, and keeps the record; another one starts from a model with this layer.
    train(two_layers, folder, data_dir, num_train_epochs=2)
    assert run_record.load(str(folder)).output_layer == summary
    train(two_layers._replace(init_checkpoint=str(folder)), tmp_path / "second", data_dir, num_train_epochs=1)
    assert run_record.load(str(tmp_path / "second")).output_layer is None
    said = capsys.readouterr().err
    assert said.count("--fit_output_layer: nothing is fitted, since the output layer of ") == 1
    assert said.count("utput layer") == 1
    train(two_layers, tmp_path / "third", data_dir, num_train_epochs=1, fit_output_layer=None)  # of two classes
    assert "utput layer" not in capsys.readouterr().err
    # Each try starts with the same layer, which is fitted once.
    train(two_layers, tmp_path / "tries", data_dir, do_eval=True, num_train_epochs=0.1, num_seeds=2)
    assert capsys.readouterr().err.count("Output layer fitted") == 1


def test_interrupted_while_it_is_fitted_a_training_ends_the_same(two_layers, data_dir, tmp_path, monkeypatch):
    expected = train(two_layers, tmp_path / "whole", data_dir, num_train_epochs=0.2)
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        def interrupted(*_):
            raise UserError("out of patience")
        patch.setattr(linear_probe, "fit_probe", interrupted)
        train(two_layers, tmp_path / "resumed", data_dir, num_train_epochs=0.2)
    actual = train(two_layers, tmp_path / "resumed", data_dir, num_train_epochs=0.2)
    for name, value in expected.items():
        np.testing.assert_array_equal(value, actual[name])


def test_features_that_hardly_differ_are_fitted_in_a_few_iterations(monkeypatch):
    """Dropout is mostly noise for them: their penalties are large, and differ by powers of ten."""
    minimize, ended = scipy.optimize.minimize, []
    monkeypatch.setattr(scipy.optimize, "minimize", lambda *some, **more: ended.append(minimize(*some, **more)) or ended[-1])
    generator = np.random.RandomState(0)
    labels = np.minimum(generator.geometric(0.3, 300) - 1, 11)
    features = generator.randn(300, 32) * np.geomspace(1e-3, 1e-2, 32) + generator.randn(12, 32)[labels] * 1e-4 + 1
    fit_probe(Rows(features.astype(np.float32), labels), label_types.SingleLabel(list(map(str, range(12)))), "examples", 0.0, 0.1)
    assert len(ended) > 5 and all(each.success for each in ended)
    assert max(each.nit for each in ended) < 50


def test_rare_labels_are_learnt_in_a_short_training(two_layers, tmp_path):
    """The label is a word of the text; every ninth text has the rare one."""
    for name, count in (("train", 180), ("dev", 90)):
        words = ["cat", "dog", "bird"] + ["house"] * 6
        lines = [f"the {words[i % 9]} sees a {words[(i * 5 + 1) % 3]}\t{words[i % 9]}\n" for i in range(count)]
        (tmp_path / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    scores = []
    for fits in (None, False):  # the default fits a layer of four classes
        train(two_layers, tmp_path / str(fits), tmp_path, task_name="file", do_eval=True, num_train_epochs=1,
              learning_rate=1e-4, fit_output_layer=fits)
        scores.append(results_in(tmp_path / str(fits))["macro_f1"])
    assert scores[0] > 0.9 and scores[1] < 0.3


@pytest.mark.parametrize("fits", (True, False))
def test_a_model_without_a_pooler_trains_as_with_the_identity(fits, two_layers, data_dir, tmp_path, capsys):
    values, trained = checkpoint_values(two_layers.init_checkpoint), []
    pooler = {name: np.eye(*value.shape) if value.ndim == 2 else np.zeros_like(value)
              for name, value in values.items() if "/pooler/" in name}
    encoder = {name: value for name, value in values.items() if name not in pooler}
    for name, start in (("bare", encoder), ("whole", {**encoder, **pooler})):
        checkpoints.write_checkpoint(str(tmp_path / f"{name}.ckpt"), {
            name: value.astype(np.float32) for name, value in start.items()})
        trained.append(train(two_layers._replace(init_checkpoint=str(tmp_path / f"{name}.ckpt")), tmp_path / name,
                             data_dir, fit_output_layer=fits, num_train_epochs=0.2, num_cpu_replicas=2))
        said = capsys.readouterr().err
        assert ("has no pooler: it starts as the identity" in said) == (name == "bare")
        assert ("fitted to" in said) == fits
        assert f"Initialized {len(start)} variables from" in said
    for name, value in trained[0].items():
        np.testing.assert_array_equal(value, trained[1][name], err_msg=name)
    assert np.abs(trained[0]["bert/pooler/dense/kernel"] - np.eye(len(trained[0]["bert/pooler/dense/bias"]))).max() > 0
