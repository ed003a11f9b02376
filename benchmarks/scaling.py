"""What the links allow, on paper: step time and efficiency of training on 1 to 64 cards.

  python -m benchmarks.scaling

prints the tables of benchmarks/scaling.md, in minutes. A model, not a measurement: one card's time is
counted in the real graph (`benchmarks/step_cost.py`); formulas say what crosses the links.
"""

from typing import Any, List, NamedTuple, Optional

from benchmarks import report, step_cost
from benchmarks.step_graph import Workload

BATCH, LENGTH = 32, 128  # examples on each card, tokens in each
MACHINE = 8  # cards
CARD = step_cost.CARDS["V100"]
INDEX_BYTES = 8
LAUNCH = 8.4e-6  # seconds that an all-reduce takes whatever its size and members
UPDATE_BYTES = 28  # for a parameter: gradient, weight and moments read, three of them written


class Shape(NamedTuple):
    """A BERT with a feed-forward width of 4 * hidden, 512 positions, 2 types and 2 labels."""
    name: str
    layers: int
    hidden: int
    vocab_size: int = 30522


class Link(NamedTuple):
    """`effective`: bytes/s in one direction, as assumed; `hop`: seconds of latency in a ring."""
    name: str
    effective: float
    hop: float


class Setting(NamedTuple):
    """What trains on each V100."""
    shape: Shape
    precision: str = "float32"
    gradient_bytes: int = 4  # of a value; 2 with --gradient_transfer=float16

    @property
    def name(self) -> str:
        transfer = "" if self.gradient_bytes == 4 else " and transfer in float16"
        return f"{self.shape.name}, {self.precision}{transfer}"
BASE, LARGE = Shape("BERT-base", 12, 768), Shape("BERT-large", 24, 1024)
SETTINGS = [Setting(shape, precision, gradient_bytes) for shape in (BASE, LARGE)
            for precision, gradient_bytes in (("float32", 4), ("float16", 4), ("float16", 2))]
NVLINK, PCIE = Link("NVLink", 120e9, 3.4e-6), Link("PCIe 3.0 ×16", 10e9, 5.7e-6)
NETWORKS = [Link(name, effective, 14e-6) for name, effective in (
    ("10 Gb/s", 1.1e9), ("25 Gb/s", 1.9e9), ("100 Gb/s", 5e9), ("100 Gb/s RDMA", 12e9))]
Network = Optional[Link]  # between machines; None where there is one


def our_flops(shape: Shape, length: int = LENGTH, outputs: int = 1) -> float:
    """Operations per example, forward and backward (twice the forward pass), 2 for a multiply-add.

    In a layer 24 T D^2 for projections and feed-forward, whose 12 D^2 weights every token meets,
    and 4 T^2 D for the scores and the weighted sum of the values. Of the last layer only what the
    heads read, by default `BertModel.pool`: keys and values of all tokens, the rest of `outputs`.
    """
    d = shape.hidden
    layer = 24 * length * d**2 + 4 * length**2 * d
    last = 4 * length * d**2 + outputs * (20 * d**2 + 4 * length * d)
    return 3 * ((shape.layers - 1) * layer + last)


def bucket_values(shape: Shape) -> List[int]:
    """Values of the gradients' buckets, in the order in which they are there: layers, and the rest.

    The word embeddings' gradient is not among them: it crosses as rows.
    """
    d = shape.hidden
    return [12 * d**2 + 13 * d] * shape.layers + [(512 + 2) * d + 2 * d + d**2 + d + 2 * d + 2]


def all_reduce_seconds(size: float, cards: int, inside: Link, network: Network = None) -> float:
    """Of `size` bytes on each of N cards, in a ring: each card sends 2 (N - 1) / N times the bytes.

    Over M machines the ring passes each machine's network link once, with all bytes; 2 M of its
    2 (N - 1) steps are between machines (NCCL's tuning.cc).
    """
    machines = max(1, cards // MACHINE)
    links, between = ([inside, network], 2 * machines) if machines > 1 else ([inside], 0)
    hops = (2 * (cards - 1) - between) * inside.hop + between * links[-1].hop
    slowest = min(link.effective for link in links)
    return LAUNCH + hops + 2 * (cards - 1) / cards * size / slowest


def rows_seconds(setting: Setting, cards: int, inside: Link, network: Network = None) -> float:
    """Until each card has the rows of the word embeddings' gradient of all others.

    Between machines they are added up, as a dense gradient.
    """
    row = setting.shape.hidden * setting.gradient_bytes
    if cards <= MACHINE:
        return (cards - 1) * BATCH * LENGTH * (row + INDEX_BYTES) / inside.effective
    return all_reduce_seconds(setting.shape.vocab_size * row, cards, inside, network)


def alone_seconds(setting: Setting) -> float:
    """A step on one card."""
    _, layers, hidden, _ = setting.shape
    return CARD.seconds(step_cost.step_costs(Workload(
        layers, hidden, BATCH, LENGTH, precision=setting.precision)), setting.precision)


def step_seconds(setting: Setting, cards: int, inside: Link, network: Network = None) -> float:
    """A step on several cards: a bucket crosses while the layers beneath are computed.

    The backward pass takes two thirds of the step without its update, as much for each bucket. The
    rows cross last; then comes the update.
    """
    alone = alone_seconds(setting)
    if cards == 1:
        return alone
    sizes = bucket_values(setting.shape)
    parameters = sum(sizes) + setting.shape.vocab_size * setting.shape.hidden
    update = UPDATE_BYTES * parameters / (step_cost.MEMORY_SHARE * CARD.memory)
    link_is_free = 0.0
    for number, size in enumerate(sizes, 1):
        ready = (alone - update) * (1 / 3 + 2 / 3 * number / len(sizes))
        link_is_free = max(ready, link_is_free) + all_reduce_seconds(
            size * setting.gradient_bytes, cards, inside, network)
    return link_is_free + rows_seconds(setting, cards, inside, network) + update


def efficiency(setting: Setting, *cards_and_links: Any) -> float:
    """Throughput over that of as many cards without communication."""
    return alone_seconds(setting) / step_seconds(setting, *cards_and_links)


def results_table(networks: List[Network], counts: List[int]) -> str:
    """Step time in ms and efficiency, by card count, over both links inside a machine."""
    def cell(*at: Any) -> str:
        return f"{1e3 * step_seconds(*at):,.0f}, {efficiency(*at):.0%}"
    return report.table([{
        "ms, efficiency": ", ".join(part.name for part in (setting, network) if part),
        **{f"{inside.name}: {n}": cell(setting, n, inside, network)
           for inside in (NVLINK, PCIE) for n in counts}}
        for setting in SETTINGS for network in networks])


if __name__ == "__main__":
    report.parser_of(__doc__).parse_args()
    print(results_table([None], [1, 2, 4, 8]), results_table(NETWORKS, [16, 32, 64]), sep="\n\n")
