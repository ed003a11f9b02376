"""The words that a masked-LM puts in the place of one word of a text, for many at once.

The input is the paper's (Jiao et al. 2020, Algorithm 1): [CLS] the text with the one word
masked [SEP]. The published code shows the model the unmasked text, too, as a second segment:
twice the tokens, half as much of a long text, and mostly the word itself for an answer. Where
the model has too few positions for a text, it sees as much of it as fits around the word.
"""

from typing import Callable, Dict, Mapping, NamedTuple, Tuple

import numpy as np

from engine import runtime  # noqa: F401 (before TensorFlow)

import modeling
import tensorflow.compat.v1 as tf
from encoder import pretraining_heads
from engine import checkpoints
from engine.data.batches import Source
from engine.devices import Devices
from engine.errors import UserError
from engine.inference import Predictor
from engine.model import Forward, Mode, Outputs
from tokenization import BatchTokenizer

_SPECIAL_TOKENS = 2  # [CLS] and [SEP]
SHORTEST_INPUT = _SPECIAL_TOKENS + 1
# Scores of one input differ by less with what it shares a batch with (float32). Where the
# last candidate and the next word are nearer than this, the batch could decide; see
# `MaskedLanguageModel.candidates`.
_SCORE_TOLERANCE = 1e-4


class Places(NamedTuple):
    """Words of texts, each of one WordPiece."""
    pieces: np.ndarray  # int32, the ids of all texts, one text after the other
    starts: np.ndarray  # [n], where the text of each word begins in `pieces`
    lengths: np.ndarray  # [n], pieces of that text
    positions: np.ndarray  # [n], the word's among the pieces of its text


class MaskedLanguageModel:
    """Proposes words for masked ones, on all replicas.

    Use it as a context manager: it holds a session.

    Args:
        max_seq_length: the longest input, in tokens.
        num_candidates: how many words to propose for each.
        per_replica_batch_size: inputs of full length that a replica takes at a time, or as
            many tokens of shorter ones.

    Raises:
        UserError: the vocabulary has too few words, or the checkpoint is of another model.
    """

    def __init__(self, config: modeling.BertConfig, checkpoint: checkpoints.Checkpoint,
                 tokenizer: BatchTokenizer, devices: Devices, *, max_seq_length: int,
                 num_candidates: int, per_replica_batch_size: int):
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._num_candidates = num_candidates
        self._batch_size = per_replica_batch_size
        is_word = _words_of(tokenizer.vocab, config.vocab_size)
        if is_word.sum() < num_candidates + 2:
            raise UserError(f"--M={num_candidates}: the vocabulary has only {is_word.sum()} words; "
                            "give a smaller number")
        # The word itself may be among the best, and the one after the last says how near it is.
        forward = _forward_of(config, is_word, num_candidates + 2)
        one_piece = (np.array([value]) for value in (tokenizer.pad_id, 0, 1, 0))
        example = self._source(Places(*one_piece))
        self._predictor = Predictor(forward, example, devices)
        self._predictor.restore(checkpoint)

    def __enter__(self) -> "MaskedLanguageModel":
        return self

    def __exit__(self, *exception) -> None:
        self._predictor.__exit__(*exception)

    def candidates(self, places: Places,
                   advance: Callable[[int], None] = lambda count: None) -> np.ndarray:
        """The ids of the likeliest other words in each place, [n, num_candidates], rising.

        What is proposed for a word does not depend on the batch that it is in, nor on the
        number of replicas: where rounding could decide which word is the last, the input
        is run once more, alone.
        """
        if not len(places.positions):
            return np.zeros([0, self._num_candidates], np.int32)
        ids, margins = self._best(places, advance)
        for index in np.flatnonzero(margins < _SCORE_TOLERANCE):
            alone = Places(places.pieces, *(values[index:index + 1] for values in places[1:]))
            ids[index] = self._best(alone)[0][0]
        return np.sort(ids, axis=1)

    def _best(self, places: Places, advance: Callable[[int], None] = lambda count: None
              ) -> Tuple[np.ndarray, np.ndarray]:
        """Ids of the best other words, [n, num_candidates], and by how much the next is worse."""
        best = self._predictor.predict(self._source(places), self._batch_size, advance)
        own = places.pieces[places.starts + places.positions]
        rows, count = np.arange(len(own)), self._num_candidates
        is_other = best["ids"] != own[:, np.newaxis]
        # The others first, in their order.
        order = np.argsort(~is_other, axis=1, kind="stable")
        ids = np.take_along_axis(best["ids"], order, axis=1)
        scores = np.take_along_axis(best["scores"], order, axis=1)
        return ids[:, :count], scores[rows, count - 1] - scores[rows, count]

    def _source(self, places: Places) -> Source:
        width = self._max_seq_length - _SPECIAL_TOKENS
        widths = np.minimum(places.lengths, width)
        first = np.clip(places.positions - width // 2, 0, places.lengths - widths)
        starts, masked = places.starts + first, places.positions - first + 1

        def fetch(indices: np.ndarray, length: int) -> Dict[str, np.ndarray]:
            return _inputs(self._tokenizer, places.pieces, starts[indices], widths[indices],
                           masked[indices], length)

        # Inputs are sorted by length and short: a multiple of eight would be a fifth of padding.
        return Source(widths + _SPECIAL_TOKENS, fetch, self._max_seq_length, length_multiple=1)


def check_model(checkpoint: checkpoints.Checkpoint, tokenizer: BatchTokenizer) -> None:
    """Raises a UserError where the model is none that proposes words for a mask."""
    if "cls/predictions/transform/dense/kernel" not in checkpoint.shapes:
        raise UserError(f"--init_checkpoint={checkpoint.path} has no masked-LM head "
                        "(cls/predictions/...): give a pretrained model as it was released, or "
                        "one of python -m pretraining.run, not an encoder or a classifier")
    if tokenizer.mask_id is None:
        raise UserError("--vocab_file lacks [MASK]: give the vocab.txt that came with the "
                        "checkpoint")


def _words_of(vocab: Mapping[str, int], vocab_size: int) -> np.ndarray:
    """Which ids are whole words of letters: no pieces, marks, numbers; bool [vocab_size]."""
    is_word = np.zeros(vocab_size, bool)
    is_word[[index for token, index in vocab.items() if token.isalpha()]] = True
    return is_word


def _forward_of(config: modeling.BertConfig, is_word: np.ndarray, count: int) -> Forward:
    """Features input_ids, input_mask [b, t], masked_positions [b, 1]; the `count` best words,
    "ids" and "scores", [b, count]: of all the scores only those come back.
    """
    impossible = np.where(is_word, 0.0, -1e9).astype(np.float32)

    def forward(features: Dict[str, tf.Tensor], mode: Mode) -> Outputs:
        model = modeling.BertModel(
            config, mode.is_training, features["input_ids"], features["input_mask"],
            dropout_seed=mode.dropout_seed, computation=mode.computation)
        states = model.get_sequence_output_at(features["masked_positions"])  # [b, 1, D]
        logits = pretraining_heads.masked_lm_logits(
            tf.squeeze(states, 1), model.get_embedding_table(), config)  # [b, V]
        best = tf.math.top_k(logits + impossible, count)
        return Outputs(loss=None, predictions={"ids": best.indices, "scores": best.values})
    return forward


def _inputs(tokenizer: BatchTokenizer, pieces: np.ndarray, starts: np.ndarray,
            widths: np.ndarray, masked: np.ndarray, length: int) -> Dict[str, np.ndarray]:
    """Features of some inputs, padded to `length`.

    Args:
        pieces: ids of the texts.
        starts, widths: [b], the part of them that each input holds.
        masked: [b], the position of the mask in the input.
    """
    places, widths = np.arange(length), widths[:, np.newaxis]
    is_piece = (places >= 1) & (places <= widths)
    input_ids = np.full(is_piece.shape, tokenizer.pad_id, np.int32)
    input_ids[is_piece] = pieces[(starts[:, np.newaxis] + places - 1)[is_piece]]
    input_ids[:, 0] = tokenizer.cls_id
    input_ids[places == widths + 1] = tokenizer.sep_id
    input_ids[np.arange(len(masked)), masked] = tokenizer.mask_id
    return {"input_ids": input_ids, "input_mask": (places <= widths + 1).astype(np.int32),
            "masked_positions": masked[:, np.newaxis].astype(np.int32)}
