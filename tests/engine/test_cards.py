"""What a run does with the cards of a machine, where nvidia-smi answers for cards that are not there."""

import contextlib
import os
import subprocess
import sys

import pytest

import processes
import run_classifier
from commands import arguments
from conftest import ROOT
from engine import count_replicas
from engine.cli import device_flags
from engine.devices import devices, gpus, runtime
from engine.errors import UserError

import tensorflow.compat.v1 as tf

A100 = ("NVIDIA A100-SXM4-40GB", 40960, "8.0")
V100 = ("Tesla V100-SXM2-16GB", 16384, "7.0")
H100 = ("NVIDIA H100 80GB HBM3", 81559, "9.0")
no_gpu_here = pytest.mark.skipif(runtime.visible_gpu_count() > 0, reason="for machines without GPUs")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes this a machine with such cards, as far as nvidia-smi goes."""
    def install(*models, visible=None):
        rows = "".join(f"{name}, GPU-{i}00-{i}, {memory}, {capability}\n"
                       for i, (name, memory, capability) in enumerate(models))
        names = "".join(f"GPU {i}: {name} (UUID: GPU-{i}00-{i})\n" for i, (name, *_) in enumerate(models))
        (tmp_path / "nvidia-smi").write_text(f"""#!/bin/sh
case "$1" in
--query-gpu=name,uuid,memory.total,compute_cap) printf '%s' '{rows}' ;;
-L) printf '%s' '{names}  MIG 1g.5gb Device 0: (UUID: MIG-7)' ;;
--id=*) echo 00000000:3B:00.0 ;;
esac
""")
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    return install


@pytest.fixture
def seen(machine, monkeypatch):
    """The same, and TensorFlow sees those cards."""
    def install(*models, **more):
        machine(*models, **more)
        monkeypatch.setattr(runtime, "visible_gpu_count", lambda: len(gpus.visible()))
        monkeypatch.setattr(runtime, "check_code", lambda *card: False)
    return install


# --- What nvidia-smi says ------------------------------------------------------------------


@pytest.mark.parametrize("visible, expected", [
    (None, [A100, V100, H100]),
    ("2,0", [H100, A100]),
    ("1, 7,0", [V100]),  # as CUDA does: what follows one that is not there is not looked at
    ("GPU-100-1,0", [V100, A100]),
    ("", []), ("-1", [])])
def test_visible_cards_are_those_that_cuda_would_take(machine, visible, expected):
    machine(A100, V100, H100, visible=visible)
    assert [(card.name, card.memory_mb, "{}.{}".format(*card.compute_capability))
            for card in gpus.visible()] == expected


def test_a_part_of_a_card_is_left_to_tensorflow_and_has_no_known_memory(machine):
    machine(A100, visible="MIG-7c5a")
    assert gpus.visible() == []
    with pytest.raises(UserError, match="use --replicas_per_gpu=1"):
        gpus.memory_mb(1)


def test_cuda_counts_cards_as_nvidia_smi_and_a_users_setting_stays():
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("CUDA_")}
    code = "import os, engine; print(*map(os.environ.get, ('CUDA_DEVICE_ORDER', 'CUDA_CACHE_MAXSIZE')))"
    assert subprocess.check_output(
        [sys.executable, "-c", code], cwd=ROOT, env={**environment, "CUDA_CACHE_MAXSIZE": "7"},
        universal_newlines=True) == "PCI_BUS_ID 7\n"


# --- The devices of a run ------------------------------------------------------------------


def test_only_the_cards_that_are_asked_for_are_opened_and_named(seen):
    seen(A100, A100, V100, V100)
    assert devices.find_devices().describe() == (
        "GPU:0 GPU:1 GPU:2 GPU:3 (2 x NVIDIA A100-SXM4-40GB, 2 x Tesla V100-SXM2-16GB)")
    run_devices = devices.find_devices(devices.DeviceSettings(num_gpus=2))
    assert run_devices.describe() == "GPU:0 GPU:1 (2 x NVIDIA A100-SXM4-40GB)"
    assert run_devices.session_config.device_count["GPU"] == 2
    assert run_devices.session_config.gpu_options.visible_device_list == "0,1"
    assert run_devices.concurrent_steps == 2
    for on_cpu in (dict(num_gpus=0), dict(num_cpu_replicas=2)):
        assert devices.find_devices(devices.DeviceSettings(**on_cpu)).session_config.device_count["GPU"] == 0


def test_replicas_of_a_card_share_its_memory_in_the_sessions_configuration(seen, monkeypatch):
    monkeypatch.setattr(runtime, "_set_logical_devices", lambda *arguments: None)
    seen(A100, V100, visible="1,0")
    run_devices = devices.find_devices(devices.DeviceSettings(replicas_per_gpu=2))
    limits = run_devices.session_config.gpu_options.experimental.virtual_devices
    assert [list(each.memory_limit_mb) for each in limits] == [[7372, 7372], [18432, 18432]]
    assert run_devices.session_config.gpu_options.visible_device_list == "0,1"


# --- Code for the cards --------------------------------------------------------------------


@pytest.mark.skipif(runtime.IS_TENSORFLOW_1, reason="of TensorFlow 2.15")
def test_cards_without_machine_code_in_2_15_are_compiled_for_and_it_is_said(
        machine, monkeypatch, capfd):
    machine(A100, H100, H100)
    monkeypatch.setattr(runtime, "visible_gpu_count", lambda: 3)
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: {
        "cuda_compute_capabilities": ["sm_50", "sm_60", "sm_70", "sm_75", "compute_80"]})
    devices.find_devices(devices.DeviceSettings(num_gpus=1))
    assert capfd.readouterr().err == ""
    devices.find_devices()
    line, = capfd.readouterr().err.splitlines()
    assert "no machine code for 2 x NVIDIA H100 80GB HBM3: CUDA compiles" in line


@pytest.mark.skipif(not runtime.IS_TENSORFLOW_1, reason="of TensorFlow 1.15")
def test_cards_from_ampere_on_are_refused_by_1_15_and_taken_by_nvidias_build(machine, monkeypatch):
    machine(V100, A100)
    monkeypatch.setattr(runtime, "visible_gpu_count", lambda: 2)
    assert devices.find_devices(devices.DeviceSettings(num_gpus=1)).num_replicas == 1
    with pytest.raises(UserError) as error:
        devices.find_devices()
    assert "no code for NVIDIA A100-SXM4-40GB, a card of compute capability 8.0" in str(error.value)
    assert "TensorFlow 2.15" in str(error.value) and "NVIDIA's container" in str(error.value)
    monkeypatch.setattr(runtime.build_info, "cuda_version_number", "12.1.0")
    assert devices.find_devices().num_replicas == 2


# --- Cards that TensorFlow does not see ----------------------------------------------------


@no_gpu_here
def test_a_run_does_not_go_to_the_cpu_in_silence_where_there_are_cards(machine):
    machine(A100, A100)
    for wanted in ({}, dict(num_gpus=2), dict(replicas_per_gpu=2)):
        with pytest.raises(UserError) as error:
            devices.find_devices(devices.DeviceSettings(**wanted))
        for part in ("sees none of this machine's GPUs (2 x NVIDIA A100-SXM4-40GB; CUDA_VISIBLE_DE",
                     "CUDA 1", "TF_CPP_MIN_LOG_LEVEL=0", "--num_gpus=0"):
            assert part in str(error.value)
    with pytest.raises(UserError, match="or set --n_gpus=0 to use the CPU"):
        devices.find_devices(devices.DeviceSettings(n_gpus=2))
    for on_cpu in (dict(num_gpus=0), dict(num_cpu_replicas=1)):
        assert devices.find_devices(devices.DeviceSettings(**on_cpu)).kind == "CPU"
    for visible in ("", "-1"):
        machine(A100, visible=visible)
        assert devices.find_devices().kind == "CPU"


@pytest.mark.parametrize("given, expected", [
    ([], 8), (["--num_gpus=2"], 2), (["-num_gpus", "3", "--do_train"], 3), (["--n_gpus=1"], 1), (["--num_gpus=9"], 8),
    (["--replicas_per_gpu=2"], 16), (["--num_gpus=2", "--replicas_per_gpu", "3"], 6),
    (["--num_gpus", "0"], 0), (["--num_cpu_replicas=4"], 0), (["--other", "value", "-n_gpus=1", "--num_gpus", "1"], 1)])
def test_recipes_divide_their_batch_by_the_replicas_that_the_flags_ask_for(given, expected, monkeypatch, capsys):
    monkeypatch.setattr(count_replicas.gpus, "check_seen", lambda: None)
    monkeypatch.setattr(count_replicas.runtime, "visible_gpu_count", lambda: 8)
    count_replicas.main(given)
    assert capsys.readouterr().out == f"{expected}\n"


@no_gpu_here
@pytest.mark.parametrize("command", [["run_classifier.py"], ["-m", "engine.count_replicas"]])
def test_a_command_ends_with_status_2_and_one_line(command, machine, tiny_model, tmp_path):
    """The recipes ask engine.count_replicas."""
    machine(V100)
    process = processes.start([*command, *arguments(dict(
        tiny_model._asdict(), task_name="cola", max_seq_length=24, do_train=True,
        data_dir=tmp_path, output_dir=tmp_path / "out"))])
    line, = process.communicate()[1].splitlines()
    assert process.returncode == 2
    assert line.startswith(f"error: TensorFlow {tf.VERSION} sees none of this machine's GPUs "
                           "(Tesla V100-SXM2-16GB; CUDA_VISIBLE_DEVICES is not set): ")
    assert not (tmp_path / "out").exists()


# --- TensorFloat-32 ------------------------------------------------------------------------


@pytest.mark.skipif(runtime.IS_TENSORFLOW_1, reason="CUDA 10.0 has no TensorFloat-32")
@pytest.mark.parametrize("card, flag, is_said", [
    (A100, None, True), (A100, "--precision=float32", False), (V100, None, False)])
def test_a_training_on_later_cards_says_that_its_products_are_rounded(
        card, flag, is_said, seen, monkeypatch, capsys):
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    seen(card)
    values = run_classifier.define_flags()
    values(["run_classifier.py", *filter(None, [flag])])
    device_flags.find_devices(values, training=True)
    assert ("--precision=float32 keeps all bits" in capsys.readouterr().err) == is_said
    runtime.allow_tensor_float_32(True)


@pytest.mark.parametrize("flags, is_refused", [
    (["--xla"], True), ([], False), (["--xla", "--num_gpus=0"], False), (["--noxla"], False)])
def test_xla_on_cards_without_its_parts_of_cuda_is_refused(flags, is_refused, seen, monkeypatch):
    seen(V100)
    monkeypatch.setattr(runtime, "CUDA_FOLDERS", ("/no/cuda",))
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_fuel=0")  # as `runtime` sets it
    monkeypatch.setenv("XLA_FLAGS", "")
    values = run_classifier.define_flags()
    values(["run_classifier.py", *flags])
    with pytest.raises(UserError, match="libdevice.* finds in none of .*/no/cuda: ") if is_refused else (
            contextlib.nullcontext()):
        device_flags.find_devices(values, training=True)
    is_prepared = "lazy_compilation=false" in os.environ["TF_XLA_FLAGS"]
    # By default, too: XLA may turn out to save time; but not in 1.15, where it has to be asked for.
    assert is_prepared == ("--xla" in flags or not flags and not runtime.IS_TENSORFLOW_1)
    # Only 1.15 compiles what it finds by searching the graph, which takes long.
    assert ("fuel=0" in os.environ["TF_XLA_FLAGS"]) != (is_prepared and runtime.IS_TENSORFLOW_1)


@pytest.mark.parametrize("model, is_warned", [(V100, True), (A100, False), (("a card", 8000, ""), False)])
def test_bfloat16_on_a_card_before_ampere_gets_a_warning(model, is_warned, seen, capfd):
    seen(model)
    devices.check_precision(devices.FLOAT32, devices.find_devices())
    assert not capfd.readouterr().err
    if runtime.HAS_BFLOAT16:
        devices.check_precision(devices.BFLOAT16, devices.find_devices())
        assert ("--precision=float16" in capfd.readouterr().err) == is_warned
