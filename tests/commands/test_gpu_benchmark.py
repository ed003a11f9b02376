"""The command that measures on cards, rehearsed on the CPU: cut short, it goes on where it was."""

import json
import os
import signal
import subprocess

import processes
from benchmarks.gpu_stages import tables
from conftest import on_tensorflow_2

STAGES = ["fine-tuning-mini-64-float32", "fine-tuning-base-128-tf32"]  # they share a process


def start(output_dir, stages=STAGES):
    return processes.start(
        ["-m", "benchmarks.gpu", "--toy", "--minutes=9", f"--output_dir={output_dir}",
         f"--stages=({'|'.join(stages)})$"],
        stderr=subprocess.STDOUT, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


@on_tensorflow_2
def test_each_stage_writes_the_tables_and_a_call_that_is_cut_short_is_continued_by_the_next(tmp_path):
    first, second = (tmp_path / f"{stage}.json" for stage in STAGES)
    tables_file = tmp_path / "results.md"
    process = start(tmp_path)
    processes.wait_until(process, tables_file.exists)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert not second.exists()
    assert f"| {STAGES[0]} | holds |" in tables_file.read_text()
    written = first.stat().st_mtime_ns
    second.write_text('{"failed": "took longer than 60 s"}')  # it is tried again

    process = start(tmp_path)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "0 stages have no result yet" in said
    assert first.stat().st_mtime_ns == written
    assert json.loads(second.read_text())["sequences_per_second"] > 0, second.read_text()
    assert f"| {STAGES[1]} | 4 |" in tables_file.read_text()


def test_the_tables_compare_with_the_run_without_xla_and_with_the_peer():
    about = dict.fromkeys(("cards", "machine", "tensorflow", "commit", "date"), "x")
    text = tables.text({name: {**figures, **about} for name, figures in {
        "fine-tuning-base-128-bfloat16": dict(failed="not on this TensorFlow"),
        "fine-tuning-base-128-float16": dict(sequences_per_second=200.0),
        "fine-tuning-base-128-float16-xla": dict(sequences_per_second=420.0),
        "right-fine-tuning-mini-64-float16": dict(ok=False),
        "peer-fine-tuning-base-128-float16": dict(peers_sequences_per_second=400.0)}.items()})
    assert "| fine-tuning-base-128-bfloat16 | failed: not on this TensorFlow |" in text
    assert "| right-fine-tuning-mini-64-float16 | DOES NOT HOLD |" in text
    assert "| 420.0 | – | – | – | – | 2.10 × |" in text
    assert "| peer-fine-tuning-base-128-float16 | 400.0 | 0.50 × | 1.05 × |" in text
