"""The table of a model's speed, and where it is kept."""

import re
import shutil

import pytest

from commands import run_here
from serving import measure, run


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(measure, "_SECONDS", 0.05)


def measure_it(folder):
    run_here(dict(model=folder, measure=True, num_cpu_replicas=1), run)


def test_the_table_is_logged_and_replaces_the_earlier_one_in_the_model_card(
        tiny_classifier, tmp_path, capfd):
    shutil.copytree(str(tiny_classifier), str(tmp_path / "out"))
    run_here(dict(output_dir=tmp_path / "out", do_export=True))
    card = tmp_path / "out" / "export" / "README.md"
    before = card.read_text(encoding="utf-8")
    for _ in range(2):
        capfd.readouterr()
        measure_it(card.parent)
        said, after = capfd.readouterr().err, card.read_text(encoding="utf-8")
        assert after.startswith(before.rstrip("\n")) and after.count("## Speed") == 1
        rows = re.findall(r"^\| (\d+) \| ([\d.e+]+) \| ([\d.e+]+) \| ([\d.,e+]+) \|$", after, re.MULTILINE)
        assert [int(row[0]) for row in rows] == [16, 24]  # the model reads 24 tokens
        for row in rows:
            assert f"| {' | '.join(row)} |" in said
            median, late, rate = (float(value.replace(",", "")) for value in row[1:])
            assert 0 < median <= late and rate > 0


def test_without_a_model_card_the_table_is_logged_alone(tiny_classifier, capfd):
    measure_it(tiny_classifier)
    said = capfd.readouterr().err
    assert "| 24 |" in said and "computed by tensorflow" in said and "no model card" in said
