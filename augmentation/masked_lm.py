"""The words that a masked LM predicts for one masked word of a text, for many words at once.

The input is the paper's (Jiao et al. 2020, Algorithm 1): [CLS] the text with the one word
masked [SEP]. The published code also gives the model the unmasked text, as a second segment:
that doubles the tokens, halves what fits of a long text, and the prediction is mostly the
word itself. A text that is too long for the model is cut to what fits around the word.
"""

from typing import Callable, Dict, NamedTuple, Sequence, Tuple

import numpy as np
from absl import flags

import modeling
import tensorflow.compat.v1 as tf
from encoder import bert, pretraining_heads
from encoder.encoding import Encoding
from engine import settings
from engine.checkpoints.checkpoints import Checkpoint
from engine.data.batches import Source
from engine.errors import UserError
from engine.model import Forward, Mode, Outputs
from runs.capability import Encoded
from runs.stream import OpenModel

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


class MaskedLanguageModel(OpenModel):
    """Predicts candidates for masked words, on all replicas.

    Args:
        encoding: how it reads texts; its `max_seq_length` is the longest input.
        values: the flags of `OpenModel`, and --M: how many words to predict for each masked one.
    """

    def __init__(self, config: modeling.BertConfig, encoding: Encoding, checkpoint: Checkpoint,
                 values: flags.FlagValues):
        self.config, self.encoding = config, encoding
        self.num_candidates = settings.positive(values, "M")
        words = [index for token, index in encoding.tokenizer.vocab.items() if token.isalpha()]
        if len(words) < self.num_candidates + 2:
            raise UserError(f"--M={self.num_candidates}: the vocabulary has only {len(words)} "
                            "words; give a smaller number")
        # Two more: the word itself may be among the best, and the one after the last candidate
        # shows how close the decision was.
        super().__init__(_forward_of(config, words, self.num_candidates + 2), checkpoint, values)

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
        def decode(best: Dict[str, np.ndarray]) -> Tuple[np.ndarray, np.ndarray]:
            own = words.token_ids[words.starts + words.positions]
            # The others first, in their order.
            order = np.argsort(best["ids"] == own[:, np.newaxis], axis=1, kind="stable")
            ids, scores = (np.take_along_axis(best[name], order, axis=1)
                           for name in ("ids", "scores"))
            count = self.num_candidates
            return ids[:, :count], scores[:, count - 1] - scores[:, count]

        return self.predict(Encoded(self._source(words), decode), advance)

    def _source(self, words: WordPositions) -> Source:
        tokenizer, max_seq_length = self.encoding.tokenizer, self.encoding.max_seq_length
        width = max_seq_length - _SPECIAL_TOKENS
        widths = np.minimum(words.lengths, width)
        first = np.clip(words.positions - width // 2, 0, words.lengths - widths)
        starts, masked = words.starts + first, words.positions - first + 1

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            positions, ends = np.arange(length), widths[indices, np.newaxis]
            is_text = (positions >= 1) & (positions <= ends)
            input_ids = np.full(is_text.shape, tokenizer.pad_id, np.int32)
            input_ids[is_text] = words.token_ids[
                (starts[indices, np.newaxis] + positions - 1)[is_text]]
            input_ids[:, 0] = tokenizer.cls_id
            input_ids[positions == ends + 1] = tokenizer.sep_id
            input_ids[np.arange(len(indices)), masked[indices]] = tokenizer.mask_id
            return {"input_ids": input_ids, "input_mask": (positions <= ends + 1).astype(np.int32),
                    "masked_positions": masked[indices, np.newaxis].astype(np.int32)}

        # Inputs are short and sorted by length: padded to a multiple of eight, a fifth of a
        # batch would be padding.
        return Source(widths + _SPECIAL_TOKENS, fetch, max_seq_length, length_multiple=1)


def _forward_of(config: modeling.BertConfig, words: Sequence[int], count: int) -> Forward:
    """The model with its masked-LM head; predicts the `count` best of `words` for one position.

    Its features are input_ids, input_mask, int32 [b, t], and masked_positions, int32 [b, 1];
    its predictions "ids" and "scores", [b, count].
    """
    # Whole words of letters: no word endings, marks or numbers.
    impossible = np.full(config.vocab_size, -1e9, np.float32)
    impossible[words] = 0.0

    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        model = bert.build(config, features, mode)
        states = model.get_sequence_output_at(features["masked_positions"])  # [b, 1, D]
        logits = pretraining_heads.masked_lm_logits(
            tf.squeeze(states, 1), model.get_embedding_table(), config, mode.computation)  # [b, V]
        best = tf.math.top_k(logits + impossible, count)
        return Outputs(loss=None, predictions={"ids": best.indices, "scores": best.values})
    return forward
