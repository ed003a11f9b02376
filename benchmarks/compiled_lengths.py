"""Tokens that a training with XLA computes for each real one, at the lengths that it chooses.

  python -m benchmarks.compiled_lengths --model=MINILM_TF --data=SHARED_DATA

As many steps as 3 epochs of CoLA and SST-2, and 60 of New-Wiki's 4,097 questions, which are about the steps
of two epochs of SQuAD; 32 examples a step. Nothing is trained.
"""

import os
import tempfile
from typing import Dict, Iterator, Tuple

from benchmarks import report
from encoder.encoding import Encoding, load_encoding
from engine.data.batches import Source
from engine.data.plan import TrainingPlan
from engine.devices.devices import Devices
from engine.training import xla
from engine.training.settings import TrainingSettings
from modeling import BertConfig
from reading import data as reading
from tasks.data import load_texts
from tasks.table import TASKS

import tensorflow.compat.v1 as tf

BATCH_SIZE = 32
CARD = Devices(("/gpu:0",), "GPU", "one_device", tf.ConfigProto())


def sources(model: str, data: str, store: str) -> Iterator[Tuple[str, Source, int]]:
    """Each set with its epochs."""
    def encoding(length: int) -> Encoding:
        config = BertConfig.from_json_file(os.path.join(model, "bert_config.json"))
        return load_encoding(os.path.join(model, "vocab.txt"), do_lower_case=True,
                             max_seq_length=length, vocab_size=config.vocab_size)

    for name in ("CoLA", "SST-2"):
        task = TASKS[name.lower()]
        yield name, load_texts(
            task.within(os.path.join(data, "glue", name)).train, task.kind, encoding(128), store).source(with_labels=True), 3
    yield "New-Wiki", reading.load(
        os.path.join(data, "qa_en", "newwiki_train.json"), encoding(384), reading.WindowSettings(), store,
        is_training=True).training_source(), 60


def row(name: str, source: Source, epochs: int, store: str) -> Dict[str, str]:
    """Computed tokens for each real one, and the chosen lengths."""
    steps = len(source.lengths) * epochs // BATCH_SIZE
    plan = TrainingPlan(source.lengths, BATCH_SIZE, 42)
    settings = TrainingSettings(xla=True, train_batch_size=BATCH_SIZE)
    of_batches = [plan.global_batch(step) for step in range(steps)]
    real = sum(int(source.lengths[batch].sum()) for batch in of_batches)

    def ratio(padded: Source) -> str:
        return f"{sum(padded.padded_length(batch) * len(batch) for batch in of_batches) / real:.2f}"

    padded = xla.bucketed(source, settings, CARD, steps, store)
    return {"set": name, "steps": f"{steps:,}", "multiples of 8": ratio(source), "as chosen": ratio(padded),
            "lengths": ", ".join(map(str, padded.buckets))}


def main() -> None:
    args = report.parser_of(__doc__, "model", "data").parse_args()
    with tempfile.TemporaryDirectory() as store:
        rows = [row(*each, store) for each in sources(args.model, args.data, store)]
    report.append("Tokens computed for each real one, with XLA", rows)


if __name__ == "__main__":
    main()
