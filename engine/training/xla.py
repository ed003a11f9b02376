"""Whether XLA compiles the layers of a training, and for which lengths of batches.

A program is for one length, takes time to compile, and saves most launches of a layer. So batches are
padded to the lengths for which compiling and computing take the least time, and --xla=auto compiles if
that is less than without XLA. The rates are estimates for an A100 and for two CPU cores: no card has
confirmed them.

The programs are compiled before the first step. Otherwise XLA would compile for each length when that
first comes, one program after the other.
"""

import itertools
import math
import multiprocessing.pool
import time
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

import optimization
from engine import log
from engine.data.batches import Features, Source
from engine.data.plan import TrainingPlan
from engine.devices import runtime, xla_tools
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.progress import counted
from engine.settings import AUTO
from engine.training.settings import TrainingSettings
from engine.training.throughput import flops_of_training
from modeling import BertConfig

# For each length, whose programs all layers share; the host of a card compiles several at a time.
COMPILE_SECONDS = {"GPU": 3.0, "CPU": 10.0}
UPDATE_SECONDS = 10.0  # compiling the update
LAUNCH_SECONDS = 1e-3  # a compiled layer saves 190 launches of 5 µs in a micro-batch
FLOPS_PER_SECOND = {"GPU": 1e14, "CPU": 1e11}
MAX_LENGTHS = 8

_MAX_STEPS = 1000  # the first steps of the plan, whose batches stand for all
_MIN_LAYERS = 6  # with fewer, two layers at all lengths could take more memory than a step
_REPLICAS = "replicas_to_compile"  # the graph collection of `note`


def bucketed(source: Source, plan: TrainingPlan, settings: TrainingSettings, devices: Devices,
             config: BertConfig, num_steps: int) -> Source:
    """The source in batches of the lengths that XLA compiles; unchanged if XLA is off.

    Logs which, and why; but not that XLA is off on a CPU, where it is by default.

    Args:
        config: the encoder's.
        num_steps: those of the whole training, so that a resumed one has the same lengths.
    """
    kind = devices.kind
    if settings.xla is False or settings.xla == AUTO and kind == "CPU":
        return source
    lengths, counts = _lengths_of(source, plan, num_steps)
    seconds = settings.examples_per_replica * flops_of_training(
        config, lengths, settings.freeze_layers) / FLOPS_PER_SECOND[kind]
    total, chosen = choose(lengths.tolist(), seconds.tolist(), counts.tolist(), COMPILE_SECONDS[kind])
    why = "--xla"
    if settings.xla == AUTO:
        compiling = UPDATE_SECONDS + len(chosen) * COMPILE_SECONDS[kind]
        layers = num_steps * settings.gradient_accumulation_steps * config.num_hidden_layers
        computing = total + UPDATE_SECONDS - compiling
        saved = layers * LAUNCH_SECONDS + float((seconds * counts).sum()) - computing
        why = (f"compiling for {counted(len(chosen), 'lengths')} of batches takes an estimated "
               f"{compiling:.0f} s, and saves {max(saved, 0):.0f} s in {counted(num_steps, 'steps')}")
        missing = _missing(devices)
        if missing or saved <= compiling:
            log.info(f"XLA: off ({missing or why})")
            return source
    log.info(
        f"XLA: on ({why}); it compiles the layers once for each length of batches, "
        f"{'before the first step' if runtime.SHARES_PROGRAMS else 'when it first comes'}, of "
        f"{', '.join(map(str, chosen))} tokens"
        + (", and the update once" if compiles_update(devices) else ""))
    return source._replace(buckets=np.array(chosen))


def compiles_update(devices: Devices) -> bool:
    """Whether XLA compiles the update, too. On a CPU that takes half a minute and makes no step faster."""
    return devices.kind == "GPU" and runtime.COMPILES_UPDATES


def choose(lengths: Sequence[int], seconds: Sequence[float], counts: Sequence[float],
           compile_seconds: float) -> Tuple[float, Tuple[int, ...]]:
    """The least seconds of compiling and computing, and the lengths to which that pads, ascending.

    Args:
        lengths: those of the batches, ascending; the last is always chosen.
        seconds: the time to compute a batch of each length.
        counts: the number of batches of each length.
        compile_seconds: the time to compile for one length.
    """
    before = np.cumsum([0.0, *counts]).tolist()  # batches that are shorter
    # Of the first n lengths, with at most as many chosen as rounds are done.
    best = [(0.0, ()), *[(math.inf, ())] * len(lengths)]
    for _ in range(MAX_LENGTHS):
        best = [min([best[end], *(
            (cost + compile_seconds + (before[end] - before[start]) * seconds[end - 1],
             (*chosen, lengths[end - 1])) for start, (cost, chosen) in enumerate(best[:end]))])
                for end in range(len(best))]
    return best[-1]


def _lengths_of(source: Source, plan: TrainingPlan, num_steps: int) -> Tuple[np.ndarray, np.ndarray]:
    """The lengths of the plan's batches, ascending, and their counts; each text of an example counts."""
    lengths = [int(source.padded_lengths().max())]  # a later batch may have it
    sequences = [1] if source.encoded is None else [1, source.encoded.shape[1] - 1]
    steps = range(num_steps)[:_MAX_STEPS]
    for step in steps:
        lengths.extend(np.repeat(source.lengths_of_batch(plan.global_batch(step)), sequences))
    distinct, counts = np.unique(lengths, return_counts=True)
    return distinct, counts * num_steps / len(steps)


def _missing(devices: Devices) -> str:
    """What any worker lacks to compile by default; empty if nothing."""
    if not runtime.SHARES_PROGRAMS:
        return f"by default on TensorFlow {tf.VERSION}"
    missing = ""
    try:
        xla_tools.check_here()
    except UserError as error:
        missing = str(error)
    return next(filter(None, devices.peers.gather("what XLA lacks", missing)), "")


class _Replica(NamedTuple):
    features: Dict[str, tf.Tensor]
    step: tf.Tensor
    gradients: List[optimization.GradientAndVariable]
    one_by_one: bool


def note(features: Dict[str, tf.Tensor], step: tf.Tensor,
         gradients: List[optimization.GradientAndVariable], *, one_by_one: bool) -> None:
    """Notes what a replica computes its gradients from. Called in each replica.

    Args:
        one_by_one: whether it cannot compute several batches at a time, or has no memory for that.
    """
    tf.add_to_collection(_REPLICAS, _Replica(
        features, step, [pair for pair in gradients if pair[0] is not None], one_by_one))


def first_steps(source: Source, plan: TrainingPlan, steps: range) -> Dict[int, Tuple[int, ...]]:
    """The steps in which a length of batches first comes, and their lengths; rare ones may be missing."""
    lengths_by_step: Dict[int, Tuple[int, ...]] = {}
    for step in steps[:_MAX_STEPS]:
        lengths = source.lengths_of_batch(plan.global_batch(step))
        # Anchors and candidates of the same length differ in their number.
        if {*enumerate(lengths)}.difference(*map(enumerate, lengths_by_step.values())):
            lengths_by_step[step] = lengths
    return lengths_by_step


class CompileAhead(tf.train.SessionRunHook):
    """Computes gradients of one batch of each length, without an update, in the plan's order.

    The two upper layers come first, for all lengths in parallel: their gradients need no activations
    of the layers below, so a model of many layers has the memory. The whole model follows, one length
    after the other; little of it is left to compile. Cards always compile in parallel.

    Args:
        steps: the batches' steps, with their lengths.
        fetch: (step) → this process's share of its batch, features [replicas, b, ...].
    """

    def __init__(self, steps: Dict[int, Tuple[int, ...]], fetch: Callable[[int], Features]):
        self._steps = steps
        self._fetch = fetch

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Computes the gradients."""
        start = time.time()
        replicas = tf.get_collection(_REPLICAS)
        feeds = [_feed(replicas, self._fetch(step), step) for step in self._steps]
        pairs = [pair for replica in replicas for pair in replica.gradients]
        num_layers = optimization.count_layers([variable.op.name for _, variable in pairs])
        if num_layers >= _MIN_LAYERS and not replicas[0].one_by_one:
            upper = [gradient.op for gradient, variable in pairs if not optimization.is_frozen(
                variable.op.name, embeddings=True, num_layers=num_layers - 2)]
            with multiprocessing.pool.ThreadPool(len(feeds)) as threads:
                threads.map(lambda feed: session.run(upper, feed), feeds)
        for feed in feeds:
            session.run([gradient.op for gradient, _ in pairs], feed)
        lengths = dict.fromkeys(itertools.chain(*self._steps.values()))
        log.info(f"XLA has compiled the layers for batches of {', '.join(map(str, lengths))} tokens "
                 f"in {time.time() - start:.0f} s")


def _feed(replicas: Sequence[_Replica], share: Features, step: int) -> Dict[tf.Tensor, Any]:
    feed: Dict[tf.Tensor, Any] = {}
    for index, replica in enumerate(replicas):
        feed[replica.step] = step
        feed.update((x, share[name][index]) for name, x in replica.features.items())
    return feed
