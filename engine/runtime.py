"""Where TensorFlow 1.15 and 2.15 differ; nobody else asks for the version.

Imported before anything touches TensorFlow: puts 2.15 into the behaviour of 1.15
(graphs, sessions, Estimator).
"""

import contextlib
import os
from typing import Sequence

from engine.errors import UserError

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels

IS_TENSORFLOW_1 = tf.VERSION.startswith("1.")

tf.logging.set_verbosity(tf.logging.ERROR)
if not IS_TENSORFLOW_1:
    tf.disable_v2_behavior()


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
                   gpu_memory_limits_mb: Sequence[Sequence[int]] = (),
                   one_thread_per_operation: bool = False) -> tf.ConfigProto:
    """The ConfigProto of every session, with the logical devices that replicas need.

    Call it before the first session or strategy: TensorFlow 2 takes logical devices
    from the process's context, TensorFlow 1 from the session's configuration.

    Args:
        num_cpu_devices: logical CPU devices to make of the machine's cores.
        gpu_memory_limits_mb: for each card in use, the memory of each logical device
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
    if IS_TENSORFLOW_1:
        config.device_count["CPU"] = num_cpu_devices
        for limits in gpu_memory_limits_mb:
            config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=limits)
        return config
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
