"""The README.md of an exported model: its labels, its metrics and how to use it."""

import html
import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from engine import log
from engine.disk import files
from engine.training import run_record
from runs import report
from runs.head import Head, Model

PREDICT = "python -m runs.predict --output_dir=export < {input}"  # `Card.command` of a `Reader`

_MARKUP = re.compile(r"[|\[\]`]")
_MAX_LABELS = 100  # on the page; task.json has all of them
_TABLES = ("per_class", "per_category", "per_category_test", "per_type")  # in eval_results.json

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

_FROZEN = """
`frozen_graph.pb` is the same model as one GraphDef whose weights are {float_type} constants;
inputs and outputs have the names above. It computes in float32.
"""


def text(output_dir: str, head: Head, model: Model, global_step: int,
         frozen_type: Optional[str]) -> str:
    """The page, in Markdown, for the checkpoint at step `global_step` of a training."""
    card, record = head.card(model), run_record.load(output_dir)
    task_name = record.facts.get("task") if record else "unknown"
    arguments = [f"{name}=tf.constant({name})" for name in head.inputs]
    pairs = [", ".join(arguments[start:start + 2]) for start in range(0, len(arguments), 2)]
    return "\n".join([
        f"# {_cell(task_name)}: a fine-tuned BERT\n",
        card.summary + (f"; the model after training step {global_step}" if global_step else "") + ".\n",
        *_labels(card.labels),
        *_metrics(output_dir, global_step),
        "## Settings\n",
        *_table(("setting", "value"), report.settings(task_name, model, record).items()),
        "## Environment\n", *_table(("of the export", ""), report.environment().items()),
        "## How to use it\n",
        _USE.format(inputs=card.inputs, outputs=card.outputs, command=card.command,
                    call=",\n                  ".join(pairs))
        + (_FROZEN.format(float_type=frozen_type) if frozen_type else "")])


def casing(model: Model) -> str:
    """How the model's texts are written, for `Card.inputs`."""
    return "lower-cased" if model.encoding.do_lower_case else "in their case"


def _labels(names: Sequence[str]) -> List[str]:
    """The section on the labels, in the order of the outputs; none if there are no labels."""
    if not names:
        return []
    shown = [f"{index}. {_code(label)}" for index, label in enumerate(names[:_MAX_LABELS])]
    num_more = len(names) - len(shown)
    more = [f"\n… and {num_more:,} more, in `assets.extra/task.json`"] * bool(num_more)
    return ["## Labels\n", *shown, *more, ""]


def _metrics(output_dir: str, global_step: int) -> List[str]:
    """The section on the evaluation at this step, if there was one."""
    path = os.path.join(output_dir, "eval_results.json")
    results = files.read_record(path, "the evaluation", {}) if os.path.exists(path) else {}
    if not results or results.get("global_step", 0) != global_step:
        return ["## Metrics\n", "This checkpoint was not evaluated.\n"]
    figures = _figures(results)
    is_tested = any(name.endswith("_test") for name in figures)
    return ["## Metrics\n",
            "On the dev set; on the test set where a name ends in `_test`:\n" if is_tested
            else "On the dev set:\n",
            *_table(("metric", "value"), figures.items()),
            *(line for name in _TABLES if results.get(name)
              for line in (f"`{name}`:\n", *_rows_of(results[name][:_MAX_LABELS])))]


def _figures(results: Mapping[str, Any]) -> Dict[str, Any]:
    """The numbers of an evaluation, by name; those of a group have its name before their own."""
    figures = {}
    for name, value in results.items():
        if isinstance(value, dict):
            figures.update({f"{name}: {metric}": number for metric, number in value.items()})
        # Google's run_classifier writes "eval_loss" a second time as "loss".
        elif not isinstance(value, list) and name not in ("global_step", "loss"):
            figures[name] = value
    return figures


def _rows_of(values: Sequence[Mapping[str, Any]]) -> List[str]:
    """A table of objects with the same keys."""
    return _table(values[0], (row.values() for row in values))


def _code(label: str) -> str:
    """A label in a code span, with more backticks around it than are in it."""
    label = log.visible(label)
    fence = "`" * (1 + max(map(len, re.findall("`+", label)), default=0))
    space = " " if label.startswith("`") or label.endswith("`") else ""
    return f"{fence}{space}{label}{space}{fence}"


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> List[str]:
    head = list(head)
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows), ""]


def _row(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(value: Any) -> str:
    shown = f"{value:.5g}" if isinstance(value, float) else str(value)
    # Labels and settings are text, whatever Markdown or HTML they look like.
    shown = log.visible(" ".join(html.escape(shown, quote=False).split()))
    return _MARKUP.sub(r"\\\g<0>", shown)
