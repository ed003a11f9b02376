"""A capability of less than 150 lines trains, evaluates, predicts, reads texts and is exported."""

import glob
import json
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from commands import results_of, run_here
from conftest import ROOT, on_tensorflow_2, plain_session, sentences
from counting import run
from pages import Page
from runs import kinds, predict
from structure_helpers import imported_rooms

pytestmark = on_tensorflow_2  # a test of interfaces, which are the same on both


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """The output directory of a run with all it can do, a row of its own in the table of kinds."""
    kinds.CLASSES["counts"] = "counting.capability.WordCounter"
    folder = tmp_path_factory.mktemp("counting")
    for seed, name in enumerate(("train", "dev", "test")):
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text in sentences(16, seed)))
    run_here(dict(tiny_model._asdict(), data_dir=folder, output_dir=folder / "out",
                  max_seq_length=24, train_batch_size=4, num_train_epochs=1, learning_rate=1e-3,
                  num_cpu_replicas=2, do_train=True, do_eval=True, eval_each_epoch=True,
                  do_predict=True, do_export=True), run)
    yield folder
    del kinds.CLASSES["counts"]


def test_it_measures_writes_and_reports(trained):
    out = trained / "out"
    results = results_of(out)
    assert results["mean_error"] > 0 and results["loss"] == results["eval_loss"]
    assert len((out / "counts.txt").read_text().splitlines()) == 16
    assert "mean_error" in Page((out / "report.html").read_text()).text
    assert json.loads((out / "task.json").read_text())["kind"] == "counts"


def test_its_export_and_the_command_that_reads_texts_count_alike(trained):
    for folder in (trained / "out", trained / "out" / "export"):
        run_here({"output_dir": folder, "input_file": trained / "test.txt", "num_cpu_replicas": 1,
                  "output_file": trained / "read.tsv"}, predict)
        read = np.loadtxt(str(trained / "read.tsv"), skiprows=1)
        np.testing.assert_allclose(read, np.loadtxt(str(trained / "out" / "counts.txt")), rtol=0.01,
                                   atol=1e-3)
    with tf.Graph().as_default(), plain_session() as session:
        loaded = tf.saved_model.loader.load(session, ["serve"], str(trained / "out" / "export"))
        assert list(loaded.signature_def["serving_default"].outputs) == ["count"]
    assert "how many words" in (trained / "out" / "export" / "README.md").read_text()


def test_it_is_small_and_imports_runs_and_what_is_below():
    paths = glob.glob(os.path.join(ROOT, "tests", "counting", "*.py"))
    assert sum(len(open(path).readlines()) for path in paths) < 150
    assert {room for path in paths for room in imported_rooms(os.path.relpath(path, ROOT))} == {
        "runs", "encoder", "engine"}
