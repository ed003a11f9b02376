"""Pages, read: HTML, and the code blocks of Markdown."""

import os
import re
from html.parser import HTMLParser

from conftest import ROOT


def text_of(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def blocks(page, language):
    """The page's code blocks in a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", text_of(page), re.DOTALL)


class Page(HTMLParser):
    """A page's elements, as (tag, attributes), its text, and the text of its table cells."""

    def __init__(self, source: str):
        super().__init__()
        self.elements, self.text, self.rows = [], "", []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        if tag == "wbr":  # where a word may break
            return
        self.elements.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        tag = self.elements[-1][0] if self.elements else None
        if tag != "style":
            self.text += data
        if tag in ("td", "th"):
            self.rows[-1][-1] += data.strip()

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]
