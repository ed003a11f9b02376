"""The page about a run says what it was given, in a real browser, at a phone's width too."""

import re

import numpy as np
import pytest

from pages import Page
from runs import report_page
from runs.report_page import (
    Cell, MarkedTexts, Part, Plot, Plots, Report, Table, class_scores, training_curves)
from tasks.report import confusion

LABELS = "财经 房产 家居 教育 科技 时尚 时政 体育 游戏 娱乐".split()
HOSTILE = "<script>alert(1)</script> & \"quotes\""
STEPS = range(1, 41)
COUNTS = np.random.RandomState(0).randint(0, 9, (10, 10)) + 500 * np.eye(10, dtype=int)
HISTORY = {
    "loss": [(step, 2.3 / step) for step in STEPS],
    "learning_rate": [(step, 5e-5 * (1 - step / 40)) for step in STEPS],
    "gradient_norm": [(step, 1 + step % 3) for step in STEPS],
    "examples_per_second": [(step, 1700.0 + step) for step in STEPS[1:]]}
MISTAKES = MarkedTexts("Mistakes", "The most confident first.", [
    {"Text": [Part(HOSTILE)], "Label": [Part("财经")], "Predicted": [Part("体育", "0.9991", False)]},
    {"Text": [Part("W" * 300)], "Second text": [Part("央行宣布下调存款准备金率")],
     "Context": [Part("W" * 300), Part("the dog ", "right, predicted"), Part(HOSTILE, "predicted", False)]}])
SCORES = class_scores([(label, 0.875, 0.75, 0.8077, 1234) for label in LABELS])
FULL = Report(
    "THUCNews", [f"it learns nothing {HOSTILE}"],
    [("eval_accuracy", 0.98765432), ("global_step", 12345), ("pearson", float("nan"))],
    [SCORES, confusion(LABELS, COUNTS.tolist()), training_curves(HISTORY), MISTAKES],
    {"Settings": {"learning_rate": 5e-5, "data_dir": "/data" * 40},
     "Environment": {"TensorFlow": "2.15.1"}})
CLASSES = class_scores([(f"intent_{index}", 0.5, 0.5, (index * 7 % 48) / 48, 9 * (index > 0))
                        for index in range(48)])
MANY = confusion([f"a_long_name_of_an_intent_{index}" for index in range(21)],
                 (np.eye(21, dtype=int) * 777).tolist())
WIDE = FULL._replace(sections=[
    class_scores([("international_entertainment_news", 0.875, 0.75, 0.8077, 1234567)]), MANY,
    training_curves(HISTORY)])
CONTEXTS = Table(
    "Contexts", "In percent.", ("Context", "Questions", "Exact match", "F1"),
    [("up to 1,024 tokens", 12345, 45.89, Cell(61.4, "bar", 0.614)), ("has none", 724, 100.0, 100.0)])
PLOTS = Plots("Similarities", HOSTILE, [
    Plot("Distribution", ("-0.2", "1.0"), {"positives": [0, 0.25, 1], "W" * 60: [0.5, 0.4, 0.1]}),
    Plot("Recall", ("1", "3"), {"share": [0.5, 0.75, 1.0]})])


def written(tmp_path, content: Report):
    path = tmp_path / "report.html"
    report_page.write_report(str(path), content)
    return path


def measured(browser, path) -> dict:
    """A page on a phone: names that break within a word, widths that are hidden, and its width."""
    browser.open(path.as_uri(), width=390)
    return browser.evaluate("""({
      broken: [...document.querySelectorAll(".metrics dt, .facts dt, th")].flatMap(
        name => [...name.childNodes]).filter(part => {
          const range = document.createRange();
          range.selectNodeContents(part);
          return part.data && !part.data.includes(" ") && range.getClientRects().length > 1;
        }).map(part => part.data),
      hidden: [...document.querySelectorAll(".classes")].map(
        table => table.parentNode.scrollWidth - table.parentNode.clientWidth),
      width: document.documentElement.scrollWidth})""")


def figures_of(path):
    """Title of each figure → the texts beside its title and at its edges, and the points of its lines."""
    return {title: (re.findall("<span[^>]*>([^<]*)</span>", figure),
                    re.findall('<polyline class="[^"]*" points="(.*)"/>', figure))
            for title, figure in re.findall(r"<figcaption>([\w ]*?) (<span.*?</figure>)",
                                             path.read_text(encoding="utf-8"), re.DOTALL)}


def test_a_browser_shows_the_warnings_metrics_tables_curves_texts_and_facts_in_this_order(browser, tmp_path):
    browser.open(written(tmp_path, FULL).as_uri())
    page = Page(browser.evaluate("document.documentElement.outerHTML"))
    assert [figure["aria-label"] for figure in page.all("svg")] == [
        f"{title} from {first} to 40" for title, first in (
            ("Training loss", 1), ("Learning rate", 1), ("Gradient norm", 1), ("Examples/s", 2))]
    position = 0
    for text in ("THUCNews", HOSTILE, "eval_accuracy", "0.9877", "12,345", "n/a", "Training loss", HOSTILE,
                 "0.9991", "W" * 300, "央行宣布下调存款准备金率", "5e-05", "Environment", "2.15.1"):
        position = page.text.index(text, position)
    assert ["财经", "0.8750", "0.7500", "0.8077", "1,234"] in page.rows
    for label, counts in zip(LABELS, COUNTS):
        assert [label, *(str(count) if count else "" for count in counts)] in page.rows
    assert ["", *LABELS] in page.rows


def test_a_text_that_looks_like_html_stays_text(tmp_path):
    page = Page(written(tmp_path, FULL._replace(title=HOSTILE)).read_text(encoding="utf-8"))
    assert page.text.count(HOSTILE) == 5  # title, heading, warning, a text and a part of another
    assert not page.all("script")


def test_a_page_needs_no_network(tmp_path):
    source = written(tmp_path, FULL).read_text(encoding="utf-8")
    for tag, attributes in Page(source).elements:
        assert tag not in ("link", "img", "iframe", "object") and "src" not in attributes
        assert all(value.startswith("#") for name, value in attributes.items() if "href" in name)
    assert "url(" not in source and "@import" not in source


def test_a_page_is_no_wider_than_a_phone_and_names_break_between_their_words(browser, tmp_path):
    content = WIDE._replace(
        evaluation=[("matthews_correlation", 0.5), ("eval_loss", 0.3)],
        sections=[*WIDE.sections, CLASSES, CONTEXTS, PLOTS, MISTAKES],
        facts={"Settings": {"--gradient_accumulation_steps": 1, "--adam_bias_correction": True}})
    page = measured(browser, written(tmp_path, content))
    assert page["broken"] == [] and page["width"] == 390 and not any(page["hidden"])
    path = written(tmp_path, content._replace(evaluation=[("w" * 90, 0.5)]))
    path.write_text(path.read_text(encoding="utf-8").replace(
        "</body>", '<div style="width: 500px">too wide</div></body>'), encoding="utf-8")
    page = measured(browser, path)
    assert page["width"] > 390 and page["broken"] == ["w" * 90], "the measurement does not see it"


@pytest.mark.parametrize("name, title, top, num_lines", (
    ("loss", "Training loss", 2.5, 2), ("learning_rate", "Learning rate", 5e-5, 1)))
def test_a_curve_goes_through_its_points(name, title, top, num_lines, tmp_path):
    history = {**HISTORY, name: [*HISTORY[name], (41, float("nan"))]}
    ticks, lines = figures_of(written(tmp_path, FULL._replace(sections=[training_curves(history)])))[title]
    drawn = np.array([point.split(",") for point in lines[0].split()], float)
    steps, values = np.transpose(HISTORY[name])
    np.testing.assert_allclose(drawn[:, 0], 100 * (steps - 1) / 39, atol=0.01)
    np.testing.assert_allclose(drawn[:, 1], 100 * (1 - values / top), atol=0.01)
    assert ticks[1:] == [f"{top:.3g}", f"{top / 2:.3g}", "0", "1", "40"] and len(lines) == num_lines
    end = top * (1 - float(lines[-1].split(",")[-1]) / 100)
    assert float(ticks[0]) == pytest.approx(end, abs=2e-4 * top), "that of the strong line"


def test_a_plot_has_a_line_for_each_of_its_names(tmp_path):
    assert figures_of(written(tmp_path, FULL._replace(sections=[PLOTS]))) == {
        "Distribution": (["positives", "W" * 60, "1", "0.5", "0", "-0.2", "1.0"],
                         ["0.00,100.00 50.00,75.00 100.00,0.00", "0.00,50.00 50.00,60.00 100.00,90.00"]),
        "Recall": (["share", "1", "0.5", "0", "1", "3"], ["0.00,50.00 50.00,25.00 100.00,0.00"])}


def test_a_matrix_of_many_classes_has_colours_alone_and_its_numbers_in_the_tips(tmp_path):
    page = Page(written(tmp_path, FULL._replace(sections=[MANY])).read_text(encoding="utf-8"))
    assert "777" not in page.text
    tips = [cell["title"] for cell in page.all("td") if "title" in cell]
    assert tips[3] == "a_long_name_of_an_intent_3 taken for a_long_name_of_an_intent_3: 777"
    assert len(tips) == 21


def test_of_many_classes_the_worst_come_first_and_the_rest_is_folded(tmp_path):
    source = written(tmp_path, FULL._replace(sections=[CLASSES, SCORES])).read_text(encoding="utf-8")
    page, (before, folded) = Page(source), source.split("<details>")
    f1 = [float(row[3]) for row in page.rows if row[0].startswith("intent_")]
    assert len(f1) == 48 and f1[:-1] == sorted(f1[:-1]) and page.rows[48 + 1][0] == "intent_0", "no examples"
    shown = [row[0] for row in Page(before).rows if row[0].startswith("intent_")]
    assert len(shown) == 10 and "<summary>38 more</summary>" in folded and "财经" in folded.split("</details>")[1]
    few = [row[0] for row in Page(written(tmp_path, FULL).read_text(encoding="utf-8")).rows]
    assert [label for label in few if label in LABELS][:len(LABELS)] == LABELS, "of few classes the labels' order"


def test_a_page_leaves_out_what_there_is_not(tmp_path):
    empty = [class_scores([]), confusion([], []), training_curves({}), MISTAKES._replace(content=[])]
    page = Page(written(tmp_path, Report("STS-B", [], [], empty, {})).read_text(encoding="utf-8"))
    assert page.text.split() == ["STS-B", "STS-B"]  # title and heading
