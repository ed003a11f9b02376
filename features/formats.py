"""Features in files: Google's JSON lines, JSON lines with a vector each, and NumPy's arrays."""

import abc
import io
import json
from typing import Any, Dict, List, Sequence

import numpy as np

from engine.errors import UserError
from features.texts import Texts

JSONL, NPY = FORMATS = ("jsonl", "npy")
FLOAT32, FLOAT16 = DTYPES = ("float32", "float16")

_DIGITS = 6  # after the point, as in Google's


class Format(abc.ABC):
    """How the features of texts become bytes."""
    header = b""  # of the file

    @abc.abstractmethod
    def rows(self, texts: Texts, states: np.ndarray, indices: Sequence[int],
             first_number: int) -> bytes:
        """What the file holds for some texts.

        Args:
            states: of all texts, [n, ...].
            indices: which of the texts.
            first_number: of texts[0], counted from 0 in the whole input.
        """


class TokenLines(Format):
    """A line of JSON for each text, with the states of each token, like Google's."""

    def __init__(self, layers: Sequence[int]):
        self._layers = layers

    def rows(self, texts, states, indices, first_number):
        return _lines({"linex_index": first_number + index,
                       "features": self._features(texts.tokens(index), states[index])}
                      for index in indices)

    def _features(self, tokens: List[str], states: np.ndarray) -> List[Dict[str, Any]]:
        """Tokens with their states; `states` is [t or more, layers x D]."""
        values = _rounded(states[:len(tokens)].reshape(len(tokens), len(self._layers), -1))
        return [{"token": token, "layers": [{"index": layer, "values": of_layer}
                                            for layer, of_layer in zip(self._layers, of_token)]}
                for token, of_token in zip(tokens, values)]


class VectorLines(Format):
    """A line of JSON for each text, with its vector."""

    def rows(self, texts, states, indices, first_number):
        return _lines({"linex_index": first_number + index, "values": _rounded(states[index])}
                      for index in indices)


class Array(Format):
    """NumPy's format, [texts, width]: `np.load` reads it, memory-mapped if asked to."""

    def __init__(self, num_texts: int, width: int, dtype: str):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {
            "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False,
            "shape": (num_texts, width)})
        self.header = header.getvalue()

    def rows(self, texts, states, indices, first_number):
        return states[indices].tobytes()


def as_type(states: np.ndarray, dtype: str) -> np.ndarray:
    """The states in one of DTYPES.

    Raises:
        UserError: a state is too large for it.
    """
    with np.errstate(over="ignore"):
        converted = states.astype(dtype)
    if dtype == FLOAT16 and not np.isfinite(converted).all():
        raise UserError(f"--output_dtype={FLOAT16} holds numbers up to 65,504, and a state is "
                        f"{np.abs(states).max():,.0f}; use {FLOAT32}")
    return converted


def _rounded(states: np.ndarray) -> List[Any]:
    # Exact: a float32 times 10^6 has at most 38 bits, so this is Python's round().
    return np.round(states.astype(np.float64), _DIGITS).tolist()


def _lines(values) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode("ascii")
