"""TFRecord files of pretraining examples, ours and the original's, in chunks for a store.

Features are padded to a fixed length in the files; in the chunks they are not.
"""

import contextlib
from typing import Dict, Iterator, List, NamedTuple, Optional

from google.protobuf import message
import numpy as np
import tensorflow.compat.v1 as tf

from engine.data import record_lengths, store
from engine.devices import runtime
from engine.disk import files, patterns, provenance
from engine.errors import UserError
from engine.progress import Counter

_CHUNK_RECORDS = 1024

# The features of a record. One without the label has a single text.
_TOKENS = ("input_ids", "input_mask", "segment_ids")
_MASKS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_LABELS = "next_sentence_labels"

Specification = Dict[str, tf.io.FixedLenFeature]


class Sizes(NamedTuple):
    """The sizes that the flags and the model demand of the records."""
    max_seq_length: int
    max_predictions_per_seq: int
    vocab_size: int


class Opened(NamedTuple):
    """The examples of some files. Made by `open_store`."""
    records: store.Store
    content_hash: str  # of the files
    paths: List[str]  # of the files that hold records


def open_store(names: str, flag: str, sizes: Sizes, store_dir: str) -> Opened:
    """Opens the examples of TFRecord files, preparing them first if needed.

    Args:
        names: of files and directories, and patterns; comma-separated.
        flag: the flag that gives them, for messages.
    """
    paths = find(names, flag)
    specifications = {path: _specification(path, sizes) for path in paths}
    specifications = {path: each for path, each in specifications.items() if each}
    if not specifications:
        raise UserError(f"{flag}: there is no record in {', '.join(paths)[:200]}")
    hashes = [provenance.content_hash(path, store_dir) for path in specifications]

    def chunks() -> Iterator[store.Chunk]:
        with Counter(f"Preparing {names}", unit="examples") as counter:
            for path, specification in specifications.items():
                for chunk in read_chunks(path, specification, sizes.vocab_size):
                    yield chunk
                    counter.advance(len(chunk["next_sentence_label"]))

    key = {"files": hashes, "max_seq_length": sizes.max_seq_length,
           "vocab_size": sizes.vocab_size}
    ids = store.Column("uint16" if sizes.vocab_size <= 2**16 else "uint32", ragged=True)
    columns = {"input_ids": ids, "masked_lm_ids": ids,
               "masked_lm_positions": store.Column("uint16", ragged=True),
               "first_segment_length": store.Column("int32", ragged=False),
               "next_sentence_label": store.Column("uint8", ragged=False)}
    records = store.open_or_build(store_dir, "pretraining", key, columns, chunks)
    return Opened(records, files.hash_of_json(hashes), list(specifications))


def find(names: str, flag: str) -> List[str]:
    """The TFRecord files that comma-separated names, patterns and directories match."""
    # `create_data` writes a .json file with the settings beside each file of records.
    paths = patterns.find(names, flag)
    records = [path for path in paths if not path.endswith(".json")]
    if not records:
        raise UserError(f"{flag}: {paths[0]} describes a file of records, and is none: leave .json "
                        "out")
    return records


def _specification(path: str, sizes: Sizes) -> Optional[Specification]:
    """The features of a file's records, by its first one, checked; None if it has none."""
    lengths = _lengths_of_first(path)
    if lengths is None:
        return None
    num_masks = lengths.get("masked_lm_positions", 0)
    expected = {**dict.fromkeys(_TOKENS, sizes.max_seq_length), **dict.fromkeys(_MASKS, num_masks)}
    missing = [name for name in expected if name not in lengths]
    if missing:
        raise UserError(f"{path}: its records hold no {missing[0]}: they are no pretraining "
                        "examples; make some with python -m pretraining.create_data")
    if lengths["input_ids"] != sizes.max_seq_length:
        raise UserError(f"{path}: its records are made for --max_seq_length="
                        f"{lengths['input_ids']}, and here it is {sizes.max_seq_length}; give that "
                        "value, or create the data with this one")
    if num_masks > sizes.max_predictions_per_seq:
        raise UserError(f"{path}: its records are made for --max_predictions_per_seq={num_masks}, "
                        f"and here it is {sizes.max_predictions_per_seq}; give that value, or "
                        "create the data with this one")
    if _LABELS in lengths:
        expected[_LABELS] = 1
    return {name: tf.io.FixedLenFeature(
        [size], tf.float32 if name == "masked_lm_weights" else tf.int64)
            for name, size in expected.items()}


def _lengths_of_first(path: str) -> Optional[Dict[str, int]]:
    """Number of values of each feature in the first record; None if there is none."""
    record_lengths.check(path, num_records=1)
    with _damage_as_user_error(path):
        serialized = next(tf.io.tf_record_iterator(path), None)
        if serialized is None:
            return None
        features = tf.train.Example.FromString(serialized).features.feature
    return {name: len(getattr(value, value.WhichOneof("kind")).value)
            for name, value in features.items() if value.WhichOneof("kind")}


def read_chunks(path: str, specification: Specification,
                vocab_size: int) -> Iterator[store.Chunk]:
    """The records of a file, checked, with the columns of the store."""
    record_lengths.check(path)
    num_read = 0
    for batch in _parsed(path, specification):
        yield _chunk(batch, vocab_size, f"{path}, records from {num_read + 1:,} on")
        num_read += len(batch["input_ids"])


def _parsed(path: str, specification: Specification) -> Iterator[Dict[str, np.ndarray]]:
    graph = tf.Graph()
    with graph.as_default():
        dataset = tf.data.TFRecordDataset(path).batch(_CHUNK_RECORDS)
        # Autograph would write a temporary file.
        dataset = dataset.map(tf.autograph.experimental.do_not_convert(
            lambda records: tf.io.parse_example(records, specification)))
        dataset = runtime.without_autotuning(dataset.prefetch(2))
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
    # A session on the GPUs would take their memory before the training's session does.
    session = tf.Session(graph=graph, config=tf.ConfigProto(device_count={"GPU": 0}))
    with contextlib.closing(session), _damage_as_user_error(path):
        while True:
            try:
                values = session.run(batch)
            except tf.errors.OutOfRangeError:
                return
            yield values


@contextlib.contextmanager
def _damage_as_user_error(path: str):
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        raise UserError(f"{path}: a record is not like the first: "
                        f"{str(error).splitlines()[0]}") from error
    except (tf.errors.OpError, message.DecodeError) as error:
        raise UserError(f"{path} is no TFRecord file, or is damaged: "
                        f"{str(error).splitlines()[0]}") from error


def _chunk(batch: Dict[str, np.ndarray], vocab_size: int, where: str) -> store.Chunk:
    mask = batch["input_mask"].astype(bool)
    lengths = mask.sum(axis=1)
    positions = np.arange(mask.shape[1])
    _check(np.array_equal(mask, positions < lengths[:, np.newaxis]) and lengths.all(), where,
           "input_mask is not 1 for the tokens and 0 after them")
    first_lengths = (mask & (batch["segment_ids"] == 0)).sum(axis=1)
    second = mask & (positions >= first_lengths[:, np.newaxis])
    _check(np.array_equal(batch["segment_ids"] * mask, second), where,
           "segment_ids are not 0 for a first text and 1 for a second one")
    _check_ids(batch["input_ids"], vocab_size, where)
    labels = batch[_LABELS][:, 0] if _LABELS in batch else np.zeros(len(lengths), np.int64)
    _check(np.isin(labels, (0, 1)).all(), where, f"{_LABELS} are not 0 and 1")
    _check(np.isin(batch["masked_lm_weights"], (0, 1)).all(), where,
           "masked_lm_weights are not 0 and 1")
    masked = batch["masked_lm_weights"] > 0
    positions = batch["masked_lm_positions"] * masked
    _check(((0 <= positions) & (positions < lengths[:, np.newaxis])).all(), where,
           "masked_lm_positions lie outside of the tokens")
    _check_ids(batch["masked_lm_ids"] * masked, vocab_size, where)
    counts = masked.sum(axis=1)
    return {"input_ids": (batch["input_ids"][mask], lengths),
            "first_segment_length": first_lengths, "next_sentence_label": labels,
            "masked_lm_positions": (positions[masked], counts),
            "masked_lm_ids": (batch["masked_lm_ids"][masked], counts)}


def _check_ids(ids: np.ndarray, vocab_size: int, where: str) -> None:
    _check(ids.min() >= 0 and ids.max() < vocab_size, where,
           f"token ids go to {ids.max()}, and --bert_config_file says vocab_size {vocab_size}: "
           "they must belong to the same vocabulary")


def _check(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise UserError(f"{where}: {what}")
