"""The vectors of all texts of a set, in memory that does not grow with the set."""

import contextlib
import os
from typing import Iterator, Optional, Union

import numpy as np

from engine.data.batches import Source
from engine.data.store import open_array
from engine.disk import files
from runs.capability import Predict

_TEXTS = 1 << 14  # whose vectors are in memory at a time
_FILE = "vectors"


class Rows:
    """Vectors of length 1, copied out of a matrix as they are asked for.

    Args:
        matrix: float32 [m, D]; may be mapped from a file.
        size: the number of components, the first ones.
        numbers: which rows; None: all.
    """

    def __init__(self, matrix: np.ndarray, size: int, numbers: Optional[np.ndarray] = None):
        self._matrix, self._size = matrix, size
        self._numbers = np.arange(len(matrix)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Union[slice, np.ndarray]) -> np.ndarray:
        return shortened(self._matrix[self._numbers[index]], self._size)

    def of(self, numbers: np.ndarray) -> "Rows":
        """Some of the rows."""
        return Rows(self._matrix, self._size, self._numbers[numbers])


def shortened(vectors: np.ndarray, size: int) -> np.ndarray:
    """The first components of vectors [..., D], as vectors [..., size] of norm 1."""
    if size == vectors.shape[-1]:
        return vectors
    norms = np.linalg.norm(vectors[..., :size], axis=-1, keepdims=True)
    return vectors[..., :size] / np.maximum(norms, 1e-12)


@contextlib.contextmanager
def predicted(source: Source, predict: Predict, output_dir: str) -> Iterator[np.ndarray]:
    """Yields the vectors of all texts of a source, float32 [n, D], in their order.

    The vectors of a large set are memory-mapped from a temporary file in the output directory.
    """
    count = len(source.lengths)
    if count <= _TEXTS:
        yield predict(source)["vectors"]
        return
    with files.beside(os.path.join(output_dir, _FILE)) as folder:
        with open(os.path.join(folder, _FILE), "wb") as file:
            for start in range(0, count, _TEXTS):
                file.write(predict(source.subset(slice(start, start + _TEXTS)))["vectors"].tobytes())
        yield open_array(folder, _FILE, "float32").reshape(count, -1)
