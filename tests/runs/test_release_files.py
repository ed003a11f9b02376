"""The promise of a release: files of 1.0.0 and of later versions load, and their runs are resumed."""

import dataclasses
import json
import os
import re
import shutil

import numpy as np
import pytest

from commands import ends_with_error
from conftest import ROOT, on_tensorflow_1, on_tensorflow_2
from engine.errors import UserError
from engine.settings import recorded
from engine.training import run_record
from engine.training.run_record import WINDOW_BATCHES
from engine.training.settings import TrainingSettings
from engine.workers.coordination import NO_PEERS
from reading.answers import AnswerSettings
from reading.capability import saved_settings
from reading.data import WindowSettings
from release_files import SETTINGS, kinds, length, read, train
from tagging import run

RELEASES = [os.path.join(ROOT, "tests", f"files_of_{version}") for version in ("1.0.0", "2.0.0")]
FIRST = RELEASES[0]
MODELS = [(release, name) for release in RELEASES for name in sorted(kinds(""))
          if os.path.isdir(os.path.join(release, name))]
ON_ONE_RUNTIME = {**dict.fromkeys(("pretrained", "tagger", "chooser"), on_tensorflow_1),
                  **dict.fromkeys(("reader", "scorer", "vectors"), on_tensorflow_2)}


of_each_model = pytest.mark.parametrize("release, name", [
    pytest.param(release, name, marks=ON_ONE_RUNTIME.get(name, ()), id=f"{name} of {release[-5:]}")
    for release, name in MODELS])
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


@pytest.fixture(params=RELEASES, ids=os.path.basename)
def release(request):
    return request.param


@of_each_model
def test_a_model_predicts_what_it_predicted_then(release, name, tmp_path):
    folder = str(tmp_path / name)
    shutil.copytree(os.path.join(release, name), folder)
    found = read(kinds(release)[name], folder)
    with open(os.path.join(release, f"{name}.expected"), encoding="utf-8") as file:
        expected = file.read()
    assert _NUMBER.sub("?", found) == _NUMBER.sub("?", expected)
    np.testing.assert_allclose(list(map(float, _NUMBER.findall(found))),
                               list(map(float, _NUMBER.findall(expected))), atol=1e-4)


def test_a_setting_that_an_earlier_version_lacks_has_its_default(release, tmp_path):
    shutil.copytree(os.path.join(release, "reader"), str(tmp_path / "reader"))
    path = tmp_path / "reader" / "task.json"
    description = json.loads(path.read_text())
    defaults = [WindowSettings(), AnswerSettings()]
    names = [field.name for settings in defaults for field in dataclasses.fields(settings)]
    assert saved_settings(str(path.parent)) != tuple(defaults) and {*names} <= {*description}
    path.write_text(json.dumps({key: value for key, value in description.items() if key not in names}))
    assert saved_settings(str(path.parent)) == tuple(defaults)


@of_each_model
def test_a_run_is_resumed_with_the_settings_that_it_recorded(release, name, tmp_path, capsys):
    folder, kind = str(tmp_path / name), kinds(release)[name]
    shutil.copytree(os.path.join(release, name), folder)
    with open(os.path.join(folder, "run.json")) as file:
        before = json.load(file)
    assert before["version"] == os.path.basename(release)[len("files_of_"):]
    train(kind, release, folder, train_batch_size=8, **length(kind, 24))
    said = capsys.readouterr().err
    assert "(step " in said and "is resumed with its recorded --dynamic_padding=False" in said
    if release == FIRST:
        assert "--gradient_transfer=float32" in said  # as it began, whatever its precision
    assert name != "classifier" or "Preparing" not in said
    with open(os.path.join(folder, "run.json")) as file:
        settings = json.load(file)["settings"]
    # A setting that a later version brings has its default.
    earlier = {WINDOW_BATCHES: 50, **recorded(TrainingSettings()), "--fit_output_layer": False, **before["settings"]}
    changed = {flag for flag in settings if settings[flag] != earlier[flag]}
    assert changed <= {"--num_train_epochs", "--num_train_steps"}
    assert all(settings[f"--{flag}"] == value for flag, value in SETTINGS.items())
    with open(os.path.join(folder, "report.html")) as file:
        page = file.read().replace("<wbr>", "")
    shown = {flag for flag in [*before["facts"], *settings] if flag.startswith("--")} - {"--matryoshka"}
    assert all(flag in page for flag in shown)


@on_tensorflow_2
def test_a_flag_that_is_given_wins_over_the_record(tmp_path, capsys):
    folder, kind = str(tmp_path / "tagger"), kinds(FIRST)["tagger"]
    shutil.copytree(os.path.join(FIRST, "tagger"), folder)
    train(kind, FIRST, folder, train_batch_size=8, seed=8, precision="float32",
          **length(kind, 22))
    said = capsys.readouterr().err
    assert "resumed with another --seed: was 7, now 8" in said
    assert ("recorded --dynamic_padding=False, --fit_output_layer=False, --gradient_transfer=float32, "
            "--learning_rate=0.02, --xla=False\n") in said


def test_the_tries_of_a_search_have_one_window_and_one_exchange(tmp_path):
    out = tmp_path / "out"
    shutil.copytree(os.path.join(FIRST, "tagger"), str(out / "tries" / "lr-5e-05_seed-1"))
    for folder in (out, out / "tries" / "lr-5e-05_seed-2"):  # before the first is published; a new try
        assert run_record.window_batches(str(folder), 10) == 50
    assert run_record.window_batches(str(out / "tries" / "mine"), 10) == 1  # a folder of the user's
    values = run.define_flags()
    values(["tagging.run", f"--output_dir={out}", "--do_train"])
    run_record.keep_settings(values, NO_PEERS)
    assert values.gradient_transfer == "float32" and values.xla is False and values.fit_output_layer is False
    assert values.crf  # which a resumed run cannot change
    assert values["learning_rate"].value == run.define_flags()["learning_rate"].value
    record = json.loads((out / "tries" / "lr-5e-05_seed-1" / "run.json").read_text())
    record["settings"][WINDOW_BATCHES] = "x"
    (out / "tries" / "lr-5e-05_seed-1" / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="is damaged: its batches of a window are 'x'"):
        run_record.window_batches(str(out), 10)


@pytest.mark.parametrize("value", ["fast", [1], True])
def test_a_recorded_value_that_its_flag_cannot_have_is_one_line(value, release, tmp_path, capsys):
    folder = tmp_path / "tagger"
    shutil.copytree(os.path.join(release, "tagger"), str(folder))
    record = json.loads((folder / "run.json").read_text())
    record["settings"]["--learning_rate"] = value
    (folder / "run.json").write_text(json.dumps(record))
    with ends_with_error(capsys, f"run.json: {value!r} is no value of --learning_rate"):
        train(kinds(release)["tagger"], release, str(folder), train_batch_size=8)
