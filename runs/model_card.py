"""The README.md of an exported model: its labels, its metrics and how to use it."""

import html
import os
import re
from typing import Any, Iterable, List, Mapping, Optional, Tuple

from engine import log
from engine.disk import files
from engine.training import run_record
from runs import report
from runs.capability import Capability
from runs.results import distinct

_MARKUP = re.compile(r"[|\[\]`]")
_MAX_LABELS = 100  # on the page; task.json has all of them

_USE = """\
{inputs}

Outputs: {outputs}.

```python
import tensorflow as tf  # 2.x; 1.15 has tf.saved_model.load(session, ["serve"], folder)

predict = tf.saved_model.load("export").signatures["serving_default"]
outputs = predict({call})
```

The program that trained it reads the export, too:

```shell
{command}
```
"""


def text(output_dir: str, model: Capability, global_step: int, int8: Optional[Mapping[str, str]] = None) -> str:
    """The page, in Markdown, for the checkpoint at step `global_step` of a training.

    Args:
        int8: how the answers of the export's file in int8 agree; None without one.
    """
    card, record = model.card(), run_record.load(output_dir)
    task_name = record.facts.get("task") if record else "unknown"
    arguments = [f"{name}=tf.constant({name})" for name in model.inputs]
    pairs = [", ".join(arguments[start:start + 2]) for start in range(0, len(arguments), 2)]
    versions = [f"{name} {version}" for name, version in report.environment().items()]
    return "\n".join([
        f"# {_text(task_name)}: a fine-tuned BERT\n",
        card.summary + (f"; the model after training step {global_step}" if global_step else "") + ".\n",
        *_labels(card.labels),
        *(_table("Metrics", _metrics(output_dir, global_step))
          or ["This checkpoint was not evaluated.\n"]),
        *([] if int8 is None else _table("In int8", int8.items()) or [
            "Its file in int8 was not compared with float32.\n"]),
        *_table("Settings", report.settings(task_name, model, record).items()),
        f"Exported with {', '.join(versions)}.\n",
        "## How to use it\n",
        _USE.format(inputs=card.inputs, outputs=card.outputs, command=card.command,
                    call=",\n                  ".join(pairs))])


def inputs(model: Capability, tokens: str, segment_ids: str = "all 0", shape: str = "[batch, length]") -> str:
    """`Card.inputs`, for these tokens."""
    casing = "lower-cased" if model.encoding.do_lower_case else "in their case"
    return f"""\
{tokens} as WordPiece ids of `assets.extra/vocab.txt`, {casing}, at most {model.encoding.max_seq_length} of them.
Inputs, all int32 `{shape}`: `input_ids`, padded with 0; `input_mask`, 1 on ids and 0 on
padding; `segment_ids`, {segment_ids}."""


def _labels(names: Iterable[str]) -> List[str]:
    """The section on the labels, in the order of the outputs; none if there are no labels."""
    shown = [f"{index}. {_code(label)}" for index, label in enumerate(names)]
    if len(shown) > _MAX_LABELS:
        shown[_MAX_LABELS:] = [f"\n… and {len(shown) - _MAX_LABELS:,} more, in "
                               "`assets.extra/task.json`"]
    return ["## Labels\n", *shown, ""] if shown else []


def _metrics(output_dir: str, global_step: int) -> List[Tuple[str, float]]:
    """What an evaluation of the checkpoint at this step found, if there was one."""
    path = os.path.join(output_dir, "eval_results.json")
    results = files.read_record(path, "the evaluation", {}) if os.path.exists(path) else {}
    if results.get("global_step", 0) != global_step:
        return []
    return [(name, value) for name, value in distinct(results).items()
            if not isinstance(value, (list, dict)) and name != "global_step"]


def _table(title: str, rows: Iterable[Tuple[str, Any]]) -> List[str]:
    """A section of names and values; none if there are none."""
    lines = [f"| {_text(name)} | {_text(value)} |" for name, value in rows]
    return [f"## {title}\n", "| | |", "| --- | --- |", *lines, ""] if lines else []


def _code(label: str) -> str:
    """A label in a code span, with more backticks around it than are in it."""
    label = log.visible(label)
    fence = "`" * (1 + max(map(len, re.findall("`+", label)), default=0))
    space = " " * (label[:1] == "`" or label[-1:] == "`")
    return f"{fence}{space}{label}{space}{fence}"


def _text(value: Any) -> str:
    """A value as plain text, even if it looks like Markdown or HTML."""
    shown = f"{value:.5g}" if isinstance(value, float) else str(value)
    shown = log.visible(" ".join(html.escape(shown, quote=False).split()))
    return _MARKUP.sub(r"\\\g<0>", shown)
