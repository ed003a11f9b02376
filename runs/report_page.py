"""Renders the report of a run as one HTML page: its curves, its metrics and its mistakes.

The page needs no network and runs no script; its curves are inline SVG. `report.html.j2` is the
template.
"""

import math
import os
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from engine.disk import files
from engine.training.summaries import History

# With more classes, the cells of a confusion matrix are too small for numbers.
_MAX_NUMBERED_CLASSES = 20
# A noisy curve of at least so many points is overlaid with its moving mean over a tenth of them.
_MIN_SMOOTHED_POINTS = 30


class Mistake(NamedTuple):
    """An example that the model predicts wrongly."""
    text_a: str
    text_b: Optional[str]
    label: Union[str, float]  # a number in a regression
    predicted: Union[str, float]
    probability: Optional[float]  # of the predicted label; None in a regression


class Part(NamedTuple):
    """A part of a text: one with a mark, such as an entity, or what is between two."""
    text: str
    mark: str = ""  # what is said of the part
    is_right: bool = True


class MarkedTexts(NamedTuple):
    """A section of examples with marks in their texts."""
    title: str
    note: str  # what the marks mean
    examples: Sequence[Mapping[str, Sequence[Part]]]  # name -> text


class Scores(NamedTuple):
    """A section on how good the predictions of groups of examples are."""
    title: str
    note: str
    columns: Sequence[str]  # the name of the groups first; "F1" has a bar
    rows: Sequence[Sequence[Any]]
    best: float = 1.0  # the F1 of a full bar


def class_scores(rows: Sequence[Sequence[Any]]) -> Optional[Scores]:
    """The section on the classes, of label, precision, recall, F1 and the number of examples."""
    return Scores(
        "Classes", "Of the examples predicted to have a label, precision is the share that has it; "
        "of those that have it, recall is the share that is found. F1 is their harmonic mean.",
        ("Label", "Precision", "Recall", "F1", "Examples"), rows) if rows else None


class Confusion(NamedTuple):
    """The confusion matrix."""
    labels: Sequence[str]
    counts: np.ndarray  # [true label, predicted label]


class Plot(NamedTuple):
    """Lines over the same places, at equal distances."""
    title: str
    ends: Tuple[str, str]  # what the first and the last place are
    lines: Mapping[str, Sequence[float]]  # name -> a value, at least 0, for each place


class Plots(NamedTuple):
    """A section of plots."""
    title: str
    note: str
    plots: Sequence[Plot]


class Report(NamedTuple):
    """The contents of a page; parts that are empty or None are not shown."""
    title: str
    facts: Mapping[str, Mapping[str, Any]]  # section -> name -> value
    history: History
    evaluation: Sequence[Tuple[str, float]]  # metric, value
    confusion: Optional[Confusion] = None
    tries: Optional[Scores] = None
    scores: Optional[Scores] = None
    plots: Optional[Plots] = None
    mistakes: Sequence[Mistake] = ()  # the most confident first
    marked: Optional[MarkedTexts] = None
    warnings: Sequence[str] = ()  # above all else


class _Chart(NamedTuple):
    """How a curve of the history is drawn."""
    name: str
    title: str
    is_noisy: bool = True


# The first is drawn larger than the others.
_CHARTS = (_Chart("loss", "Training loss"),
           _Chart("learning_rate", "Learning rate", is_noisy=False),
           _Chart("gradient_norm", "Gradient norm"),
           _Chart("examples_per_second", "Examples per second"),
           _Chart("model_tflops", "Model TFLOP/s"))


class _Figure(NamedTuple):
    """Lines, to draw between 0 (left, top) and 100 (right, bottom)."""
    title: str
    beside_title: Sequence[str]  # the last value, or the names of the lines
    lines: Sequence[str]  # points "x,y x,y ...": what was measured; its moving mean, if it is noisy
    ticks: Sequence[str]  # the values at the top, in the middle and at the bottom
    steps: Sequence[str]  # the first and the last
    about: str = "over the steps"


def write_report(path: str, report: Report) -> None:
    """Writes the page to `path`, whole or not at all."""
    import jinja2  # here, because it would delay the start of every run
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__))),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = _number
    page = environment.get_template("report.html.j2").render(
        report._asdict(), figures=_figures(report.history), max_numbered=_MAX_NUMBERED_CLASSES,
        drawn=[_plot(plot) for plot in report.plots.plots] if report.plots else [])
    files.write_text(path, page + "\n")


def _number(value: Union[str, int, float]) -> str:
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


def _figures(history: History) -> List[_Figure]:
    """A figure for each curve of at least two points."""
    finite = {name: [point for point in points if math.isfinite(point[1])]
              for name, points in history.items()}
    return [_figure(chart, finite[chart.name]) for chart in _CHARTS
            if len(finite.get(chart.name, ())) > 1]


def _figure(chart: _Chart, points: Sequence[Tuple[int, float]]) -> _Figure:
    steps, values = np.array(points, np.float64).T
    curves = [values]
    if chart.is_noisy and len(values) >= _MIN_SMOOTHED_POINTS:
        curves.append(_moving_mean(values, len(values) // 10))
    return _Figure(chart.title, [_tick(values[-1])], *_lines(steps, curves),
                   [f"{step:,.0f}" for step in (steps[0], steps[-1])])


def _plot(plot: Plot) -> _Figure:
    curves = [np.array(values, np.float64) for values in plot.lines.values()]
    return _Figure(plot.title, list(plot.lines), *_lines(np.arange(len(curves[0])), curves),
                   plot.ends, f"from {plot.ends[0]} to {plot.ends[1]}")


def _lines(places: np.ndarray, curves: Sequence[np.ndarray]) -> Tuple[List[str], List[str]]:
    """The points of each curve over the places, and the values at the top, middle and bottom."""
    values = np.concatenate(curves)
    bottom, largest = min(0.0, values.min()), values.max() or 1.0
    unit = 10.0 ** math.floor(math.log10(abs(largest))) / 2
    top = math.ceil(largest / unit) * unit
    x = 100 * (places - places[0]) / (places[-1] - places[0])
    return ([" ".join(map("{:.2f},{:.2f}".format, x, 100 * (top - curve) / (top - bottom)))
             for curve in curves],
            [_tick(value) for value in (top, (top + bottom) / 2, bottom)])


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _moving_mean(values: np.ndarray, width: int) -> np.ndarray:
    """The mean over the `width` values around each value, over fewer at the ends."""
    window = np.ones(width)
    return np.convolve(values, window, "same") / np.convolve(np.ones(len(values)), window, "same")
