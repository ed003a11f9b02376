"""Renders the report of a run as one HTML page: its curves, its metrics and its mistakes.

The page needs no network and runs no script. matplotlib draws the curves as inline SVG, in the
colours and fonts of the page; `report.html.j2` is the template of the rest.
"""

import io
import math
import os
import re
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from engine.disk import files
from engine.training.summaries import History

# With more classes, the cells of a confusion matrix are too small for numbers.
_MAX_NUMBERED_CLASSES = 20
# A noisy curve of at least so many points is overlaid with its moving mean over a tenth of them.
_MIN_SMOOTHED_POINTS = 30
# matplotlib draws with placeholder colours; each becomes a colour of the page, light or dark.
_INK, _GRID, _CURVE, _POINTS = "#000001", "#000002", "#000003", "#000004"
_PAGE_COLOURS = {_INK: "var(--soft)", _GRID: "var(--line)",
                 _CURVE: "rgb(var(--right))", _POINTS: "rgb(var(--right) / 0.45)"}
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.52, 0.16, 0.25, 0.09  # margins in inches
_STYLE = {
    "font.size": 9, "text.color": _INK, "xtick.color": _INK, "ytick.color": _INK,
    "xtick.major.size": 0, "ytick.major.size": 0,
    "axes.edgecolor": _GRID, "axes.grid": True, "axes.grid.axis": "y", "grid.color": _GRID,
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False,
    "svg.fonttype": "none"}


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


class Report(NamedTuple):
    """The contents of a page; parts that are empty or None are not shown."""
    title: str
    facts: Mapping[str, Mapping[str, Any]]  # section -> name -> value
    history: History
    evaluation: Sequence[Tuple[str, float]]  # metric, value
    confusion: Optional[Confusion] = None
    scores: Optional[Scores] = None
    mistakes: Sequence[Mistake] = ()  # the most confident first
    marked: Optional[MarkedTexts] = None


class _Chart(NamedTuple):
    """How a curve of the history is drawn."""
    name: str
    title: str
    is_noisy: bool = True
    is_share: bool = False


# The first is drawn larger than the others.
_CHARTS = (_Chart("loss", "Training loss"),
           _Chart("learning_rate", "Learning rate", is_noisy=False),
           _Chart("gradient_norm", "Gradient norm"),
           _Chart("examples_per_second", "Examples per second"),
           _Chart("model_tflops", "Model TFLOP/s"),
           _Chart("peak_share", "Share of the cards' peak", is_share=True),
           _Chart("padding_share", "Padding in batches", is_share=True))


class _Figure(NamedTuple):
    title: str
    last_value: str
    svg: str


def write_report(path: str, report: Report) -> None:
    """Writes the page to `path`, whole or not at all."""
    import jinja2  # here, because it would delay the start of every run
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__))),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = _number
    page = environment.get_template("report.html.j2").render(
        report._asdict(), figures=_figures(report.history), max_numbered=_MAX_NUMBERED_CLASSES)
    files.write_text(path, page + "\n")


def _number(value: Union[str, int, float]) -> str:
    """A number for people: with thousands separators, a fraction with four decimals."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if not math.isfinite(value):
        return "n/a"
    return f"{value:,.4f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.3g}"


def _figures(history: History) -> List[_Figure]:
    """A figure for each curve of at least two points."""
    charts = [chart for chart in _CHARTS if len(history.get(chart.name, ())) > 1]
    return [_Figure(chart.title, _tick(chart, history[chart.name][-1][1]),
                    _svg(chart, history[chart.name], is_large=chart is charts[0]))
            for chart in charts]


def _tick(chart: _Chart, value: float) -> str:
    if chart.is_share:
        return f"{100 * value:.3g}%"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _svg(chart: _Chart, points: Sequence[Tuple[int, float]], *, is_large: bool) -> str:
    """A curve over the steps, as an inline SVG element."""
    import matplotlib
    from matplotlib.figure import Figure
    stream = io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": chart.name}):
        width, height = (4.6, 3.15) if is_large else (2.8, 1.66)
        figure = Figure(figsize=(width, height))
        # Room for the numbers at the axes. To have it measured takes as long as to draw.
        axes = figure.add_axes((_LEFT / width, _BOTTOM / height, 1 - (_LEFT + _RIGHT) / width,
                                1 - (_BOTTOM + _TOP) / height))
        _draw(axes, chart, points, num_ticks=5 if is_large else 4)
        figure.savefig(stream, format="svg", transparent=True)
    return _as_element(stream.getvalue(), f"{chart.title} over the steps")


def _draw(axes, chart: _Chart, points: Sequence[Tuple[int, float]], *, num_ticks: int) -> None:
    from matplotlib.ticker import MaxNLocator
    steps, values = np.array(points, np.float64).T
    if chart.is_noisy and len(values) >= _MIN_SMOOTHED_POINTS:
        axes.plot(steps, values, color=_POINTS, linewidth=0.8)
        values = _moving_mean(values, len(values) // 10)
    axes.plot(steps, values, color=_CURVE, linewidth=1.4)
    axes.margins(x=0.01)
    axes.set_ylim(bottom=min(0, min(value for _, value in points)))
    axes.xaxis.set_major_locator(MaxNLocator(num_ticks, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(num_ticks))
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: _tick(chart, value))


def _moving_mean(values: np.ndarray, width: int) -> np.ndarray:
    """The mean over the `width` values around each value, over fewer at the ends."""
    window = np.ones(width)
    counts = np.convolve(np.ones(len(values)), window, "same")
    return np.convolve(values, window, "same") / counts


def _as_element(svg: str, description: str) -> str:
    """Turns an SVG file of matplotlib's into an element with the page's colours and any width."""
    from markupsafe import Markup
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg"):], flags=re.DOTALL)
    view_box = re.search(r'viewBox="[^"]*"', svg).group()
    svg = re.sub("<svg[^>]*>", f'<svg {view_box} role="img" aria-label="{description}">', svg,
                 count=1)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # ids that all figures on the page would share
    for colour, page_colour in _PAGE_COLOURS.items():
        svg = svg.replace(colour, page_colour)
    return Markup(svg.strip())
