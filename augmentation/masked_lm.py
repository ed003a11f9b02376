"""The words that a masked LM predicts for one masked word of a text, for many words at once.

The input is the paper's (Jiao et al. 2020, Algorithm 1): [CLS] the text with the one word
masked [SEP]. The published code also gives the model the unmasked text, as a second segment:
that doubles the tokens, halves what fits of a long text, and the prediction is mostly the
word itself. A text that is too long for the model is cut to what fits around the word.
"""

from typing import Callable, Dict, Mapping, NamedTuple, Optional, Tuple

import numpy as np

import modeling
import tensorflow.compat.v1 as tf
from encoder import bert, pretraining_heads
from engine.checkpoints import checkpoints
from engine.data.batches import Source
from engine.devices.devices import Devices
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import Forward, Mode, Outputs
from tokenization import BatchTokenizer

_SPECIAL_TOKENS = 2  # [CLS] and [SEP]
SHORTEST_INPUT = _SPECIAL_TOKENS + 1
# In float32 the scores of an input depend on its batch, by less than this. If the last candidate
# and the next word are nearer to each other, the batch could decide between them; see
# `MaskedLanguageModel.candidates`. Other precisions, TensorFloat-32 too, differ by more: they are
# not the default here.
_SCORE_TOLERANCE = 1e-4


class WordPositions(NamedTuple):
    """Where some words of texts are; each word is one WordPiece."""
    token_ids: np.ndarray  # int32, of all texts, one text after the other
    starts: np.ndarray  # [n], where the text of each word begins in `token_ids`
    lengths: np.ndarray  # [n], tokens of that text
    positions: np.ndarray  # [n], of the word in its text


class MaskedLanguageModel:
    """Predicts candidates for masked words, on all replicas.

    Use it as a context manager: it holds a session.

    Args:
        max_seq_length: the longest input, in tokens.
        num_candidates: how many words to predict for each masked one.
        per_replica_batch_size: inputs of full length that a replica takes at a time; of
            shorter inputs, as many as have those tokens.
    """

    def __init__(self, config: modeling.BertConfig, checkpoint: checkpoints.Checkpoint,
                 tokenizer: BatchTokenizer, devices: Devices, *, max_seq_length: int,
                 num_candidates: int, per_replica_batch_size: Optional[int]):
        self.num_candidates = num_candidates
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._batch_size = per_replica_batch_size
        is_word = _words_of(tokenizer.vocab, config.vocab_size)
        if is_word.sum() < num_candidates + 2:
            raise UserError(f"--M={num_candidates}: the vocabulary has only {is_word.sum()} words; "
                            "give a smaller number")
        # Two more: the word itself may be among the best, and the one after the last candidate
        # shows how close the decision was.
        forward = _forward_of(config, is_word, num_candidates + 2)
        self._predictor = Predictor(forward, devices)
        self._predictor.restore(checkpoint)

    def __enter__(self) -> "MaskedLanguageModel":
        return self

    def __exit__(self, *exception) -> None:
        self._predictor.__exit__(*exception)

    def candidates(self, words: WordPositions,
                   advance: Callable[[int], None] = lambda count: None) -> np.ndarray:
        """The ids of the likeliest words but the word itself, ascending, [n, num_candidates].

        In float32 the candidates for a word depend neither on its batch nor on the number of
        replicas: an input for which rounding could decide about the last candidate is run again,
        alone. `advance` is called with the number of words of each finished step.
        """
        if not len(words.positions):
            return np.zeros([0, self.num_candidates], np.int32)
        ids, margins = self._best(words, advance)
        for index in np.flatnonzero(margins < _SCORE_TOLERANCE):
            alone = WordPositions(
                words.token_ids, *(values[index:index + 1] for values in words[1:]))
            ids[index] = self._best(alone)[0][0]
        return np.sort(ids, axis=1)

    def _best(self, words: WordPositions,
              advance: Callable[[int], None] = lambda count: None
              ) -> Tuple[np.ndarray, np.ndarray]:
        """The ids of the best other words, [n, num_candidates], and the margin to the next, [n]."""
        best = self._predictor.predict(self._source(words), self._batch_size, advance)
        own = words.token_ids[words.starts + words.positions]
        # The others first, in their order.
        order = np.argsort(best["ids"] == own[:, np.newaxis], axis=1, kind="stable")
        ids = np.take_along_axis(best["ids"], order, axis=1)
        scores = np.take_along_axis(best["scores"], order, axis=1)
        last = self.num_candidates - 1
        return ids[:, :last + 1], scores[:, last] - scores[:, last + 1]

    def _source(self, words: WordPositions) -> Source:
        width = self._max_seq_length - _SPECIAL_TOKENS
        widths = np.minimum(words.lengths, width)
        first = np.clip(words.positions - width // 2, 0, words.lengths - widths)
        starts, masked = words.starts + first, words.positions - first + 1

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            tokenizer, rows = self._tokenizer, np.arange(len(indices))
            positions, ends = np.arange(length), widths[indices, np.newaxis]
            is_text = (positions >= 1) & (positions <= ends)
            input_ids = np.full(is_text.shape, tokenizer.pad_id, np.int32)
            input_ids[is_text] = words.token_ids[
                (starts[indices, np.newaxis] + positions - 1)[is_text]]
            input_ids[:, 0] = tokenizer.cls_id
            input_ids[positions == ends + 1] = tokenizer.sep_id
            input_ids[rows, masked[indices]] = tokenizer.mask_id
            return {"input_ids": input_ids, "input_mask": (positions <= ends + 1).astype(np.int32),
                    "masked_positions": masked[indices, np.newaxis].astype(np.int32)}

        # Inputs are short and sorted by length: padded to a multiple of eight, a fifth of a
        # batch would be padding.
        return Source(widths + _SPECIAL_TOKENS, fetch, self._max_seq_length, length_multiple=1)


def _words_of(vocab: Mapping[str, int], vocab_size: int) -> np.ndarray:
    """Which ids are whole words of letters, not word endings, marks or numbers: [vocab_size]."""
    is_word = np.zeros(vocab_size, bool)
    is_word[[index for token, index in vocab.items() if token.isalpha()]] = True
    return is_word


def _forward_of(config: modeling.BertConfig, is_word: np.ndarray, count: int) -> Forward:
    """The model with its masked-LM head; predicts the `count` best words of one position.

    Its features are input_ids, input_mask, int32 [b, t], and masked_positions, int32 [b, 1];
    its predictions "ids" and "scores", [b, count].
    """
    impossible = np.where(is_word, 0.0, -1e9).astype(np.float32)

    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        model = bert.build(config, features, mode)
        states = model.get_sequence_output_at(features["masked_positions"])  # [b, 1, D]
        logits = pretraining_heads.masked_lm_logits(
            tf.squeeze(states, 1), model.get_embedding_table(), config, mode.computation)  # [b, V]
        best = tf.math.top_k(logits + impossible, count)
        return Outputs(loss=None, predictions={"ids": best.indices, "scores": best.values})
    return forward
