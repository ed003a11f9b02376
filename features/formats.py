"""Features in files: Google's JSON lines, JSON lines with a vector each, and NumPy's arrays."""

import io
import json
from typing import Any, Iterable, List, Sequence

import numpy as np

from engine.errors import UserError

JSONL, NPY = FORMATS = ("jsonl", "npy")
FLOAT32, FLOAT16 = DTYPES = ("float32", "float16")

_DIGITS = 6  # after the point, as in Google's


def token_lines(first_number: int, tokens: Iterable[List[str]], states: np.ndarray,
                layers: Sequence[int]) -> bytes:
    """A line of JSON for each text, with the states of each token, like Google's.

    Args:
        first_number: of the first text, counted from 0 in the whole input.
        tokens: of each text.
        states: [n, t, layers x D], with padding.
    """
    return _lines({"linex_index": number, "features": [
        {"token": token, "layers": [{"index": layer, "values": of_layer}
                                    for layer, of_layer in zip(layers, of_token)]}
        for token, of_token in zip(
            of_text, _rounded(values[:len(of_text)].reshape(len(of_text), len(layers), -1)))]}
        for number, (of_text, values) in enumerate(zip(tokens, states), first_number))


def vector_lines(first_number: int, vectors: np.ndarray) -> bytes:
    """A line of JSON for each text, with its vector."""
    return _lines({"linex_index": number, "values": values}
                  for number, values in enumerate(_rounded(vectors), first_number))


def array_header(num_texts: int, width: int, dtype: str) -> bytes:
    """What precedes the values [texts, width] in NumPy's format, which `np.load` reads."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {
        "descr": np.dtype(dtype).str, "fortran_order": False, "shape": (num_texts, width)})
    return header.getvalue()


def as_type(states: np.ndarray, dtype: str) -> np.ndarray:
    """The states in one of DTYPES. Raises a UserError if one is too large for it."""
    with np.errstate(over="ignore"):
        converted = states.astype(dtype)
    if dtype == FLOAT16 and not np.isfinite(converted).all():
        raise UserError(f"--output_dtype={FLOAT16} holds numbers up to 65,504, and a state is "
                        f"{np.abs(states).max():,.0f}; use {FLOAT32}")
    return converted


def _rounded(states: np.ndarray) -> List[Any]:
    # Exact: a float32 times 10^6 has at most 38 bits, so this is Python's round().
    return np.round(states.astype(np.float64), _DIGITS).tolist()


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode("ascii")
