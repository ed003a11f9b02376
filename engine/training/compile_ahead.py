"""Has XLA compile the layers for every length of batches before the first step.

Otherwise it would compile for each length when that first comes, one program after the other.
"""

import itertools
import multiprocessing.pool
import time
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import tensorflow.compat.v1 as tf

import optimization
from engine import log
from engine.data import batches
from engine.data.plan import TrainingPlan

_MAX_STEPS = 1000  # among which lengths are looked for
_MIN_LAYERS = 6  # with fewer, two layers at all lengths could take more memory than a step
_REPLICAS = "replicas_to_compile"  # the graph collection of `note`


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


def first_steps(source: batches.Source, plan: TrainingPlan, steps: range) -> Dict[int, Tuple[int, ...]]:
    """The steps in which a length of batches first comes, and their lengths; rare ones may be missing."""
    found: Dict[int, Tuple[int, ...]] = {}
    for step in steps[:_MAX_STEPS]:
        lengths = source.lengths_of_batch(plan.global_batch(step))
        # Anchors and candidates of the same length differ in their number.
        if {*enumerate(lengths)}.difference(*map(enumerate, found.values())):
            found[step] = lengths
    return found


class CompileAhead(tf.train.SessionRunHook):
    """Computes gradients of one batch of each length, without an update, in the plan's order.

    The two upper layers come first, for all lengths in parallel: their gradients need no activations
    of the layers below, so a model of many layers has the memory. The whole model follows, one length
    after the other; little of it is left to compile. Cards always compile in parallel.

    Args:
        steps: of the batches, with their lengths.
        fetch: (step) → this process's share of its batch, features [replicas, b, ...].
    """

    def __init__(self, steps: Dict[int, Tuple[int, ...]], fetch: Callable[[int], batches.Features]):
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


def _feed(replicas: Sequence[_Replica], share: batches.Features, step: int) -> Dict[tf.Tensor, Any]:
    feed: Dict[tf.Tensor, Any] = {}
    for index, replica in enumerate(replicas):
        feed[replica.step] = step
        feed.update((x, share[name][index]) for name, x in replica.features.items())
    return feed
