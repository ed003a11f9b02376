"""A setting is defined once: flag, check, record, report, model card and page derive from it."""

import dataclasses

import pytest

import run_classifier
from commands import ends_with_error, on_cola, run_here
from engine.cli import command
from engine.devices.devices import chosen_precision
from engine.errors import UserError
from engine.settings import from_flags, setting
from engine.training import run_record, settings as run_settings
from pages import text_of
from scripts import flags_page


@pytest.fixture
def made_up(monkeypatch):
    """The training settings with one more: all that a new setting takes."""
    extended = dataclasses.make_dataclass(
        "TrainingSettings", [("made_up", int, setting(3, "A made-up number.", between=(0, 9)))],
        bases=(run_settings.TrainingSettings,), frozen=True)
    monkeypatch.setattr(run_settings, "TrainingSettings", extended)


def test_a_new_setting_is_in_help_record_report_model_card_and_page(
        made_up, tiny_model, tmp_path, capsys):
    given = on_cola(tiny_model, tmp_path, train=16, dev=8)
    output_dir = given["output_dir"]
    with pytest.raises(SystemExit):
        command.run(run_classifier.main, run_classifier.define_flags(), usage="",
                    argv=["run_classifier.py", "--help"])
    assert "A made-up number." in capsys.readouterr().out
    assert "| `--made_up` | `3` | A made-up number. |" in flags_page.text()

    run_here(given)
    assert run_record.load(str(output_dir)).settings["--made_up"] == 3
    capsys.readouterr()
    run_here({**given, "num_train_epochs": 2, "made_up": 5, "do_export": True})
    assert "resumed with another --made_up: was 3, now 5" in capsys.readouterr().err
    assert run_record.load(str(output_dir)).settings["--made_up"] == 5
    for page in ("report.html", "export/README.md"):
        assert "--made_up" in (output_dir / page).read_text().replace("<wbr>", "")

    with ends_with_error(capsys, "--made_up=10: must be between 0 and 9"):
        run_here({**given, "output_dir": tmp_path / "other", "made_up": 10})
    assert not (tmp_path / "other").exists()


def test_a_run_recorded_before_a_setting_existed_had_its_default(made_up, tiny_classifier):
    assert run_record.load(str(tiny_classifier)).settings["--made_up"] == 3


def test_a_setting_that_may_not_change_is_compared_where_an_earlier_version_recorded_it(tiny_classifier):
    folder = str(tiny_classifier)
    run_record.check(folder, {"--seed": 42})
    with pytest.raises(UserError, match="another --seed: was 42, now 43"):
        run_record.check(folder, {"--seed": 43})


def test_fp16_is_the_old_name_of_a_precision():
    values = run_classifier.define_flags()
    values(["command", "--fp16"])
    assert chosen_precision(values) == "float16"
    values(["command", "--precision=float32"])
    with pytest.raises(UserError, match="--fp16 is the old name of --precision=float16"):
        chosen_precision(values)


@pytest.mark.parametrize("argument, recorded, expected", [
    (None, "auto", "auto"), ("--xla", True, True), ("--noxla", False, False), ("--xla=auto", "auto", "auto"),
    ("--xla=true", True, True), ("--xla=false", False, False)])
def test_a_switch_is_true_false_or_auto_on_the_command_line_and_in_a_record(argument, recorded, expected):
    values = run_classifier.define_flags()
    values(["command", *filter(None, [argument])])
    assert values.xla == values["xla"].parser.parse(recorded) == expected
    assert run_settings.recorded(from_flags(values, run_settings.TrainingSettings))["--xla"] == recorded


def test_a_switch_has_no_other_value(capsys):
    with ends_with_error(capsys, "--xla=maybe"):
        run_here({"xla": "maybe"})


def test_the_page_of_flags_is_that_of_the_definitions():
    assert text_of("docs/flags.md") == flags_page.text(), "python -m scripts.flags_page > docs/flags.md"
