"""Exports a trained model for other programs, as a SavedModel of the logits of a window's tokens."""

from typing import Optional

from absl import flags
import tensorflow.compat.v1 as tf

import modeling
from encoder import model_files, vocabulary
from engine import saved_model
from engine.model import INFERENCE
from reading import model
from tasks import export as task_export, model_card

_CARD = """# Reading comprehension: a fine-tuned BERT

It finds the answer to a question in a text; the model after training step {step}.

## How to use it

Each line of `questions.tsv` is a question, a tab, and the text that has its answer:

    python -m tasks.predict --output_dir=export < questions.tsv

In other programs: a window is `[CLS] question [SEP] text [SEP]` as WordPiece ids of `assets.extra/vocab.txt`, {casing}.
Inputs, all int32 `[batch, length]`: `input_ids`, padded with 0; `input_mask`, 1 on ids and 0 on
padding; `segment_ids`, 1 on the text and its `[SEP]`, else 0.

Outputs, float32 `[batch, length]`: `start_logits` and `end_logits`, how likely the answer begins and
ends at a token. The answer is the span of the text for which their sum is greatest; if questions may
have none, that of `[CLS]` is the score of having none.

```python
import tensorflow as tf  # 2.x; 1.15 has tf.saved_model.load(session, ["serve"], folder)

predict = tf.saved_model.load("export").signatures["serving_default"]
outputs = predict(input_ids=tf.constant(input_ids), input_mask=tf.constant(input_mask),
                  segment_ids=tf.constant(segment_ids))
```
"""


def check_flags(values: flags.FlagValues) -> None:
    """Raises the UserErrors of an export before the hours of training."""
    task_export.check_output(values)
    if values.do_export and not values.do_train:
        _trained_model(values.output_dir)


def write(output_dir: str, frozen_type: Optional[str]) -> None:
    """Exports the best or else the newest checkpoint of a training; replaces an earlier export.

    Args:
        frozen_type: also writes a frozen graph whose weights have this type, one of
            `saved_model.FLOAT_TYPES`.

    Raises:
        UserError: there is no trained model.
    """
    trained = _trained_model(output_dir)
    card = _CARD.format(step=trained.checkpoint.global_step,
                        casing=("lower-cased" if vocabulary.is_lower_cased(trained.folder)
                                else "in their case"))
    task_export.write_with_files(output_dir, lambda: _signature(trained.config()), trained,
                                 frozen_type, card + model_card.frozen_graph(frozen_type))


def _trained_model(output_dir: str) -> model_files.ModelFiles:
    found = model_files.open_model(output_dir, "--output_dir")
    model.require_head(found.checkpoint, found.flag)
    return found


def _signature(config: modeling.BertConfig) -> saved_model.Signature:
    """Builds the model in the default graph, with int32 inputs [batch, length] of any size."""
    inputs = {name: tf.placeholder(tf.int32, [None, None], name=name)
              for name in task_export.INPUTS}
    mode = INFERENCE._replace(computation=modeling.Computation(inlined=True))
    logits = model.start_and_end(config, inputs, mode)
    return saved_model.Signature(inputs, {
        name: tf.identity(tensor, name=name)
        for name, tensor in zip(("start_logits", "end_logits"), logits)})
