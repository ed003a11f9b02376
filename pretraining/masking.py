"""Which tokens a model must predict, and what replaces them: masks for a whole batch at once.

Knows nothing about text and files. Shapes: B records, L tokens with padding,
P `max_predictions_per_seq`.
"""

from typing import Dict, NamedTuple

import numpy as np

from pretraining.objectives import SPAN, Settings

# Of the tokens to predict, 80 % become [MASK], 10 % are kept and 10 % become any entry of the
# vocabulary (Devlin et al. 2019, section 3.1).
_MASK_BELOW, _KEEP_BELOW = 0.8, 0.9


class Records(NamedTuple):
    """Unmasked records; each [B, L]."""
    input_ids: np.ndarray  # padded on the right
    first_text: np.ndarray  # bool: the tokens of each text, without special ones
    second_text: np.ndarray
    word_starts: np.ndarray  # bool: where a word (or other unit that is masked as a whole) begins
    lengths: np.ndarray  # [B], with special tokens


def draw(records: Records, settings: Settings, mask_id: int, vocab_size: int,
         random: np.random.RandomState) -> Dict[str, np.ndarray]:
    """Masks for some records: words anywhere, or one span of the second text.

    Returns:
        `input_ids` with the masks, [B, L]; `masked_lm_positions`, ascending, int32 [B, P];
        `masked_lm_ids`, the original tokens there, [B, P]; `masked_lm_weights`, float32
        [B, P]: 1.0, or 0.0 for the padding of records with fewer than P.
    """
    choose = _in_second_text if settings.objective == SPAN else _words
    chosen = choose(records, settings, random)
    input_ids = records.input_ids
    rows, columns = np.nonzero(chosen)
    slots = np.cumsum(chosen, axis=1)[rows, columns] - 1
    masked_ids = input_ids.copy()
    masked_ids[rows, columns] = _replacements(input_ids[rows, columns], mask_id, vocab_size, random)
    shape = (len(input_ids), settings.max_predictions_per_seq)
    positions, ids = np.zeros(shape, np.int32), np.zeros(shape, input_ids.dtype)
    weights = np.zeros(shape, np.float32)
    positions[rows, slots] = columns
    ids[rows, slots] = input_ids[rows, columns]
    weights[rows, slots] = 1.0
    return {"input_ids": masked_ids, "masked_lm_positions": positions, "masked_lm_ids": ids,
            "masked_lm_weights": weights}


def _replacements(ids: np.ndarray, mask_id: int, vocab_size: int, random: np.random.RandomState) -> np.ndarray:
    """What replaces each of the masked tokens `ids`, independently, as in the original."""
    kind = random.random_sample(len(ids))
    anything = random.randint(vocab_size, size=len(ids))
    return np.where(kind < _MASK_BELOW, mask_id,
                    np.where(kind < _KEEP_BELOW, ids, anything))


def _words(records: Records, settings: Settings, random: np.random.RandomState) -> np.ndarray:
    """Words in random order until the budget is used up; bool [B, L].

    A word that is too long for the rest is skipped. The budget is the original's.
    """
    maskable = records.first_text | records.second_text
    share = np.rint(records.lengths * settings.masked_lm_prob).astype(np.int64)
    left = np.minimum(settings.max_predictions_per_seq, np.maximum(1, share))
    # The first token of a text begins a word even if the word's own beginning was cut off.
    follows = np.pad(maskable[:, :-1], ((0, 0), (1, 0)), "constant")
    starts = maskable & (records.word_starts | ~follows)
    start_of = np.maximum.accumulate(np.where(starts, np.arange(starts.shape[1]), 0), axis=1)
    rows = np.arange(len(starts))
    flat = (rows[:, np.newaxis] * starts.shape[1] + start_of)[maskable]
    sizes = np.bincount(flat, minlength=starts.size).reshape(starts.shape)
    # Positions that start no word come last.
    ranked = np.argsort(np.where(starts, random.random_sample(starts.shape), 1.0), axis=1)
    taken = np.zeros(starts.shape, bool)
    for rank in range(starts.sum(axis=1).max()):
        candidates = ranked[:, rank]
        fits = starts[rows, candidates] & (sizes[rows, candidates] <= left)
        taken[rows, candidates] = fits
        left -= np.where(fits, sizes[rows, candidates], 0)
        if not left.any():
            break
    return maskable & taken[rows[:, np.newaxis], start_of]


def _in_second_text(records: Records, settings: Settings,
                    random: np.random.RandomState) -> np.ndarray:
    """One span of the second text, as many tokens as the first text has; bool [B, L]."""
    positions = np.arange(records.input_ids.shape[1])
    num_inside = records.second_text.sum(axis=1)
    sizes = np.minimum(records.first_text.sum(axis=1), num_inside)
    sizes = np.minimum(sizes, settings.max_predictions_per_seq)
    offsets = random.random_sample(len(sizes)) * (num_inside - sizes + 1)
    first = (records.second_text.argmax(axis=1) + offsets.astype(np.int64))[:, np.newaxis]
    return (positions >= first) & (positions < first + sizes[:, np.newaxis])
