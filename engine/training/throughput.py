"""The throughput of a training: model FLOP/s, and their share of the cards' peak (MFU).

Counts the FLOPs that the encoder needs, not those that a device executes: only matrix products, a
multiplication and an addition each, of real tokens, without recomputation, heads and the optimizer
(Chowdhery et al., "PaLM", https://arxiv.org/abs/2204.02311, appendix B).
"""

import re
from typing import Dict, NamedTuple, Optional

import numpy as np

from engine.devices.devices import Devices
from modeling import BertConfig


class _Peak(NamedTuple):
    """A card's TFLOP/s in dense products by NVIDIA's data sheets, 0 for no such units."""
    float32: float
    tf32: float  # 0: TensorFlow's default is float32
    float16: float
    bfloat16: float


# By a regular expression for the card's name; the first that matches counts.
_PEAKS = {
    "H100 PCIe": _Peak(51.2, 378, 756, 756),
    "H100 NVL": _Peak(60.0, 418, 835, 835),
    "H100|H200": _Peak(66.9, 495, 989, 989),
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


class Throughput(NamedTuple):
    """Converts examples/s into FLOP/s, and into the share of the cards' peak."""
    flops_per_example: float = 0.0  # the mean over the train set; 0: unknown
    peak: Optional[float] = None  # FLOP/s of all cards; None: unknown

    def values(self, examples_per_second: float) -> Dict[str, float]:
        """model_tflops, in TFLOP/s, and peak_share (MFU), as far as they are known."""
        reached = self.flops_per_example * examples_per_second
        share = {"peak_share": reached / self.peak} if reached and self.peak else {}
        return {"model_tflops": reached / 1e12, **share} if reached else {}

    def describe(self, examples_per_second: float) -> str:
        """The same for a log line: ", 57.1 TFLOP/s (18% of the peak)"; empty if unknown."""
        values = self.values(examples_per_second)
        if not values:
            return ""
        share = f" ({values['peak_share']:.0%} of the peak)" if "peak_share" in values else ""
        return f", {values['model_tflops']:.3g} TFLOP/s{share}"


def flops_of_training(config: BertConfig, lengths: np.ndarray, num_frozen: int = 0) -> np.ndarray:
    """FLOPs of a training on examples of so many tokens, [n].

    A layer takes 2 (4 D^2 + 2 D I) for each token and 4 T D for its attention to T tokens, with
    hidden size D and intermediate size I; the backward pass twice as many (Kaplan et al., "Scaling
    Laws for Neural Language Models", https://arxiv.org/abs/2001.08361, section 2.1 and table 1).
    The `num_frozen` lowest layers have no backward pass.
    """
    hidden, lengths = config.hidden_size, np.asarray(lengths, np.float64)
    per_token = 2 * (4 * hidden ** 2 + 2 * hidden * config.intermediate_size) + 4 * lengths * hidden
    return (3 * config.num_hidden_layers - 2 * num_frozen) * lengths * per_token


def peak(devices: Devices, precision: str) -> Optional[float]:
    """The peak FLOP/s of all cards of a run; None if a card is unknown.

    Takes other machines' cards to be like this one's.
    """
    total = 0.0
    for card in devices.cards_in_use:
        known = _listed(card.name)
        if known is None:
            return None
        total += (getattr(known, precision) or known.float32) * 1e12
    return total * len(devices.peers.cluster.addresses) or None


def _listed(name: str) -> Optional[_Peak]:
    if "MIG" in name:  # a part of a card
        return None
    return next((_PEAKS[known] for known in _PEAKS if re.search(known, name)), None)
