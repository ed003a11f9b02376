"""Extracts the features of the texts of a file: the states of some layers of an encoder.

They are written as Google's JSON lines, JSON lines with a vector each, or a NumPy array.
"""

import functools
import json
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import modeling
from encoder import bert
from encoder.encoding import Encoding, encode_texts_and_pairs
from engine.checkpoints.checkpoints import Checkpoint
from engine.cli.shards import Shard
from engine.data import store, text_files
from engine.data.batches import Source, token_features
from engine.data.text_files import OddRows, Unread
from engine.disk import parts, provenance
from engine.model import Forward, Mode, Outputs
from runs import stream
from runs.capability import Encoded

_BETWEEN = " ||| "  # two texts of a line, as in Google's code
_DIGITS = 6  # of a value after the point, as in Google's
_CHUNK_TEXTS = 4096  # at a time, or fewer:
_CHUNK_VALUES = 2**23  # 32 MB, and 80 MB of JSON


class Extraction(stream.Stream):
    """An encoder, and the states of some of its layers.

    Args:
        layers: indices of layers, from 0, or from -1 backwards.
        pooling: one of bert.POOLINGS, or None for a vector of each token.
        values: the flags of the command.
    """
    title, unit, become = "Extracting", "texts", "lines have no features"

    def __init__(self, config: modeling.BertConfig, encoding: Encoding, checkpoint: Checkpoint,
                 layers: List[int], pooling: Optional[str], values: flags.FlagValues):
        super().__init__(forward_of(config, layers, pooling), checkpoint, values)
        self._config, self._encoding = config, encoding
        self._layers, self._pooling = layers, pooling
        self._is_array = is_array(values.output_file)
        vectors = 1 if pooling else encoding.max_seq_length
        self._values_per_text = vectors * len(layers) * config.hidden_size  # the most
        self.chunk_size = max(1, min(_CHUNK_TEXTS, _CHUNK_VALUES // self._values_per_text))

    def open(self, values: flags.FlagValues, source: stream.Input, odd: OddRows) -> stream.Texts:
        """The texts, which are counted first, and lines of JSON or an array."""
        total = sum(1 for _ in read_texts(source, OddRows("", skips_lines=odd.skips_lines)))
        header = store.array_header(total, self._values_per_text) if self._is_array else ""
        write = (lambda number, text, row: row) if self._is_array else json_line
        return stream.Texts(read_texts(source, odd), write, header, total,
                            lambda: self._encoding.report(str(source)))

    def encode(self, rows: List[Tuple[str, str]]) -> Encoded:
        """A record for each text."""
        records, source = tokenize(rows, self._encoding)

        def decode(predictions: Dict[str, np.ndarray]) -> Iterator[Union[bytes, Dict[str, Any]]]:
            states = predictions["states"]
            if self._is_array:
                return map(np.ndarray.tobytes, states)
            if self._pooling:
                return entries_of_vectors(states)
            tokens = (self._encoding.tokenizer.convert_ids_to_tokens(
                records.values("input_ids", np.array([number]))[0].tolist())
                for number in range(len(rows)))
            return entries_of_tokens(tokens, states, self._layers)

        return Encoded(source, decode)

    def model_facts(self) -> Dict[str, Any]:
        """The encoder, and what is taken from it."""
        return {
            "vocabulary": self._encoding.vocab_hash,
            "--do_lower_case": self._encoding.do_lower_case,
            "--max_seq_length": self._encoding.max_seq_length,
            "model config": self._config.to_dict(),
            "checkpoint": provenance.Source(self.checkpoint.index_file),
            "--layers": self._layers, "--pooling": self._pooling}

    def facts(self, values: flags.FlagValues, shard: Optional[Shard]) -> Dict[str, Any]:
        """Also of a whole file, which is resumed."""
        path = shard.part_of(values.input_file) if shard else values.input_file
        return {"--input_file": provenance.Source(path, parts.LINES),
                "--precision": values.precision, **self.model_facts()}


def read_texts(path: text_files.Path, odd: OddRows) -> Iterator[Union[Tuple[str, str], Unread]]:
    """The text of each line and its second text, "" if it has none.

    Args:
        odd: see `text_files.lines`.
    """
    for _, line in text_files.lines(path, odd=odd):
        first, between, last = (line or "").strip().rpartition(_BETWEEN)
        yield line if isinstance(line, Unread) else (first, last) if between else (last, "")


def tokenize(rows: List[Tuple[str, str]], encoding: Encoding
             ) -> Tuple[store.Records, Source]:
    """Texts and their second texts, tokenized, and their batches."""
    texts, seconds = zip(*rows)
    records = store.Records.of_chunk(encode_texts_and_pairs(list(texts), list(seconds), encoding))
    return records, Source(records.lengths("input_ids"),
                           functools.partial(token_features, records), encoding.max_seq_length)


def forward_of(config: modeling.BertConfig, layers: Sequence[int],
               pooling: Optional[str]) -> Forward:
    """A model without a loss, whose prediction is "states".

    Its features are input_ids, input_mask and segment_ids, int32 [b, t].

    Args:
        layers: indices of layers, from 0, or from -1 backwards; their states are concatenated.
        pooling: one of `bert.POOLINGS`, for states [b, layers x D]; None for all tokens' states,
            [b, t, layers x D].
    """
    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        of_layers = bert.build(config, features, mode).get_all_encoder_layers()
        states = tf.concat([tf.cast(of_layers[layer], tf.float32) for layer in layers], axis=-1)
        if pooling:
            states = bert.pooled(states, features["input_mask"], pooling)
        return Outputs(loss=None, predictions={"states": states})
    return forward


def is_array(path: str) -> bool:
    """Whether an output file of this name is a NumPy array; others have lines of JSON."""
    return path.endswith(".npy")


def entries_of_tokens(tokens_of_texts: Iterable[List[str]], states: np.ndarray,
                      layers: Sequence[int]) -> Iterator[Dict[str, Any]]:
    """A JSON object for each text, with the states of each token, like Google's.

    Args:
        states: [n, t, layers x D], with padding.
    """
    for of_text, values in zip(tokens_of_texts, states):
        values = _rounded(values[:len(of_text)].reshape(len(of_text), len(layers), -1))
        yield {"features": [
            {"token": token, "layers": [{"index": layer, "values": of_layer}
                                        for layer, of_layer in zip(layers, of_token)]}
            for token, of_token in zip(of_text, values)]}


def entries_of_vectors(states: np.ndarray) -> Iterator[Dict[str, Any]]:
    """A JSON object for each text, with its vector."""
    return ({"values": values} for values in _rounded(states))


def json_line(number: int, text: Any, entry: Dict[str, Any]) -> str:
    """A line for the text of this number, from 0 in the input or its part."""
    return json.dumps({"linex_index": number, **entry}) + "\n"


def _rounded(states: np.ndarray) -> List[Any]:
    # Exact: a float32 times 10^6 has at most 38 bits, so this is Python's round().
    return np.round(states.astype(np.float64), _DIGITS).tolist()
