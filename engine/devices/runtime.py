"""The differences of TensorFlow 1.15 and 2.15; two more are in `graph_functions`.

Every room imports it before anything that uses TensorFlow: it makes 2.15 behave like 1.15 (graphs,
sessions, Estimator), and has Python's garbage collector run less often.
"""

import contextlib
import gc
import os
from typing import List, Optional, Sequence, Tuple

from engine.errors import UserError

import tensorflow.compat.v1 as tf
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.distribute import cross_device_ops, input_lib, mirrored_strategy
from tensorflow.python.platform import build_info

IS_TENSORFLOW_1 = tf.VERSION.startswith("1.")
HAS_BFLOAT16 = not IS_TENSORFLOW_1  # kernels of matrix products
COMPILES_UPDATES = not IS_TENSORFLOW_1  # XLA, of functions that update variables
XLA_BY_DEFAULT = not IS_TENSORFLOW_1  # 1.15 compiles neither all of a layer nor updates

# A graph is many small, long-lived Python objects. Python's default garbage collection would take a
# sixth of the time to build it.
gc.set_threshold(50_000, 20, 50)

# Stops TensorFlow's search of every graph for what XLA could compile, unless the user has set flags. It
# took a fifth of the time to the first step with 8 replicas.
_NO_SEARCH = "--tf_xla_clustering_fuel=0"
os.environ.setdefault("TF_XLA_FLAGS", _NO_SEARCH)

tf.logging.set_verbosity(tf.logging.ERROR)
if not IS_TENSORFLOW_1:
    tf.disable_v2_behavior()


ComputeCapability = Tuple[int, int]  # an A100 has (8, 0)


def _cuda_version() -> str:
    """The CUDA that this TensorFlow was built for: NVIDIA's builds of 1.15 have a newer one."""
    return str(getattr(build_info, "cuda_version_number", None) or "10.0")


# What TensorFlow needs to see a card.
GPU_NEEDS = (
    f"it needs CUDA {_cuda_version()}, its cuDNN in LD_LIBRARY_PATH and a driver that knows this CUDA"
    if IS_TENSORFLOW_1 else "it needs a driver from 525 on, and CUDA 12, which "
    f'pip install "tensorflow[and-cuda]=={tf.VERSION}" brings')

# Where TensorFlow looks for the parts of CUDA with which XLA compiles for cards, what brings them, and
# whether it aborts without ptxas: 1.15 then lets the driver compile.
_PACKAGES = os.path.dirname(tf.sysconfig.get_lib())
CUDA_FOLDERS = (f"/usr/local/cuda-{_cuda_version()}", "/usr/local/cuda", ".") if IS_TENSORFLOW_1 else (
    "/usr/local/cuda-12.2", "/usr/local/cuda", "/opt/cuda",
    os.path.join(_PACKAGES, "nvidia", "cuda_nvcc"),
    os.path.join(os.path.dirname(_PACKAGES), "nvidia", "cuda_nvcc"), ".")
XLA_PARTS = (
    f"install the CUDA {_cuda_version()} toolkit" if IS_TENSORFLOW_1 else
    f'pip install "tensorflow[and-cuda]=={tf.VERSION}" brings them')
XLA_NEEDS_PTXAS = not IS_TENSORFLOW_1


def check_code(name: str, capability: ComputeCapability) -> bool:
    """Returns whether CUDA must first compile TensorFlow's code for a card."""
    if not IS_TENSORFLOW_1:
        built_for = tf.sysconfig.get_build_info()["cuda_compute_capabilities"]  # "sm_75", ...
        return capability[0] > max(int(each.split("_")[1]) // 10 for each in built_for)
    if capability >= (8, 0) and not _is_built_by_nvidia():
        raise UserError(
            f"TensorFlow {tf.VERSION} has no code for {name}, a card of compute capability "
            f"{'{}.{}'.format(*capability)}: it supports 7.5 at most; use TensorFlow 2.15 (Python 3.9 to "
            "3.11), or TensorFlow 1.15 in NVIDIA's container tensorflow:23.03-tf1-py3")
    return False


def _is_built_by_nvidia() -> bool:
    """Whether this TensorFlow 1.15 is a build of NVIDIA's, with a newer CUDA than 10.0."""
    return int(_cuda_version().split(".")[0]) >= 11


def allow_tensor_float_32(allowed: bool) -> bool:
    """Allows or forbids that cards from Ampere on round factors of float32 products to 11 bits.

    Call it before the first session, because NVIDIA's builds of TensorFlow 1.15 read the setting
    once. If the user has set CUDA's variable NVIDIA_TF32_OVERRIDE=0, rounding stays forbidden.

    Returns:
        Whether such cards will round.
    """
    is_forbidden = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"
    if not IS_TENSORFLOW_1:
        tf.config.experimental.enable_tensor_float_32_execution(allowed)
    elif not _is_built_by_nvidia():
        return False  # CUDA 10.0 does not know it
    elif not allowed:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    return allowed and not is_forbidden


def visible_gpu_count() -> int:
    """The number of cards that TensorFlow can use, of those in `CUDA_VISIBLE_DEVICES`."""
    return len(gpu_numbers())


def gpu_numbers() -> List[int]:
    """The numbers of these cards among those that CUDA shows: TensorFlow passes over cards that are too small or old."""
    return [int(card.name.rpartition(":")[2]) for card in tf.config.experimental.list_physical_devices("GPU")]


def peak_gpu_memory(num_devices: int) -> Optional[int]:
    """The peak memory of tensors on one of the logical GPUs, in bytes; None if unknown."""
    if IS_TENSORFLOW_1:
        return None
    try:
        return max(tf.config.experimental.get_memory_info(f"GPU:{index}")["peak"]
                   for index in range(num_devices))
    except ValueError:  # an allocator that does not count
        return None


def prepare_xla() -> None:
    """Makes XLA compile each marked function at the first occurrence of a shape.

    Call it before the first session and before `visible_gpu_count`. By default TensorFlow
    compiles later and, if it finds too many shapes, silently not at all.
    """
    own = os.environ.get("TF_XLA_FLAGS", "")
    if IS_TENSORFLOW_1:  # which finds marked functions by the search
        own = own.replace(_NO_SEARCH, "")
    os.environ["TF_XLA_FLAGS"] = f"--tf_xla_enable_lazy_compilation=false {own}"


def session_config(*, num_cpu_devices: int = 1,
                   num_gpus: int = 0,
                   gpu_memory_limits_mb: Sequence[Sequence[int]] = (),
                   one_thread_per_operation: bool = False) -> tf.ConfigProto:
    """The ConfigProto of every session, with the logical devices that replicas need.

    Call it before the first session or strategy. Sessions take their devices from this
    configuration, strategies (in TensorFlow 1 those for several workers) from the context of the process, which
    is made once. So both get the same settings.

    Args:
        num_cpu_devices: logical CPU devices to make of the machine's cores.
        num_gpus: the number of visible cards to open, from the first.
        gpu_memory_limits_mb: for each of these cards, the memory of each logical device
            on it, in MB; empty if each card is one device.
        one_thread_per_operation: run each operation on one thread; operations may still run
            concurrently. The first call decides for the whole process.
    """
    config = tf.ConfigProto(allow_soft_placement=True)
    # Runs the graph as it was built: rewriting it took a third of the time to the first step with
    # 8 replicas, and made no step faster.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    if one_thread_per_operation:
        config.intra_op_parallelism_threads = 1
        if tf.config.threading.get_intra_op_parallelism_threads() != 1:
            with contextlib.suppress(RuntimeError):  # already made: later runs use it as it is
                tf.config.threading.set_intra_op_parallelism_threads(1)
    config.device_count["CPU"] = num_cpu_devices
    config.device_count["GPU"] = num_gpus
    config.gpu_options.visible_device_list = ",".join(map(str, range(num_gpus)))
    for limits in gpu_memory_limits_mb:
        config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=limits)
    with contextlib.suppress(RuntimeError):  # as above
        tf.config.experimental.set_visible_devices(
            tf.config.experimental.list_physical_devices("GPU")[:num_gpus], "GPU")
    if num_cpu_devices > 1:
        _set_logical_devices("CPU", [[None] * num_cpu_devices])
    _set_logical_devices("GPU", gpu_memory_limits_mb)
    return config


def _set_logical_devices(kind: str, memory_limits_mb: Sequence[Sequence[int]]) -> None:
    config = tf.config.experimental
    for card, limits in zip(config.list_physical_devices(kind), memory_limits_mb):
        # A process makes its devices once; more of them than needed do no harm.
        if len(config.get_virtual_device_configuration(card) or ()) < len(limits):
            config.set_virtual_device_configuration(
                card, [config.VirtualDeviceConfiguration(memory_limit=limit) for limit in limits])


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Turns off autotuning of a pipeline's parallelism and buffers.

    TensorFlow 2.15 tunes pipelines in a thread that wakes up ever less often, at last once a minute.
    Closing a session waits for it, after each training and each evaluation.
    """
    options = tf.data.Options()
    if IS_TENSORFLOW_1:
        options.experimental_optimization.autotune = False
    else:
        options.autotune.enabled = False
    return dataset.with_options(options)


if not IS_TENSORFLOW_1:
    # A strategy makes its device buffers without the pipeline's options, and has no option for theirs.
    _create_device_dataset = multi_device_iterator_ops._create_device_dataset
    multi_device_iterator_ops._create_device_dataset = (
        lambda *arguments: without_autotuning(_create_device_dataset(*arguments)))


def set_devices(strategy: tf.distribute.Strategy, config: tf.ConfigProto, worker: str, names: Sequence[str]) -> None:
    """Sets the devices of this process, `worker`, in a strategy for several workers and in its configuration.

    By default the strategy takes all cards, or one CPU device.
    """
    extended, mirrored = strategy.extended, mirrored_strategy.MirroredExtended
    if IS_TENSORFLOW_1:
        extended._cross_device_ops = cross_device_ops.CollectiveAllReduce(
            num_workers=extended._num_workers, num_gpus_per_worker=len(names),
            collective_keys=extended._collective_keys)
        mirrored._initialize_local(extended, tuple(names))
        extended._input_workers = input_lib.InputWorkers(
            extended._device_map, [(worker, extended.worker_devices)])
    else:
        extended._cross_device_ops = cross_device_ops.CollectiveAllReduce(
            devices=names, group_size=len(names) * extended._num_workers,
            options=extended._communication_options, collective_keys=extended._collective_keys)
        # By default single transfers use gRPC, because TensorFlow does not order them: we do.
        extended._cross_device_ops._limited_nccl = False
        # Each transfer says that it uses NCCL. This would use it for the broadcasts of initial values as well, which have
        # no order: NCCL would take one worker's value of a variable for another's of the next.
        config.experimental.collective_nccl = False
        mirrored._initialize_single_worker(extended, tuple(names))


def replica_number(first_replica: int) -> tf.Tensor:
    """The number of the current replica among those of all workers.

    Args:
        first_replica: the number of this worker's first one.
    """
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    # TensorFlow 1 counts those of this worker only.
    return number + first_replica if IS_TENSORFLOW_1 else tf.convert_to_tensor(number)
