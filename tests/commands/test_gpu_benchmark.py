"""The command that measures on cards, rehearsed on the CPU: cut short, it goes on where it was."""

import json
import os
import signal
import subprocess
import time

import processes
from benchmarks.gpu_stages import tables
from conftest import on_tensorflow_2

STAGES = ["first-step", "not-a-number"]


def start(output_dir, stages=STAGES):
    return processes.start(
        ["-m", "benchmarks.gpu", "--toy", "--minutes=9", f"--output_dir={output_dir}",
         f"--stages={'|'.join(stages)}"],
        stderr=subprocess.STDOUT, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


@on_tensorflow_2
def test_a_call_that_is_cut_short_is_continued_by_the_next(tmp_path):
    first, second = (tmp_path / f"{stage}.json" for stage in STAGES)
    process = start(tmp_path)
    while not first.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert not second.exists()
    written = first.stat().st_mtime_ns

    process = start(tmp_path)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "1 stages have no result yet" in said
    assert first.stat().st_mtime_ns == written
    assert json.loads(second.read_text())["ok"], second.read_text()
    for stage in STAGES:
        assert f"| {stage} | holds |" in (tmp_path / "results.md").read_text()


def test_a_result_without_figures_says_why():
    about = dict.fromkeys(("cards", "machine", "tensorflow", "commit", "date"), "x")
    results = dict.fromkeys(tables.CHECKS)
    results["pretraining-base-128-bfloat16"] = {"refused": "not on this TensorFlow", **about}
    assert "| base-128-bfloat16 | refused: not on this TensorFlow |" in tables.text(results)
