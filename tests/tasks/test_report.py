"""The page about a run says what it was given, in a real browser, at a phone's width too."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from conftest import on_tensorflow_2
from pages import Page
from runs import report_page
from runs.report_page import (
    Confusion, MarkedTexts, Mistake, Part, Plot, Plots, Report, Scores, class_scores)

LABELS = "财经 房产 家居 教育 科技 时尚 时政 体育 游戏 娱乐".split()
HOSTILE = "<script>alert(1)</script> & \"quotes\""
STEPS = range(1, 41)
COUNTS = np.random.RandomState(0).randint(0, 9, (10, 10)) + 500 * np.eye(10, dtype=int)
HISTORY = {
    "loss": [(step, 2.3 / step) for step in STEPS],
    "learning_rate": [(step, 5e-5 * (1 - step / 40)) for step in STEPS],
    "gradient_norm": [(step, 1 + step % 3) for step in STEPS],
    "examples_per_second": [(step, 1700.0 + step) for step in STEPS[1:]]}
MISTAKES = [
    Mistake(HOSTILE, None, "财经", "体育", 0.9991),
    Mistake("W" * 300, "央行宣布下调存款准备金率", HOSTILE, "科技", 0.75)]
FULL = Report(
    title="THUCNews",
    facts={"Settings": {"learning_rate": 5e-5, "data_dir": "/data" * 40},
           "Environment": {"TensorFlow": "2.15.1"}},
    history=HISTORY,
    evaluation=[("eval_accuracy", 0.98765432), ("global_step", 12345), ("pearson", float("nan"))],
    confusion=Confusion(LABELS, COUNTS),
    scores=class_scores([(label, 0.875, 0.75, 0.8077, 1234) for label in LABELS]),
    mistakes=MISTAKES)
MANY = FULL._replace(scores=None, confusion=Confusion(
    [f"a_long_name_of_an_intent_{index}" for index in range(21)], np.eye(21, dtype=int) * 777))
WIDE = MANY._replace(scores=class_scores([
    ("international_entertainment_news", 0.875, 0.75, 0.8077, 1234567)]))
NUMBERS = Report("STS-B", {}, {}, [("pearson", 0.88)],
                 mistakes=[Mistake("A man plays.", "A man sings.", 4.5, 0.31023, None)])
PLOTTED = NUMBERS._replace(plots=Plots("Similarities", HOSTILE, [
    Plot("Distribution", ("-0.2", "1.0"), {"positives": [0, 0.25, 1], "W" * 60: [0.5, 0.4, 0.1]}),
    Plot("Recall", ("1", "3"), {"share": [0.5, 0.75, 1.0]})]))

ANSWERS = FULL._replace(confusion=None, mistakes=(), scores=Scores(
    "Contexts", "In percent.", ("Context", "Questions", "Exact match", "F1"),
    [("up to 1,024 tokens", 12345, 45.89, 61.4), ("has none", 724, 100.0, 100.0)], best=100.0),
    marked=MarkedTexts("Wrong answers", "The most confident first.", [
        {"Question": [Part("Who?")], "Predicted": [Part("none")],
         "Context": [Part("W" * 300), Part("the dog ", "right, predicted"),
                     Part(HOSTILE, "predicted", False)]}]))


def written(tmp_path, content: Report):
    path = tmp_path / "report.html"
    report_page.write_report(str(path), content)
    return path


def browse(path, *flags: str) -> str:
    """The page's elements as a browser has them in the end."""
    browser = next(filter(None, map(
        shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        pytest.skip("no Chromium here: apt-get install chromium, or Google Chrome")
    process = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--hide-scrollbars",
         f"--user-data-dir={path.parent / 'browser'}", *flags, "--dump-dom", path.as_uri()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout


def measured(path, *flags: str) -> dict:
    """Width and colours of a page in a frame as wide as a phone."""
    frame = path.parent / "frame.html"
    frame.write_text(f"""<!DOCTYPE html><meta charset="utf-8">
<iframe style="width: 390px; height: 844px; border: 0"
 srcdoc="{html.escape(path.read_text(encoding="utf-8"))}"></iframe>
<script>
document.querySelector("iframe").onload = event => {{
  const page = event.target.contentDocument, style = getComputedStyle(page.body);
  document.body.dataset.measured = JSON.stringify({{
    broken: [...page.querySelectorAll(".metrics dt, .facts dt, th")].flatMap(
      name => [...name.childNodes]).filter(part => {{
        const range = page.createRange();
        range.selectNodeContents(part);
        return part.data && !part.data.includes(" ") && range.getClientRects().length > 1;
      }}).map(part => part.data),
    hidden: [...page.querySelectorAll(".classes")].map(
      table => table.parentNode.scrollWidth - table.parentNode.clientWidth),
    width: page.documentElement.scrollWidth, paper: style.backgroundColor, ink: style.color}});
}};
</script>""", encoding="utf-8")
    answer = re.search(r'data-measured="([^"]*)"', browse(frame, *flags)).group(1)
    return json.loads(html.unescape(answer))


@on_tensorflow_2
def test_a_browser_shows_the_figures_the_metrics_the_classes_the_mistakes_and_the_facts(tmp_path):
    page = Page(browse(written(tmp_path, FULL)))
    assert [figure["aria-label"] for figure in page.all("svg")] == [
        f"{title} over the steps" for title in (
            "Training loss", "Learning rate", "Gradient norm", "Examples per second")]
    for text in ("THUCNews", "eval_accuracy", "0.9877", "12,345", "n/a", "0.9991", "W" * 300,
                 "央行宣布下调存款准备金率", "5e-05", "Environment", "2.15.1"):
        assert text in page.text
    assert ["财经", "0.8750", "0.7500", "0.8077", "1,234"] in page.rows
    for label, counts in zip(LABELS, COUNTS):
        assert [label, *(str(count) if count else "" for count in counts)] in page.rows
    assert ["", *LABELS] in page.rows


def test_a_text_that_looks_like_html_stays_text(tmp_path):
    page = Page(written(tmp_path, FULL._replace(title=HOSTILE)).read_text(encoding="utf-8"))
    assert page.text.count(HOSTILE) == 4  # title, heading, a mistake's text, a mistake's label
    assert not page.all("script")


def test_a_warning_comes_first(tmp_path):
    text = Page(written(tmp_path, FULL._replace(warnings=[f"it learns nothing {HOSTILE}"]))
                .read_text(encoding="utf-8")).text
    assert text.index(f"it learns nothing {HOSTILE}") < text.index("eval_accuracy")


def test_a_page_needs_no_network(tmp_path):
    source = written(tmp_path, FULL).read_text(encoding="utf-8")
    for tag, attributes in Page(source).elements:
        assert tag not in ("link", "img", "iframe", "object") and "src" not in attributes
        assert all(value.startswith("#") for name, value in attributes.items() if "href" in name)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", source))
    assert "@import" not in source


@on_tensorflow_2
@pytest.mark.parametrize("content", (WIDE, ANSWERS, PLOTTED), ids=("classes", "answers", "plots"))
def test_a_page_is_no_wider_than_a_phone(content, tmp_path):
    path = written(tmp_path, content)
    found = measured(path)
    assert found["width"] == 390 and not any(found["hidden"])
    path.write_text(path.read_text(encoding="utf-8").replace(
        "</body>", '<div style="width: 500px">too wide</div></body>'), encoding="utf-8")
    assert measured(path)["width"] > 390, "the measurement does not see what is too wide"


@on_tensorflow_2
def test_a_name_breaks_between_its_words(tmp_path):
    content = WIDE._replace(
        evaluation=[("matthews_correlation", 0.5), ("eval_loss", 0.3)], facts={"Settings": {
            "--gradient_accumulation_steps": 1, "--adam_bias_correction": True}})
    found = measured(written(tmp_path, content))
    assert found["broken"] == [] and found["width"] == 390
    longest = content._replace(evaluation=[("w" * 90, 0.5)])
    assert measured(written(tmp_path, longest))["broken"] == ["w" * 90], "it would not be seen"


@pytest.mark.parametrize("name, title, top, num_lines", (
    ("loss", "Training loss", 2.5, 2), ("learning_rate", "Learning rate", 5e-5, 1)))
def test_a_curve_goes_through_its_points(name, title, top, num_lines, tmp_path):
    source = written(tmp_path, FULL._replace(history={
        **HISTORY, name: [*HISTORY[name], (41, float("nan"))]})).read_text(encoding="utf-8")
    figure = re.search(f'<figcaption>{title}.*?</figure>', source, re.DOTALL).group()
    lines = re.findall('<polyline points="(.*)"/>', figure)
    drawn = np.array([point.split(",") for point in lines[0].split()], float)
    steps, values = np.transpose(HISTORY[name])
    np.testing.assert_allclose(drawn[:, 0], 100 * (steps - 1) / 39, atol=0.01)
    np.testing.assert_allclose(drawn[:, 1], 100 * (1 - values / top), atol=0.01)
    assert re.findall("<span>([^<]*)</span>", figure)[1:] == [
        f"{top:.3g}", f"{top / 2:.3g}", "0", "1", "40"] and len(lines) == num_lines


def test_a_plot_has_a_line_for_each_of_its_names(tmp_path):
    source = written(tmp_path, PLOTTED).read_text(encoding="utf-8")
    distribution, recall = re.findall("<figure.*?</figure>", source, re.DOTALL)
    assert re.findall("<span>([^<]*)</span>", distribution) == [
        "positives", "W" * 60, "1", "0.5", "0", "-0.2", "1.0"]
    assert re.findall('<polyline points="(.*)"/>', distribution) == [
        "0.00,100.00 50.00,75.00 100.00,0.00", "0.00,50.00 50.00,60.00 100.00,90.00"]
    assert re.findall('<polyline points="(.*)"/>', recall) == [
        "0.00,50.00 50.00,25.00 100.00,0.00"]
    assert 'aria-label="Recall from 1 to 3"' in recall


def test_a_matrix_of_many_classes_has_colours_alone_and_its_numbers_in_the_tips(tmp_path):
    page = Page(written(tmp_path, MANY).read_text(encoding="utf-8"))
    assert "777" not in page.text
    tips = [cell["title"] for cell in page.all("td") if "title" in cell]
    assert tips[3] == "a_long_name_of_an_intent_3 taken for a_long_name_of_an_intent_3: 777"
    assert len(tips) == 21


def test_a_page_of_a_regression_has_numbers_for_labels_and_leaves_out_what_there_is_not(tmp_path):
    page = Page(written(tmp_path, NUMBERS).read_text(encoding="utf-8"))
    for text in ("4.5000", "0.3102", "The farthest off first", "A man sings."):
        assert text in page.text
    for part in ("Training", "Confusion", "Classes", "Settings", "Probability"):
        assert part not in page.text
    assert not page.all("svg") and not page.all("table")
