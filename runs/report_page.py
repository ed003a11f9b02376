"""Renders the report of a run as one HTML page: its metrics, tables, curves and marked texts.

The page needs no network and runs no script; its curves are inline SVG. `report.html.j2` is the
template.
"""

import itertools
import math
import os
from typing import (
    Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar,
    Union)

import numpy as np

from engine.disk import files
from engine.training.summaries import History

# A noisy curve of at least so many points is overlaid with its moving mean over a tenth of them.
_MIN_SMOOTHED_POINTS = 30
# A column of the training's log → the title of its plot. The first plot is larger.
_MANY_ROWS, _SHOWN_ROWS = 15, 10  # of a table with more rows, the first are shown, the rest is folded
_CURVES = {"loss": "Training loss", "learning_rate": "Learning rate",
           "gradient_norm": "Gradient norm", "examples_per_second": "Examples/s",
           "model_tflops": "Model TFLOP/s"}

Item = TypeVar("Item")


class Cell(NamedTuple):
    """A value of a table, with a bar or a colour."""
    value: Union[str, float]
    look: str  # "bar", or the colour: "right" or "wrong"
    share: float  # the length of the bar, or the depth of the colour, from 0 to 1
    tip: str = ""


class Table(NamedTuple):
    """A section with a table."""
    title: str
    note: str
    columns: Sequence[str]  # their names; empty: not shown
    content: Sequence[Sequence[Any]]  # rows: the name of each, and its values or `Cell`s
    look: str = "classes"


class Part(NamedTuple):
    """A part of a text: one with a mark, such as an entity, or what is between two."""
    text: str
    mark: str = ""  # what is said of the part
    is_right: bool = True


class MarkedTexts(NamedTuple):
    """A section of examples, some parts of whose texts are marked."""
    title: str
    note: str  # what the marks mean
    content: Sequence[Mapping[str, Sequence[Part]]]  # examples: name → text


class Plot(NamedTuple):
    """Lines over the same places."""
    title: str
    ends: Tuple[str, str]  # what the first and the last place are
    lines: Mapping[str, Sequence[float]]  # text beside the title → a value for each place
    places: Optional[Sequence[float]] = None  # ascending; default: at equal distances
    measured: Optional[Sequence[float]] = None  # a pale line: the values before smoothing


class Plots(NamedTuple):
    """A section of plots, the first of them larger than the others."""
    title: str
    note: str
    content: Sequence[Plot]


Section = Union[Table, MarkedTexts, Plots]


class Report(NamedTuple):
    """The contents of a page."""
    title: str
    warnings: Sequence[str]  # above all else
    evaluation: Sequence[Tuple[str, float]]  # metric, value
    sections: Sequence[Section]  # without content, they are not shown
    facts: Mapping[str, Mapping[str, Any]]  # in the end: title → name → value


def class_scores(rows: Iterable[Sequence[Any]]) -> Table:
    """The section on the classes, of label, precision, recall, F1 and number of examples; of many the worst first."""
    rows = [tuple(row) for row in rows]
    if len(rows) > _MANY_ROWS:
        rows.sort(key=lambda row: (row[4] == 0, row[3]))
    return Table(
        "Classes", "Of the examples predicted to have a label, precision is the share that has it; "
        "of those that have it, recall is the share that is found. F1 is their harmonic mean."
        + " The lowest F1 comes first." * (len(rows) > _MANY_ROWS),
        ("Label", "Precision", "Recall", "F1", "Examples"),
        [(label, precision, recall, Cell(f1, "bar", f1), count)
         for label, precision, recall, f1, count in rows])


def items_at(places: Collection[int], items: Iterable[Item]) -> Dict[int, Item]:
    """The items at these places, by place; reads no further than the last."""
    first = itertools.islice(items, max(places, default=-1) + 1)
    return {place: item for place, item in enumerate(first) if place in places}


def training_curves(history: History) -> Plots:
    """The section on the training, with a plot of each curve of at least two points."""
    plots = []
    for name, title in _CURVES.items():
        points = [point for point in history.get(name, ()) if math.isfinite(point[1])]
        if len(points) < 2:
            continue
        steps, values = np.array(points, np.float64).T
        is_smoothed = name != "learning_rate" and len(values) >= _MIN_SMOOTHED_POINTS
        line = _moving_mean(values, len(values) // 10) if is_smoothed else values
        ends = f"{steps[0]:,.0f}", f"{steps[-1]:,.0f}"
        plots.append(Plot(title, ends, {_tick(line[-1]): line}, steps, values if is_smoothed else None))
    return Plots("Training", "Over the steps. A pale line is what was measured, a strong one its "
                 "moving mean, whose last value stands beside the title.", plots)


def write_report(path: str, report: Report) -> None:
    """Writes the page to `path`, whole or not at all."""
    import jinja2  # here, because it would delay the start of every run
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__))),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(number=number, drawn=_drawn)
    page = environment.get_template("report.html.j2").render(
        report._asdict(), many_rows=_MANY_ROWS, shown_rows=_SHOWN_ROWS)
    files.write_text(path, page + "\n")


def number(value: Union[str, int, float]) -> str:
    """A number for people: with thousands separators, a fraction with four decimals or, above 1,000, one."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if not math.isfinite(value):
        return "n/a"
    if 1e3 <= abs(value) < 1e6:
        return f"{value:,.1f}"
    return f"{value:,.4f}" if value == 0 or 1e-3 <= abs(value) < 1e3 else f"{value:.3g}"


def _drawn(plot: Plot) -> Dict[str, List[str]]:
    """The points "x,y x,y ..." of lines, from 0 (left, top) to 100 (right, bottom), and three ticks."""
    curves = [*(() if plot.measured is None else [plot.measured]), *plot.lines.values()]
    values = np.array(curves, np.float64)
    places = np.arange(values.shape[1]) if plot.places is None else np.array(plot.places)
    bottom, largest = min(0.0, values.min()), values.max() or 1.0
    unit = 10.0 ** math.floor(math.log10(abs(largest))) / 2
    top = math.ceil(largest / unit) * unit
    x = 100 * (places - places[0]) / (places[-1] - places[0])
    y = 100 * (top - values) / (top - bottom)
    return {"lines": [" ".join(map("{:.2f},{:.2f}".format, x, line)) for line in y],
            "ticks": [_tick(value) for value in (top, (top + bottom) / 2, bottom)]}


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _moving_mean(values: np.ndarray, width: int) -> np.ndarray:
    """The mean over the `width` values around each value, over fewer at the ends."""
    window = np.ones(width)
    return np.convolve(values, window, "same") / np.convolve(np.ones(len(values)), window, "same")
