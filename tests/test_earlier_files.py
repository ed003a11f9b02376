"""What earlier commits wrote is resumed, evaluated and used: see earlier_files.py."""

import glob
import json
import os
import re
import zipfile

import numpy as np
import pytest

import earlier_files
from commands import run_here
from distillation import run as distillation_run
from earlier_files import FINISHED, FOLDER, UNFINISHED, UNFINISHED_STEPS
from engine import checkpoints, runtime
from tasks import predict

if os.environ.get("WRITE_EARLIER_FILES"):
    earlier_files.write()
ARCHIVES = sorted(os.path.basename(path) for path in glob.glob(os.path.join(FOLDER, "*.zip")))
# The runtimes write the same formats: a classifier goes on with what the other one wrote, and all
# else with what 2.15 wrote.
OF_2_15 = [archive for archive in ARCHIVES if "tensorflow-1." not in archive]
OF_1_15 = [archive for archive in ARCHIVES if archive not in OF_2_15]
RESUMED = [(archive, output_dir) for output_dir in UNFINISHED
           for archive in (OF_1_15 if output_dir == "unfinished" and not runtime.IS_TENSORFLOW_1
                           else OF_2_15)]


@pytest.fixture
def here(archive, tmp_path, monkeypatch):
    """The current directory, with an archive's files under the names that they had."""
    with zipfile.ZipFile(os.path.join(FOLDER, archive)) as members:
        members.extractall(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results_in(folder):
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


def probabilities_in(path):
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert header == ["label", "0", "1"]
    return np.array([row[1:] for row in rows], float)


def evaluations_in(folder):
    path = folder / "evaluations.json"
    return json.loads(path.read_text())["evaluations"] if path.exists() else []


def is_taken_for_another_run(said):
    """Whether lines say that the run has another setting; a student may have another size."""
    return re.search("another (?!hidden size)", said)


@pytest.mark.parametrize("archive, output_dir", RESUMED)
def test_an_unfinished_run_goes_on_with_its_settings_to_the_end(
        archive, output_dir, here, capsys):
    step = checkpoints.latest(output_dir).global_step
    assert 0 < step < UNFINISHED_STEPS
    evaluated = evaluations_in(here / output_dir)
    assert bool(evaluated) == ("do_eval" in UNFINISHED[output_dir][1])
    earlier_files.run(output_dir)
    said = capsys.readouterr().err
    assert f"(step {step})" in said and not is_taken_for_another_run(said)
    assert checkpoints.latest(output_dir).global_step == UNFINISHED_STEPS
    assert evaluations_in(here / output_dir)[:len(evaluated)] == evaluated


@pytest.mark.parametrize("output_dir", sorted(FINISHED))
@pytest.mark.parametrize("archive", ARCHIVES)
def test_a_finished_run_has_nothing_left_and_is_not_another_one(
        archive, output_dir, here, capsys):
    step = checkpoints.latest(output_dir).global_step
    earlier_files.run(output_dir, do_eval=None, do_predict=None, do_export=None)
    said = capsys.readouterr().err
    assert "nothing is left to train" in said and not is_taken_for_another_run(said)
    assert checkpoints.latest(output_dir).global_step == step


@pytest.mark.parametrize("folder", ["finished", "finished/export"])
@pytest.mark.parametrize("archive", ARCHIVES)
def test_a_finished_classifier_and_its_export_score_texts_as_they_did(archive, folder, here):
    expected = np.loadtxt(str(here / "finished" / "test_results.tsv"))
    run_here(dict(output_dir=folder, input_file="new_texts.txt", output_file="answers.tsv",
                  header=False, text_column=1, num_cpu_replicas=1), predict)
    np.testing.assert_allclose(probabilities_in(here / "answers.tsv"), expected, atol=1e-5)


@pytest.mark.parametrize("archive", ARCHIVES)
def test_a_scorer_ranks_as_it_did(archive, here):
    expected = results_in(here / "scorer")
    earlier_files.run("scorer", do_train=None)
    assert results_in(here / "scorer") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("archive", OF_2_15)
def test_a_student_of_general_distillation_is_where_another_starts(archive, here, capsys):
    _, flags = UNFINISHED["intermediate"]
    run_here({**flags, "output_dir": "new", "num_train_epochs": 0.5, "num_cpu_replicas": 1,
              "train_batch_size": 8}, distillation_run)
    assert "drawn at random" not in capsys.readouterr().err
    assert checkpoints.latest("new").global_step == 3
