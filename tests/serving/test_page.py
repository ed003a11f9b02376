"""The page of the service in a real browser: it types, asks and sees."""

import re

import pytest

from conftest import on_tensorflow_2
from pages import Page, text_of
from services import Service, toy_models

pytestmark = on_tensorflow_2  # the page and its answers are the same on both
CTRL = 2
HOSTILE = "<img src=x onerror=alert(1)> the cat"
ARABIC, CHINESE = "القطة نائمة على الأريكة", "猫在沙发上睡觉 😀"


@pytest.fixture(scope="module")
def service(tiny_model, tmp_path_factory):
    with Service(toy_models(tmp_path_factory.mktemp("models"), tiny_model)) as service:
        yield service


def opened(browser, service, name, width=1000):
    browser.open(f"http://127.0.0.1:{service.port}/models/{name}/", width)
    browser.wait("document.getElementById('name').textContent === '%s'" % name)


def type_into(browser, field, text):
    browser.evaluate(f"document.getElementById('{field}').focus()")
    browser.type(text)


def ask(browser, *texts):
    """Types the texts and presses Ctrl and Enter; returns what the page shows."""
    for field, text in zip(("first", "second"), texts):
        type_into(browser, field, text)
    browser.press("Enter", CTRL)
    return result(browser)


def result(browser):
    browser.wait("/ ms$|No answer/.test(document.getElementById('status').textContent)")
    assert not browser.messages
    return browser.evaluate("document.getElementById('result').innerText")


def test_a_classifier_s_probabilities_are_bars(browser, service):
    opened(browser, service, "classifier")
    shown = ask(browser, "the cat sees a dog")
    scores, = service.post("/models/classifier/predict", {"inputs": [["the cat sees a dog"]]}).body
    assert [line.split("\t") for line in shown.strip().split("\n")[1:]] == [
        [score["label"], f"{score['score']:.4f}"] for score in scores]
    shares = browser.evaluate("[...document.querySelectorAll('.bar')].map("
                              "cell => Number(cell.style.getPropertyValue('--share')))")
    assert shares == pytest.approx([score["score"] for score in scores])


def test_entities_are_marked_at_their_characters(browser, service):
    text = f"😀 {HOSTILE} sees {CHINESE}"
    opened(browser, service, "tagger")
    assert "onerror" in ask(browser, text) and not browser.evaluate("document.querySelectorAll('img').length")
    answer, = service.post("/models/tagger/predict", {"inputs": [[text]]}).body
    marks = browser.evaluate("[...document.querySelectorAll('mark')].map("
                             "mark => [mark.firstChild.data, mark.lastChild.textContent])")
    assert marks and marks == [[each["text"], each["label"]] for each in answer["entities"]]


def test_an_answer_is_marked_in_its_context(browser, service):
    opened(browser, service, "reader")
    shown = ask(browser, "what sees the cat ?", "the old dog sees the cat in the house .")
    answer = service.post("/models/reader/predict", {"inputs": [
        ["what sees the cat ?", "the old dog sees the cat in the house ."]]}).body[0]["answer"]
    assert answer and shown.startswith(answer)
    assert browser.evaluate("document.querySelector('mark').textContent") == answer


def test_two_texts_are_compared_and_one_gets_its_vector(browser, service):
    opened(browser, service, "vectors")
    assert "A vector of " in ask(browser, ARABIC)
    shown = ask(browser, "", CHINESE)
    assert re.match(r"-?\d\.\d{4}\n", shown)


@pytest.mark.parametrize("name", ["multi", "regression", "scorer"])
def test_other_kinds_are_asked_with_their_fields(name, browser, service):
    opened(browser, service, name)
    texts = ["the cat"] if name == "multi" else ["cat", "the [MASK] sees a dog"]
    assert browser.evaluate("document.getElementById('pair').hidden") == (name == "multi")
    assert re.search(r"-?\d\.\d{4}", ask(browser, *texts))


def test_many_texts_are_a_table_and_a_file(browser, service):
    opened(browser, service, "classifier")
    browser.evaluate("document.querySelector('[value=many]').click()")
    texts = [HOSTILE, ARABIC, "cat " * 60, *(f"the dog {number}" for number in range(40))]
    type_into(browser, "pasted", "\n".join(texts) + "\n\n")
    browser.press("Enter", CTRL)
    browser.wait("/ ms$/.test(document.getElementById('status').textContent)")
    browser.messages.clear()  # the browser's own, of the text that is too long
    rows = browser.evaluate("[...document.querySelectorAll('.many tbody tr')].map("
                            "row => [...row.cells].map(cell => cell.textContent))")
    assert [row[1] for row in rows] == texts and rows[2][2].startswith("error: the text has")
    scores, = service.post("/models/classifier/predict", {"inputs": [[ARABIC]]}).body
    assert rows[1][2] == scores[0]["label"]
    lines = browser.evaluate("downloads").split("\n")
    assert lines[0] == "text\tmost probable\t0\t1" and len(lines) == len(texts) + 2
    assert not browser.evaluate("document.querySelectorAll('img').length")


def test_a_line_with_one_text_before_pairs_leaves_the_columns_in_place(browser, service):
    opened(browser, service, "vectors")
    browser.evaluate("document.querySelector('[value=many]').click()")
    browser.evaluate("document.getElementById('pasted').value = 'the cat\\nthe dog\\tthe bird'")
    type_into(browser, "pasted", "s")
    browser.press("Enter", CTRL)
    browser.wait("/ ms$/.test(document.getElementById('status').textContent)")
    browser.messages.clear()  # the browser's own, of the mixture
    head, first, second = (line.split("\t") for line in browser.evaluate("downloads").split("\n")[:3])
    assert head[:2] == ["text", "second text"] and len(head) == len(first) == len(second) == 3
    assert first[:2] == ["the cat", ""] and second[:2] == ["the dog", "the birds"]
    assert second[2].startswith("error: the model takes single texts or pairs")


def test_an_error_is_shown(browser, service):
    opened(browser, service, "classifier")
    type_into(browser, "first", "cat " * 60)
    browser.press("Enter", CTRL)
    browser.wait("document.getElementById('status').textContent === 'No answer'")
    browser.messages.clear()  # the browser's own, of status 413
    assert "reads at most 24" in browser.evaluate("document.querySelector('.error').textContent")
    browser.evaluate("document.getElementById('truncate').click()")
    browser.press("Enter", CTRL)
    assert "Probability" in result(browser)


def test_the_keyboard_reaches_all_fields_in_their_order(browser, service):
    opened(browser, service, "classifier")
    visited = []
    for _ in range(14):
        browser.press("Tab")
        visited.append(browser.evaluate("document.activeElement.id"))
    assert [name for name in visited if name in ("first", "truncate", "send")] == [
        "first", "truncate", "send"]


@pytest.mark.parametrize("name, scheme", [
    ("classifier", "light"), ("reader", "dark"), ("tagger", "light"), ("vectors", "dark")])
def test_a_page_is_no_wider_than_a_phone(name, scheme, browser, service):
    browser.call("Emulation.setEmulatedMedia", features=[
        {"name": "prefers-color-scheme", "value": scheme}])
    opened(browser, service, name, width=390)
    ask(browser, ARABIC, f"{CHINESE} {'W' * 60} the cat")
    assert browser.evaluate("document.documentElement.scrollWidth") == 390
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == ("rgb(20, 23, 26)" if scheme == "dark" else "rgb(251, 251, 249)")


def test_the_page_asks_for_the_token(browser, tiny_model, tmp_path):
    (tmp_path / "token").write_text("secret\n")
    with Service({"classifier": toy_models(tmp_path, tiny_model)["classifier"]},
                 token_file=tmp_path / "token") as service:
        browser.open(f"http://127.0.0.1:{service.port}/")
        for token, said in (("wrong", "not the token"), ("secret", "chooses among")):
            browser.wait("!document.getElementById('secret').hidden")
            browser.evaluate("document.getElementById('token').value = ''")
            type_into(browser, "token", token)
            browser.press("Enter")
            browser.wait(f"/{said}/.test(document.body.innerText)")
        browser.messages.clear()  # the browser's own, of status 401
        assert "Probability" in ask(browser, "the cat")


def test_a_page_needs_no_network_and_has_a_label_for_each_field():
    page = Page(text_of("serving/page.html"))
    for tag, attributes in page.elements:
        assert tag not in ("img", "iframe", "object") and "src" not in attributes
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes)
    labelled = {attributes["for"] for attributes in page.all("label") if "for" in attributes}
    fields = {attributes["id"] for tag in ("textarea", "input") for attributes in page.all(tag)
              if attributes.get("type") not in ("radio", "checkbox")}
    assert labelled == fields
