"""What the links allow, on paper: step time and efficiency of training on 1 to 64 cards.

  python -m benchmarks.scaling

rewrites benchmarks/scaling.md, in a minute or two. A model, not a measurement: the operations of
the real graph, played on compute streams and links (`benchmarks/schedule.py`) at published speeds.
"""

import functools
import math
import os
from typing import Dict, List, NamedTuple, Optional

from benchmarks import schedule, step_cost, step_graph
from engine.disk import files

import tensorflow.compat.v1 as tf

RESULT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scaling.md")
TEMPLATE = os.path.join(os.path.dirname(RESULT), "scaling_template.md")
BATCH, LENGTH = 32, 128  # examples on each card, tokens in each
MACHINE = 8  # cards
INDEX_BYTES = 8
GRADIENT_BYTES = 4  # of a value, unless --gradient_transfer=float16
LAUNCH = 8.4e-6  # seconds that an all-reduce takes whatever its size and members


class Shape(NamedTuple):
    """A BERT with a feed-forward width of 4 * hidden, 512 positions, 2 types and 2 labels."""
    name: str
    layers: int
    hidden: int
    vocab_size: int = 30522


class Link(NamedTuple):
    """`line` by specification and `effective` as assumed, bytes/s in one direction."""
    name: str
    line: float
    effective: float
    hop: float  # latency of a step of a ring, seconds
    why: str


class Precision(NamedTuple):
    """A card, a V100 if no other is named, and the precision of the encoder's matrix products."""
    name: str
    card: str  # a key of step_cost.CARDS
    precision: str
    transfer: tf.DType = tf.float32  # of gradients

    @property
    def rates(self) -> step_cost.Rates:
        return step_cost.CARDS[self.card].rates(self.precision)


class Traffic(NamedTuple):
    """Bytes that one card contributes to a step."""
    dense: float
    rows: float


class Step(NamedTuple):
    seconds: float
    efficiency: float  # throughput over that of as many cards without communication


BASE, LARGE = Shape("BERT-base", 12, 768), Shape("BERT-large", 24, 1024)

NVLINK = Link("NVLink", 150e9, 120e9, 3.4e-6, "V100, six links of 25 GB/s, less the 20% that the "
              "protocol takes (nccl-tests issue 212, on a later NVLink)")
PCIE = Link("PCIe 3.0 ×16", 15.75e9, 10e9, 5.7e-6, "found: 4.9 GB/s (4 cards, nccl issue 445, "
            "wiring not given) and 11 GB/s (2 cards, mxnet issue 4062)")
SLOW_PCIE = PCIE._replace(effective=5e9)
NETWORKS = [
    Link("10 Gb/s", 1.25e9, 1.1e9, 14e-6, "88% of the line, as was had of 1 Gb/s with TCP (gloo "
         "issue 21)"),
    Link("25 Gb/s", 3.125e9, 1.9e9, 14e-6, "60% of the line, the most that was reliably had of 32 "
         "Gb/s with TCP (nccl issue 209)"),
    Link("100 Gb/s", 12.5e9, 5e9, 14e-6, "4 – 6 GB/s with TCP between machines of 8 × V100 (nccl "
         "issue 450)"),
    Link("100 Gb/s RDMA", 12.5e9, 12e9, 14e-6, "12.2 GB/s is as good as it gets, on InfiniBand "
         "(nccl-tests issue 29)"),
]


def layer_flops(shape: Shape, length: int) -> float:
    """Operations of a layer's forward pass on one example, 2 for a multiply-add.

    24 T D^2 for projections and feed-forward, whose 12 D^2 weights every token meets;
    4 T^2 D for the scores and the weighted sum of the values.
    """
    return 24 * length * shape.hidden**2 + 4 * length**2 * shape.hidden


def usual_flops(shape: Shape, length: int = LENGTH) -> float:
    """Operations per example, forward and backward (twice the forward pass), all layers whole."""
    return 3 * shape.layers * layer_flops(shape, length)


def our_flops(shape: Shape, length: int = LENGTH, outputs: int = 1) -> float:
    """As `usual_flops`, but of the last layer only what the heads read, by default `BertModel.pool`.

    Keys and values of all tokens; query, output and feed-forward of `outputs` of them.
    """
    d = shape.hidden
    last = 4 * length * d**2 + outputs * (20 * d**2 + 4 * length * d)
    return 3 * ((shape.layers - 1) * layer_flops(shape, length) + last)


P40 = Precision("fp32 on P40", "P40", "float32")
FLOAT32 = Precision("fp32", "V100", "float32")
FLOAT16 = Precision("fp16", "V100", "float16")
HALF_TRANSFER = FLOAT16._replace(name="fp16 and float16 transfer", transfer=tf.float16)
SETTINGS = [(shape, precision) for shape in (BASE, LARGE)
            for precision in (FLOAT32, FLOAT16, HALF_TRANSFER)]


def dense_values(shape: Shape) -> int:
    """Values of all parameters of a classifier but the word embeddings."""
    d = shape.hidden
    embeddings = (512 + 2) * d + 2 * d
    return embeddings + shape.layers * (12 * d**2 + 13 * d) + d**2 + d + 2 * d + 2


def traffic(shape: Shape, value_bytes: int = GRADIENT_BYTES, *, batch: int = BATCH,
            length: int = LENGTH, gather_rows: bool = True) -> Traffic:
    """What a card contributes; without `gather_rows` the embeddings' gradient is a dense one."""
    dense = dense_values(shape) * value_bytes
    if gather_rows:
        return Traffic(dense, batch * length * (shape.hidden * value_bytes + INDEX_BYTES))
    return Traffic(dense + shape.vocab_size * shape.hidden * value_bytes, 0)


def pool_bytes(shape: Shape, cards: int, batch: int, texts: int = 2) -> float:
    """Of the buffer in which cards gather the vectors of a step, for texts that are trained together.

    A vector, a hash of two values for each text, a score: each card adds its rows to zeros.
    """
    return 4 * cards * batch * (texts * (shape.hidden + 2) + 1)


def ring_seconds(size: float, members: int, bandwidth: float) -> float:
    """Ring all-reduce: each member sends and receives 2 (n - 1) / n times the bytes."""
    return 2 * (members - 1) / members * size / bandwidth


def all_reduce_seconds(size: float, cards: int, inside: Link,
                       network: Optional[Link] = None) -> float:
    """Of `size` bytes on each card, in one ring of all cards.

    Over M machines the ring passes each machine's network link once, with all bytes; 2 M of its
    2 (N - 1) steps are between machines (NCCL's tuning.cc).
    """
    machines = max(1, cards // MACHINE)
    links, between = ([inside, network], 2 * machines) if machines > 1 else ([inside], 0)
    return (LAUNCH + (2 * (cards - 1) - between) * inside.hop
            + (between * network.hop if between else 0)
            + ring_seconds(size, cards, min(link.effective for link in links)))


def gather_seconds(part: float, cards: int, inside: Link) -> float:
    """Until each card of a machine has the parts of all others, of so many bytes."""
    return (cards - 1) * part / inside.effective


def communication_seconds(moved: Traffic, cards: int, inside: Link) -> float:
    """In one machine: dense gradients in one all-reduce, and rows, one after the other."""
    return all_reduce_seconds(moved.dense, cards, inside) + gather_seconds(moved.rows, cards, inside)


def tensorflow_seconds(moved: Traffic, cards: int, link: Link, *, nccl: bool) -> float:
    """As MirroredStrategy's own reduction of TensorFlow 1.15 moves it (cross_device_ops.py).

    Rows are joined on one card, which sends all of them to each; without NCCL dense gradients
    go to that card and back, too.
    """
    rows = (cards - 1) * (1 + cards) * moved.rows / link.effective
    if nccl:
        return rows + ring_seconds(moved.dense, cards, link.effective)
    return rows + 2 * (cards - 1) * moved.dense / link.effective


@functools.lru_cache(maxsize=None)
def units(shape: Shape, precision: Precision, cards: int, length: int) -> List[schedule.Unit]:
    """What a training step starts on one card, or on several."""
    return schedule.units_of_step(step_graph.Workload(
        shape.layers, shape.hidden, BATCH, length, cards=cards, precision=precision.precision,
        transfer=precision.transfer.name))


@functools.lru_cache(maxsize=None)
def seconds_alone(shape: Shape, precision: Precision, length: int) -> float:
    """A step on one card, where gradients keep their type."""
    alone = precision._replace(transfer=tf.float32)
    return schedule.play(units(shape, alone, 1, length), schedule.Rates(precision.rates))


@functools.lru_cache(maxsize=None)
def step(shape: Shape, precision: Precision, cards: int, inside: Link,
         network: Optional[Link] = None, *, length: int = LENGTH) -> Step:
    """Our step, played.

    Between machines the rows of the word embeddings are added up in a ring, as a dense gradient:
    here there are always too many of them to be gathered (`gradient_exchange.py`).
    """
    def gather(part: float) -> float:
        if cards <= MACHINE:
            return gather_seconds(part, cards, inside)
        whole = shape.vocab_size * shape.hidden * precision.transfer.size
        rows = traffic(shape, precision.transfer.size, length=length).rows
        return part / rows * all_reduce_seconds(whole, cards, inside, network)

    alone = seconds_alone(shape, precision, length)
    if cards == 1:
        return Step(alone, 1.0)
    seconds = schedule.play(units(shape, precision, 2, length), schedule.Rates(
        precision.rates, cards if cards <= MACHINE else 1,
        lambda size: all_reduce_seconds(size, cards, inside, network), gather))
    return Step(seconds, alone / seconds)


def gain(setting, cards: int, inside: Link, network: Optional[Link], times: int = 2) -> float:
    """Throughput of `times` as many cards over that of `cards`."""
    few, many = (step(*setting, n, inside, network) for n in (cards, times * cards))
    return times * many.efficiency / few.efficiency


class Published(NamedTuple):
    """Published examples/s on 1 and 8 cards, and what a step of the 8 is on paper."""
    name: str
    one_card: float
    eight_cards: float
    examples: int  # of a card in a step, accumulated ones included
    moved: Traffic

    def row(self, name: str, communication: float) -> Dict[str, str]:
        compute = self.examples / self.one_card
        published, model = 8 * self.examples / self.eight_cards, compute + communication
        return {"8 cards": name, "published": f"{8 * compute / published:.2f} ×",
                "model": f"{8 * compute / model:.2f} ×",
                "communication in the model's step": f"{communication / model:.1%}",
                "published step beyond the model's": f"{published / model - 1:+.0%}"}


TUTORIAL = Published("tutorial", 1.69 * 32, 0.91 * 8 * 32, 32, traffic(BASE))
_FLOAT32, _FLOAT16 = (traffic(LARGE, size, gather_rows=False) for size in (4, 2))
DEEP_LEARNING_EXAMPLES = [
    Published("SQuAD, fp32, batch 2, 16 GB", 7.36, 52.39, 2, _FLOAT32),
    Published("SQuAD, fp32, batch 10, 32 GB", 10.42, 79.37, 10, _FLOAT32),
    Published("pretraining, fp32, batch 8 × 1,024, 16 GB", 39.43, 285.79, 8 * 1024, _FLOAT32),
    Published("pretraining, fp32, batch 32 × 256, 32 GB", 46.78, 357.0, 32 * 256, _FLOAT32),
    Published("SQuAD, fp16, batch 4, 16 GB", 29.74, 189.77, 4, _FLOAT16),
    Published("SQuAD, fp16, batch 24, 32 GB", 51.02, 314.6, 24, _FLOAT16),
    Published("pretraining, fp16, batch 64 × 128, 32 GB", 168.63, 1443.05, 64 * 128, _FLOAT16),
]


def table(rows: List[Dict[str, str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0])] + [list(row.values()) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def assumptions_table() -> str:
    rates = [
        (f"{name}, {precision}", step_cost.CARDS[name].rates(precision).flops,
         f"{step_cost.PRODUCT_SHARE[precision]:.0%} of the peak of matrix products")
        for name, precision in (("P40", "float32"), ("V100", "float32"), ("V100", "float16"))]
    memory = step_cost.CARDS["V100"].rates("float32").memory / 1e9
    latencies = ", ".join(f"{1e6 * link.hop:g} µs over {name}" for name, link in (
        ("NVLink", NVLINK), ("PCIe", PCIE), ("a network", NETWORKS[0])))
    return table(
        [{"": name, "assumed": f"{flops / 1e12:.3g} TFLOP/s", "because": why}
         for name, flops, why in rates]
        + [{"": "V100, memory", "assumed": f"{memory:.0f} of 900 GB/s", "because": "with these shares "
            "Google's graph reaches 112 examples/s in float32, 113 are published (OneFlow's DLPerf)"},
           {"": "latency", "assumed": f"{1e6 * LAUNCH:g} µs for an all-reduce, and for each step "
            f"of a ring {latencies}", "because": "NCCL's own model of its rings (graph/tuning.cc, "
            "protocol Simple)"}]
        + [{"": link.name, "assumed": f"{link.effective / 1e9:g} of {link.line / 1e9:g} GB/s",
            "because": link.why} for link in [NVLINK, PCIE] + NETWORKS])


def results_table(networks, counts) -> str:
    """Step time in ms and efficiency, by card count, over both links inside a machine."""
    def cell(setting, cards, inside, network):
        result = step(*setting, cards, inside, network)
        return f"{1e3 * result.seconds:,.0f}, {result.efficiency:.0%}"
    return table([{
        "ms, efficiency": ", ".join(part.name for part in (*setting, network) if part),
        **{f"{inside.name}: {n}": cell(setting, n, inside, network)
           for inside in (NVLINK, PCIE) for n in counts if (inside, n) != (PCIE, 1)}}
        for setting in SETTINGS for network in networks])


def eight_cards_table() -> str:
    """How many times as fast as one card 8 cards are."""
    def times(setting, inside: Link) -> str:
        return f"{MACHINE * step(*setting, MACHINE, inside).efficiency:.2f} ×"
    return table([{"8 cards, as fast as one": ", ".join(part.name for part in setting),
                   **{inside.name: times(setting, inside) for inside in (PCIE, NVLINK)}}
                  for setting in SETTINGS])


def where_it_stops(setting, inside: Link, network: Optional[Link]) -> str:
    """The first card count with an efficiency below half; doublings that gain less than 1.5."""
    counts = [8, 16, 32, 64] if network else [1, 2, 4, 8]
    below = [n for n in counts if step(*setting, n, inside, network).efficiency < 0.5]
    gains = {n: gain(setting, n, inside, network) for n in counts[:-1]}
    # Rounded down, lest 1.497 read as 1.50.
    poor = [f"{n}→{2 * n} {math.floor(100 * gains[n]) / 100:.2f}" for n in gains if gains[n] < 1.5]
    return f"{below[0] if below else 'none'}; {', '.join(poor) or 'none'}"


def stops_table() -> str:
    return table([{"": inside.name + (f", {network.name}" if network else ""),
                   **{f"{setting[0].name}, {setting[1].name}":
                      where_it_stops(setting, inside, network) for setting in SETTINGS}}
                  for inside in (NVLINK, PCIE) for network in [None] + NETWORKS])


def added_seconds(precision: Precision, cards: int, inside: Link) -> float:
    """What communication adds to a step of BERT-base, played."""
    result = step(BASE, precision, cards, inside)
    return result.seconds * (1 - result.efficiency)


def tutorial_table() -> str:
    moved = TUTORIAL.moved
    return table([TUTORIAL.row(f"{name}, PCIe at {link.effective / 1e9:g} GB/s", seconds(link))
                  for name, seconds in (
        ("our reduction", lambda link: added_seconds(P40, 8, link)),
        ("TensorFlow's, NCCL", lambda link: tensorflow_seconds(moved, 8, link, nccl=True)),
        ("TensorFlow's, no NCCL", lambda link: tensorflow_seconds(moved, 8, link, nccl=False)))
        for link in (PCIE, SLOW_PCIE)])


def text_figures() -> dict:
    """The figures within the page's sentences."""
    def efficiency(precision, cards, inside, network=None, **changes):
        return step(BASE, precision, cards, inside, network, **changes).efficiency

    def gains(cards, times, inside, network=None):
        values = [gain(setting, cards, inside, network, times) for setting in SETTINGS]
        return f"{min(values):.2f} – {max(values):.2f}"

    sizes = [traffic(shape) for shape in (BASE, LARGE)]
    moved = communication_seconds(TUTORIAL.moved, MACHINE, PCIE)
    added = 32 * MACHINE / TUTORIAL.eight_cards - 32 / TUTORIAL.one_card
    return dict(
        forward=usual_flops(BASE) / 3e9,
        shares=[our_flops(shape) / usual_flops(shape) for shape in (BASE, LARGE)],
        dense=[size.dense / 1e6 for size in sizes], rows=[size.rows / 1e6 for size in sizes],
        added=1e3 * added, explained=1e3 * added_seconds(P40, MACHINE, PCIE), moved=1e3 * moved,
        needed=moved * PCIE.effective / added / 1e9,
        hidden=1 - added_seconds(FLOAT32, MACHINE, PCIE) / moved,
        p40=efficiency(P40, 8, PCIE), half=efficiency(FLOAT16, 8, PCIE),
        half_transfer=efficiency(HALF_TRANSFER, 8, PCIE),
        eight=[gains(1, 8, inside) for inside in (NVLINK, PCIE)], pair=gains(1, 2, PCIE),
        nvlink=[gains(8, 2, NVLINK, network) for network in NETWORKS],
        pcie=[gains(8, 2, PCIE, network) for network in NETWORKS],
        machines_8=gains(8, 8, NVLINK, NETWORKS[0]),
        pool=[pool_bytes(BASE, MACHINE, batch) / 1e6 for batch in (64, 512)],
        gathered_mb=63 * sizes[0].rows / 1e6,
        reduced_mb=2 * 63 / 64 * BASE.vocab_size * BASE.hidden * GRADIENT_BYTES / 1e6,
        full=efficiency(FLOAT32, 8, PCIE), short=efficiency(FLOAT32, 8, PCIE, length=16))


def page() -> str:
    """The text of scaling.md."""
    published = [run.row(run.name, communication_seconds(run.moved, 8, NVLINK))
                 for run in DEEP_LEARNING_EXAMPLES]
    with open(TEMPLATE, encoding="utf-8") as file:
        return file.read().format(
            assumptions=assumptions_table(), eight_cards=eight_cards_table(),
            inside=results_table([None], (1, 2, 4, 8)),
            across=results_table(NETWORKS, (16, 32, 64)), stops=stops_table(),
            tutorial=tutorial_table(), published=table(published), **text_figures())


def main() -> None:
    files.write_text(RESULT, page())


if __name__ == "__main__":
    main()
