"""Which tokens a model must guess, and what stands in their place: masks for a batch at once.

A mask is a function of a record's key (`counters.keys_of(seed, epoch, index)`) and its
tokens alone: not of the batch it is in, nor of how far it is padded. So masks that are
frozen into files and masks drawn anew in each epoch of a training come from here, and
what N replicas see is what one sees. Knows nothing of text or files.

Shapes: B records, L tokens with padding, P `max_predictions_per_seq`.
"""

from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple

import numpy as np

from pretraining.counter_rng import mix, uniform

Features = Dict[str, np.ndarray]

# SpanBERT (Joshi et al. 2020), section 3.1: lengths in words, geometric, none above ten.
_SPAN_STOP_PROBABILITY = 0.2
_LONGEST_SPAN = 10
# Of the tokens to guess: [MASK] for 80 %, themselves for 10 %, any entry of the vocabulary
# for 10 % (Devlin et al. 2019, section 3.1).
_MASK_BELOW, _KEEP_BELOW = 0.8, 0.9

# What bits are drawn for; each place of a record has one set of them.
_ORDER, _LENGTH, _KIND, _TOKEN = range(4)
_NUM_PURPOSES = 4


class Scheme(NamedTuple):
    """How masks are drawn."""
    shape: str  # of SHAPES
    masked_lm_prob: float  # share of all tokens, special ones included, that are guessed
    max_predictions_per_seq: int  # and at most so many
    mask_id: int
    special_ids: Tuple[int, ...]  # [CLS] and [SEP]: never guessed
    vocab_size: int

    @classmethod
    def of(cls, tokenizer: Any, *, shape: str, masked_lm_prob: float,
           max_predictions_per_seq: int) -> "Scheme":
        """With the ids of a `tokenization.BatchTokenizer`."""
        return cls(shape, masked_lm_prob, max_predictions_per_seq, tokenizer.mask_id,
                   (tokenizer.cls_id, tokenizer.sep_id), max(tokenizer.vocab.values()) + 1)


class _Choice(NamedTuple):
    tokens: np.ndarray  # bool [B, L]: to be guessed
    groups: np.ndarray  # [B, L]: tokens of the same number become the same kind of thing


def draw(features: Mapping[str, np.ndarray], keys: np.ndarray, scheme: Scheme) -> Features:
    """Masks for some records.

    Args:
        features: of the records as they were written, each [B, L]: `input_ids`, padded on
            the right; `input_mask`, 1 where there is a token; `word_starts`, 1 where a word
            or whatever is guessed as a whole begins, 0 where it goes on; `segment_ids`,
            which only the shape "second_text" looks at.
        keys: of the records, uint64 [B], from `counters.keys_of`.
        scheme: how.

    Returns:
        `input_ids` as the model shall see them, [B, L]; `masked_lm_positions` in rising
        order, int32 [B, P], `masked_lm_ids`, the tokens that were there, [B, P], and
        `masked_lm_weights`, float32 [B, P]: 1.0, or 0.0 where a record has fewer than P.
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
    """What stands in the place of tokens to guess; all arguments [number of tokens]."""
    kind = uniform(_bits(keys, _KIND, groups))
    anything = _bits(keys, _TOKEN, positions) % np.uint64(scheme.vocab_size)
    return np.where(kind < _MASK_BELOW, scheme.mask_id,
                    np.where(kind < _KEEP_BELOW, ids, anything.astype(ids.dtype)))


def _bits(keys: np.ndarray, purpose: int, positions: np.ndarray) -> np.ndarray:
    return mix(keys, positions * _NUM_PURPOSES + purpose)


def _words(features, maskable, keys, scheme) -> _Choice:
    """Words in random order while the budget lasts; one that is too long for it is skipped.

    Each token of a word is replaced, kept or exchanged on its own, as in the original.
    """
    positions = np.arange(maskable.shape[1])
    starts = _starts(features, maskable)
    order = _bits(keys[:, np.newaxis], _ORDER, positions)
    budgets = _budgets(_lengths(features), scheme)
    tokens = _fill_budget(starts, maskable, order, budgets)
    return _Choice(tokens, np.broadcast_to(positions, maskable.shape))


def _spans(features, maskable, keys, scheme) -> _Choice:
    """Runs of words, of random lengths, in random order while the budget lasts.

    The tokens of a text are cut into runs whose lengths have SpanBERT's distribution; the
    last run gives way at its end. All of a run is replaced, kept or exchanged.
    """
    positions = np.arange(maskable.shape[1])
    starts = _starts(features, maskable)
    lengths = _span_lengths(uniform(_bits(keys[:, np.newaxis], _LENGTH, positions)))
    run_starts = starts & (_begins_run(starts, lengths) | ~_shifted(maskable))
    groups = _last_true(run_starts)
    order = _bits(keys[:, np.newaxis], _ORDER, groups)
    budgets = _budgets(_lengths(features), scheme)
    return _Choice(_fill_budget(starts, maskable, order, budgets), groups)


def _second_text(features, maskable, keys, scheme) -> _Choice:
    """One run of tokens in the second text, as many as the first text has."""
    positions = np.arange(maskable.shape[1])
    inside = maskable & (features["segment_ids"] == 1)
    num_inside = inside.sum(axis=1)
    sizes = np.minimum(maskable.sum(axis=1) - num_inside, num_inside)
    sizes = np.minimum(sizes, scheme.max_predictions_per_seq)
    offsets = uniform(_bits(keys, _LENGTH, np.zeros(1, np.int64))) * (num_inside - sizes + 1)
    first = (inside.argmax(axis=1) + offsets.astype(np.int64))[:, np.newaxis]
    tokens = (positions >= first) & (positions < first + sizes[:, np.newaxis])
    return _Choice(tokens, np.broadcast_to(positions, maskable.shape))


# What is guessed together.
SHAPES: Mapping[str, Callable[..., _Choice]] = {
    "words": _words, "spans": _spans, "second_text": _second_text}


def most_masked(lengths: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Tokens to guess, at most, in records of so many tokens, [B]."""
    if scheme.shape == "second_text":
        return np.minimum(scheme.max_predictions_per_seq, np.maximum(1, lengths))
    return _budgets(lengths, scheme)


def _budgets(lengths: np.ndarray, scheme: Scheme) -> np.ndarray:
    """Tokens to guess in records of so many tokens, [B]: the original's rule."""
    share = np.rint(lengths * scheme.masked_lm_prob).astype(np.int64)
    return np.minimum(scheme.max_predictions_per_seq, np.maximum(1, share))


def _lengths(features: Mapping[str, np.ndarray]) -> np.ndarray:
    return features["input_mask"].sum(axis=1)


def _starts(features: Mapping[str, np.ndarray], maskable: np.ndarray) -> np.ndarray:
    """Where a word begins, bool [B, L]; what is left of one that was cut begins its text."""
    return maskable & (features["word_starts"].astype(bool) | ~_shifted(maskable))


def _shifted(flags: np.ndarray) -> np.ndarray:
    """The flag of the place before, bool [B, L]."""
    return np.pad(flags[:, :-1], ((0, 0), (1, 0)), "constant")


def _last_true(flags: np.ndarray) -> np.ndarray:
    """The last place up to each one where the flag is set, [B, L]; 0 before the first."""
    return np.maximum.accumulate(np.where(flags, np.arange(flags.shape[1]), 0), axis=1)


def _fill_budget(starts: np.ndarray, maskable: np.ndarray, order: np.ndarray,
                 budgets: np.ndarray) -> np.ndarray:
    """The tokens of words, taken in rising `order` (of their starts) where they still fit."""
    rows = np.arange(len(starts))
    start_of = _last_true(starts)
    flat = (rows[:, np.newaxis] * starts.shape[1] + start_of)[maskable]
    sizes = np.bincount(flat, minlength=starts.size).reshape(starts.shape)
    # What starts no word comes last. Within a run of words, stable is from left to right.
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
    """Lengths of spans, of uniform random numbers."""
    lengths = np.arange(1, _LONGEST_SPAN + 1)
    weights = _SPAN_STOP_PROBABILITY * (1 - _SPAN_STOP_PROBABILITY) ** (lengths - 1)
    upper_bounds = np.cumsum(weights / weights.sum())[:-1]
    return 1 + np.searchsorted(upper_bounds, numbers, side="right")


def _begins_run(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Whether the word at each place begins a run, where runs have these lengths; bool [B, L]."""
    rows = np.arange(len(starts))[:, np.newaxis]
    begins = np.zeros((len(starts), starts.shape[1] + 1), bool)
    begins[:, 0] = True
    begins[rows, np.minimum(np.cumsum(lengths, axis=1), starts.shape[1])] = True
    words = np.maximum(np.cumsum(starts, axis=1) - 1, 0)  # number of the word at a place
    return begins[rows, words]
