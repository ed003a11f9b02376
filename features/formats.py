"""Features in files: Google's JSON lines, JSON lines with a vector each, and NumPy's arrays."""

import json
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Union

import numpy as np

_DIGITS = 6  # after the point, as in Google's


def is_array(path: str) -> bool:
    """Whether an output file of this name is a NumPy array; others have lines of JSON."""
    return path.endswith(".npy")


def tokens(tokens_of_texts: Iterable[List[str]], states: np.ndarray, layers: Sequence[int]
           ) -> Iterator[Dict[str, Any]]:
    """A JSON object for each text, with the states of each token, like Google's.

    Args:
        states: [n, t, layers x D], with padding.
    """
    for of_text, values in zip(tokens_of_texts, states):
        values = _rounded(values[:len(of_text)].reshape(len(of_text), len(layers), -1))
        yield {"features": [
            {"token": token, "layers": [{"index": layer, "values": of_layer}
                                        for layer, of_layer in zip(layers, of_token)]}
            for token, of_token in zip(of_text, values)]}


def vectors(states: np.ndarray) -> Iterator[Dict[str, Any]]:
    """A JSON object for each text, with its vector."""
    return ({"values": values} for values in _rounded(states))


def json_line(number: int, text: Any, entry: Union[Dict[str, Any], str]) -> str:
    """A line for the text of this number, from 0 in the whole input; `entry` may be an error."""
    entry = {"error": entry} if isinstance(entry, str) else entry
    return json.dumps({"linex_index": number, **entry}) + "\n"


def _rounded(states: np.ndarray) -> List[Any]:
    # Exact: a float32 times 10^6 has at most 38 bits, so this is Python's round().
    return np.round(states.astype(np.float64), _DIGITS).tolist()
