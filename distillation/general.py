"""General distillation: a student learns a pretrained model's states and attention, on any text.

The texts are the examples of pretraining, with the words in the place of the masks.
"""

import json
from typing import Any, Mapping

import numpy as np

from encoder import pretraining_tfrecords
from encoder.encoding import Encoding
from engine import files
from engine.data.batches import Features, Source, token_features
from engine.devices import Devices
from engine.model import Forward
from engine.training import loop, run_record
from modeling import BertConfig
from tasks import model_folder, training
from tasks.training import Settings


def open_texts(patterns: str, encoding: Encoding, vocab_size: int,
               store_dir: str) -> pretraining_tfrecords.Opened:
    """The examples of TFRecord files that a comma-separated list names.

    Raises:
        UserError: the files hold no examples of this length and vocabulary.
    """
    length = encoding.max_seq_length
    # Any number of masked words will do: they are put back.
    sizes = pretraining_tfrecords.Sizes(length, max_predictions_per_seq=length, vocab_size=vocab_size)
    return pretraining_tfrecords.open_store(patterns, "--input_file", sizes, store_dir)


def source(texts: pretraining_tfrecords.Opened, encoding: Encoding, *, dynamic_padding: bool) -> Source:
    """What the engine reads batches from: input_ids, input_mask, segment_ids."""
    records = texts.records

    def fetch(indices: np.ndarray, length: int) -> Features:
        features = token_features(records, indices, length)
        if "masked_lm_ids" in records:
            positions, counts = records.values("masked_lm_positions", indices)
            words, _ = records.values("masked_lm_ids", indices)
            features["input_ids"][np.repeat(np.arange(len(indices)), counts), positions] = words
        return features

    return Source(records.lengths("input_ids"), fetch, encoding.max_seq_length, dynamic_padding)


def train(forward: Forward, texts: pretraining_tfrecords.Opened, config: BertConfig, encoding: Encoding,
          devices: Devices, settings: Settings, facts: Mapping[str, Any]) -> None:
    """Trains for the epochs asked for; goes on where an earlier run stopped.

    Args:
        forward: the student with its loss.
        config: the student's.
        facts: what the run is, beyond the model, the vocabulary and the texts.

    Raises:
        UserError: the output directory holds another run, or the checkpoint another model.
    """
    num_examples = len(texts.records)
    schedule = settings.training(loop.count_steps(
        num_examples, settings.num_train_epochs, settings.global_batch_size(devices.num_replicas)))
    record = run_record.Record(
        {"task": "general distillation", "model config": config.to_dict(),
         "vocabulary": encoding.vocab_hash, "--max_seq_length": encoding.max_seq_length,
         "training data": files.hash_of(json.dumps(texts.hashes).encode("utf-8")), **facts},
        settings.changeable(devices.num_replicas))
    if not run_record.check_training(
            settings.output_dir, record, num_train_steps=schedule.num_train_steps,
            allow_batch_change=settings.allow_batch_change):
        return
    training.announce(settings, devices, num_examples, schedule)
    model_folder.save_encoder(settings.output_dir, config, encoding)
    with run_record.kept(settings.output_dir, record):
        loop.train(
            forward, source(texts, encoding, dynamic_padding=settings.dynamic_padding), devices,
            schedule, settings.init_checkpoint)
