"""The throughput of a training: FLOP/s, MFU and peak memory.

Counts the FLOPs that the model needs, not those that a device executes: only matrix products, a
multiplication and an addition each, without padding, recomputation and the optimizer. This is the
model FLOPs utilization, MFU, of Chowdhery et al., "PaLM" (https://arxiv.org/abs/2204.02311),
appendix B.
"""

import math
import re
import resource
import sys
from typing import Callable, Dict, NamedTuple, Optional, Sequence, Union

import numpy as np

from engine.devices import runtime
from engine.devices.devices import Devices
from modeling import BertConfig

# Lengths of examples, in tokens, [n] -> FLOPs of a training on them.
Operations = Callable[[np.ndarray], float]

# Kaplan et al., "Scaling Laws for Neural Language Models" (https://arxiv.org/abs/2001.08361),
# section 2.1: the backward pass takes twice the FLOPs of the forward pass.
FORWARD_AND_BACKWARD = 3


class Throughput:
    """TFLOP/s, MFU and peak memory of a run on its devices.

    Args:
        precision: of matrix products.
    """

    def __init__(self, devices: Devices, precision: str):
        self._devices = devices
        self._peak = peak(devices, precision)

    def values(self, operations_per_second: float) -> Dict[str, float]:
        """model_tflops, in TFLOP/s, and peak_share (MFU), if known."""
        if not operations_per_second:
            return {}
        share = {"peak_share": operations_per_second / self._peak} if self._peak else {}
        return {"model_tflops": operations_per_second / 1e12, **share}

    def describe(self, operations_per_second: float) -> str:
        """The same for a log line: ", 57.1 TFLOP/s (18 % of the peak)"; empty if unknown."""
        values = self.values(operations_per_second)
        if not values:
            return ""
        share = f" ({values['peak_share']:.0%} of the peak)" if "peak_share" in values else ""
        return f", {values['model_tflops']:.3g} TFLOP/s{share}"

    def peak_memory_gb(self) -> Dict[str, float]:
        """peak_memory_gb, the peak memory in 10^9 bytes, if known.

        On cards: the highest peak of any card. On the CPU: the peak of the process.
        """
        if self._devices.kind == "CPU":
            return {"peak_memory_gb": _memory_of_process() / 1e9}
        used = runtime.peak_gpu_memory(len(self._devices.names))
        return {"peak_memory_gb": used / 1e9} if used else {}


class _Peak(NamedTuple):
    """A card's TFLOP/s in dense products, by NVIDIA's data sheets; 0: no such units."""
    float32: float
    tf32: float  # 0: TensorFlow's default is float32
    float16: float
    bfloat16: float


# By a regular expression for the card's name; the first that matches counts.
_PEAKS = {
    "H100 PCIe": _Peak(51.2, 378, 756, 756),
    "H100 NVL": _Peak(60.0, 418, 835, 835),
    "GH200|H100|H200": _Peak(66.9, 495, 989, 989),
    "A100": _Peak(19.5, 156, 312, 312),
    r"A30\b": _Peak(10.3, 82, 165, 165),
    r"A40\b": _Peak(37.4, 74.8, 150, 150),
    r"A10\b": _Peak(31.2, 62.5, 125, 125),
    "L40S": _Peak(91.6, 183, 362, 362),
    r"L4\b": _Peak(30.3, 60, 121, 121),
    "V100.*PCI": _Peak(14.0, 0, 112, 0),
    "V100": _Peak(15.7, 0, 125, 0),
    r"T4\b": _Peak(8.1, 0, 65, 0),
    "P100": _Peak(9.3, 0, 18.7, 0),
    # With sums in float32, as in training, which are slower on gaming cards.
    "RTX 4090": _Peak(82.6, 82.6, 165, 165),
    "RTX 3090": _Peak(35.6, 35.6, 71, 71),
}


def encoder_forward(config: BertConfig, lengths: np.ndarray,
                    outputs: Union[float, np.ndarray] = math.inf) -> float:
    """FLOPs of the encoder's and the pooler's forward pass.

    After Kaplan et al., table 1: a layer takes 2 (4 D^2 + 2 D I) for each token and 4 T D for its
    attention to T tokens, with hidden size D and intermediate size I.

    Args:
        lengths: tokens of each example, [n].
        outputs: positions of an example for which the last layer's output is computed.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    lengths = np.asarray(lengths, np.float64)

    def layer(queries: np.ndarray) -> np.ndarray:
        keys_and_values = 2 * lengths * 2 * hidden ** 2
        of_queries = 2 * queries * (2 * hidden ** 2 + 2 * hidden * inner)
        return keys_and_values + of_queries + 4 * queries * lengths * hidden

    last = layer(np.minimum(outputs, lengths))
    pooler = 2 * hidden ** 2
    return float(((config.num_hidden_layers - 1) * layer(lengths) + last + pooler).sum())


def classifier(config: BertConfig) -> Operations:
    """FLOPs of a classifier's training, which reads only the first position."""
    return lambda lengths: FORWARD_AND_BACKWARD * encoder_forward(config, lengths, outputs=1)


def masked_words_forward(config: BertConfig, num_words: float) -> float:
    """FLOPs of the masked-LM head's forward pass for `num_words` words."""
    return num_words * 2 * config.hidden_size * (config.hidden_size + config.vocab_size)


def finite_mean(values: Sequence[float]) -> float:
    """The mean of the finite values; NaN if there are none. Skipped steps have other values."""
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite, dtype=np.float64)) if finite else math.nan


def peak(devices: Devices, of_precision: str) -> Optional[float]:
    """The peak FLOP/s of all cards of a run; None if a card is unknown.

    Counts the cards of other machines like this one's.
    """
    total = 0.0
    for card in devices.cards_in_use:
        known = next((_PEAKS[name] for name in _PEAKS if re.search(name, card.name)), None)
        if known is None or "MIG" in card.name:  # a part of a card
            return None
        total += (getattr(known, of_precision) or known.float32) * 1e12
    return total * len(devices.peers.cluster.addresses) or None


def _memory_of_process() -> int:
    """The peak memory of the process, in bytes."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes // 1024 if sys.platform == "darwin" else kilobytes * 1024
