"""The README.md of an exported model: its labels, its metrics and how to use it."""

import html
import os
import re
from typing import Any, Iterable, List, Optional

from engine import files
from engine.errors import UserError
from engine.training import run_record
from tasks import report_facts
from tasks.label_types import Kind
from tasks.model_folder import TrainedModel

_MARKUP = re.compile(r"[|\[\]`]")
_MAX_LABELS = 100  # on the page; task.json has all of them

_OUTPUTS = {
    "classes": "`probabilities`, float32 `[batch, {count}]`, of the labels in the order above; "
               "`label_index`, int64 `[batch]`, the index of the likeliest label, from 0",
    "multi_label": "`probabilities`, float32 `[batch, {count}]`, an independent one for each "
                   "label, in the order above; predicted are the labels with at least 0.5",
    "regression": "`value`, float32 `[batch]`"}

_USE = """\
`[CLS] text [SEP]`, or `[CLS] text [SEP] text [SEP]` for a pair, as WordPiece ids of
`assets.extra/vocab.txt`, at most {max_seq_length} of them, {casing}. Inputs, all int32
`[batch, length]`: `input_ids`, padded with 0; `input_mask`, 1 on ids and 0 on padding;
`segment_ids`, 1 on the second text and its `[SEP]`, else 0.

Outputs: {outputs}.

```python
import tensorflow as tf  # 2.x; 1.15 has tf.saved_model.load(session, ["serve"], folder)

predict = tf.saved_model.load("export").signatures["serving_default"]
outputs = predict(input_ids=tf.constant(input_ids), input_mask=tf.constant(input_mask),
                  segment_ids=tf.constant(segment_ids))
```

The program that trained it predicts from texts:

```shell
python -m tasks.predict --output_dir=export < texts.txt
```
"""

_FROZEN = """
`frozen_graph.pb` is the same model as one GraphDef whose weights are {float_type} constants;
inputs and outputs have the names above. It computes in float32.
"""


def text(output_dir: str, model: TrainedModel, global_step: int,
         frozen_type: Optional[str]) -> str:
    """The page, in Markdown, for the checkpoint at step `global_step` of a training."""
    record = run_record.load(output_dir)
    task_name = record.facts.get("task") if record else "unknown"
    kind = model.kind
    settings = report_facts.settings(task_name, model.config, model.encoding, record)
    return "\n".join([
        f"# {_cell(task_name)}: a fine-tuned BERT\n",
        f"{_describe(kind)}, for {'pairs of texts' if model.takes_pairs else 'single texts'}; "
        f"the model after training step {global_step}.\n",
        *_labels(kind),
        *_metrics(output_dir, global_step),
        "## Settings\n", *_table(("setting", "value"), settings.items()),
        "## Environment\n", *_table(("of the export", ""), report_facts.environment().items()),
        "## How to use it\n",
        _USE.format(max_seq_length=model.encoding.max_seq_length,
                    casing="lower-cased" if model.encoding.do_lower_case else "in their case",
                    outputs=_OUTPUTS[kind.name].format(count=kind.num_outputs))
        + (_FROZEN.format(float_type=frozen_type) if frozen_type else "")])


def _describe(kind: Kind) -> str:
    return {"classes": f"One of {len(kind.labels):,} labels",
            "multi_label": f"Any number of {len(kind.labels):,} labels",
            "regression": "A number"}[kind.name]


def _labels(kind: Kind) -> List[str]:
    if not kind.labels:
        return []
    shown = [f"{index}. {_code(label)}" for index, label in enumerate(kind.labels[:_MAX_LABELS])]
    num_more = len(kind.labels) - len(shown)
    more = [f"\n… and {num_more:,} more, in `assets.extra/task.json`"] * bool(num_more)
    return ["## Labels\n", *shown, *more, ""]


def _metrics(output_dir: str, global_step: int) -> List[str]:
    """The metrics of the evaluation at this step, if there was one."""
    path = os.path.join(output_dir, "eval_results.json")
    results = {}
    if os.path.exists(path):
        results = files.read_record(path, "the evaluation", {"per_class": list})
        if not all(isinstance(row, dict) for row in results["per_class"]):
            raise UserError(f"the evaluation {path} is damaged: 'per_class' holds no objects")
    if results.get("global_step") != global_step:
        return ["## Metrics\n", "This checkpoint was not evaluated.\n"]
    # Google's run_classifier writes "eval_loss" a second time as "loss".
    figures = {name: value for name, value in results.items()
               if not isinstance(value, list) and name not in ("global_step", "loss")}
    classes = results["per_class"][:_MAX_LABELS]
    return ["## Metrics\n", "On the dev set:\n",
            *_table(("metric", "value"), figures.items()),
            *(_table(classes[0], (row.values() for row in classes)) if classes else [])]


def _code(label: str) -> str:
    """A label in a code span, with more backticks around it than are in it."""
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
    return " ".join(_MARKUP.sub(r"\\\g<0>", html.escape(shown, quote=False)).split())
