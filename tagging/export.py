"""Exports a trained tagger for other programs, as a SavedModel of the tags of a sentence's words."""

from typing import Optional

from absl import flags
import tensorflow.compat.v1 as tf

import modeling
from encoder import vocabulary
from engine import saved_model
from engine.model import INFERENCE
from tagging import model, tagger
from tagging.model import Tagger
from tasks import export as task_export, model_card

_CARD = """# Tagging: a fine-tuned BERT

It finds entities in sentences; the model after training step {step}.

{labels}
{metrics}
## How to use it

Each line of `texts.txt` is a sentence; each line of the answer is a JSON list of its entities:

    python -m tasks.predict --output_dir=export < texts.txt

In other programs: `[CLS] sentence [SEP]` as WordPiece ids of `assets.extra/vocab.txt`, {casing},
at most {max_seq_length} of them; a longer sentence is cut by the program above into windows.
Inputs, all int32: `input_ids` `[batch, length]`, padded with 0; `input_mask`, 1 on ids and 0 on
padding; `segment_ids`, all 0; `first_pieces` `[batch, words]`, the position in `input_ids` of each
word's first piece, padded with 0; `num_words` `[batch]`, at least 1.

Outputs: `label_index`, int32 `[batch, words]`, the labels of the words, by their numbers above: of the
sequences that the scheme allows the best one; what stands after a sentence's last word means
nothing. `scores`, float32 `[batch, words, {num_labels}]`, of each label by itself.

```python
import tensorflow as tf  # 2.x; 1.15 has tf.saved_model.load(session, ["serve"], folder)

predict = tf.saved_model.load("export").signatures["serving_default"]
outputs = predict(input_ids=tf.constant(input_ids), input_mask=tf.constant(input_mask),
                  segment_ids=tf.constant(segment_ids), first_pieces=tf.constant(first_pieces),
                  num_words=tf.constant(num_words))
```
"""


def check_flags(values: flags.FlagValues) -> None:
    """Raises the UserErrors of an export before the hours of training."""
    task_export.check_output(values)
    if values.do_export and not values.do_train:
        tagger.open_files(values.output_dir)


def write(output_dir: str, frozen_type: Optional[str]) -> None:
    """Exports the best or else the newest checkpoint of a training; replaces an earlier export.

    Args:
        frozen_type: also writes a frozen graph whose weights have this type, one of
            `saved_model.FLOAT_TYPES`.

    Raises:
        UserError: there is no trained tagger.
    """
    trained, on_encoder = tagger.open_files(output_dir)
    labels, step = on_encoder.tags.labels, trained.checkpoint.global_step
    card = _CARD.format(
        step=step, labels="\n".join(model_card.labels(labels)), num_labels=len(labels),
        metrics="\n".join(model_card.metrics(output_dir, step)),
        max_seq_length=trained.description()["max_seq_length"],
        casing="lower-cased" if vocabulary.is_lower_cased(trained.folder) else "in their case")
    task_export.write_with_files(output_dir, lambda: _signature(trained.config(), on_encoder),
                                 trained, frozen_type,
                                 card + model_card.frozen_graph(frozen_type))


def _signature(config: modeling.BertConfig, on_encoder: Tagger) -> saved_model.Signature:
    """Builds the model in the default graph, with int32 inputs of any size."""
    inputs = {name: tf.placeholder(tf.int32, [None, None], name=name)
              for name in (*task_export.INPUTS, "first_pieces")}
    inputs["num_words"] = tf.placeholder(tf.int32, [None], name="num_words")
    mode = INFERENCE._replace(computation=modeling.Computation(inlined=True))
    whole = tf.ones_like(inputs["num_words"], tf.float32)
    words, trained = model.words_of(
        config, on_encoder, {**inputs, "opens": whole, "closes": whole}, mode)
    # Decoding goes from word to word, and needs two: one more is added, which is in no sentence.
    padded = words._replace(emissions=tf.pad(words.emissions, [[0, 0], [0, 1], [0, 0]]))
    outputs = {"label_index": model.best_labels(on_encoder, padded, trained)[:, :-1],
               "scores": words.emissions}
    return saved_model.Signature(
        inputs, {name: tf.identity(tensor, name=name) for name, tensor in outputs.items()})
