"""Extracts the features of the texts of a file."""

from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
from absl import flags

import modeling
from encoder.encoding import Encoding
from engine.checkpoints.checkpoints import Checkpoint
from engine.cli.shards import Shard
from engine.data import parts
from engine.data.text_files import OddRows
from engine.disk.provenance import Source
from engine.disk.resumable_file import array_header
from features import formats, model
from features.texts import Texts, read_texts
from runs import stream
from runs.capability import Encoded

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
        super().__init__(model.forward_of(config, layers, pooling), checkpoint, values)
        self._config, self._encoding = config, encoding
        self._layers, self._pooling = layers, pooling
        self._is_array = formats.is_array(values.output_file)
        vectors = 1 if pooling else encoding.max_seq_length
        self._values_per_text = vectors * len(layers) * config.hidden_size  # the most
        self.chunk_size = max(1, min(_CHUNK_TEXTS, _CHUNK_VALUES // self._values_per_text))

    def open(self, values: flags.FlagValues, source: stream.Input, odd: OddRows) -> stream.Texts:
        """The texts, which are counted first, and lines of JSON or an array."""
        total = sum(1 for _ in read_texts(source, OddRows("", skips_lines=odd.skips_lines)))
        write, header = formats.json_line, ""
        if self._is_array:
            write, header = (lambda number, text, row: row), array_header(total, self._values_per_text)
        return stream.Texts(read_texts(source, odd), write, header, total,
                            lambda: self._encoding.report(str(source)))

    def encode(self, rows: List[Optional[Tuple[str, str]]]) -> Encoded:
        """A record for each text."""
        texts = Texts.of(rows, self._encoding)
        return Encoded(texts.source(), lambda predictions: self._decode(texts, predictions["states"]))

    def _decode(self, texts: Texts, states: np.ndarray) -> Iterator[Union[bytes, Dict[str, Any]]]:
        if self._is_array:
            return map(np.ndarray.tobytes, states)
        if self._pooling:
            return formats.vectors(states)
        return formats.tokens(map(texts.tokens, range(len(states))), states, self._layers)

    def model_facts(self) -> Dict[str, Any]:
        """The encoder, and what is taken from it."""
        return {
            "vocabulary": self._encoding.vocab_hash,
            "--do_lower_case": self._encoding.do_lower_case,
            "--max_seq_length": self._encoding.max_seq_length,
            "model config": self._config.to_dict(),
            # The index holds a checksum of every tensor.
            "checkpoint": Source(f"{self.checkpoint.path}.index"),
            "--layers": self._layers, "--pooling": self._pooling}

    def facts(self, values: flags.FlagValues, shard: Optional[Shard]) -> Dict[str, Any]:
        """Also of a whole file, which is resumed."""
        path = shard.part_of(values.input_file) if shard else values.input_file
        return {"--input_file": Source(path, parts.LINES), "--precision": values.precision,
                **self.model_facts()}
