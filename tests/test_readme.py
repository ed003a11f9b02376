"""What the README shows works."""

import json
import os
import re

from conftest import ROOT
from tasks import processors
from tasks.examples import read_examples


def test_the_processor_of_the_readme_reads_nested_sentiment_json(tmp_path):
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        code, = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    rows = [("不错", "2"), ("一般", "1"), ("很差", "0")]
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text("".join(
            json.dumps({"comment": text, "items": [{"sentiment": sentiment}]}) + "\n"
            for text, sentiment in rows))
    task = processors.make_task(f"{tmp_path}/mine.py:SentimentProcessor")
    examples = list(read_examples(task, task.train, str(tmp_path)))
    assert [(example.text_a, task.labels[example.label]) for example in examples] == [
        ("不错", "positive"), ("很差", "negative")]


def test_the_files_and_links_that_the_readme_names_are_there():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        text = file.read()
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert len(targets) > 3
    assert not [target for target in targets if not os.path.exists(os.path.join(ROOT, target))]
    tree = text[text.index("## How it is built"):]
    for name in re.findall(r"^  ([a-z_]+\.py) ", tree, re.MULTILINE):
        assert any(os.path.exists(os.path.join(ROOT, room, name)) for room in os.listdir(ROOT))
