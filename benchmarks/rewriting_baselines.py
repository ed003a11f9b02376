"""Ranks the phrases of slots without a trained scorer: by chance, length, BM25 and a masked LM."""

from typing import Dict, List, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from encoder import bert, model_files, pretraining_heads
from encoder.encoding import Encoding
from engine.data.batches import Source
from engine.data.store import Records
from engine.devices import devices
from engine.inference import Predictor
from engine.model import Forward, Mode, Outputs
from rewriting import bm25, data, evaluation
from rewriting.pairs import Pairs
from rewriting.slot_files import SlotExample, read_slots
from rewriting.texts import clauses, count_words


def rank(slots_file: str, model: str, max_seq_length: int) -> Dict[str, Dict[str, float]]:
    """The metrics of each baseline on the same phrases: those that the model can read.

    Args:
        model: a folder of a model with a masked-LM head.
    """
    trained = model_files.open_model(model, "--model", model_files.MASKED_LM)
    encoding = trained.encoding(max_seq_length)
    slots = readable(list(read_slots(slots_file)), encoding)
    pairs = data.encode_slots(slots, encoding).pairs
    source, forward = source_of(pairs), forward_of(trained.config())
    with Predictor(forward, devices.find_devices(num_gpus=0, training=False)) as predictor:
        predictor.restore(trained.checkpoint)
        likelihoods = predictor.predict(source, 8)["log_likelihood"]
    num_phrases = np.array([len(slot.phrases) for slot in slots])
    num_fitting = np.ones_like(num_phrases)
    return {name: evaluation.rank(num_phrases, num_fitting, scores) for name, scores in (
        ("chance", np.zeros(len(pairs))), ("length", by_length(slots)), ("BM25", by_bm25(slots)),
        ("masked LM", likelihoods))}


def readable(slots: Sequence[SlotExample], encoding: Encoding) -> List[SlotExample]:
    """The slots and phrases that `data.load_slots` keeps, if each slot has its own phrase."""
    is_readable = iter(data.encode_slots(slots, encoding).is_readable)
    kept = [slot._replace(phrases=tuple(phrase for phrase in slot.phrases if next(is_readable)))
            for slot in slots]
    return [slot for slot, original in zip(kept, slots)
            if slot.phrases[:1] == original.phrases[:1]]


def by_length(slots: Sequence[SlotExample]) -> np.ndarray:
    """The score by length: higher if the phrase is about as long as the clauses around its slot."""
    scores = []
    for slot in slots:
        around = [*clauses(slot.before), *clauses(slot.after)]
        expected = np.mean([count_words(clause) for clause in around] or [0])
        scores += [-abs(np.log((count_words(phrase) + 1) / (expected + 1)))
                   for phrase in slot.phrases]
    return np.array(scores)


def by_bm25(slots: Sequence[SlotExample]) -> np.ndarray:
    """The BM25 score of each phrase for the text around its slot."""
    phrases = [phrase for slot in slots for phrase in slot.phrases]
    index = bm25.Index(Records.of_chunk(bm25.encode(phrases)))
    slot_of = np.repeat(np.arange(len(slots)), [len(slot.phrases) for slot in slots])
    scores = np.zeros(len(phrases), np.float32)
    for number, slot in enumerate(slots):
        match = index.top(f"{slot.before} {slot.after}", len(phrases), slot_of == number)
        scores[match.rows] = match.scores
    return scores


def source_of(pairs: Pairs) -> Source:
    """Batches of [CLS] before [MASK] ... [MASK] after [SEP]: pairs without their phrases.

    The features are input_ids, input_mask and segment_ids, int32 [b, t]; positions and ids of
    the phrase's tokens, int32 [b, p], and weights, float32 [b, p]: 1.0 for tokens, 0.0 for
    padding.
    """
    phrase_lengths = pairs.candidates.lengths("ids", pairs.phrases)

    def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
        # Everything from the [SEP] after the phrase on; that [SEP] becomes the [CLS].
        sizes = phrase_lengths[indices, np.newaxis]
        longest = int(sizes.max())
        features = pairs.features(indices, length + longest + 1)
        positions = np.arange(length) + sizes + 1
        features = {name: np.take_along_axis(values, positions, axis=1)
                    for name, values in features.items()}
        features["input_ids"][:, 0] = pairs.tokenizer.cls_id
        is_filled = np.arange(longest) < sizes
        first = (features["input_ids"] == pairs.tokenizer.mask_id).argmax(axis=1)
        return {**features, "segment_ids": np.zeros_like(features["segment_ids"]),
                "positions": np.where(is_filled, first[:, np.newaxis] + np.arange(longest),
                                      0).astype(np.int32),
                "ids": pairs.candidates.padded("ids", pairs.phrases[indices],
                                               longest).astype(np.int32),
                "weights": is_filled.astype(np.float32)}

    return Source(pairs.lengths() - phrase_lengths - 1, fetch, pairs.max_seq_length)


def forward_of(config: modeling.BertConfig) -> Forward:
    """The model with its masked-LM head; predicts "log_likelihood" [b], a mean over tokens."""
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        model = bert.build(config, features, mode)
        states = model.get_sequence_output_at(features["positions"])
        logits = pretraining_heads.masked_lm_logits(
            modeling.reshape_to_matrix(states), model.get_embedding_table(), config)
        ids, weights = features["ids"], features["weights"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(ids, [-1]), logits=logits)
        sums = tf.reduce_sum(tf.reshape(losses, tf.shape(ids)) * weights, axis=1)
        return Outputs(None, {"log_likelihood": -sums / tf.reduce_sum(weights, axis=1)})
    return forward
