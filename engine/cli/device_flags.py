"""The flags for devices, and the devices that they select; and Google's flags for TPUs."""

import dataclasses
import os
import pathlib
from typing import Optional

import tensorflow.compat.v1 as tf
from absl import flags

from engine import log, settings
from engine.cli import command
from engine.devices import devices, gpus, runtime, xla_tools
from engine.devices.devices import DeviceSettings
from engine.disk import files
from engine.errors import UserError
from engine.settings import setting
from engine.training.settings import TrainingSettings
from engine.workers.cluster import from_environment
from engine.workers.coordination import NO_PEERS, Peers

_TPU_ONLY = "TPU only; ignored."


@dataclasses.dataclass(frozen=True)
class TpuSettings:
    """Google's flags for TPUs: accepted, with a warning, so that its command lines still work."""
    topic = "For TPUs, ignored"
    use_tpu: bool = setting(False, "Not supported; must be false.")
    tpu_name: Optional[str] = setting(None, _TPU_ONLY)
    tpu_zone: Optional[str] = setting(None, _TPU_ONLY)
    gcp_project: Optional[str] = setting(None, _TPU_ONLY)
    master: Optional[str] = setting(None, _TPU_ONLY)
    iterations_per_loop: int = setting(1000, _TPU_ONLY)  # Google's defaults
    num_tpu_cores: int = setting(8, _TPU_ONLY)


def check_tpu(values: flags.FlagValues) -> None:
    """Raises a UserError for --use_tpu; warns of the other TPU flags."""
    if values.use_tpu:
        raise UserError("--use_tpu=true: this program runs on GPUs and CPUs; "
                        "set --use_tpu=false, and --num_gpus for the number of cards")
    for field in dataclasses.fields(TpuSettings)[1:]:
        if values[field.name].present:
            log.warn(f"--{field.name} is for TPUs and has no effect here")


def define(values: flags.FlagValues) -> None:
    """Defines the flags for devices and precision of an inference command."""
    settings.define_flags(values, DeviceSettings, "num_gpus", "n_gpus", "replicas_per_gpu",
                          "num_cpu_replicas")
    settings.define_flags(values, TrainingSettings, "precision", topic=DeviceSettings.topic)


def join_workers(values: flags.FlagValues) -> Peers:
    """Joins the other workers that a training has, if it has any. Errors from then on reach all of them."""
    if not values.do_train:
        return NO_PEERS
    _check_srun()
    wanted = settings.from_flags(values, DeviceSettings)
    peers = Peers(from_environment(), wanted.heartbeat_timeout)
    command.at_exit(peers.leave)
    peers.meet(wanted.peer_timeout)
    return peers


def find_devices(values: flags.FlagValues, training: bool, peers: Peers = NO_PEERS) -> devices.Devices:
    """The devices that the flags select, for which TensorFlow is set up.

    Args:
        training: False if the process only predicts or evaluates.
        peers: the other workers, as `join_workers` gives them.
    """
    wanted = settings.from_flags(values, DeviceSettings)
    xla = training and "xla" in values and values.xla
    # TensorFlow reads both settings when it opens the devices.
    if xla is True or xla and runtime.XLA_BY_DEFAULT:  # auto compiles nothing in TensorFlow 1.15
        runtime.prepare_xla()
    precision = devices.chosen_precision(values)
    tensor_float_32 = runtime.allow_tensor_float_32(precision != devices.FLOAT32)
    own = devices.find_devices(wanted, training=training, peers=peers)._replace(dtype=devices.dtype_of(precision))
    if xla is True and own.kind == "GPU":
        xla_tools.check_here()
    is_chosen = wanted.cards is not None or wanted.num_cpu_replicas or gpus.are_hidden()
    if training and own.kind == "CPU" and not is_chosen:
        log.warn(f"no GPU is visible to TensorFlow ({gpus.visibility()}): running on the CPU, which "
                 "is many times slower")
    if tensor_float_32 and own.has_ampere:
        log.info("Matrix products round float32 factors to 11 bits (TensorFloat-32, TensorFlow's "
                 "default on these GPUs); --precision=float32 keeps all bits")
    devices.check_precision(precision, own)
    return own


def compare_workers(values: flags.FlagValues, own: devices.Devices) -> None:
    """Ends a training's workers if one of them computes on other devices, in another precision or with other code."""
    if own.peers.others:
        own.peers.compare("the devices", {
            "TensorFlow": tf.VERSION, "devices": f"{len(own.names)} x {own.kind}", "--all_reduce": own.all_reduce,
            "--precision": devices.chosen_precision(values), "code": _code_hash(),
            "--heartbeat_timeout": values.heartbeat_timeout})


def _check_srun() -> None:
    """Raises a UserError if several processes of srun would each train alone."""
    count = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if count != "1" and "TF_CONFIG" not in os.environ:
        raise UserError(f"srun has started {count} processes of this training, and no TF_CONFIG names "
                        "them to each other: start it with scripts/slurm.sh, which makes one, or with "
                        "--ntasks=1 on one machine")


def _code_hash() -> str:
    """A hash of this program's files."""
    root = pathlib.Path(__file__).resolve().parents[2]
    paths = [*root.glob("*.py")]
    for package in root.glob("*/__init__.py"):
        paths += package.parent.rglob("*.py")
    hashes = [files.hash_of_file(str(path)) for path in sorted(paths)]
    return files.hash_of("".join(hashes).encode("ascii"))[:16]
