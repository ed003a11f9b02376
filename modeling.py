"""BERT as tensor functions, behind the public API of Google's `modeling.py`.

"BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding" (https://arxiv.org/abs/1810.04805) over "Attention Is All You
Need" (https://arxiv.org/abs/1706.03762). Knows nothing of flags, Estimators,
losses or devices. Variable names, shapes and initialisers are the original's:
checkpoints depend on them.

Shapes in comments and docstrings:
  B batch, F length of the sequence that attends, T length of the one attended to,
  N heads, H size of a head, D hidden size = N * H, I intermediate size, V vocabulary.
"""

import collections
import copy
import functools
import json
import math
import numbers
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow.compat.v1 as tf

from replication import graph_functions

Activation = Optional[Callable[[tf.Tensor], tf.Tensor]]
Dimension = Union[int, tf.Tensor]

LAYER_NORM_EPSILON = 1e-12
MASKED_SCORE = -10000.0  # added to the attention scores of masked positions


# --- Configuration -----------------------------------------------------------------------


class BertConfig:
    """The shape and the rates of a BERT encoder; `bert_config.json` in memory."""

    def __init__(self,
                 vocab_size: Optional[int],
                 hidden_size: int = 768,
                 num_hidden_layers: int = 12,
                 num_attention_heads: int = 12,
                 intermediate_size: int = 3072,
                 hidden_act: Union[str, Activation] = "gelu",
                 hidden_dropout_prob: float = 0.1,
                 attention_probs_dropout_prob: float = 0.1,
                 max_position_embeddings: int = 512,
                 type_vocab_size: int = 16,
                 initializer_range: float = 0.02):
        """`hidden_act` is a name for `get_activation`; `..._prob` is the chance to drop a value."""
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range

    @classmethod
    def from_dict(cls, json_object: Dict[str, Any]) -> "BertConfig":
        """A config with these entries. Unknown ones are kept, missing ones get their defaults."""
        config = cls(vocab_size=None)
        vars(config).update(json_object)
        return config

    @classmethod
    def from_json_file(cls, json_file: str) -> "BertConfig":
        """Reads a JSON file; see `from_dict`."""
        with open(json_file, encoding="utf-8-sig") as reader:
            return cls.from_dict(json.load(reader))

    def to_dict(self) -> Dict[str, Any]:
        """The entries of the config, as a copy."""
        return copy.deepcopy(vars(self))

    def to_json_string(self) -> str:
        """The entries of the config as JSON text, for `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


def check_config(config: BertConfig) -> None:
    """Raises a ValueError, a line that says why, if the configuration is impossible."""
    for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                 "intermediate_size", "max_position_embeddings", "type_vocab_size"):
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"BERT config: {name} is {value!r}, must be a positive integer.")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        value = getattr(config, name)
        if not isinstance(value, numbers.Real) or not 0.0 <= value < 1.0:
            raise ValueError(f"BERT config: {name} is {value!r}, must be in [0, 1).")
    deviation = config.initializer_range
    if (isinstance(deviation, bool) or not isinstance(deviation, numbers.Real)
            or not 0.0 <= deviation < math.inf):
        raise ValueError(f"BERT config: initializer_range is {deviation!r}, must be a deviation of "
                         "0 or more.")
    _check_heads(config.hidden_size, config.num_attention_heads)
    activation = config.hidden_act
    if not (activation is None or isinstance(activation, str) or callable(activation)):
        raise ValueError(f"BERT config: hidden_act is {activation!r}, must be a name or null.")
    get_activation(activation)


def _check_heads(hidden_size: int, num_attention_heads: int) -> None:
    if hidden_size % num_attention_heads:
        raise ValueError(f"BERT config: hidden_size {hidden_size} is not a multiple of "
                         f"num_attention_heads {num_attention_heads}.")


# --- How to compute ----------------------------------------------------------------------


class Computation(NamedTuple):
    """How a model computes its encoder layers. The results are the same up to rounding."""
    # The type of matrix products, and of what lies between two of them: float32, float16 or
    # bfloat16. Weights, the states between sublayers, layer normalization and softmax stay in
    # float32, and so do embeddings, pooler and heads.
    dtype: tf.DType = tf.float32
    # Casts a float32 weight to that type, once for all layers' calls. It must be a function of a
    # module, since it is a part of the key of the shared graph functions.
    cast: Callable[[tf.Tensor, tf.DType], tf.Tensor] = tf.cast
    # Keep only a layer's inputs for its gradient, which computes the layer again (Chen et al.,
    # "Training Deep Nets with Sublinear Memory Cost").
    recompute: bool = False
    # Compile with XLA, forward and backward, once for each shape and device.
    compiled: bool = False
    # Put each layer's operations into the graph itself, instead of calling a shared graph
    # function. This is for programs that read the graph and may not know functions. Inlined
    # layers are not compiled. Layers with a caller's own activation are always inlined.
    inlined: bool = False
    # The operations run on cards, which wait for memory more than CPUs do.
    on_cards: bool = False

    @property
    def saves_bytes(self) -> bool:
        """Whether to choose operations by the bytes they move; XLA makes its own choice."""
        return self.on_cards and not self.compiled

    @property
    def is_read_by_others(self) -> bool:
        """Whether to keep to common operations, for XLA or other programs."""
        return self.compiled or self.inlined


DEFAULT_COMPUTATION = Computation()


# --- Activations -------------------------------------------------------------------------


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Gaussian Error Linear Unit, tanh form (https://arxiv.org/abs/1606.08415, section 2)."""
    def value_and_slope(x):
        # 0.5 * (1 + tanh(z / 2)) = sigmoid(z), with z = a x + b x**3
        a = 2.0 * math.sqrt(2.0 / math.pi)
        b = 0.044715 * a
        square = tf.square(x)
        gate = tf.sigmoid(x * (a + b * square))
        return x * gate, gate + tf.raw_ops.SigmoidGrad(y=gate, dy=x * (a + 3.0 * b * square))

    return _activate(x, value_and_slope)


def gelu_erf(x: tf.Tensor) -> tf.Tensor:
    """Gaussian Error Linear Unit, exact: x times the normal distribution function of x."""
    def value_and_slope(x):
        distribution = 0.5 + 0.5 * tf.erf(x * math.sqrt(0.5))
        density = tf.exp(-0.5 * tf.square(x)) * (1.0 / math.sqrt(2.0 * math.pi))
        return x * distribution, distribution + x * density

    return _activate(x, value_and_slope)


def _activate(x: tf.Tensor, value_and_slope: Callable[[tf.Tensor], Tuple[tf.Tensor, tf.Tensor]]
              ) -> tf.Tensor:
    """The value of an activation; its gradient keeps the slope alone and multiplies by it.

    With the gradient that TensorFlow derives, forward and backward of `gelu` would take 1.5 to
    1.9 times as long and keep three tensors as wide as the feed-forward layer.
    """
    @tf.custom_gradient
    def activate(x):
        # In float16 the slope of a large x would be NaN. Once computed, it is kept in x's type.
        value, slope = value_and_slope(tf.cast(x, tf.float32))
        slope = tf.cast(slope, x.dtype)
        return tf.cast(value, x.dtype), lambda dy: dy * slope

    return activate(x)


def _looked_up(activation: Activation) -> Activation:
    """An activation of 16-bit numbers as look-ups in tables of its values and slopes.

    On cards this moves a sixth of the bytes of the arithmetic in float32; CPUs take longer for it.
    """
    @tf.custom_gradient
    def look_up(x):
        values, slopes = _tables(activation, x.dtype.base_dtype)
        index = tf.cast(tf.bitcast(x, tf.uint16), tf.int32)
        slope = tf.gather(slopes, index)
        return tf.gather(values, index), lambda dy: dy * slope

    return look_up


@functools.lru_cache(maxsize=None)
def _tables(activation: Activation, dtype: tf.DType) -> List[np.ndarray]:
    """The values and slopes of an activation for all 65,536 numbers of a type, by their bits."""
    config = tf.ConfigProto(device_count={"GPU": 0})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x = tf.bitcast(tf.constant(np.arange(2**16, dtype=np.uint16)), dtype)
        values = activation(x)
        return session.run([values, tf.gradients(values, x)[0]])


ACTIVATIONS = {"linear": None, "relu": tf.nn.relu, "tanh": tf.tanh,
               "gelu": gelu, "gelu_erf": gelu_erf}


def get_activation(activation_string: Union[str, Activation]) -> Activation:
    """The function with this name; None for "linear", "" and None. A function is returned as is.

    Raises:
      ValueError: no activation has this name.
    """
    if not activation_string or not isinstance(activation_string, str):
        return activation_string or None
    if activation_string.lower() not in ACTIVATIONS:
        raise ValueError(f"Unknown activation {activation_string!r}; "
                         f"choose from {sorted(ACTIVATIONS)}.")
    return ACTIVATIONS[activation_string.lower()]


# --- Dropout -----------------------------------------------------------------------------


def _draw_seed() -> tf.Tensor:
    """[2] int32, a new seed in each step, determined by the graph-level seed."""
    with tf.device("/cpu:0"):  # stateless ops read their seeds in host memory
        return tf.random_uniform([2], maxval=2**31 - 1, dtype=tf.int32)


def _independent_seeds(shape: Sequence[int], seed: Optional[tf.Tensor],
                       dropout_probs: Sequence[Optional[float]]) -> tf.Tensor:
    """[*shape, 2] int32: independent seeds, each determined by `seed` and its index.

    All zeros if no probability drops anything. If `seed` is None, a new one is drawn.
    """
    if not any(dropout_probs):
        return tf.zeros(list(shape) + [2], tf.int32)
    with tf.device("/cpu:0"):
        return tf.random.stateless_uniform(
            list(shape) + [2], _draw_seed() if seed is None else seed,
            minval=0, maxval=2**31 - 1, dtype=tf.int32)


def dropout(input_tensor: tf.Tensor, dropout_prob: Optional[float], *,
            dropout_seed: Optional[tf.Tensor] = None,
            computation: Computation = DEFAULT_COMPUTATION) -> tf.Tensor:
    """Zeroes each value with probability `dropout_prob` and scales the rest to the same mean.

    `dropout_seed` [2] determines the mask. If it is None, a new one is drawn.
    """
    if not dropout_prob:
        return input_tensor
    if dropout_seed is None:
        dropout_seed = _draw_seed()
    keep_prob, kept = _keep_mask(input_tensor, dropout_prob, dropout_seed, computation)

    def drop(values: tf.Tensor) -> tf.Tensor:
        return _where_kept(kept, values * (1.0 / keep_prob), computation)

    return tf.custom_gradient(lambda x: (drop(x), drop))(input_tensor)


def _where_kept(kept: tf.Tensor, values: tf.Tensor, computation: Computation) -> tf.Tensor:
    """The values where `kept`, 0 elsewhere."""
    if computation.saves_bytes:  # no tensor of zeros; in 1.15 this takes CPUs eight times as long
        return tf.raw_ops.SelectV2(condition=kept, t=values, e=tf.zeros([], values.dtype))
    if values.dtype == tf.bfloat16:  # to select them takes CPUs two to four times as long
        return values * tf.cast(kept, tf.bfloat16)
    return tf.where(kept, values, tf.zeros_like(values))


def _keep_mask(like: tf.Tensor, dropout_prob: float, seed: tf.Tensor,
               computation: Computation) -> Tuple[float, tf.Tensor]:
    """The probability to keep a value, and a bool mask in the shape of `like` drawn with it.

    Sixteen random bits decide, so the probability is a multiple of 2**-16, within 1e-5 of
    1 - `dropout_prob`. Each number drawn decides about two values, since drawing is most of
    what dropout costs.
    """
    levels = round(dropout_prob * 2**16)
    # GPUs keep sizes and the int32 arguments of functions in host memory and have no slice of
    # int16. With int32, tf.size and a slice of bool, nothing here makes them copy and wait.
    # tf.random.stateless_uniform would, in 2.15: it makes a key on the host for the same numbers.
    size = tf.size(like)
    draws = tf.raw_ops.StatelessRandomUniformInt(
        shape=[(size + 1) // 2], seed=seed, minval=-2**31, maxval=2**31 - 1)
    least = levels - 2**15
    if computation.compiled:  # the same in int32: XLA in 1.15 has no int16
        kept = tf.bitwise.left_shift(tf.expand_dims(draws, 1), [16, 0]) >= least * 2**16
    else:
        kept = tf.bitcast(draws, tf.int16) >= tf.constant(least, tf.int16)
    if not any(length and length % 2 == 0 for length in like.shape.as_list()):
        kept = tf.reshape(kept, [-1])[:size]  # of an odd number of values
    return 1.0 - levels / 2**16, tf.reshape(kept, tf.shape(like))


# --- Variables ---------------------------------------------------------------------------


def create_initializer(initializer_range: float = 0.02) -> Callable[..., tf.Tensor]:
    """A normal distribution with this standard deviation, truncated at two of them."""
    return tf.truncated_normal_initializer(stddev=initializer_range)


class LayerNormWeights(NamedTuple):
    beta: tf.Tensor  # [D], the shift
    gamma: tf.Tensor  # [D], the scale


class DenseWeights(NamedTuple):
    kernel: tf.Tensor  # [inputs, outputs]
    bias: tf.Tensor  # [outputs]


class LayerWeights(NamedTuple):
    """The weights of one encoder layer, in the order in which their variables are created."""
    query: DenseWeights
    key: DenseWeights
    value: DenseWeights
    attention_output: DenseWeights
    attention_norm: LayerNormWeights
    intermediate: DenseWeights
    output: DenseWeights
    output_norm: LayerNormWeights


def _variable(name: str, shape: Sequence[int], initializer: Any) -> tf.Tensor:
    return tf.convert_to_tensor(tf.get_variable(name, shape, initializer=initializer))


def _layer_norm_weights(prefix: str, size: int) -> LayerNormWeights:
    return LayerNormWeights(beta=_variable(prefix + "beta", [size], tf.zeros_initializer()),
                            gamma=_variable(prefix + "gamma", [size], tf.ones_initializer()))


def _dense_weights(name: str, inputs: int, outputs: int,
                   initializer_range: float) -> DenseWeights:
    initializer = create_initializer(initializer_range)
    return DenseWeights(kernel=_variable(name + "/kernel", [inputs, outputs], initializer),
                        bias=_variable(name + "/bias", [outputs], tf.zeros_initializer()))


def _layer_weights(hidden_size: int, intermediate_size: int, initializer_range: float,
                   computation: "Computation") -> LayerWeights:
    """Creates a layer's variables; what products read of them is cast here, once for all uses."""
    def dense(name: str, inputs: int, outputs: int) -> DenseWeights:
        return _dense_weights(name, inputs, outputs, initializer_range)

    weights = LayerWeights(
        query=dense("attention/self/query", hidden_size, hidden_size),
        key=dense("attention/self/key", hidden_size, hidden_size),
        value=dense("attention/self/value", hidden_size, hidden_size),
        attention_output=dense("attention/output/dense", hidden_size, hidden_size),
        attention_norm=_layer_norm_weights("attention/output/LayerNorm/", hidden_size),
        intermediate=dense("intermediate/dense", hidden_size, intermediate_size),
        output=dense("output/dense", intermediate_size, hidden_size),
        output_norm=_layer_norm_weights("output/LayerNorm/", hidden_size))
    cast = {name: part for name, part in weights._asdict().items() if isinstance(part, DenseWeights)}
    values, dtype = tf.nest.flatten(cast), computation.dtype
    if computation.compiled:
        values = graph_functions.cast_together(values, dtype)
    else:
        values = [computation.cast(value, dtype) for value in values]
    return weights._replace(**tf.nest.pack_sequence_as(cast, values))


# --- The encoder as pure functions of tensors --------------------------------------------


class LayerSettings(NamedTuple):
    """The arguments of an encoder layer's function besides its tensors."""
    num_attention_heads: int
    activation: Activation
    hidden_dropout_prob: Optional[float]
    attention_probs_dropout_prob: Optional[float]
    computation: Computation
    gives_scores: bool = False  # return the attention's scores, too


class NormSettings(NamedTuple):
    """The arguments of `_normalize_and_drop` besides its tensors."""
    dropout_prob: Optional[float]
    computation: Computation


class LayerOutputs(NamedTuple):
    """The outputs of an encoder layer."""
    states: tf.Tensor  # [B, F, D]
    scores: Optional[tf.Tensor] = None  # [B, N, F, T], see `_attend`


Layer = Callable[[tf.Tensor, tf.Tensor], LayerOutputs]  # f(queries, states)


def _normalize(x: tf.Tensor, weights: LayerNormWeights, computation: Computation) -> tf.Tensor:
    """Layer normalization of each row of a matrix x (https://arxiv.org/abs/1607.06450).

    The gradient in closed form takes half of the time of the one that TensorFlow derives.
    """
    size = x.shape.as_list()[-1]

    def mean(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(values, axis=-1, keepdims=True)

    def mean_square(values: tf.Tensor) -> tf.Tensor:
        if computation.is_read_by_others:
            return mean(tf.square(values))
        # In one pass.
        norm = tf.raw_ops.EuclideanNorm(input=values, axis=-1, keep_dims=True)
        return tf.square(norm) * (1.0 / size)

    def mean_products(gamma: tf.Tensor, *several: tf.Tensor) -> List[tf.Tensor]:
        if computation.is_read_by_others:
            return [mean(values * gamma) for values in several]
        column = tf.expand_dims(gamma * (1.0 / size), 1)
        return [tf.matmul(values, column) for values in several]  # each in one pass, too

    @tf.custom_gradient
    def normalize(x, gamma, beta):
        # Not with tf.squared_difference: TensorFlow 2.15's oneDNN rewrite recognises that form
        # and crashes on it in a function.
        centred = x - mean(x)
        scale = tf.rsqrt(mean_square(centred) + LAYER_NORM_EPSILON)
        standard = centred * scale

        def gradient(dy):
            dy_standard = dy * standard
            mean_d, mean_d_standard = mean_products(gamma, dy, dy_standard)
            dx = (dy * gamma - standard * mean_d_standard - mean_d) * scale
            return dx, tf.reduce_sum(dy_standard, 0), tf.reduce_sum(dy, 0)

        return standard * gamma + beta, gradient

    return normalize(x, weights.gamma, weights.beta)


def _add_and_normalize(x: tf.Tensor, residual: tf.Tensor, weights: LayerNormWeights,
                       computation: Computation) -> tf.Tensor:
    # The inputs of tf.add_n have one shape. The gradient of `+` would have to compare theirs.
    total = tf.add_n([tf.cast(x, residual.dtype), residual])
    return _normalize(total, weights, computation)


def _normalize_and_drop(weights: LayerNormWeights, settings: NormSettings, x: tf.Tensor,
                        seeds: tf.Tensor) -> tf.Tensor:
    rows = [-1, x.shape.as_list()[-1]]
    output = _normalize(tf.reshape(x, rows), weights, settings.computation)
    return dropout(_reshape(output, tf.shape(x), rows), settings.dropout_prob, dropout_seed=seeds[0],
                   computation=settings.computation)


def _reshape(x: tf.Tensor, shape: Sequence[Dimension], back: Sequence[Dimension]) -> tf.Tensor:
    """x in another shape. Its gradient gets the shape `back`, and need not keep that of x."""
    return tf.custom_gradient(
        lambda x: (tf.reshape(x, shape), lambda dy: tf.reshape(dy, back)))(x)


def _add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """x + bias for each row of a matrix x."""
    if x.dtype != tf.bfloat16:
        return tf.nn.bias_add(x, bias)
    # Through another shape: TensorFlow would fuse the addition with the product before it, which in
    # bfloat16 takes CPUs about twice as long as both apart.
    rows = [-1, x.shape.as_list()[-1]]
    return _reshape(tf.nn.bias_add(_reshape(x, [1, *rows], rows), bias), rows, [1, *rows])


def _dense(x: tf.Tensor, weights: DenseWeights, activation: Activation = None) -> tf.Tensor:
    """activation(x W + b) for each row of a matrix x."""
    output = _add_bias(tf.matmul(x, weights.kernel), weights.bias)
    return activation(output) if activation else output


def _split_heads(x: tf.Tensor, batch_size: Dimension, length: Dimension,
                 num_heads: int) -> tf.Tensor:
    """[B*F, N*H] to [B, N, F, H]."""
    width = x.shape.as_list()[-1]
    shape = [batch_size, length, num_heads, width // num_heads]
    return tf.transpose(_reshape(x, shape, [-1, width]), [0, 2, 1, 3])


def _join_heads(x: tf.Tensor, batch_size: Dimension, length: Dimension) -> tf.Tensor:
    """[B, N, F, H] to [B*F, N*H]."""
    _, num_heads, _, head_size = x.shape.as_list()
    return _reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, num_heads * head_size],
                    [batch_size, length, num_heads, head_size])


def _attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask_bias: tf.Tensor,
            dropout_prob: Optional[float], dropout_seed: Optional[tf.Tensor],
            gives_scores: bool = False,
            computation: Computation = DEFAULT_COMPUTATION) -> List[tf.Tensor]:
    """softmax(Q K^T / sqrt(H) + bias) V for each head, with dropout of the softmax.

    `query` [B, N, F, H], `key` and `value` [B, N, T, H], `mask_bias` broadcasts to
    [B, N, F, T]. Returns the context, [B, N, F, H], and with `gives_scores` also the scores
    Q K^T / sqrt(H), [B, N, F, T]. Scores, softmax and the gradient of the softmax are in float32,
    whatever the type of the products.
    """
    def wide(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(x, tf.float32)

    scale = 1.0 / math.sqrt(query.shape.as_list()[-1])
    if dropout_prob and dropout_seed is None:
        dropout_seed = _draw_seed()

    @tf.custom_gradient
    def attend(query, key, value):
        query *= scale
        scores = wide(tf.matmul(query, key, transpose_b=True))
        probs = tf.cast(tf.nn.softmax(scores + mask_bias), value.dtype)
        keep_prob, dropped = 1.0, probs  # [B, N, F, T]
        if dropout_prob:
            keep_prob, kept = _keep_mask(probs, dropout_prob, dropout_seed, computation)
            dropped = _where_kept(kept, probs, computation)

        def gradient(d_context, *d_given_scores):
            # `dropped` is zero where dropout zeroed a value, so the mask is neither kept nor
            # applied again. This saves two passes over [B, N, F, T].
            d_context *= 1.0 / keep_prob
            flow = wide(dropped) * wide(tf.matmul(d_context, value, transpose_b=True))
            d_scores = flow - wide(probs) * tf.reduce_sum(flow, axis=-1, keepdims=True)
            if gives_scores:
                d_scores += d_given_scores[0]
            d_scores = tf.cast(d_scores, value.dtype)
            return (tf.matmul(d_scores, key) * scale,
                    tf.matmul(d_scores, query, transpose_a=True),
                    tf.matmul(dropped, d_context, transpose_a=True))

        # Dropout scales the context here: it is smaller than the probabilities.
        context = tf.matmul(dropped, value) * (1.0 / keep_prob)
        return [context, scores] if gives_scores else [context], gradient

    return attend(query, key, value)


def _encoder_layer(weights: LayerWeights, settings: LayerSettings, states: tf.Tensor,
                   mask_bias: tf.Tensor, seeds: tf.Tensor, queries: Optional[tf.Tensor] = None
                   ) -> List[tf.Tensor]:
    """One encoder layer: self-attention, then feed-forward, each added and normalized.

    `states` [B, T, D] are the input; `queries` [B, F, D] are the rows of it for which to compute
    an output; None: all. `mask_bias` broadcasts to [B, N, F, T]. `seeds` [3, 2] are those of
    the dropout of attention probabilities, attention output and layer output. Returns the new
    states [B, F, D] and, if the settings ask for them, the attention's scores [B, N, F, T].
    """
    computation = settings.computation
    asking = states if queries is None else queries
    shape = get_shape_list(asking)
    batch_size, from_length = shape[:2]
    to_length = get_shape_list(states)[1]
    hidden_dropout = functools.partial(dropout, dropout_prob=settings.hidden_dropout_prob,
                                       computation=computation)
    activation = settings.activation
    if computation.saves_bytes and computation.dtype.size == 2 and activation in (gelu, gelu_erf):
        activation = _looked_up(activation)

    def narrow(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(x, computation.dtype)

    def dense(x: tf.Tensor, projection: DenseWeights, activation: Activation = None) -> tf.Tensor:
        return _dense(x, DenseWeights(*map(narrow, projection)), activation)

    def heads(x: tf.Tensor, projection: DenseWeights, length: Dimension) -> tf.Tensor:
        return _split_heads(dense(x, projection), batch_size, length, settings.num_attention_heads)

    residual = reshape_to_matrix(asking)
    attending = narrow(residual)
    attended = attending if queries is None else narrow(reshape_to_matrix(states))
    context, *scores = _attend(
        heads(attending, weights.query, from_length), heads(attended, weights.key, to_length),
        heads(attended, weights.value, to_length), mask_bias, settings.attention_probs_dropout_prob,
        seeds[0], settings.gives_scores, computation)
    attention = dense(_join_heads(context, batch_size, from_length), weights.attention_output)
    attention = hidden_dropout(attention, dropout_seed=seeds[1])
    attention = _add_and_normalize(attention, residual, weights.attention_norm, computation)
    narrowed = narrow(attention)
    output = dense(dense(narrowed, weights.intermediate, activation), weights.output)
    output = hidden_dropout(output, dropout_seed=seeds[2])
    output = _add_and_normalize(output, attention, weights.output_norm, computation)
    return [_reshape(output, shape, [-1, shape[-1]]), *scores]


def _recomputed_layer(weights: LayerWeights, settings: LayerSettings, states: tf.Tensor,
                      mask_bias: tf.Tensor, seeds: tf.Tensor, *queries: tf.Tensor
                      ) -> List[tf.Tensor]:
    """`_encoder_layer` with a gradient that computes it again; the seeds give the same masks."""
    def compute(states: tf.Tensor, *others: tf.Tensor) -> List[tf.Tensor]:
        own_queries, flat_weights = others[:len(queries)], others[len(queries):]
        return _encoder_layer(tf.nest.pack_sequence_as(weights, flat_weights), settings, states,
                              mask_bias, seeds, *own_queries)

    return graph_functions.recomputed(compute, [states, *queries, *tf.nest.flatten(weights)])


# --- The model ---------------------------------------------------------------------------


class BertModel:
    """The encoder and the pooler, over variables in the scope "bert".

    ```python
    model = modeling.BertModel(config, is_training=True, input_ids=input_ids,
                               input_mask=input_mask, token_type_ids=token_type_ids)
    logits = tf.layers.dense(model.get_pooled_output(), num_labels)
    ```

    Args:
      config: shape and rates; no dropout unless `is_training`.
      input_ids: [B, F] int32. B and F may be unknown until the graph runs.
      input_mask: [B, F], 1 where a token may be attended to, 0 on padding; all 1 if None.
      token_type_ids: [B, F]; all 0 if None.
      use_one_hot_embeddings: look words up by a matrix product (dense gradient).
      scope: variable scope, "bert" if None.
      dropout_seed: [2] integers. Each dropout mask is determined by them and by its position
        in the network. None: a new seed in each step, determined by the graph-level seed.
      gives_attention_scores: see `get_attention_scores`.
      computation: how to compute the encoder's layers.
      has_pooler: whether there is a pooled output.

    Raises:
      ValueError: the config is impossible, or an input has another shape.
    """

    def __init__(self,
                 config: BertConfig,
                 is_training: bool,
                 input_ids: tf.Tensor,
                 input_mask: Optional[tf.Tensor] = None,
                 token_type_ids: Optional[tf.Tensor] = None,
                 use_one_hot_embeddings: bool = False,
                 scope: Optional[str] = None,
                 *,
                 dropout_seed: Optional[tf.Tensor] = None,
                 gives_attention_scores: bool = False,
                 computation: Computation = DEFAULT_COMPUTATION,
                 has_pooler: bool = True):
        """Builds the model in the default graph."""
        check_config(config)
        config = copy.deepcopy(config)
        if not is_training:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
        shape = get_shape_list(input_ids, expected_rank=2)
        if input_mask is None:
            input_mask = tf.ones(shape, tf.int32)
        if token_type_ids is None:
            token_type_ids = tf.zeros(shape, tf.int32)
        embedding_seed, encoder_seed = tf.unstack(_independent_seeds([2], dropout_seed, [
            config.hidden_dropout_prob, config.attention_probs_dropout_prob]))

        with tf.variable_scope(scope, default_name="bert"):
            with tf.variable_scope("embeddings"):
                words, self.embedding_table = embedding_lookup(
                    input_ids, config.vocab_size, config.hidden_size, config.initializer_range,
                    use_one_hot_embeddings=use_one_hot_embeddings)
                self.embedding_output = embedding_postprocessor(
                    words, use_token_type=True, token_type_ids=token_type_ids,
                    token_type_vocab_size=config.type_vocab_size,
                    initializer_range=config.initializer_range,
                    max_position_embeddings=config.max_position_embeddings,
                    dropout_prob=config.hidden_dropout_prob, dropout_seed=embedding_seed,
                    computation=computation)
            with tf.variable_scope("encoder"):
                layers = _encoder_layers(
                    LayerSettings(
                        config.num_attention_heads, get_activation(config.hidden_act),
                        config.hidden_dropout_prob, config.attention_probs_dropout_prob,
                        computation, gives_scores=gives_attention_scores),
                    config.num_hidden_layers, config.hidden_size, config.intermediate_size,
                    config.initializer_range, _mask_bias(input_mask[:, tf.newaxis, :]),
                    encoder_seed)
                outputs = _apply_in_turn(layers, self.embedding_output)
                self.all_encoder_layers = [output.states for output in outputs]
                self.attention_scores = [output.scores for output in outputs]
            if has_pooler:
                with tf.variable_scope("pooler"):
                    self._pooler = _dense_weights("dense", config.hidden_size, config.hidden_size,
                                                  config.initializer_range)
        self.sequence_output = self.all_encoder_layers[-1]
        self._last_layer = layers[-1]
        self._last_inputs = ([self.embedding_output] + self.all_encoder_layers)[-2]  # [B, F, D]
        if has_pooler:
            first_states = self._last_layer(self._last_inputs[:, :1], self._last_inputs).states
            self.pooled_output = self.pool(first_states[:, 0])

    def get_pooled_output(self) -> tf.Tensor:
        """[B, D]: tanh of a projection of the first token's final state.

        Computed separately from the sequence output, so that a classifier need not compute the other
        positions of the last layer: a seventh of its time with 6 layers. A training that uses both
        has different dropout in the last layer of each.
        """
        return self.pooled_output

    def get_sequence_output(self) -> tf.Tensor:
        """[B, F, D]: the last layer's states."""
        return self.sequence_output

    def get_sequence_output_at(self, positions: tf.Tensor) -> tf.Tensor:
        """[B, P, D]: the last layer's states at `positions` [B, P].

        Like the pooled output, they are computed separately from the sequence output: the last
        layer runs for these positions only.
        """
        queries = _gather_positions(self._last_inputs, positions)
        return self._last_layer(queries, self._last_inputs).states

    def pool(self, first_states: tf.Tensor) -> tf.Tensor:
        """[B, D]: the pooled output for `first_states` [B, D], the first token's final states.

        For callers that have these states: `get_pooled_output` would compute them again.
        """
        return _dense(first_states, self._pooler, tf.tanh)

    def get_all_encoder_layers(self) -> List[tf.Tensor]:
        """The states after each layer, first to last, each [B, F, D]."""
        return self.all_encoder_layers

    def get_attention_scores(self) -> List[tf.Tensor]:
        """Q K^T / sqrt(H) of each layer, first to last, each [B, N, F, F].

        They precede the mask and the softmax, so those of padding mean nothing. Each is None
        unless the model was made with `gives_attention_scores`.
        """
        return self.attention_scores

    def get_embedding_output(self) -> tf.Tensor:
        """[B, F, D]: the input of the first layer, after normalization and dropout."""
        return self.embedding_output

    def get_embedding_table(self) -> tf.Variable:
        """[V, D]: the word embeddings."""
        return self.embedding_table


def _gather_positions(states: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """[B, P, D]: the rows of `states` [B, F, D] at `positions` [B, P]."""
    batch_size, length = get_shape_list(states, expected_rank=3)[:2]
    starts = tf.cast(tf.range(batch_size) * length, tf.int64)
    # int64, because GPUs leave sums of int32 to the host.
    return graph_functions.gather(reshape_to_matrix(states),
                                  tf.cast(positions, tf.int64) + starts[:, tf.newaxis])


def embedding_lookup(input_ids: tf.Tensor,
                     vocab_size: int,
                     embedding_size: int = 128,
                     initializer_range: float = 0.02,
                     word_embedding_name: str = "word_embeddings",
                     use_one_hot_embeddings: bool = False) -> Tuple[tf.Tensor, tf.Variable]:
    """Rows of a variable [vocab_size, embedding_size], and that variable.

    `input_ids` [B, F] give [B, F, embedding_size]. With k ids for each token, [B, F, k], the
    k rows are concatenated: [B, F, k * embedding_size].
    """
    table = tf.get_variable(word_embedding_name, [vocab_size, embedding_size],
                            initializer=create_initializer(initializer_range))
    if use_one_hot_embeddings:
        one_hot = tf.one_hot(tf.reshape(input_ids, [-1]), depth=vocab_size)
        rows = tf.matmul(one_hot, table)
    else:
        rows = graph_functions.gather(table, input_ids)
    shape = get_shape_list(input_ids)
    ids_per_token = shape[2] if len(shape) == 3 else 1
    return tf.reshape(rows, shape[:2] + [ids_per_token * embedding_size]), table


def embedding_postprocessor(input_tensor: tf.Tensor,
                            use_token_type: bool = False,
                            token_type_ids: Optional[tf.Tensor] = None,
                            token_type_vocab_size: int = 16,
                            token_type_embedding_name: str = "token_type_embeddings",
                            use_position_embeddings: bool = True,
                            position_embedding_name: str = "position_embeddings",
                            initializer_range: float = 0.02,
                            max_position_embeddings: int = 512,
                            dropout_prob: float = 0.1,
                            *,
                            dropout_seed: Optional[tf.Tensor] = None,
                            computation: Computation = DEFAULT_COMPUTATION) -> tf.Tensor:
    """Adds the embeddings of token types and positions, then `layer_norm_and_dropout`: [B, F, D].

    Raises:
      ValueError: `token_type_ids` [B, F] is missing, or F exceeds `max_position_embeddings`
        (an InvalidArgumentError when the graph runs, if F is unknown until then).
    """
    batch_size, length, width = get_shape_list(input_tensor, expected_rank=3)
    initializer = create_initializer(initializer_range)
    output = input_tensor
    if use_token_type:
        if token_type_ids is None:
            raise ValueError("token_type_ids is None: use_token_type=True needs it.")
        table = tf.get_variable(token_type_embedding_name, [token_type_vocab_size, width],
                                initializer=initializer)
        # A product with so few rows has a dense gradient and no scatter.
        one_hot = tf.one_hot(tf.reshape(token_type_ids, [-1]), depth=token_type_vocab_size)
        output += tf.reshape(tf.matmul(one_hot, table), [batch_size, length, width])
    if use_position_embeddings:
        table = tf.get_variable(position_embedding_name, [max_position_embeddings, width],
                                initializer=initializer)
        with tf.control_dependencies(_check_length(length, max_position_embeddings)):
            output += tf.slice(table, [0, 0], [length, -1])
    return layer_norm_and_dropout(output, dropout_prob, dropout_seed=dropout_seed,
                                  computation=computation)


def _check_length(length: Dimension, limit: int) -> List[tf.Operation]:
    """Checks a known length now (ValueError); returns the operation that checks an unknown one."""
    message = f"The sequences are longer than max_position_embeddings, {limit}."
    if isinstance(length, int):
        if length > limit:
            raise ValueError(f"{message} Their length is {length}.")
        return []
    with tf.device("/cpu:0"):  # where shapes are: no wait for a GPU
        return [tf.assert_less_equal(length, limit, message=message)]


def layer_norm(input_tensor: tf.Tensor, name: Optional[str] = None) -> tf.Tensor:
    """Layer normalization over the last axis, its variables in the scope `name`."""
    return layer_norm_and_dropout(input_tensor, None, name)


def layer_norm_and_dropout(input_tensor: tf.Tensor, dropout_prob: Optional[float],
                           name: Optional[str] = None, *,
                           dropout_seed: Optional[tf.Tensor] = None,
                           computation: Computation = DEFAULT_COMPUTATION) -> tf.Tensor:
    """`layer_norm`, then `dropout`."""
    shape = input_tensor.shape.as_list()
    with tf.variable_scope(name, default_name="LayerNorm"):
        weights = _layer_norm_weights("", shape[-1])
    seeds = _independent_seeds([1], dropout_seed, [dropout_prob])
    settings = NormSettings(dropout_prob, computation)
    if computation.inlined:
        return _normalize_and_drop(weights, settings, input_tensor, seeds)
    output = graph_functions.call_shared(
        _normalize_and_drop, weights, settings,
        [(input_tensor, [None] * (len(shape) - 1) + shape[-1:]), (seeds, [1, 2])],
        compiled=computation.compiled)
    output.set_shape(shape)
    return output


def create_attention_mask_from_input_mask(from_tensor: tf.Tensor,
                                          to_mask: tf.Tensor) -> tf.Tensor:
    """[B, F, T] float32: `to_mask` [B, T] for each position of `from_tensor` [B, F, ...]."""
    batch_size, from_length = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
    to_length = get_shape_list(to_mask, expected_rank=2)[1]
    return tf.broadcast_to(tf.cast(to_mask, tf.float32)[:, tf.newaxis, :],
                           [batch_size, from_length, to_length])


def _mask_bias(attention_mask: Optional[tf.Tensor]) -> tf.Tensor:
    """[B, 1, F, T], 0 where the mask [B, F, T] is 1 and MASKED_SCORE where it is 0."""
    if attention_mask is None:
        return tf.zeros([1, 1, 1, 1])
    return (1.0 - tf.cast(attention_mask, tf.float32))[:, tf.newaxis] * MASKED_SCORE


def attention_layer(from_tensor: tf.Tensor,
                    to_tensor: tf.Tensor,
                    attention_mask: Optional[tf.Tensor] = None,
                    num_attention_heads: int = 1,
                    size_per_head: int = 512,
                    query_act: Activation = None,
                    key_act: Activation = None,
                    value_act: Activation = None,
                    attention_probs_dropout_prob: float = 0.0,
                    initializer_range: float = 0.02,
                    do_return_2d_tensor: bool = False,
                    batch_size: Optional[Dimension] = None,
                    from_seq_length: Optional[Dimension] = None,
                    to_seq_length: Optional[Dimension] = None,
                    *,
                    dropout_seed: Optional[tf.Tensor] = None) -> tf.Tensor:
    """Multi-head attention with variables query, key and value in the current scope.

    Args:
      from_tensor: [B, F, ...] or [B*F, ...]: what attends.
      to_tensor: [B, T, ...] or [B*T, ...]: what is attended to.
      attention_mask: [B, F, T], 1 where attention is allowed, 0 elsewhere.
      query_act: activation of the projected queries; likewise `key_act`, `value_act`.
      do_return_2d_tensor: return [B*F, N*H] instead of [B, F, N*H].
      batch_size: needed for inputs of rank 2, as are both lengths.
      dropout_seed: see `dropout`.

    Raises:
      ValueError: the ranks differ, or are 2 without the sizes.
    """
    from_shape = get_shape_list(from_tensor, expected_rank=[2, 3])
    to_shape = get_shape_list(to_tensor, expected_rank=[2, 3])
    if len(from_shape) != len(to_shape):
        raise ValueError(f"from_tensor has rank {len(from_shape)}, to_tensor {len(to_shape)}; "
                         "their ranks must match.")
    if len(from_shape) == 3:
        batch_size, from_seq_length = from_shape[:2]
        to_seq_length = to_shape[1]
    elif batch_size is None or from_seq_length is None or to_seq_length is None:
        raise ValueError("Inputs of rank 2 need batch_size, from_seq_length and to_seq_length.")

    width = num_attention_heads * size_per_head

    def heads(name: str, x: tf.Tensor, length: Dimension, activation: Activation) -> tf.Tensor:
        x = reshape_to_matrix(x)
        weights = _dense_weights(name, x.shape.as_list()[-1], width, initializer_range)
        return _split_heads(_dense(x, weights, activation), batch_size, length,
                            num_attention_heads)

    context, = _attend(
        heads("query", from_tensor, from_seq_length, query_act),
        heads("key", to_tensor, to_seq_length, key_act),
        heads("value", to_tensor, to_seq_length, value_act),
        _mask_bias(attention_mask), attention_probs_dropout_prob, dropout_seed)
    context = _join_heads(context, batch_size, from_seq_length)
    if do_return_2d_tensor:
        return context
    return tf.reshape(context, [batch_size, from_seq_length, width])


def transformer_model(input_tensor: tf.Tensor,
                      attention_mask: Optional[tf.Tensor] = None,
                      hidden_size: int = 768,
                      num_hidden_layers: int = 12,
                      num_attention_heads: int = 12,
                      intermediate_size: int = 3072,
                      intermediate_act_fn: Activation = gelu,
                      hidden_dropout_prob: float = 0.1,
                      attention_probs_dropout_prob: float = 0.1,
                      initializer_range: float = 0.02,
                      do_return_all_layers: bool = False,
                      *,
                      dropout_seed: Optional[tf.Tensor] = None,
                      computation: Computation = DEFAULT_COMPUTATION
                      ) -> Union[tf.Tensor, List[tf.Tensor]]:
    """The encoder, its variables under layer_0, layer_1 ... in the current scope.

    Args:
      input_tensor: [B, F, hidden_size].
      attention_mask: [B, F, F] or [B, 1, F], 1 where attention is allowed, 0 elsewhere.
      do_return_all_layers: return the list of all layers' states, not only the last layer's.
      dropout_seed: as for `BertModel`.
      computation: how to compute the layers.

    Returns:
      [B, F, hidden_size], or the list of them.

    Raises:
      ValueError: the sizes do not fit each other.
    """
    _check_heads(hidden_size, num_attention_heads)
    assert_rank(input_tensor, 3)
    width = input_tensor.shape.as_list()[-1]
    if width != hidden_size:
        raise ValueError(f"The input is {width} wide; the encoder's hidden_size is {hidden_size}.")
    settings = LayerSettings(num_attention_heads, intermediate_act_fn, hidden_dropout_prob,
                             attention_probs_dropout_prob, computation)
    layers = _encoder_layers(settings, num_hidden_layers, hidden_size, intermediate_size,
                             initializer_range, _mask_bias(attention_mask), dropout_seed)
    outputs = [output.states for output in _apply_in_turn(layers, input_tensor)]
    return outputs if do_return_all_layers else outputs[-1]


def _encoder_layers(settings: LayerSettings, num_layers: int, hidden_size: int,
                    intermediate_size: int, initializer_range: float, mask_bias: tf.Tensor,
                    dropout_seed: Optional[tf.Tensor]
                    ) -> List[Layer]:
    """Creates the variables of layer_0, layer_1 ...; returns the layers."""
    # Seeds of each layer's attention probabilities, attention output and layer output.
    seeds = tf.unstack(_independent_seeds([num_layers, 3], dropout_seed, [
        settings.hidden_dropout_prob, settings.attention_probs_dropout_prob]))
    layers = []
    for index in range(num_layers):
        with tf.variable_scope(f"layer_{index}"):
            weights = _layer_weights(hidden_size, intermediate_size, initializer_range,
                                     settings.computation)
        layers.append(functools.partial(_call_layer, mask_bias=mask_bias, seeds=seeds[index],
                                        weights=weights, settings=settings))
    return layers


def _apply_in_turn(layers: Sequence[Layer], states: tf.Tensor) -> List[LayerOutputs]:
    """The outputs of each layer, first to last."""
    outputs = []
    for layer in layers:
        outputs.append(layer(states, states))
        states = outputs[-1].states
    return outputs


def _call_layer(queries: tf.Tensor, states: tf.Tensor, mask_bias: tf.Tensor, seeds: tf.Tensor,
                weights: LayerWeights, settings: LayerSettings) -> LayerOutputs:
    computation = settings.computation
    # A caller's own activation may hold tensors of this graph; ours do not.
    inlined = computation.inlined or settings.activation not in ACTIVATIONS.values()
    if inlined:
        settings = settings._replace(computation=computation._replace(compiled=False))
    layer = _recomputed_layer if computation.recompute else _encoder_layer
    rows = [None, None, states.shape.as_list()[-1]]
    inputs = [(states, rows), (mask_bias, [None, 1, None, None]), (seeds, [3, 2])]
    if queries is not states:
        inputs.append((queries, rows))
    if inlined:
        return LayerOutputs(*layer(weights, settings, *[tensor for tensor, _ in inputs]))
    outputs = LayerOutputs(*graph_functions.call_shared(
        layer, weights, settings, inputs, compiled=computation.compiled))
    outputs.states.set_shape(queries.shape)
    return outputs


# --- Shapes ------------------------------------------------------------------------------


def get_shape_list(tensor: tf.Tensor, expected_rank: Union[int, Sequence[int], None] = None,
                   name: Optional[str] = None) -> List[Dimension]:
    """The shape of `tensor`: an int for each known size, a scalar tensor for each unknown one.

    Raises:
      ValueError: its rank is not (among) `expected_rank`.
    """
    if expected_rank is not None:
        assert_rank(tensor, expected_rank, name)
    static = tensor.shape.as_list()
    if None not in static:
        return static
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(static)]


def reshape_to_matrix(input_tensor: tf.Tensor) -> tf.Tensor:
    """[..., D] to [-1, D].

    Raises:
      ValueError: the rank is below 2.
    """
    if input_tensor.shape.ndims < 2:
        raise ValueError(f"A matrix needs at least rank 2; the shape is {input_tensor.shape}.")
    if input_tensor.shape.ndims == 2:
        return input_tensor
    return tf.reshape(input_tensor, [-1, get_shape_list(input_tensor)[-1]])


def reshape_from_matrix(output_tensor: tf.Tensor,
                        orig_shape_list: Sequence[Dimension]) -> tf.Tensor:
    """[-1, D] to the leading axes of `orig_shape_list` and D."""
    if len(orig_shape_list) == 2:
        return output_tensor
    width = get_shape_list(output_tensor)[-1]
    return tf.reshape(output_tensor, list(orig_shape_list[:-1]) + [width])


def assert_rank(tensor: tf.Tensor, expected_rank: Union[int, Sequence[int]],
                name: Optional[str] = None) -> None:
    """Raises ValueError unless the rank of `tensor` is (among) `expected_rank`."""
    expected = [expected_rank] if isinstance(expected_rank, int) else list(expected_rank)
    if tensor.shape.ndims not in expected:
        raise ValueError(f"Tensor {name or tensor.name!r} in scope "
                         f"{tf.get_variable_scope().name!r} has rank {tensor.shape.ndims}, "
                         f"shape {tensor.shape}; expected rank {expected_rank}.")


# --- Checkpoints -------------------------------------------------------------------------


def get_assignment_map_from_checkpoint(
        tvars: Sequence[tf.Variable],
        init_checkpoint: str) -> Tuple[Dict[str, str], Dict[str, int]]:
    """The variables that a checkpoint can initialise.

    Returns:
      {name: name} for each of `tvars` that the checkpoint has, for
      `tf.train.init_from_checkpoint`; and {name: 1, name + ":0": 1} for the same variables, for
      reports.
    """
    names = {re.sub(r":\d+$", "", variable.name) for variable in tvars}
    assignment_map = collections.OrderedDict(
        (name, name) for name, _ in tf.train.list_variables(init_checkpoint) if name in names)
    initialized = {}
    for name in assignment_map:
        initialized[name] = initialized[name + ":0"] = 1
    return assignment_map, initialized
