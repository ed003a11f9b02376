"""The command that measures on cards, rehearsed on the CPU: cut short, it goes on where it was."""

import json
import os
import signal
import subprocess

import processes
from benchmarks.gpu_stages import tables, tracing
from benchmarks.gpu_stages.common import Machine
from benchmarks.gpu_stages.tracing import Kernel
from conftest import on_tensorflow_2

import tensorflow.compat.v1 as tf

STAGES = ["fine-tuning-mini-64-float32", "fine-tuning-base-128-tf32"]  # they share a process
ONE_CARD = Machine(1, False, "")


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


# --- A traced step -------------------------------------------------------------------------


def stats_of(*nodes):
    """StepStats of (device, node, start, end, shape of a float32 output)."""
    stats = tf.RunMetadata().step_stats
    for device, name, start, end, shape in nodes:
        node = stats.dev_stats.add(device=device).node_stats.add(
            node_name=name, all_start_micros=start, op_end_rel_micros=end - start)
        described = node.output.add().tensor_description
        described.dtype = tf.float32.as_datatype_enum
        for size in shape:
            described.shape.dim.add(size=size)
    return stats


def test_a_traced_step_says_what_was_timed_how_long_the_card_waited_and_what_overlapped():
    stats = stats_of(
        ("/job:localhost/replica:0/task:0/device:GPU:0", "layer/MatMul:MatMul", 0, 1, []),
        ("/device:GPU:0/stream:7", "layer/MatMul:MatMul", 10, 40, []),
        ("/device:GPU:0/stream:7", "Mul_3:Mul", 60, 90, []),
        ("/device:GPU:0/stream:9", "NcclAllReduce:NcclAllReduce", 30, 70, []))
    assert tracing.kernels(stats)[0] == Kernel("MatMul", 10, 40)
    step = tracing.summary(stats)
    assert step["timed"] == "the card's kernels"
    assert step["step_ms"] == 0.08 and step["idle_share"] == 0  # 10 to 90 without a gap
    assert step["exchange_ms"] == 0.04
    assert step["of_it_beside_computation"] == 0.5  # 30 to 40 and 60 to 70
    assert step["ms_by_kind"] == {"NcclAllReduce": "0.04", "MatMul": "0.03", "Mul": "0.03"}
    without_cupti = tracing.summary(stats_of(("/device:GPU:0", "layer/MatMul:MatMul", 0, 1, [])))
    assert without_cupti["timed"].startswith("threads of the host, not kernels")


def test_an_operation_that_ran_on_the_host_is_found():
    cpu, card = ("/job:localhost/replica:0/task:0/device:" + name for name in ("CPU:0", "GPU:0"))
    stats = stats_of((cpu, "moved:Sin", 0, 1, [2]), (cpu, "scalar:Cos", 0, 1, []),
                     (card, "add:AddV2", 0, 1, [2]), (cpu, "IteratorGetNext", 0, 1, [2]))
    assert tracing.elsewhere(stats, [card]) == ["moved:Sin on CPU:0"]
