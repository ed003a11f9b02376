"""Random numbers as a function of a key and a counter, without state or order of draws.

The same key and counter give the same bits in any batch, any process and any version of
NumPy. The mixing function is splitmix64's (Steele, Lea and Flood 2014).
"""

from typing import Union

import numpy as np

_STRIDE = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, as in splitmix64
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

Counters = Union[int, np.ndarray]


def mix(keys: np.ndarray, counters: Counters) -> np.ndarray:
    """64 random bits for each key and counter, which broadcast; uint64, at least 1-D."""
    # Arrays wrap around silently; NumPy's scalars would warn about overflow.
    bits = np.atleast_1d(keys) + _STRIDE * (np.atleast_1d(counters).astype(np.uint64)
                                            + np.uint64(1))
    bits = (bits ^ (bits >> np.uint64(30))) * _MULTIPLIERS[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MULTIPLIERS[1]
    return bits ^ (bits >> np.uint64(31))


def uniform(bits: np.ndarray) -> np.ndarray:
    """A float64 in [0, 1) from each 64 random bits."""
    return (bits >> np.uint64(11)) * 2.0 ** -53


def keys_of(seed: int, *counters: Counters) -> np.ndarray:
    """A key for each combination of counters, such as an epoch and a record: uint64 [n]."""
    keys = np.array([seed % 2 ** 64], np.uint64)
    for counter in counters:
        keys = mix(keys, counter)
    return keys


def permuted(positions: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The values at some positions of a random permutation of range(count), int64.

    The permutation is never in memory: a Feistel network of four rounds permutes the numbers
    with as many bits as `count` needs, and is applied again to a result outside of the range.
    """
    half_bits = max(1, -(-int(count - 1).bit_length() // 2))
    half = np.uint64(half_bits)
    low = np.uint64((1 << half_bits) - 1)
    keys = keys_of(seed, np.arange(4))
    numbers = np.array(positions, np.uint64)
    outside = np.ones(len(numbers), bool)
    while outside.any():
        left, right = numbers[outside] >> half, numbers[outside] & low
        for key in keys:
            left, right = right, left ^ (mix(key, right) & low)
        numbers[outside] = (left << half) | right
        outside = numbers >= np.uint64(count)
    return numbers.astype(np.int64)
