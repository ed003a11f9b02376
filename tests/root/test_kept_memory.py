"""What an encoder layer keeps from its forward pass for its gradient, in bytes."""

import pytest
import tensorflow.compat.v1 as tf

from bert_reference import random_features, tiny_config
from kept_bytes import kept_bytes


def bytes_to_keep(batch, length, *, hidden, intermediate, heads):
    """In float32, of a layer with dropout, beside its input and its output."""
    rows = batch * length
    # Query, key, value, context; the standardized values of two normalizations, the output of
    # the first; what the activation returns and its slope; two deviations; the probabilities
    # with and without dropout. And two masks of a byte a value.
    floats = rows * (7 * hidden + 2 * intermediate + 2) + 2 * batch * heads * length ** 2
    return 4 * floats + 2 * rows * hidden


# A caller's own activation is not in a function, but in the graph itself.
@pytest.mark.parametrize("activation", ["gelu", lambda x: tf.nn.softplus(x)],
                         ids=["shared function", "in the graph"])
def test_a_layer_keeps_what_its_gradient_reads_and_no_more(activation):
    features = random_features(batch=5, length=16)
    one, two = (kept_bytes(
        tiny_config(hidden_size=32, num_attention_heads=4, intermediate_size=128,
                    hidden_act=activation, num_hidden_layers=layers), features)
        for layers in (1, 2))
    needed = bytes_to_keep(5, 16, hidden=32, intermediate=128, heads=4)
    seeds_and_shapes = 512
    assert needed <= two - one <= needed + seeds_and_shapes
