"""Where TensorFlow 1.15 and 2.15 differ; nobody else asks for the version.

Imported before anything touches TensorFlow: puts 2.15 into the behaviour of 1.15
(graphs, sessions, Estimator).
"""

import contextlib
import glob
import os
from typing import List, NamedTuple, Optional, Sequence, Tuple

from engine.errors import UserError

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels
from tensorflow.python.platform import build_info

IS_TENSORFLOW_1 = tf.VERSION.startswith("1.")

tf.logging.set_verbosity(tf.logging.ERROR)
if not IS_TENSORFLOW_1:
    tf.disable_v2_behavior()


class CudaNeeds(NamedTuple):
    """What this TensorFlow needs on a machine with cards."""
    libraries: Tuple[str, ...]  # that it loads; the driver's own aside
    least_driver: int  # the first part of the version
    remedy: str  # how to get the libraries


ComputeCapability = Tuple[int, int]  # (8, 0): of an A100


def cuda_needs() -> CudaNeeds:
    if not IS_TENSORFLOW_1:
        return CudaNeeds(
            ("libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11",
             "libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.8"),
            525, f'pip install "tensorflow[and-cuda]=={tf.VERSION}" brings them')
    if _is_built_by_nvidia():
        return CudaNeeds((), 450, "start NVIDIA's container as NVIDIA describes it")
    return CudaNeeds(
        (*[f"lib{name}.so.10.0" for name in (
            "cudart", "cublas", "cufft", "curand", "cusolver", "cusparse")], "libcudnn.so.7"),
        410, "install CUDA 10.0 and cuDNN 7 and name their folders in LD_LIBRARY_PATH, or use "
        "Python 3.9 to 3.11 with TensorFlow 2.15, which gets its own from pip")


def libraries_beside_tensorflow(name: str) -> List[str]:
    """Where pip's CUDA packages put a library: TensorFlow looks there, too."""
    return glob.glob(os.path.join(glob.escape(os.path.dirname(tf.sysconfig.get_lib())),
                                  "nvidia", "*", "lib", name))


def code_for(capability: ComputeCapability) -> str:
    """What this TensorFlow has for such a card: "machine code", "source" to compile, or ""."""
    if IS_TENSORFLOW_1:
        return "machine code" if _is_built_by_nvidia() or capability < (8, 0) else ""
    built_for = [(kind, divmod(int(number), 10)) for kind, number in (
        name.split("_") for name in tf.sysconfig.get_build_info()["cuda_compute_capabilities"])]
    if any(major == capability[0] and minor <= capability[1] for _, (major, minor) in built_for):
        return "machine code"
    # "compute_80" is what CUDA can compile for later cards, beside the code for 8.0.
    return "source" if any(kind == "compute" and least < capability
                           for kind, least in built_for) else ""


def other_builds() -> str:
    """Which TensorFlow has code for the cards that this one has none for."""
    if IS_TENSORFLOW_1:
        return ("it ends with CUDA 10.0 and compute capability 7.5; use TensorFlow 2.15 (Python 3.9 "
                "to 3.11), or TensorFlow 1.15 in NVIDIA's container tensorflow:23.03-tf1-py3")
    return "it takes cards from compute capability 5.0 on; use a later card, or --num_gpus=0"


def _is_built_by_nvidia() -> bool:
    """Whether a TensorFlow 1.15 is NVIDIA's, with a later CUDA than the original's 10.0."""
    return float(getattr(build_info, "cuda_version_number", None) or 0) >= 11


def visible_gpu_details() -> List[Tuple[str, Optional[ComputeCapability]]]:
    """(name, compute capability) of the visible cards; TensorFlow 1 cannot tell: empty."""
    if IS_TENSORFLOW_1:
        return []
    details = map(tf.config.experimental.get_device_details,
                  tf.config.experimental.list_physical_devices("GPU"))
    return [(each.get("device_name", "GPU"), each.get("compute_capability")) for each in details]


def allow_tensor_float_32(allowed: bool) -> bool:
    """Whether cards from Ampere on may round the factors of float32 products to 11 bits.

    Call it before the first session: NVIDIA's builds of TensorFlow 1.15 read it once. CUDA's
    own variable NVIDIA_TF32_OVERRIDE=0, set by the user, forbids it whatever is asked for.

    Returns:
        Whether it is in force, on such cards.
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
    """Number of cards that TensorFlow can use, `CUDA_VISIBLE_DEVICES` applied."""
    return len(tf.config.experimental.list_physical_devices("GPU"))


def prepare_xla() -> None:
    """Makes XLA compile what is marked for it, each shape the first time that it comes.

    Call it before the first session or `visible_gpu_count`. Left alone, TensorFlow puts off
    compiling and, where it finds the shapes too many, silently does without.

    Raises:
        UserError: this TensorFlow has no XLA.
    """
    if not has_kernel("XlaLaunch"):
        raise UserError(f"--xla: the TensorFlow {tf.VERSION} here was built without XLA; leave "
                        "the flag out, or install a build that has it, such as pip's")
    os.environ["TF_XLA_FLAGS"] = " ".join(
        ["--tf_xla_enable_lazy_compilation=false", os.environ.get("TF_XLA_FLAGS", "")])


def has_kernel(operation: str) -> bool:
    """Whether this TensorFlow can run an operation of that name, on any device."""
    return bool(kernels.get_registered_kernels_for_op(operation).kernel)


def session_config(*, num_cpu_devices: int = 1,
                   num_gpus: int = 0,
                   gpu_memory_limits_mb: Sequence[Sequence[int]] = (),
                   one_thread_per_operation: bool = False) -> tf.ConfigProto:
    """The ConfigProto of every session, with the logical devices that replicas need.

    Call it before the first session or strategy. A session has the devices of its
    configuration alone; TensorFlow 2's strategies ask the process's context, which is made
    once, so that both are told the same.

    Args:
        num_cpu_devices: logical CPU devices to make of the machine's cores.
        num_gpus: how many of the visible cards to open, the first; no other is touched.
        gpu_memory_limits_mb: for each of these cards, the memory of each logical device
            on it, in MB; empty where a card is one device.
        one_thread_per_operation: several operations may still run at a time. TensorFlow
            has one answer to that for the whole process, the first.
    """
    config = tf.ConfigProto(allow_soft_placement=True)
    # The graph as it is built is the graph that should run: rewriting it took a third of
    # the time to the first step with 8 replicas, and made no step faster.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    if one_thread_per_operation:
        config.intra_op_parallelism_threads = 1
        _set_threads_of_context(1)
    config.device_count["CPU"] = num_cpu_devices
    config.device_count["GPU"] = num_gpus
    config.gpu_options.visible_device_list = ",".join(map(str, range(num_gpus)))
    for limits in gpu_memory_limits_mb:
        config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=limits)
    if not IS_TENSORFLOW_1:
        _set_visible_gpus_of_context(num_gpus)
        if num_cpu_devices > 1:
            _set_logical_devices("CPU", [[None] * num_cpu_devices])
        _set_logical_devices("GPU", gpu_memory_limits_mb)
    return config


def _set_threads_of_context(count: int) -> None:
    """The same for a strategy, which may make the devices before the first session does."""
    threading = tf.config.threading
    if threading.get_intra_op_parallelism_threads() != count:
        with contextlib.suppress(RuntimeError):  # they are made, and serve any later run
            threading.set_intra_op_parallelism_threads(count)


def _set_visible_gpus_of_context(count: int) -> None:
    with contextlib.suppress(RuntimeError):  # they are made, and serve any later run
        tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[:count], "GPU")


def _set_logical_devices(kind: str, memory_limits_mb: Sequence[Sequence[int]]) -> None:
    cards = tf.config.experimental.list_physical_devices(kind)
    for card, limits in zip(cards, memory_limits_mb):
        made = tf.config.experimental.get_virtual_device_configuration(card) or ()
        if len(made) >= len(limits):
            continue  # they are made once in a process, and serve any later run with as many
        tf.config.experimental.set_virtual_device_configuration(
            card,
            [tf.config.experimental.VirtualDeviceConfiguration(memory_limit=limit)
             for limit in limits])


def run_on_replicas(strategy: tf.distribute.Strategy, function):
    """Calls `function()` once in each replica of `strategy`; returns its per-replica result."""
    run = strategy.experimental_run_v2 if IS_TENSORFLOW_1 else strategy.run
    return run(function)
