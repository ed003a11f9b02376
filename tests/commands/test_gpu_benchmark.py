"""The command that measures on cards, rehearsed on the CPU: cut short, it goes on where it was."""

import json
import os
import signal
import subprocess
import sys

import pytest

import processes
from benchmarks import gpu
from benchmarks.gpu_stages import tables, tracing
from benchmarks.gpu_stages.common import Machine
from benchmarks.gpu_stages.tracing import Kernel
from conftest import on_tensorflow_2
from engine.devices import gpus
from engine.errors import UserError

import tensorflow.compat.v1 as tf

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
    processes.wait_until(process, first.exists)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert not second.exists()
    written = first.stat().st_mtime_ns
    second.write_text('{"failed": "took longer than 60 s"}')  # it is tried again

    process = start(tmp_path)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "0 stages have no result yet" in said
    assert first.stat().st_mtime_ns == written
    assert json.loads(second.read_text())["ok"], second.read_text()
    for stage in STAGES:
        assert f"| {stage} | holds |" in (tmp_path / "results.md").read_text()


def test_what_wins_is_said_in_flags_and_why_a_result_has_no_figures():
    about = dict.fromkeys(("cards", "machine", "tensorflow", "commit", "date"), "x")
    found = dict(refused="not on this TensorFlow"), *(dict(sequences_per_second=speed)
                                                       for speed in (200.0, 420.0, 300.0))
    text = tables.text({**dict.fromkeys(tables.CHECKS), **{
        f"pretraining-base-128-{name}": {**figures, **about}
        for name, figures in zip(("bfloat16", "tf32", "float16-xla", "float16"), found)}})
    assert "| base-128-bfloat16 | refused: not on this TensorFlow |" in text
    assert "| base, 128 tokens | `--precision=float16` `--xla` | 420.0 | 3 |" in text


def test_stages_have_names_of_their_own_and_the_first_step_comes_first():
    names = [stage.name for stage in gpu.stages(Machine(8, False, ""))]
    assert len(set(names)) == len(names) and names[0] == "first-step"


@pytest.mark.parametrize("flag", [[], ["--toy"]])
def test_xla_is_prepared_before_tensorflow_looks_for_cards(flag, monkeypatch, tmp_path):
    prepared = []
    monkeypatch.setattr(gpu.runtime, "prepare_xla", lambda: prepared.append(True))

    def look(*_):
        assert prepared
        raise UserError("seen")
    monkeypatch.setattr(gpus, "check_seen", look)
    monkeypatch.setattr(gpu, "measure", look)
    monkeypatch.setattr(sys, "argv", [
        "gpu", "--stage=pretraining-large-128-float16-xla,pretraining-large-128-tf32-xla",
        f"--output_dir={tmp_path}", *flag])
    with pytest.raises(SystemExit):
        gpu.main()


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


def test_a_traced_step_says_how_long_the_card_waited_and_what_overlapped():
    ran = tracing.kernels(stats_of(
        ("/job:localhost/replica:0/task:0/device:GPU:0", "layer/MatMul:MatMul", 0, 1, []),
        ("/device:GPU:0/stream:7", "layer/MatMul:MatMul", 10, 40, []),
        ("/device:GPU:0/stream:7", "Mul_3:Mul", 60, 90, []),
        ("/device:GPU:0/stream:9", "NcclAllReduce:NcclAllReduce", 30, 70, [])))
    assert ran[0] == Kernel("GPU:0/stream:7", "MatMul", 10, 40)
    found = tracing.summary(ran)
    assert found["step_ms"] == 0.08 and found["idle_share"] == 0  # 10 to 90 without a gap
    assert found["exchange_ms"] == 0.04
    assert found["of_it_beside_computation"] == 0.5  # 30 to 40 and 60 to 70
    assert found["ms_by_kind"] == {"NcclAllReduce": "0.04", "MatMul": "0.03", "Mul": "0.03"}
    assert tracing.picture(ran).count("<rect") == 3


def test_a_function_s_operation_that_ran_on_the_host_is_found():
    @tf.function(autograph=False)
    def body(x):
        return tf.sin(x, name="moved") + tf.cos(x, name="scalar")
    body(tf.zeros([2]))
    cpu, card = ("/job:localhost/replica:0/task:0/device:" + name for name in ("CPU:0", "GPU:0"))
    stats = stats_of((cpu, "moved:Sin", 0, 1, [2]), (cpu, "scalar:Cos", 0, 1, []),
                     (card, "add:AddV2", 0, 1, [2]), (cpu, "outside:Exp", 0, 1, [2]))
    assert tracing.moved_in_functions(stats, tf.get_default_graph(), ["GPU:0"]) == [
        "moved:Sin on CPU:0"]
