"""A trained model is used later, without its training file and without the flags of its columns."""

import re
import shutil

import numpy as np
import pytest

from commands import results_of, run_here
from conftest import on_tensorflow_1, on_tensorflow_2, sentences
from engine.errors import UserError
from runs import columns, predict


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


def probabilities_of(flags):
    return np.loadtxt(str(flags["output_dir"] / "test_results.tsv"))


def test_a_model_remembers_its_columns(tiny_model, tmp_path, capsys):
    """Which are not those that would be detected."""
    for name, count, seed in (("train", 32, 7), ("dev", 12, 8), ("test", 12, 9)):
        rows = [f"{index % 2}\t{text}\t{'cat' if 'cat' in text else 'none'}\tthe same page: {text}\n"
                for index, text in enumerate(sentences(count, seed))]
        (tmp_path / f"{name}.tsv").write_text("".join(["grade\tremark\tanimal\tsource\n", *rows]))
    flags = dict(tiny_model._asdict(), task_name="file", data_dir=tmp_path, max_seq_length=16,
                 output_dir=tmp_path / "out", train_batch_size=16, num_cpu_replicas=1,
                 num_train_epochs=1, learning_rate=1e-3)
    run_here({**flags, "do_train": True, "do_eval": True, "do_predict": True,
              "text_column": "remark", "label_column": "3"})
    trained, probabilities = results_of(flags["output_dir"]), probabilities_of(flags)
    (tmp_path / "train.tsv").unlink()
    capsys.readouterr()
    run_here({**flags, "do_eval": True})
    assert "detected" not in capsys.readouterr().err
    assert results_of(flags["output_dir"]) == trained
    shutil.copytree(str(tmp_path / "out"), str(tmp_path / "converted"))  # which have no step in their names
    (tmp_path / "converted" / "checkpoint").unlink()
    for path in (tmp_path / "converted").glob("model.ckpt-*"):
        path.rename(path.with_name(re.sub(r"model\.ckpt-\d+", "bert_model.ckpt", path.name)))
    for folder in ("out", "converted"):
        elsewhere = {**flags, "output_dir": tmp_path / f"of {folder}", "init_checkpoint": tmp_path / folder}
        run_here({**elsewhere, "do_predict": True, "predict_labels": "index"})
        np.testing.assert_array_equal(probabilities_of(elsewhere), probabilities)
        np.testing.assert_array_equal(np.loadtxt(str(elsewhere["output_dir"] / "predict.txt")),
                                      probabilities.argmax(axis=1))
    run_here(dict(output_dir=tmp_path / "out", input_file=tmp_path / "test.tsv",
                  output_file=tmp_path / "answers.tsv", num_cpu_replicas=1), predict)
    answers = np.loadtxt(str(tmp_path / "answers.tsv"), skiprows=1, usecols=(1, 2))
    np.testing.assert_allclose(answers, probabilities, atol=1e-6)


@pytest.mark.parametrize("entry", [[], "remark", {"text": "remark"}, {
    "text": 1, "text_pair": None, "label": "3", "header": None, "width": 4}])
def test_a_description_with_damaged_columns_is_refused(entry):
    with pytest.raises(UserError, match="--output_dir=out: task.json is damaged: its columns are"):
        columns.of_description(entry, "--output_dir=out")


@pytest.mark.parametrize("label_kind", [
    pytest.param("classes", marks=on_tensorflow_1), pytest.param("multi_label", marks=on_tensorflow_2)])
def test_labels_that_only_the_dev_set_has_are_mistakes_that_are_named(label_kind, tiny_model, tmp_path, capsys):
    write(tmp_path / "train.tsv", ["text\tlabel", *["the cat\tred", "a dog\tblue"] * 16])
    write(tmp_path / "dev.tsv", ["text\tlabel", *["the cat\tred", "a dog\tblue"] * 4, "the cat\ttea", "a dog\ttin",
                                 "a bird\ttea"])
    run_here(dict(tiny_model._asdict(), task_name="file", data_dir=tmp_path, do_train=True, do_eval=True,
                  label_kind=label_kind, num_train_epochs=15, train_batch_size=8, learning_rate=3e-3,
                  max_seq_length=16, num_cpu_replicas=1, output_dir=tmp_path / "out"))
    said = capsys.readouterr().err
    assert "3 of 11 examples have labels that the model does not learn" in said and "'tea' (2), 'tin' (1)" in said
    results = results_of(tmp_path / "out")
    assert results["eval_accuracy"] == pytest.approx(8 / 11)
    assert results["eval_loss"] < 0.3  # of the examples whose label the model knows
    assert {row["label"]: (row["recall"], row["num_examples"]) for row in results["per_class"]} == {
        "red": (1, 4), "blue": (1, 4), "tea": (0, 2), "tin": (0, 1)}
    report = (tmp_path / "out" / "report.html").read_text()
    assert "tea" in report and "tin" in report
