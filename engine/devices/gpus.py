"""The machine's cards, from the driver.

Asks nvidia-smi, which does not open the cards. Knows nothing of replicas.
"""

import collections
import itertools
import os
import subprocess
from typing import List, NamedTuple, Optional, Sequence

from engine import log
from engine.devices import runtime
from engine.errors import UserError

import tensorflow.compat.v1 as tf


class Card(NamedTuple):
    """A card."""
    name: str
    uuid: str = ""
    memory_mb: Optional[int] = None  # None: unknown
    compute_capability: Optional[runtime.ComputeCapability] = None


def on_machine() -> List[Card]:
    """All cards, in bus order; empty without a driver."""
    fields = "name,uuid,memory.total"
    # Drivers before 510 do not tell the compute capability.
    answer = _query(f"{fields},compute_cap") or _query(fields)
    return [_card(*line.split(", ")) for line in answer.splitlines() if ", GPU-" in line]


def visible() -> List[Card]:
    """The cards that CUDA_VISIBLE_DEVICES names, in its order; all of them if it is not set.

    Parts of cards (MIG) and shortened UUIDs are left to TensorFlow.
    """
    cards, value = on_machine(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return cards
    by_name = {**{card.uuid: card for card in cards},
               **{str(number): card for number, card in enumerate(cards)}}
    named = [by_name.get(name.strip()) for name in value.split(",")]
    return list(itertools.takewhile(bool, named))  # CUDA, too, ignores all after an unknown one


def visibility() -> str:
    """Which cards CUDA_VISIBLE_DEVICES shows, for a message."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "CUDA_VISIBLE_DEVICES is not set" if value is None else f"CUDA_VISIBLE_DEVICES={value!r}"


def memory_mb(num_gpus: int) -> List[int]:
    """The memory of each card in use, in MB. TensorFlow cannot tell before it allocates it."""
    memories = [card.memory_mb for card in visible()[:num_gpus]]
    if len(memories) < num_gpus or None in memories:
        raise UserError("--replicas_per_gpu shares out a card's memory, and nvidia-smi does not "
                        "say how much there is; use --replicas_per_gpu=1")
    return memories


def are_hidden() -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides all cards, as "" and "-1" do."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip()
    return not wanted or wanted.startswith("-")


def check_seen(flag: str = "--num_gpus") -> None:
    """Raises a UserError if the machine has cards that are not hidden, and TensorFlow sees none, or not the first ones.

    The message names `flag`.
    """
    numbers = runtime.gpu_numbers()
    if numbers != list(range(len(numbers))):  # sessions would count the cards that it passes over
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(max(numbers) + 1)))).split(",")
        raise UserError(
            f"TensorFlow passes over a GPU in front of those that it uses, which is smaller or too old ({names(visible())}; "
            f"{visibility()}): hide it, CUDA_VISIBLE_DEVICES={','.join(shown[number] for number in numbers)}")
    if runtime.visible_gpu_count() or are_hidden():
        return
    cards = on_machine()
    if cards:
        raise UserError(
            f"TensorFlow {tf.VERSION} sees none of this machine's GPUs ({names(cards)}; "
            f"{visibility()}): {runtime.GPU_NEEDS}; TF_CPP_MIN_LOG_LEVEL=0 in front of the command "
            f"shows what TensorFlow says; or set {flag}=0 to use the CPU, which is many times slower")


def check_code(cards: Sequence[Card]) -> None:
    """Logs that CUDA must first compile TensorFlow's code for some cards."""
    compiled = [card for card in cards if card.compute_capability
                and runtime.check_code(card.name, card.compute_capability)]
    if compiled:
        log.info(f"TensorFlow {tf.VERSION} has no machine code for {names(compiled)}: CUDA compiles "
                 "it at the first start, for many minutes, and keeps it for later ones")


def names(cards: Sequence[Card]) -> str:
    """Describes cards: '2 x NVIDIA A100-SXM4-40GB, Tesla V100-SXM2-16GB'."""
    counts = collections.Counter(card.name for card in cards)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _card(name: str, uuid: str, memory: str, capability: str = "") -> Card:
    major, _, minor = capability.partition(".")
    return Card(name, uuid, int(memory) if memory.isdigit() else None,
                (int(major), int(minor)) if minor.isdigit() else None)


def _query(fields: str) -> str:
    """A line with these fields for each card; empty if nvidia-smi is missing or does not know one."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    except OSError:
        return ""
    return answer.stdout if answer.returncode == 0 else ""
