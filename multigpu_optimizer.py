"""Adam with decoupled weight decay, and LAMB, correct for any number of replicas.

Averages the gradients over the replicas, clips by their global norm, makes the same update
on each replica and advances `global_step`: a step of N replicas with B examples each equals
a step of one replica with N * B. Knows nothing of schedules or losses.
"""

import re
import warnings
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import tensorflow.compat.v1 as tf

from replication import gradient_exchange, graph_functions
from replication.gradient_exchange import Gradient
from replication.replica_copies import CopiedOperations, Slots, assign, assign_sub, handle_of, read

# The graph collections with these values of each `Update`, for the hooks of programs.
GRADIENT_NORM = "gradient_norm"
LEARNING_RATE = "learning_rate"

_NAME = "AdamWeightDecayOptimizer"
# The variable that counts the updates with bias correction, if the optimizer has no other `name`.
UPDATES = f"{_NAME}/updates"


class Update(NamedTuple):
    """The update of a step, which is the same on all replicas; its scalars are the first replica's."""
    operation: tf.Operation  # updates the variables of all replicas, then adds 1 to `global_step`
    learning_rate: tf.Tensor  # float32, the schedule's value, also of a step that is skipped
    gradient_norm: tf.Tensor  # of the averaged gradients before clipping; not finite: the step is skipped
    loss_scale: Optional[tf.Tensor]  # that the gradients had, float32; None without one


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """BERT's optimizer: Adam with decoupled weight decay, by default without bias correction.

    For gradient g of parameter w (Loshchilov and Hutter, "Decoupled Weight Decay
    Regularization", algorithm 2, without the bias correction of Adam):

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g^2
        w = w - learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

    m and v are the variables `<w>/adam_m` and `<w>/adam_v`, as in the original. With bias correction
    the update is that of algorithm 2, and of PyTorch's AdamW: in the t-th update m / (1 - beta_1^t)
    and v / (1 - beta_2^t) take the places of m and v. The variable `<name>/updates` is t. If a
    checkpoint lacks it, let it start at `global_step`.

    In each step replicas exchange each gradient once, and nothing else. The strategy reduces
    dense gradients in buckets, those of the last variables first, during the rest of the
    backward pass; only clipping waits for all. The sparse gradient of the word
    embeddings is gathered: each replica receives the rows of the others, (N - 1) * B * T for B
    examples of T tokens. A ring that reduces the dense gradient, V rows, would move
    2 * V * (N - 1) / N rows, which is more while N * B * T < 2 * V; across machines the
    smaller of the two is sent.

    If any gradient of any replica is not finite, the step is skipped: weights and slots keep
    their values, bit for bit, on every replica. `global_step` still advances.

    Args:
        learning_rate: a float or a scalar tensor.
        weight_decay_rate: decay per step, multiplied by the learning rate.
        beta_1, beta_2, epsilon: as above.
        exclude_from_weight_decay: regular expressions for the names of parameters without
            decay, as for `re.search`.
        name: name scope of the optimizer's operations.
        clip_norm: gradients are scaled down to this global norm after averaging over
            replicas; None: no clipping. The norm is that of `tf.global_norm`, which counts
            repeated rows of `IndexedSlices` separately, as in Google's code.
        learning_rate_factor: function from a parameter's name to a factor for its learning
            rate; None: 1 for all.
        loss_scale: an `optimization.LossScale`, if the gradients are those of the loss times
            its value. They are divided by it in float32, between reduction and clipping.
        transfer_dtype: type of gradients in transfer and in their sums. float16 needs
            a loss scale, or small gradients vanish; a sum that overflows skips the step.
        most_rows: the maximum rows of a sparse gradient of one replica; None: unknown. Across
            machines, decides between exchanging rows and their sum.
        compiled: let XLA compile each replica's update as one program; not on TensorFlow 1.15, nor
            for reference variables.
        bias_correction: see above.
    """

    ADVANCES_GLOBAL_STEP = True  # False: its callers do, as with Google's optimizer

    def __init__(self,
                 learning_rate: Union[float, tf.Tensor],
                 weight_decay_rate: float = 0.0,
                 beta_1: float = 0.9,
                 beta_2: float = 0.999,
                 epsilon: float = 1e-6,
                 exclude_from_weight_decay: Optional[Sequence[str]] = None,
                 name: str = _NAME,
                 *,
                 clip_norm: Optional[float] = None,
                 learning_rate_factor: Optional[Callable[[str], float]] = None,
                 loss_scale: Any = None,
                 transfer_dtype: tf.DType = tf.float32,
                 most_rows: Optional[int] = None,
                 compiled: bool = False,
                 bias_correction: bool = False):
        super().__init__(use_locking=False, name=name)
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = exclude_from_weight_decay
        self.clip_norm = clip_norm
        self.learning_rate_factor = learning_rate_factor
        self.loss_scale = loss_scale
        self.transfer_dtype = transfer_dtype
        self.most_rows = most_rows
        self.compiled = compiled
        self.bias_correction = bias_correction

    def compute_gradients(self, loss: Union[tf.Tensor, Callable[[], tf.Tensor]],
                          *args, **kwargs) -> List[Tuple[Optional[Gradient], tf.Variable]]:
        """The gradients of this replica's mean loss, as from `tf.gradients`, with their variables.

        The arguments are those of `tf.train.Optimizer.compute_gradients`. That method divides the
        loss by the number of replicas if it is called in an Estimator's `model_fn`, because most
        optimizers add up the gradients of replicas. This one averages them, so the loss is first
        multiplied by the same number.
        """
        def undivided(value: tf.Tensor) -> tf.Tensor:
            if tf.distribute.get_loss_reduction() != tf.distribute.ReduceOp.MEAN:
                return value
            return value * tf.distribute.get_strategy().num_replicas_in_sync

        # The reduction is known when the loss is made.
        undivided_loss = (lambda: undivided(loss())) if callable(loss) else undivided(loss)
        return super().compute_gradients(undivided_loss, *args, **kwargs)

    def apply_gradients(self,
                        grads_and_vars: Iterable[Tuple[Optional[Gradient], tf.Variable]],
                        global_step: Optional[tf.Variable] = None,
                        name: Optional[str] = None) -> tf.Operation:
        """Returns the operation of `update`. Without `global_step`, it warns that nothing advances."""
        if global_step is None and self.ADVANCES_GLOBAL_STEP:
            warnings.warn("apply_gradients without global_step: no step is counted, so a schedule "
                          "and max_steps stand still. Give it "
                          "global_step=tf.train.get_or_create_global_step(), and delete a line of "
                          "your own that adds 1", stacklevel=2)
        return self.update(grads_and_vars, global_step, name).operation

    def update(self,
               grads_and_vars: Iterable[Tuple[Optional[Gradient], tf.Variable]],
               global_step: Optional[tf.Variable] = None,
               name: Optional[str] = None) -> Update:
        """Updates the variables once, on every replica, and adds 1 to `global_step`, if it is given.

        Call it in a replica (a `model_fn` under a strategy, or no strategy at all) with
        the gradients of that replica's mean loss, as `compute_gradients` and `tf.gradients`
        give them; they are averaged here. A variable whose gradient is None is left alone.

        Raises:
            ValueError: no variable has a gradient; the call is in eager code or outside of the
                replicas, or there are several and it is inside `tf.cond` or `tf.while_loop`.
        """
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars
                 if gradient is not None]
        if not pairs:
            raise ValueError("No variable has a gradient: does the loss depend on any of them?")
        _check_context()
        exchange = gradient_exchange.prepare(pairs, self.transfer_dtype, self.most_rows)
        update = tf.distribute.get_replica_context().merge_call(
            self._apply_to_all_replicas, args=(exchange, global_step, name))
        tf.add_to_collection(GRADIENT_NORM, update.gradient_norm)
        tf.add_to_collection(LEARNING_RATE, update.learning_rate)
        return update

    def _apply_to_all_replicas(self, strategy, exchange, global_step, name) -> Update:
        """Updates all replicas in one call; each argument has a component for each replica."""
        extended, variables = strategy.extended, exchange.variables()
        sums, received = gradient_exchange.add_up(strategy, exchange)
        # Each replica's own copies of the variables, replica by replica.
        copies = zip(*map(strategy.experimental_local_results, variables))
        scales = zip(*map(strategy.experimental_local_results, self.loss_scale or ()))
        names = [_name_of(variable) for variable in variables]
        slots = Slots(names, [f"{self.get_name()}/updates"] if self.bias_correction else [])

        def update(state, sums, *scalars):
            own_sums = received(sums)
            return self._update(names, variables, state, own_sums, own_sums.norm(), *scalars)

        update, program = CopiedOperations(update), self.compiled and self._update_program()

        def update_replica(_, sums) -> Update:
            loss_scale = self.loss_scale and self.loss_scale._make(next(scales))
            scale = loss_scale.value.read_value() if loss_scale else None
            own = next(copies)
            m, v, counter = slots.create(own)
            state = [list(map(handle_of, own)), m, v]
            counts = [read(handle) + 1.0 for handle in counter]
            divisor = tf.constant(float(strategy.num_replicas_in_sync))
            if loss_scale:
                divisor *= scale
            learning_rate = tf.cast(self.learning_rate, tf.float32)
            if program:
                updates, norm = program(names, own, state, received(sums), learning_rate, divisor,
                                        *counts)
            else:
                updates, norm = update(state, sums, learning_rate, divisor, *counts)
            # Not added to `updates`, whose operations the next replica copies.
            own_updates = [assign(handle, count - tf.where(tf.is_finite(norm), 0.0, 1.0))
                           for handle, count in zip(counter, counts)]
            if loss_scale:
                own_updates.append(loss_scale.after_step(scale, tf.is_finite(norm)))
            return Update(tf.group(*updates, *own_updates), learning_rate, norm, scale)

        with tf.name_scope(name or self.get_name()):
            # The function runs once for each replica, in order, on its device, with its gradients.
            updates = extended.update(variables[0], update_replica, args=(sums,), group=False)
            with tf.control_dependencies(updates.operation):
                done = tf.no_op() if global_step is None else extended.update(global_step, _add_one)
        return Update(done, *(of_replicas[0] for of_replicas in updates[1:]))

    def _update(self, names, variables, state, sums: gradient_exchange.Received, norm,
                learning_rate, divisor, count=None) -> Tuple[List[tf.Operation], tf.Tensor]:
        """Updates one replica's copies of the variables; also returns the gradients' norm.

        Args:
            state: the handles of the copies, of m and of v.
            norm: of the sums of gradients.
            divisor: of these sums, to make them means.
            count: of updates, this one included, for bias correction.
        """
        norm /= divisor
        step = self._step_scalars(norm, learning_rate, divisor, count)
        gradients = sums.unpack([_scaled(part, step.gradient_scale) for part in sums.parts])
        decay_rate = step.learning_rate * (self.weight_decay_rate or 0.0)
        kept = 1.0 - decay_rate
        updates = []
        for name, variable, w, m, v, gradient in zip(names, variables, *state, gradients):
            own_step, own_kept = step, kept
            if self.learning_rate_factor:
                factor = self.learning_rate_factor(name)
                own_step = step._replace(learning_rate=step.learning_rate * factor)
                own_kept = 1.0 - decay_rate * factor
            updates.append(self._update_variable(
                w, m, v, gradient_exchange.with_all_rows(gradient, variable), own_step,
                own_kept if self._is_decayed(name) else None))
        return updates, norm

    def _update_program(self) -> Callable[..., Tuple[List[tf.Operation], tf.Tensor]]:
        """`_update` as one program, which all replicas share."""
        programs: List[Callable[..., List[tf.Tensor]]] = []

        def update(names, variables, state, sums, *scalars):
            tensors, received = sums.in_known_shapes(variables)
            arguments = [tensors, list(scalars), state]

            def optimizer_update(*flat):
                tensors, scalars, state = tf.nest.pack_sequence_as(arguments, flat)
                updates, norm = self._update(names, variables, state, *received(*tensors), *scalars)
                with tf.control_dependencies(updates):
                    return [tf.identity(norm)]

            if not programs:
                programs.append(graph_functions.called(optimizer_update, "optimizer_update", [
                    tf.TensorSpec(x.shape, x.dtype) for x in tf.nest.flatten(arguments)], by_xla=True))
            norm, = programs[0](*tf.nest.flatten(arguments))
            return [norm.op], norm
        return update

    def _step_scalars(self, norm, learning_rate, divisor, count) -> "_StepScalars":
        finite = tf.is_finite(norm)
        scale = tf.ones_like(norm)
        if self.clip_norm is not None:
            scale = self.clip_norm / tf.maximum(norm, self.clip_norm)
        zero, epsilon = tf.constant(0.0), tf.constant(self.epsilon)
        # With beta powers of 0 the kernel makes no bias correction, like BERT's Adam.
        powers = zero, zero
        if count is not None:
            powers = tf.pow(self.beta_1, count), tf.pow(self.beta_2, count)
            epsilon *= tf.sqrt(1.0 - powers[1])  # The kernel adds it to the uncorrected sqrt(v).
        # No branch: with gradients of 0, a learning rate of 0 and betas of 1 nothing changes.
        return _StepScalars(
            gradient_scale=tf.where(finite, scale / divisor, tf.zeros_like(scale)),
            learning_rate=tf.where(finite, learning_rate, 0.0),
            beta_1=tf.where(finite, self.beta_1, 1.0),
            beta_2=tf.where(finite, self.beta_2, 1.0),
            beta_1_power=powers[0], beta_2_power=powers[1], epsilon=epsilon, zero=zero)

    def _update_variable(self, w, m, v, gradient, step: "_StepScalars",
                         kept: Optional[tf.Tensor]) -> tf.Operation:
        """Updates one variable; all but the gradient are handles and scalars.

        Args:
            kept: the share of the variable that its decay leaves; None: no decay.
        """
        decay = []
        if kept is not None:
            # Before the update, and after the forward pass, for which the share waits.
            with tf.control_dependencies([kept]):
                decay = [assign(w, kept * read(w))]
        with tf.control_dependencies(decay):
            return self._apply_adam(w, m, v, gradient, step, step.learning_rate)

    @staticmethod
    def _apply_adam(w, m, v, gradient, step: "_StepScalars", learning_rate: tf.Tensor
                    ) -> tf.Operation:
        # The kernel takes one pass over memory; the plain formula would take eight.
        kernel = tf.raw_ops.ResourceApplyAdam if w.dtype == tf.resource else tf.raw_ops.ApplyAdam
        update = kernel(
            var=w, m=m, v=v, beta1_power=step.beta_1_power, beta2_power=step.beta_2_power,
            lr=learning_rate, beta1=step.beta_1, beta2=step.beta_2, epsilon=step.epsilon,
            grad=gradient)
        return getattr(update, "op", update)

    def _is_decayed(self, parameter_name: str) -> bool:
        if not self.weight_decay_rate:
            return False
        return not any(re.search(pattern, parameter_name)
                       for pattern in self.exclude_from_weight_decay or ())


class LambOptimizer(AdamWeightDecayOptimizer):
    """LAMB: the update of AdamWeightDecayOptimizer, scaled to the norm of each parameter.

    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes",
    algorithm 2, by default without the bias correction, which a warm-up replaces. With m and v as
    in AdamWeightDecayOptimizer and |x| the Euclidean norm of a variable's values:

        u = m / (sqrt(v) + epsilon) + weight_decay_rate * w
        w = w - learning_rate * |w| / |u| * u

    The ratio is 1 for parameters that are excluded from the decay, and if either norm is 0.
    Arguments, slots, clipping, replicas and skipped steps are as in AdamWeightDecayOptimizer.
    """

    def _update_variable(self, w, m, v, gradient, step, kept):
        # With a learning rate of 0 the kernel updates only the slots.
        moved = self._apply_adam(w, m, v, gradient, step, step.zero)
        with tf.control_dependencies([moved]):
            update = read(m) / (tf.sqrt(read(v)) + step.epsilon)
            if self.bias_correction:
                update *= tf.sqrt(1.0 - step.beta_2_power) / (1.0 - step.beta_1_power)
            rate = step.learning_rate
            if kept is not None:
                value = read(w)
                update += self.weight_decay_rate * value
                rate *= _ratio(tf.norm(value), tf.norm(update))
            return assign_sub(w, rate * update)


class _StepScalars(NamedTuple):
    """The scalars of one step on one device, chosen to change nothing if it is skipped."""
    gradient_scale: tf.Tensor
    learning_rate: tf.Tensor
    beta_1: tf.Tensor
    beta_2: tf.Tensor
    beta_1_power: tf.Tensor
    beta_2_power: tf.Tensor
    epsilon: tf.Tensor
    zero: tf.Tensor  # made once for all variables


def _check_context() -> None:
    """Raises a ValueError in a context where replicas cannot update together."""
    with tf.init_scope():
        is_eager = tf.executing_eagerly()
    if is_eager:
        raise ValueError("apply_gradients is called in eager code or a tf.function of it, and this "
                         "optimizer works in graphs alone: train with a tf.estimator.Estimator, as "
                         "docs/optimizer.md shows, or build the step in tf.Graph().as_default() "
                         "and run it in a tf.Session")
    if not tf.distribute.get_replica_context():
        raise ValueError("apply_gradients is called outside of the replicas: call it in a model_fn "
                         "or in the function given to strategy.run (experimental_run_v2 in "
                         "TensorFlow 1)")
    # TensorFlow 2's control flow is a separate graph, where TensorFlow itself raises an error.
    if (tf.distribute.get_strategy().num_replicas_in_sync > 1
            and tf.get_default_graph()._get_control_flow_context()):
        raise ValueError("apply_gradients is called inside tf.cond or tf.while_loop, where several "
                         "replicas cannot update together: call it in every step. To accumulate "
                         "gradients, average them within a step, as optimization.mean_gradients "
                         "does")


def _scaled(gradient: Gradient, scale: tf.Tensor) -> Gradient:
    """The gradient times `scale`; zeros if `scale` is 0, even for NaN."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.math.multiply_no_nan(gradient, scale)
    return tf.IndexedSlices(tf.math.multiply_no_nan(gradient.values, scale), gradient.indices)


def _name_of(variable: tf.Variable) -> str:
    return re.sub(r":\d+$", "", variable.name)


def _ratio(norm: tf.Tensor, update_norm: tf.Tensor) -> tf.Tensor:
    defined = tf.logical_and(norm > 0, update_norm > 0)
    return tf.where(defined, tf.math.divide_no_nan(norm, update_norm), tf.ones_like(norm))


def _add_one(variable: tf.Variable) -> tf.Operation:
    return variable.assign_add(1).op
