"""Selects the devices, the number of replicas, the strategy and the precision of matrix products.

Only this file makes strategies.
"""

import contextlib
import dataclasses
import os
import re
import resource
import sys
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from absl import flags

from engine import log
from engine.devices import gpus, runtime
from engine.errors import UserError
from engine.progress import counted
from engine.settings import setting
from engine.workers.cluster import ALONE, Cluster
from engine.workers.coordination import NO_PEERS, Peers

import tensorflow.compat.v1 as tf

TF32, FLOAT32, FLOAT16, BFLOAT16 = PRECISIONS = ("tf32", "float32", "float16", "bfloat16")

# TensorFlow's own switch, which acts on some operations, without a loss scale.
_AUTO_MIXED_PRECISION = "TF_ENABLE_AUTO_MIXED_PRECISION"

# TensorFlow raises the same class for a full disk; its message always mentions OOM at the end.
_OUT_OF_MEMORY = re.compile(r"OOM when|out of memory|ERROR_OUT_OF_MEMORY|MemoryError|(failed|unable) to allocate|"
                            r"Dst tensor is not initialized", re.IGNORECASE)

_AMPERE = (8, 0)  # compute capability

# The share of a card's memory for its logical devices; the rest is the driver's.
_USABLE_SHARE_OF_GPU_MEMORY = 0.9

# The activations of a larger inference step do not fit into a core's caches. A step of this size
# is too small for several cores.
_CPU_STEP_TOKENS = 512

# Cards, and replicas on a card or on the CPU: the graph holds one copy of the model for each.
MOST_REPLICAS = 64

# In inference, the next step is queued on the card when one ends.
_GPU_CONCURRENT_STEPS = 2


class Devices(NamedTuple):
    """The replicas of a run. Made by `find_devices`."""
    names: Tuple[str, ...]  # one logical device per replica
    kind: str  # "GPU" or "CPU"
    all_reduce: str  # a key of ALL_REDUCE
    session_config: tf.ConfigProto
    # In inference: the number of steps to run at a time, and the maximum tokens per replica and
    # step, padding included; None: no limit.
    concurrent_steps: int = 1
    max_step_tokens: Optional[int] = None
    cards_in_use: Tuple[gpus.Card, ...] = ()  # empty if they are unknown, and on the CPU
    dtype: tf.DType = tf.float32  # of the encoder's matrix products in inference
    peers: Peers = NO_PEERS  # the other workers of a training

    @property
    def num_replicas(self) -> int:
        """The number of replicas of a training, over all workers."""
        return len(self.names) * len(self.peers.cluster.addresses)

    @property
    def own_replicas(self) -> range:
        """The numbers of this worker's replicas, one for each of its logical devices."""
        first = len(self.names) * self.peers.cluster.index
        return range(first, first + len(self.names))

    @property
    def has_ampere(self) -> bool:
        """Whether a card is of the Ampere generation or a later one: has TF32 and bfloat16."""
        return any((card.compute_capability or (0, 0)) >= _AMPERE for card in self.cards_in_use)

    def peak_memory_gb(self) -> Optional[float]:
        """The peak memory in 10^9 bytes, of the fullest card or, on a CPU, of the process.

        None on cards where TensorFlow does not report it.
        """
        if self.kind != "CPU":
            used = runtime.peak_gpu_memory(len(self.names))
            return used and used / 1e9
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, KiB elsewhere
        return used * (1 if sys.platform == "darwin" else 1024) / 1e9

    def strategy(self) -> tf.distribute.Strategy:
        """A new strategy over the devices of this worker. Make one for each graph."""
        return tf.distribute.MirroredStrategy(
            devices=list(self.names), cross_device_ops=ALL_REDUCE[self.all_reduce]())

    def multi_worker_strategy(self, config: tf.ConfigProto) -> tf.distribute.Strategy:
        """A new strategy over the devices of all workers: over NCCL, or in a ring over gRPC.

        Args:
            config: becomes the configuration of the server and of the sessions.
        """
        communication = tf.distribute.experimental.CollectiveCommunication
        strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy(
            communication.NCCL if self.all_reduce == NCCL else communication.RING)
        index, workers = self.peers.cluster.index, {"worker": list(self.peers.cluster.addresses)}
        strategy.configure(config, workers, "worker", index)
        worker = f"/job:worker/task:{index}"
        runtime.set_devices(strategy, config, worker, [
            f"{worker}/device:{name.strip('/').upper()}" for name in self.names])
        return strategy

    def training_strategy(self) -> Tuple[tf.distribute.Strategy, tf.ConfigProto, str]:
        """A new strategy over the devices of all workers; the configuration of its sessions, and
        where they connect to: "" for this process."""
        config, cluster = tf.ConfigProto(), self.peers.cluster
        config.CopyFrom(self.session_config)
        if cluster == ALONE:
            return self.strategy(), config, ""
        strategy = self.multi_worker_strategy(config)
        self.peers.open_port()
        try:
            server = tf.distribute.Server({"worker": list(cluster.addresses)}, "worker",
                                          cluster.index, config=config)
        except tf.errors.UnknownError as error:  # another process has just taken the port
            raise UserError(f"{cluster.name(cluster.index)}: TensorFlow's server cannot "
                            f"be started there: {error.message}") from error
        return strategy, config, server.target

    def describe(self) -> str:
        """Describes the devices: 'GPU:0 GPU:1 (2 x NVIDIA A100-SXM4-40GB)'."""
        names = " ".join(name.replace("/device:", "").lstrip("/").upper() for name in self.names)
        named = f"{names} ({gpus.names(self.cards_in_use)})" if self.cards_in_use else names
        return named if self.peers.cluster == ALONE else (
            f"{len(self.peers.cluster.addresses)} workers, each with {named}")


# How the replicas of one worker reduce gradients. Several workers reduce over NCCL, or in a ring over
# gRPC; the strategy with which each of them predicts then reduces nothing.
NCCL, ONE_DEVICE, RING = "nccl", "one_device", "ring"
ALL_REDUCE = {
    NCCL: lambda: tf.distribute.NcclAllReduce(num_packs=1),
    ONE_DEVICE: tf.distribute.ReductionToOneDevice,
    RING: tf.distribute.ReductionToOneDevice,
}


@dataclasses.dataclass(frozen=True)
class DeviceSettings:
    """Which devices to use, and how many replicas."""
    topic = "Devices"
    num_gpus: Optional[int] = setting(
        None, "Number of GPUs to use, of those that CUDA_VISIBLE_DEVICES shows; by default all of "
        "them; 0 for the CPU.", between=(0, MOST_REPLICAS))
    n_gpus: Optional[int] = setting(
        None, "The same as --num_gpus.", between=(0, MOST_REPLICAS))
    replicas_per_gpu: int = setting(
        1, "Replicas on each GPU; more than one can help if short sequences leave a GPU idle.",
        between=(1, MOST_REPLICAS))
    num_cpu_replicas: Optional[int] = setting(
        None, "Replicas on virtual CPU devices, to try several replicas without a GPU.",
        between=(1, MOST_REPLICAS))
    all_reduce: Optional[str] = setting(
        None, "Algorithm that adds up gradients over replicas, by default the best one for the "
        "devices; with several machines nccl or ring.", choices=sorted(ALL_REDUCE))
    peer_timeout: float = setting(
        300.0, "With several machines: seconds to retry connecting to the others at the start.",
        positive=True)
    heartbeat_timeout: float = setting(
        60.0, "With several machines: seconds without a heartbeat after which another worker "
        "counts as lost, and the run ends.", positive=True)

    @property
    def cards_flag(self) -> str:
        """The flag that gives the number of cards, or can give it."""
        return "--num_gpus" if self.n_gpus is None else "--n_gpus"

    @property
    def cards(self) -> Optional[int]:
        """The value of --num_gpus or --n_gpus. Raises a UserError if they disagree."""
        if None not in (self.num_gpus, self.n_gpus) and self.num_gpus != self.n_gpus:
            raise UserError(f"--num_gpus={self.num_gpus} and --n_gpus={self.n_gpus} are the same "
                            "flag and disagree; give one of them")
        return self.n_gpus if self.num_gpus is None else self.num_gpus


def find_devices(wanted: DeviceSettings = DeviceSettings(), *, training: bool = True,
                 peers: Peers = NO_PEERS) -> Devices:
    """Picks the devices of a run and sets up TensorFlow for them.

    Args:
        training: False for inference. On the CPU each core then runs its own step, which is
            faster than dividing each operation of one step among all cores.
        peers: the other workers of a training. Each has its own devices, as many as the others.

    Raises:
        UserError: a card does not exist or this TensorFlow cannot use it, or the choices exclude
            each other. If the machine has cards and TensorFlow sees none, the CPU is used only if
            the settings ask for it.
    """
    if wanted.cards and wanted.num_cpu_replicas:
        raise UserError(f"{wanted.cards_flag}={wanted.cards} and --num_cpu_replicas={wanted.num_cpu_replicas} "
                        "exclude each other")
    num_gpus, per_gpu = 0 if wanted.num_cpu_replicas else _num_gpus(wanted), wanted.replicas_per_gpu
    if per_gpu > 1 and not num_gpus:
        raise UserError(f"--replicas_per_gpu={per_gpu} needs a GPU, and this run uses the "
                        f"CPU ({gpus.visibility()}): give --num_cpu_replicas={per_gpu} instead")
    all_reduce = _all_reduce(wanted.all_reduce, num_gpus, per_gpu, peers.cluster)
    devices = (_gpu_devices(num_gpus, per_gpu, all_reduce) if num_gpus
               else _cpu_devices(wanted.num_cpu_replicas or 1, all_reduce, training))
    return devices._replace(peers=peers)


def _num_gpus(wanted: DeviceSettings) -> int:
    """The number of cards to use: those wanted, or all visible ones."""
    if wanted.cards == 0:
        return 0
    gpus.check_seen(wanted.cards_flag)
    visible = runtime.visible_gpu_count()
    if wanted.cards and wanted.cards > visible:
        remedy = (f"ask for at most {visible}, or show it more cards; for more replicas than cards "
                  "there is --replicas_per_gpu" if visible else "show it cards, or use the CPU: "
                  f"--num_cpu_replicas={wanted.cards * wanted.replicas_per_gpu} instead")
        raise UserError(f"{wanted.cards_flag}={wanted.cards}, but TensorFlow sees {counted(visible, 'GPUs')} "
                        f"({gpus.visibility()}); {remedy}")
    return wanted.cards or visible


def _all_reduce(chosen: Optional[str], num_gpus: int, replicas_per_gpu: int,
                cluster: Cluster) -> str:
    """The chosen algorithm, or the best one. Raises a UserError if these devices cannot use it."""
    is_alone = cluster == ALONE
    if chosen == (RING if is_alone else ONE_DEVICE):
        raise UserError(f"--all_reduce={chosen} is for {'several workers' if is_alone else 'one worker'}"
                        f", and this run has {len(cluster.addresses)}; leave the flag out")
    takes_nccl = num_gpus and replicas_per_gpu == 1
    if chosen == NCCL and not takes_nccl:
        raise UserError("--all_reduce=nccl needs GPUs with one replica on each; leave the flag out")
    if chosen:
        return chosen
    if takes_nccl and (num_gpus > 1 or not is_alone):
        return NCCL
    return ONE_DEVICE if is_alone else RING


def _cpu_devices(num_replicas: int, all_reduce: str, training: bool) -> Devices:
    num_cores = len(os.sched_getaffinity(0))
    # If replicas and steps keep all cores busy, dividing an operation among cores only costs time.
    one_thread = not training or num_replicas >= num_cores
    return Devices(
        names=tuple(f"/cpu:{i}" for i in range(num_replicas)),
        kind="CPU",
        all_reduce=all_reduce,
        session_config=runtime.session_config(num_cpu_devices=num_replicas,
                                              one_thread_per_operation=one_thread),
        concurrent_steps=1 if training else max(1, num_cores // num_replicas),
        max_step_tokens=_CPU_STEP_TOKENS if one_thread else None)


def _gpu_devices(num_gpus: int, replicas_per_gpu: int, all_reduce: str) -> Devices:
    limits: List[List[int]] = []
    if replicas_per_gpu > 1:
        share = _USABLE_SHARE_OF_GPU_MEMORY / replicas_per_gpu
        limits = [[int(memory * share)] * replicas_per_gpu for memory in gpus.memory_mb(num_gpus)]
    in_use = gpus.visible()[:num_gpus]
    gpus.check_code(in_use)
    return Devices(
        names=tuple(f"/gpu:{i}" for i in range(num_gpus * replicas_per_gpu)),
        kind="GPU",
        all_reduce=all_reduce,
        session_config=runtime.session_config(num_gpus=num_gpus, gpu_memory_limits_mb=limits),
        concurrent_steps=_GPU_CONCURRENT_STEPS,
        cards_in_use=tuple(in_use))


def chosen_precision(values: flags.FlagValues) -> str:
    """The precision from --precision or, in trainings, its old form --fp16."""
    if "fp16" not in values or not values.fp16:
        return values.precision
    if values["precision"].present and values.precision != FLOAT16:
        raise UserError(f"--fp16 is the old name of --precision={FLOAT16}, and contradicts "
                        f"--precision={values.precision}; leave one of them out")
    return FLOAT16


def dtype_of(precision: str) -> tf.DType:
    """The type in which the encoder's matrix products are computed."""
    return {FLOAT16: tf.float16, BFLOAT16: tf.bfloat16}.get(precision, tf.float32)


def check_precision(precision: str, devices: Devices) -> None:
    """Raises a UserError for a precision that this TensorFlow cannot compute in; warns of float16 on the CPU."""
    if os.environ.get(_AUTO_MIXED_PRECISION, "").lower() not in ("", "0", "false"):
        raise UserError(f"{_AUTO_MIXED_PRECISION} makes TensorFlow change the precision of some "
                        "operations; unset it, and choose with --precision")
    if precision == BFLOAT16 and not runtime.HAS_BFLOAT16:
        raise UserError(f"--precision=bfloat16: TensorFlow {tf.VERSION} cannot multiply matrices "
                        "in bfloat16; use TensorFlow 2.15 (Python 3.9 to 3.11), or "
                        "--precision=float16 on GPUs")
    older = [card for card in devices.cards_in_use if (card.compute_capability or _AMPERE) < _AMPERE]
    if precision == BFLOAT16 and older:
        log.warn(f"--precision=bfloat16 is for cards from Ampere on, and {gpus.names(older)} is older: use "
                 "--precision=float16")
    if precision == FLOAT16 and devices.kind == "CPU":
        log.warn("--precision=float16 is about a hundred times slower than float32 on the CPU; it "
                 "is for GPUs with tensor cores: leave it out")


@contextlib.contextmanager
def out_of_memory_explained(explain: Callable[[], str]) -> Iterator[None]:
    """Turns an out-of-memory error into a UserError with the text of `explain`; others pass."""
    try:
        yield
    except (MemoryError, tf.errors.OpError) as error:
        if not (isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(error.message)):
            raise
        is_full = isinstance(error, tf.errors.InternalError)  # of a card, before this program has filled it
        others = "; another process may hold the card's memory, which nvidia-smi shows" * is_full
        raise UserError(f"out of memory {explain()}{others}") from error
