"""The machine's cards, from the driver, and diagnosis if TensorFlow sees none.

Asks nvidia-smi, which does not open the cards. Knows nothing of replicas.
"""

import ctypes
import os
import re
import subprocess
from typing import Dict, List, NamedTuple, Optional, Sequence

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

    Parts of cards (MIG) are left to TensorFlow.
    """
    cards = on_machine()
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return cards
    named = []
    for name in value.split(","):
        card = _named(name.strip(), cards)
        if card is None:  # CUDA, too, ignores this name and all after it
            break
        named.append(card)
    return named


def in_use(num_gpus: int) -> List[Card]:
    """The first `num_gpus` of the visible cards, or fewer if they cannot be identified."""
    cards = visible()
    if len(cards) < num_gpus:  # for example without nvidia-smi
        cards = [Card(name, compute_capability=capability)
                 for name, capability in runtime.visible_gpu_details()]
    return cards[:num_gpus]


def memory_mb(num_gpus: int) -> List[int]:
    """The memory of each card in use, in MB. TensorFlow cannot tell before it allocates it.

    Raises:
        UserError: nvidia-smi does not say how much memory there is.
    """
    memories = [card.memory_mb for card in in_use(num_gpus)]
    if len(memories) < num_gpus or None in memories:
        raise UserError("--replicas_per_gpu shares out a card's memory, and nvidia-smi does not "
                        "say how much there is; use --replicas_per_gpu=1")
    return memories


def check_seen() -> None:
    """Raises a UserError if the machine has cards and TensorFlow sees none of them.

    Accepts a CUDA_VISIBLE_DEVICES that hides all cards ("" or "-1").
    """
    if runtime.visible_gpu_count() or not _are_wanted():
        return
    cards = on_machine()
    if not cards:
        return
    raise UserError(
        f"TensorFlow {tf.VERSION} sees none of this machine's GPUs ({names(cards)}): "
        f"{'; '.join(_obstacles(cards))}; or set --num_gpus=0 to use the CPU, which is many times "
        "slower")


def check_code(cards: Sequence[Card]) -> List[str]:
    """Raises a UserError if TensorFlow has no code for one of the cards.

    Returns:
        The names of the cards for which CUDA must compile TensorFlow's code first.
    """
    compiled = []
    for card in cards:
        code = card.compute_capability and runtime.code_for(card.compute_capability)
        if code == "":
            raise UserError(
                f"TensorFlow {tf.VERSION} has no code for {card.name} (compute capability "
                f"{_number(card.compute_capability)}): {runtime.other_builds()}")
        if code == "source":
            compiled.append(f"{card.name} (compute capability {_number(card.compute_capability)})")
    return list(dict.fromkeys(compiled))


def names(cards: Sequence[Card]) -> str:
    """Describes cards: '2 x NVIDIA A100-SXM4-40GB, Tesla V100-SXM2-16GB'."""
    counts: Dict[str, int] = {}
    for card in cards:
        counts[card.name] = counts.get(card.name, 0) + 1
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def missing_libraries(libraries: Sequence[str]) -> List[str]:
    """The libraries that neither the system's loader nor TensorFlow finds."""
    return [name for name in libraries
            if not runtime.libraries_beside_tensorflow(name) and not _is_loadable(name)]


def _obstacles(cards: Sequence[Card]) -> List[str]:
    """The reasons why TensorFlow cannot use the cards, each with its remedy."""
    if not visible() and "MIG-" not in os.environ["CUDA_VISIBLE_DEVICES"]:
        return [f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r} names none of them; "
                f"it takes numbers from 0 to {len(cards) - 1} or what nvidia-smi -L shows"]
    needs, obstacles = runtime.cuda_needs(), []
    if not tf.test.is_built_with_cuda():
        return [f"it was built for the CPU alone; {needs.remedy}"]
    driver = _query("driver_version").split("\n")[0]
    if driver.split(".")[0].isdigit() and int(driver.split(".")[0]) < needs.least_driver:
        obstacles.append(f"the driver {driver} is older than {needs.least_driver}; install a later one")
    if not _is_loadable("libcuda.so.1"):
        obstacles.append("the driver's libcuda.so.1 is not found; a container needs --gpus=all and "
                         "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    missing = missing_libraries(needs.libraries)
    if missing:
        obstacles.append(f"{', '.join(missing)} not found; {needs.remedy}")
    return obstacles or ["nothing is missing that we know of; TF_CPP_MIN_LOG_LEVEL=0 in front of "
                         "the command shows what TensorFlow says"]


def _are_wanted() -> bool:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return value is None or bool(value.strip()) and not value.strip().startswith("-")


def _named(name: str, cards: Sequence[Card]) -> Optional[Card]:
    """The card that CUDA_VISIBLE_DEVICES names by its number, its UUID or the start of its UUID."""
    if name.isdigit():
        return cards[int(name)] if int(name) < len(cards) else None
    named = [card for card in cards if name and card.uuid.startswith(name)]
    return named[0] if len(named) == 1 else None


def _card(name: str, uuid: str, memory: str, capability: str = "") -> Card:
    match = re.fullmatch(r"(\d+)\.(\d+)", capability)
    return Card(name, uuid, int(memory) if memory.isdigit() else None,
                (int(match.group(1)), int(match.group(2))) if match else None)


def _number(capability: runtime.ComputeCapability) -> str:
    return "{}.{}".format(*capability)


def _query(fields: str) -> str:
    """A line with these fields for each card; empty if nvidia-smi is missing or does not know one."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    except OSError:
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
