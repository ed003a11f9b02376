"""Features in files: Google's JSON lines, JSON lines with a vector each, and NumPy's arrays."""

import json
from typing import Any, Iterable, List, Sequence

import numpy as np

_DIGITS = 6  # after the point, as in Google's


def is_array(path: str) -> bool:
    """Whether an output file of this name is a NumPy array; others have lines of JSON."""
    return path.endswith(".npy")


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


def with_errors(lines: bytes, first_number: int, errors: Iterable[Any]) -> bytes:
    """Lines of JSON, with those replaced that have an error: {"error": why}, or a false value."""
    return b"".join(_lines([{"linex_index": number, **error}]) if error else line for number, (line, error)
                    in enumerate(zip(lines.splitlines(keepends=True), errors), first_number))


def _rounded(states: np.ndarray) -> List[Any]:
    # Exact: a float32 times 10^6 has at most 38 bits, so this is Python's round().
    return np.round(states.astype(np.float64), _DIGITS).tolist()


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode("ascii")
