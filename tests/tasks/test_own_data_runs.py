"""Runs on a user's own files: the results are scikit-learn's and SciPy's on the predictions."""

import json

import numpy as np
import pytest
import sklearn.metrics
from scipy import stats

from commands import ends_with_error, run_here
from conftest import on_tensorflow_1, on_tensorflow_2, sentences
from engine.errors import UserError
from runs import columns, predict


@pytest.fixture
def flags(tiny_model, tmp_path):
    return dict(tiny_model._asdict(), task_name="file", data_dir=tmp_path, max_seq_length=16,
                output_dir=tmp_path / "out", train_batch_size=16, num_cpu_replicas=1,
                num_train_epochs=25, learning_rate=1e-3, do_train=True, do_eval=True)


def results_of(flags):
    return json.loads((flags["output_dir"] / "eval_results.json").read_text())


def probabilities_of(flags):
    return np.loadtxt(str(flags["output_dir"] / "test_results.tsv"), ndmin=2)


ANIMALS = ("bird", "cat", "dog")


@on_tensorflow_1
def test_a_multi_label_run_has_scikit_learns_scores_and_is_used_later(flags, tmp_path):
    def rows(count, seed):
        return [(text, [name for name in ANIMALS if name in text])
                for text in sentences(count, seed)]

    def lines(rows):
        return "".join(json.dumps({"text": text, "label": names}) + "\n" for text, names in rows)

    dev = rows(45, 8)
    (tmp_path / "train.jsonl").write_text(lines(rows(64, 7)))
    (tmp_path / "dev.jsonl").write_text(lines(dev))
    (tmp_path / "test.csv").write_text("".join(f'"{text}"\n' for text, _ in dev))
    run_here({**flags, "do_predict": True})
    results, probabilities = results_of(flags), probabilities_of(flags)
    labels = np.array([[name in names for name in ANIMALS] for _, names in dev], int)
    predicted = (probabilities >= 0.5).astype(int)
    assert 0 < predicted.sum() < predicted.size
    for name, expected in (
            ("eval_accuracy", sklearn.metrics.accuracy_score(labels, predicted)),
            ("micro_f1", sklearn.metrics.f1_score(labels, predicted, average="micro")),
            ("macro_f1", sklearn.metrics.f1_score(labels, predicted, average="macro",
                                                  zero_division=0)),
            ("eval_loss", sklearn.metrics.log_loss(labels.ravel(), probabilities.ravel()))):
        assert results[name] == pytest.approx(expected, abs=1e-6), name
    assert [row["num_examples"] for row in results["per_class"]] == labels.sum(axis=0).tolist()
    assert results["num_examples"] == 45 and results["confusion_matrix"] == []
    assert (tmp_path / "out" / "predict.txt").read_text().splitlines() == [
        ",".join(np.array(ANIMALS)[row > 0]) for row in predicted]
    # Later, without the training file:
    (tmp_path / "train.jsonl").unlink()
    (tmp_path / "out" / "eval_results.json").unlink()
    run_here({**flags, "do_train": False})
    assert results_of(flags) == results
    elsewhere = {**flags, "output_dir": tmp_path / "else", "init_checkpoint": tmp_path / "out"}
    run_here({**elsewhere, "do_train": False, "do_eval": False, "do_predict": True,
              "predict_labels": "index"})
    np.testing.assert_allclose(probabilities_of(elsewhere), probabilities, atol=1e-6)
    assert (tmp_path / "else" / "predict.txt").read_text().splitlines() == [
        ",".join(map(str, np.flatnonzero(row))) for row in predicted]


@on_tensorflow_2
def test_a_regression_run_has_the_scores_of_scipy_and_scikit_learn(flags, tmp_path, capsys):
    def lines(count, seed, form):
        return "".join(form.format(text, len(text.split()) / 4)
                       for text in sentences(count, seed))

    (tmp_path / "train.tsv").write_text(lines(64, 7, "{1}\t{0}\n"))
    (tmp_path / "dev.tsv").write_text(lines(45, 8, "{1}\t{0}\n"))
    (tmp_path / "test.tsv").write_text(lines(45, 8, "{0}\n"))
    run_here({**flags, "do_predict": True})
    results, predicted = results_of(flags), probabilities_of(flags)[:, 0]
    labels = np.array([len(text.split()) / 4 for text in sentences(45, 8)])
    assert results["eval_loss"] == pytest.approx(
        sklearn.metrics.mean_squared_error(labels, predicted), rel=1e-5)
    assert results["pearson"] == pytest.approx(stats.pearsonr(labels, predicted)[0], abs=1e-6)
    assert results["spearman"] == pytest.approx(stats.spearmanr(labels, predicted)[0], abs=1e-6)
    assert results["per_class"] == results["confusion_matrix"] == []
    assert results["pearson"] > 0.5, "the length of a text is easy to learn"
    with ends_with_error(capsys, "another training data"):
        run_here({**flags, "header": True, "do_eval": False})


@pytest.fixture(scope="module")
def with_many_columns(tiny_model, tmp_path_factory):
    """The flags and folder of a model whose columns are not those that would be detected."""
    folder = tmp_path_factory.mktemp("columns")
    for name, count, seed in (("train", 32, 7), ("dev", 12, 8), ("test", 12, 9)):
        rows = [f"{index % 2}\t{text}\t{'cat' if 'cat' in text else 'none'}\tthe same page: {text}\n"
                for index, text in enumerate(sentences(count, seed))]
        (folder / f"{name}.tsv").write_text("".join(["grade\tremark\tanimal\tsource\n", *rows]))
    flags = dict(tiny_model._asdict(), task_name="file", data_dir=folder, max_seq_length=16,
                 output_dir=folder / "out", train_batch_size=16, num_cpu_replicas=1,
                 num_train_epochs=1, learning_rate=1e-3)
    run_here({**flags, "do_train": True, "do_eval": True, "do_predict": True,
              "text_column": "remark", "label_column": "3"})
    return flags


@on_tensorflow_2
def test_a_model_remembers_its_columns(with_many_columns, capsys):
    trained = results_of(with_many_columns)
    probabilities = probabilities_of(with_many_columns)
    run_here({**with_many_columns, "do_eval": True})
    assert "detected" not in capsys.readouterr().err
    assert results_of(with_many_columns) == trained
    run_here({**with_many_columns, "do_predict": True})
    np.testing.assert_array_equal(probabilities_of(with_many_columns), probabilities)
    folder = with_many_columns["data_dir"]
    run_here(dict(output_dir=with_many_columns["output_dir"], input_file=folder / "test.tsv",
                  output_file=folder / "answers.tsv", num_cpu_replicas=1), predict)
    answers = np.loadtxt(str(folder / "answers.tsv"), skiprows=1, usecols=(1, 2))
    np.testing.assert_allclose(answers, probabilities, atol=1e-6)


@pytest.mark.parametrize("entry", [[], "remark", {"text": "remark"}, {
    "text": 1, "text_pair": None, "label": "3", "header": None, "width": 4}])
def test_a_description_with_damaged_columns_is_refused(entry):
    with pytest.raises(UserError, match="--output_dir=out: task.json is damaged: its columns are"):
        columns.of_description(entry, "--output_dir=out")
