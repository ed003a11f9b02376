"""Which tokens a model must predict, and what replaces them: masks for a whole batch at once.

A mask is a function of a record's key (`counter_rng.keys_of(seed, epoch, index)`) and its
tokens alone; neither its batch nor its padding matters. So this module serves both masks that
are frozen into files and masks that are drawn in each epoch of a training, and N replicas see
the same masks as one. It knows nothing about text and files.

Shapes: B records, L tokens with padding, P `max_predictions_per_seq`.
"""

from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

import numpy as np

from pretraining.counter_rng import mix, uniform

Features = Dict[str, np.ndarray]

# SpanBERT (Joshi et al. 2020), section 3.1: geometric lengths in words, at most ten.
_SPAN_STOP_PROBABILITY = 0.2
_LONGEST_SPAN = 10
# Of the tokens to predict, 80 % become [MASK], 10 % are kept and 10 % become any entry of the
# vocabulary (Devlin et al. 2019, section 3.1).
_MASK_BELOW, _KEEP_BELOW = 0.8, 0.9

# What random bits are drawn for; each position of a record has its own bits for each.
_ORDER, _LENGTH, _KIND, _TOKEN = range(4)
_NUM_PURPOSES = 4


class Scheme(NamedTuple):
    """How masks are drawn."""
    shape: str  # one of SHAPES
    masked_lm_prob: float  # share of all tokens, special ones included, that are masked
    max_predictions_per_seq: int  # the most masked tokens
    mask_id: int
    special_ids: Tuple[int, ...]  # [CLS] and [SEP]: never masked
    vocab_size: int

    @classmethod
    def of(cls, tokenizer: Any, *, shape: str, masked_lm_prob: float,
           max_predictions_per_seq: int) -> "Scheme":
        """A scheme with the ids of a `tokenization.BatchTokenizer`."""
        return cls(shape, masked_lm_prob, max_predictions_per_seq, tokenizer.mask_id,
                   (tokenizer.cls_id, tokenizer.sep_id), max(tokenizer.vocab.values()) + 1)


class _Choice(NamedTuple):
    tokens: np.ndarray  # bool [B, L]: which are masked
    groups: np.ndarray  # [B, L]: tokens with the same number are all replaced, kept or exchanged


def draw(features: Mapping[str, np.ndarray], keys: np.ndarray, scheme: Scheme) -> Features:
    """Masks for some records.

    Args:
        features: the unmasked records, each [B, L]: `input_ids`, padded on the right;
            `input_mask`, 1 for tokens; `word_starts`, 1 where a word (or other unit that is
            masked as a whole) begins; `segment_ids`, used by the shape "second_text" only.
        keys: of the records, uint64 [B], from `counter_rng.keys_of`.
        scheme: how to draw.

    Returns:
        `input_ids` with the masks, [B, L]; `masked_lm_positions`, ascending, int32 [B, P];
        `masked_lm_ids`, the original tokens there, [B, P]; `masked_lm_weights`, float32
        [B, P]: 1.0, or 0.0 for the padding of records with fewer than P.
    """
    input_ids = features["input_ids"]
    maskable = features["input_mask"].astype(bool)
    for special_id in scheme.special_ids:
        maskable &= input_ids != special_id
    choice = SHAPES[scheme.shape](features, maskable, keys, scheme)
    rows, columns = np.nonzero(choice.tokens)
    count_before = np.cumsum(choice.tokens, axis=1)
    slots = count_before[rows, columns] - 1
    masked_ids = input_ids.copy()
    masked_ids[rows, columns] = _replacements(
        input_ids[rows, columns], keys[rows], columns, choice.groups[rows, columns], scheme)
    shape = (len(input_ids), scheme.max_predictions_per_seq)
    positions, ids = np.zeros(shape, np.int32), np.zeros(shape, input_ids.dtype)
    weights = np.zeros(shape, np.float32)
    positions[rows, slots] = columns
    ids[rows, slots] = input_ids[rows, columns]
    weights[rows, slots] = 1.0
    return {"input_ids": masked_ids, "masked_lm_positions": positions, "masked_lm_ids": ids,
            "masked_lm_weights": weights}


def _replacements(ids: np.ndarray, keys: np.ndarray, positions: np.ndarray, groups: np.ndarray,
                  scheme: Scheme) -> np.ndarray:
    """What replaces the masked tokens; all arguments [number of masked tokens]."""
    kind = uniform(_bits(keys, _KIND, groups))
    anything = _bits(keys, _TOKEN, positions) % np.uint64(scheme.vocab_size)
    return np.where(kind < _MASK_BELOW, scheme.mask_id,
                    np.where(kind < _KEEP_BELOW, ids, anything.astype(ids.dtype)))


def _bits(keys: np.ndarray, purpose: int, positions: np.ndarray) -> np.ndarray:
    return mix(keys, positions * _NUM_PURPOSES + purpose)


def _words(features, maskable, keys, scheme) -> _Choice:
    """Words in random order until the budget is used up; a word too long for the rest is skipped.

    Each token of a word is replaced, kept or exchanged independently, as in the original.
    """
    positions = np.arange(maskable.shape[1])
    starts = _starts(features, maskable)
    order = _bits(keys[:, np.newaxis], _ORDER, positions)
    budgets = _budgets(_lengths(features), scheme)
    tokens = _fill_budget(starts, maskable, order, budgets)
    return _Choice(tokens, np.broadcast_to(positions, maskable.shape))


def _spans(features, maskable, keys, scheme) -> _Choice:
    """Spans of words, of random lengths, in random order until the budget is used up.

    The tokens of a text are cut into spans whose lengths have SpanBERT's distribution; the
    last chosen span is cut at its end. All tokens of a span are replaced, kept or exchanged.
    """
    positions = np.arange(maskable.shape[1])
    starts = _starts(features, maskable)
    lengths = _span_lengths(uniform(_bits(keys[:, np.newaxis], _LENGTH, positions)))
    span_starts = starts & (_begins_span(starts, lengths) | ~_shifted(maskable))
    groups = _last_true(span_starts)
    order = _bits(keys[:, np.newaxis], _ORDER, groups)
    budgets = _budgets(_lengths(features), scheme)
    return _Choice(_fill_budget(starts, maskable, order, budgets), groups)


def _second_text(features, maskable, keys, scheme) -> _Choice:
    """One span of tokens in the second text, as many as the first text has."""
    positions = np.arange(maskable.shape[1])
    inside = maskable & (features["segment_ids"] == 1)
    num_inside = inside.sum(axis=1)
    sizes = np.minimum(maskable.sum(axis=1) - num_inside, num_inside)
    sizes = np.minimum(sizes, scheme.max_predictions_per_seq)
    offsets = uniform(_bits(keys, _LENGTH, np.zeros(1, np.int64))) * (num_inside - sizes + 1)
    first = (inside.argmax(axis=1) + offsets.astype(np.int64))[:, np.newaxis]
    tokens = (positions >= first) & (positions < first + sizes[:, np.newaxis])
    return _Choice(tokens, np.broadcast_to(positions, maskable.shape))


# What is masked as a unit.
SHAPES: Mapping[str, Callable[..., _Choice]] = {
    "words": _words, "spans": _spans, "second_text": _second_text}


def most_masked(lengths: np.ndarray, scheme: Scheme) -> np.ndarray:
    """The most masked tokens of records with these lengths, [B]."""
    if scheme.shape == "second_text":
        return np.minimum(scheme.max_predictions_per_seq, np.maximum(1, lengths))
    return _budgets(lengths, scheme)


def _budgets(lengths: np.ndarray, scheme: Scheme) -> np.ndarray:
    """The number of tokens to mask in records with these lengths, [B]: the original's rule."""
    share = np.rint(lengths * scheme.masked_lm_prob).astype(np.int64)
    return np.minimum(scheme.max_predictions_per_seq, np.maximum(1, share))


def _lengths(features: Mapping[str, np.ndarray]) -> np.ndarray:
    return features["input_mask"].sum(axis=1)


def _starts(features: Mapping[str, np.ndarray], maskable: np.ndarray) -> np.ndarray:
    """Whether a word begins, bool [B, L]; the first token of a text begins one even if cut."""
    return maskable & (features["word_starts"].astype(bool) | ~_shifted(maskable))


def _shifted(flags: np.ndarray) -> np.ndarray:
    """The flag of the position before, bool [B, L]."""
    return np.pad(flags[:, :-1], ((0, 0), (1, 0)), "constant")


def _last_true(flags: np.ndarray) -> np.ndarray:
    """The last position up to each one at which the flag is set, [B, L]; 0 before the first."""
    return np.maximum.accumulate(np.where(flags, np.arange(flags.shape[1]), 0), axis=1)


def _fill_budget(starts: np.ndarray, maskable: np.ndarray, order: np.ndarray,
                 budgets: np.ndarray) -> np.ndarray:
    """The tokens of words, taken in ascending `order` of their starts as long as they fit."""
    rows = np.arange(len(starts))
    start_of = _last_true(starts)
    flat = (rows[:, np.newaxis] * starts.shape[1] + start_of)[maskable]
    sizes = np.bincount(flat, minlength=starts.size).reshape(starts.shape)
    # Positions that start no word come last. A stable sort keeps words of a span in order.
    ranked = np.argsort(np.where(starts, order, np.uint64(2 ** 64 - 1)), axis=1, kind="mergesort")
    taken = np.zeros(starts.shape, bool)
    left = budgets.copy()
    for rank in range(starts.sum(axis=1).max() if starts.size else 0):
        candidates = ranked[:, rank]
        fits = starts[rows, candidates] & (sizes[rows, candidates] <= left)
        taken[rows, candidates] = fits
        left -= np.where(fits, sizes[rows, candidates], 0)
        if not left.any():
            break
    return maskable & taken[rows[:, np.newaxis], start_of]


def _span_lengths(numbers: np.ndarray) -> np.ndarray:
    """Lengths of spans, from uniform random numbers."""
    lengths = np.arange(1, _LONGEST_SPAN + 1)
    weights = _SPAN_STOP_PROBABILITY * (1 - _SPAN_STOP_PROBABILITY) ** (lengths - 1)
    upper_bounds = np.cumsum(weights / weights.sum())[:-1]
    return 1 + np.searchsorted(upper_bounds, numbers, side="right")


def _begins_span(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Whether the word at each position begins a span, for these span lengths; bool [B, L]."""
    rows = np.arange(len(starts))[:, np.newaxis]
    begins = np.zeros((len(starts), starts.shape[1] + 1), bool)
    begins[:, 0] = True
    begins[rows, np.minimum(np.cumsum(lengths, axis=1), starts.shape[1])] = True
    words = np.maximum(np.cumsum(starts, axis=1) - 1, 0)  # number of the word at a position
    return begins[rows, words]
