"""Whether XLA compiles the layers of a training, and for which lengths of batches.

A program is for one length, takes time to compile, and saves most launches of a layer and most of the
bytes that it moves. So batches are padded to the lengths for which compiling and computing take the least
time, and --xla=auto compiles if that is less than without XLA. No card has confirmed the estimates. What is
decided stands in run.json, and a resumed run keeps it.

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
from engine.devices.devices import BFLOAT16, FLOAT16, Devices, dtype_of
from engine.errors import UserError
from engine.progress import counted
from engine.settings import AUTO
from engine.training import run_record, throughput
from engine.training.settings import TrainingSettings
from engine.training.step_hook import Replica
from engine.training.throughput import flops_of_training
from modeling import BertConfig, BertModel, Computation

# The lengths are chosen as for one A100 or two CPU cores, so that the same command has the same ones, and
# dropout masks, everywhere: seconds to compile for a length, whose programs all layers share (the host of a
# card compiles several at a time), and FLOP/s.
COMPILE_SECONDS = {"GPU": 3.0, "CPU": 10.0}
FLOPS_PER_SECOND = {"GPU": 1e14, "CPU": 1e11}
# --xla=auto measures what a layer takes to compile, if that can matter: a length takes as long, since several
# are compiled at a time, and the update as long as three.
LEAST_COMPILE_SECONDS = 1.0
UPDATE_LENGTHS = 3
MAX_LENGTHS = 8


class _Asked(NamedTuple):
    """What a step of BERT-base asks of a card; counted by `benchmarks.step_cost` (TensorFlow 2.15.1)."""
    launches: int  # of a layer, forward and backward
    values: float  # bytes of a layer for each token and hidden unit, products left out
    scores: float  # for each token, attention head and token that it attends to
    weights: float  # for each weight of a layer and micro-batch
    update_launches: int
    update: float  # bytes for each parameter


# By whether XLA compiles, and whether products are in 16 bits. With XLA a layer launches its 28 products,
# and a kernel between two of them.
_ASKED = {(False, False): _Asked(127, 818, 170, 0, 515, 48), (False, True): _Asked(134, 556, 90, 12, 731, 48),
          (True, False): _Asked(56, 144, 16, 12, 59, 36), (True, True): _Asked(56, 92, 8, 12, 72, 34)}
FORWARD_SHARE = 0.5  # of a layer's launches and bytes; recomputation repeats them
# A step takes as long as the slower of the host, which launches, and the card, at these shares of its peaks
# (docs/results.md says where they come from; `throughput` has the peaks).
LAUNCH_SECONDS = 5e-6
MEMORY_SHARE, PRODUCT_SHARE = 0.9, 0.7

_MAX_STEPS = 1000  # the first steps of the plan, whose batches stand for all
_MIN_LAYERS = 6  # with fewer, two layers at all lengths could take more memory than a step


def bucketed(source: Source, plan: TrainingPlan, settings: TrainingSettings, devices: Devices,
             config: BertConfig, num_steps: int, output_dir: str) -> Source:
    """The source in batches of the lengths that XLA compiles; unchanged if XLA is off.

    Logs which, and why; but not that XLA is off on a CPU, where it is by default. The chief decides, and
    records it.

    Args:
        config: the encoder's.
        num_steps: those of the whole training.
        output_dir: of the training, whose record a resumed one keeps to.
    """
    if settings.xla is False or settings.xla == AUTO and devices.kind == "CPU":
        return source
    missing = _missing(devices) if settings.xla == AUTO else ""

    def decide() -> Tuple[List[int], str]:
        longest, kept = int(source.padded_lengths().max()), run_record.compiled_lengths(output_dir)
        if missing:
            return [], missing
        if kept and kept[-1] == longest or kept == [] and settings.xla == AUTO:
            return kept, "as this run began"
        lengths, counts = _lengths_of(source, plan, num_steps)
        chosen = choose(lengths.tolist(), (settings.examples_per_replica * flops_of_training(
            config, lengths, settings.freeze_layers) / FLOPS_PER_SECOND[devices.kind]).tolist(),
                        counts.tolist(), COMPILE_SECONDS[devices.kind])[1]
        if settings.xla == AUTO:
            return _estimated(lengths, counts, np.array(chosen), settings, devices, config, num_steps)
        return list(chosen), "--xla"

    chosen, why = devices.peers.from_chief("what XLA compiles", decide)
    if devices.peers.is_chief and not missing:
        run_record.update(output_dir, compiled_lengths=list(chosen))
    if not chosen:
        log.info(f"XLA: off ({why})")
        return source
    log.info(
        f"XLA: on ({why}); it compiles the layers once for each length of batches, "
        f"{'before the first step' if runtime.SHARES_PROGRAMS else 'when it first comes'}, of "
        f"{', '.join(map(str, chosen))} tokens"
        + (", and the update once" if compiles_update(devices) else ""))
    return source._replace(buckets=np.array(chosen))


def _estimated(lengths: np.ndarray, counts: np.ndarray, chosen: np.ndarray, settings: TrainingSettings,
               devices: Devices, config: BertConfig, num_steps: int) -> Tuple[List[int], str]:
    """The chosen lengths, or none if compiling for them saves less time than it takes; and why."""
    def seconds(lengths: np.ndarray, compiled: bool) -> float:
        micro_batch, update = seconds_of(lengths, settings, config, rates, compiled)
        return float((micro_batch * counts).sum()) * settings.gradient_accumulation_steps \
            + num_steps * update

    rates = throughput.rates(devices, settings.precision)
    saved = seconds(lengths, False) - seconds(chosen[np.searchsorted(chosen, lengths)], True)
    one = LEAST_COMPILE_SECONDS
    if saved > one * (len(chosen) + UPDATE_LENGTHS):
        one = max(one, seconds_to_compile(devices.names[0], devices.session_config, settings, config,
                                          int(chosen[-1])))
    compiling = one * (len(chosen) + UPDATE_LENGTHS)
    card = devices.cards_in_use[0].name if devices.cards_in_use else "an unknown card"
    return chosen.tolist() if saved > compiling else [], (
        f"compiling for {counted(len(chosen), 'lengths')} of batches takes an estimated "
        f"{compiling:.0f} s, and saves {max(saved, 0):.0f} s in {counted(num_steps, 'steps')} on {card}")


def seconds_of(lengths: np.ndarray, settings: TrainingSettings, config: BertConfig,
               rates: Tuple[float, float], compiled: bool) -> Tuple[np.ndarray, float]:
    """The time of a replica's micro-batch of each length, and of an update, without what XLA leaves alone.

    Args:
        rates: FLOP/s and bytes/s of a card.
    """
    asked = _ASKED[compiled, settings.precision in (FLOAT16, BFLOAT16)]
    layers, hidden = config.num_hidden_layers, config.hidden_size
    repeated = FORWARD_SHARE * settings.recompute_layers  # of each layer
    passes = layers * (1 + repeated) - settings.freeze_layers * (1 - FORWARD_SHARE)
    tokens, weights = settings.train_batch_size * lengths, 4 * hidden**2 + 2 * hidden * config.intermediate_size
    moved = passes * (tokens * (hidden * asked.values + config.num_attention_heads * lengths * asked.scores)
                      + weights * asked.weights)
    flops = (1 + settings.recompute_layers / 3) * settings.train_batch_size * flops_of_training(
        config, lengths, settings.freeze_layers)
    card = flops / (PRODUCT_SHARE * rates[0]) + moved / (MEMORY_SHARE * rates[1])
    parameters = (layers - settings.freeze_layers) * weights + config.vocab_size * hidden
    return np.maximum(passes * asked.launches * LAUNCH_SECONDS, card), max(
        asked.update_launches * LAUNCH_SECONDS, parameters * asked.update / (MEMORY_SHARE * rates[1]))


def seconds_to_compile(device: str, session_config: tf.ConfigProto, settings: TrainingSettings,
                       config: BertConfig, length: int) -> float:
    """What XLA takes on this machine to compile both passes of a layer for a length."""
    layer = BertConfig.from_dict({**config.to_dict(), "num_hidden_layers": 1})
    with tf.Graph().as_default(), tf.device(device), tf.Session(config=session_config) as session:
        ids = tf.zeros([settings.train_batch_size, min(length, config.max_position_embeddings)], tf.int32)
        states = BertModel(layer, True, ids, computation=Computation(
            dtype=dtype_of(settings.precision), recompute=settings.recompute_layers, compiled=True,
            on_cards=True)).get_sequence_output()
        gradients = [x.op for x in tf.gradients(states, tf.trainable_variables()) if x is not None]
        session.run(tf.global_variables_initializer())
        start = time.time()
        session.run(gradients)
        return time.time() - start


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
        replicas: those of this process.
        steps: the batches' steps, with their lengths.
        fetch: (step) → this process's share of its batch, features [replicas, b, ...].
        one_by_one: whether a replica cannot compute several batches at a time, or has no memory for that.
    """

    def __init__(self, replicas: Sequence[Replica], steps: Dict[int, Tuple[int, ...]],
                 fetch: Callable[[int], Features], *, one_by_one: bool):
        self._replicas = replicas
        self._steps = steps
        self._fetch = fetch
        self._one_by_one = one_by_one

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Computes the gradients."""
        start = time.time()
        feeds = [_feed(self._replicas, self._fetch(step), step) for step in self._steps]
        pairs = [pair for replica in self._replicas for pair in replica.gradients if pair[0] is not None]
        num_layers = optimization.count_layers([variable.op.name for _, variable in pairs])
        if num_layers >= _MIN_LAYERS and not self._one_by_one:
            upper = [gradient.op for gradient, variable in pairs if not optimization.is_frozen(
                variable.op.name, embeddings=True, num_layers=num_layers - 2)]
            with multiprocessing.pool.ThreadPool(len(feeds)) as threads:
                threads.map(lambda feed: session.run(upper, feed), feeds)
        for feed in feeds:
            session.run([gradient.op for gradient, _ in pairs], feed)
        lengths = dict.fromkeys(itertools.chain(*self._steps.values()))
        log.info(f"XLA has compiled the layers for batches of {', '.join(map(str, lengths))} tokens "
                 f"in {time.time() - start:.0f} s")


def _feed(replicas: Sequence[Replica], share: Features, step: int) -> Dict[tf.Tensor, Any]:
    feed: Dict[tf.Tensor, Any] = {}
    for index, replica in enumerate(replicas):
        feed[replica.completed] = step
        feed.update((x, share[name][index]) for name, x in replica.features.items())
    return feed
