"""Schemes of tags: how the tags of words spell entities, and which may follow which.

`encoder/tag_set.py` says what the schemes are.
"""

from typing import Iterable, List, NamedTuple, Optional, Sequence

import numpy as np

from encoder.tag_set import BIOES, BMES, IOB1, OUTSIDE, PREFIXES, TagSet, split

_MARKS_ENDS = (BIOES, BMES)


class Entity(NamedTuple):
    """Some consecutive words of a sentence."""
    type: str
    first: int  # word, from 0
    last: int


class Transitions(NamedTuple):
    """Which labels may follow which, bool."""
    pairs: np.ndarray  # [from, to]
    first: np.ndarray  # may be a sentence's first, [labels]
    last: np.ndarray  # may be its last, [labels]


def entities(tags: Sequence[str]) -> List[Entity]:
    """The entities that tags of any scheme spell, read as conlleval reads them.

    An entity begins at B or S, at any other tag whose type is not that of the word before, and
    after E and S; it ends before the next word that does not continue it. So a sequence that its
    scheme forbids has entities, too.
    """
    spelled: List[Entity] = []
    before, type_before = OUTSIDE, ""
    for position, tag in enumerate(tags):
        prefix, entity_type = split(tag)
        if prefix != OUTSIDE:
            if prefix in "BS" or before in (OUTSIDE, "E", "S") or entity_type != type_before:
                spelled.append(Entity(entity_type, position, position))
            else:
                spelled[-1] = spelled[-1]._replace(last=position)
        before, type_before = prefix, entity_type
    return spelled


def spell(its_entities: Iterable[Entity], num_words: int, scheme: str) -> List[str]:
    """The tags of a sentence with these entities, which do not overlap."""
    tags = [OUTSIDE] * num_words
    inside = PREFIXES[scheme][1]
    before: Optional[Entity] = None
    for entity in sorted(its_entities, key=lambda entity: entity.first):
        prefixes = ["B"] + [inside] * (entity.last - entity.first)
        if scheme in _MARKS_ENDS:
            prefixes[-1] = "E" if len(prefixes) > 1 else "S"
        elif scheme == IOB1 and (before is None or before.type != entity.type
                                 or before.last + 1 < entity.first):
            prefixes[0] = inside
        tags[entity.first:entity.last + 1] = [f"{prefix}-{entity.type}" for prefix in prefixes]
        before = entity
    return tags


def transitions(tags: TagSet) -> Transitions:
    """Which labels may follow which: as the scheme has it, for IOB1 as IOB2; of other code's, any."""
    if tags.own_tags:
        any_label = np.ones(len(tags.own_tags), bool)
        return Transitions(np.ones((len(any_label),) * 2, bool), any_label, any_label)
    prefixes, types = zip(*map(split, tags.labels))
    prefixes, types = np.array(prefixes), np.array(types)
    continues = np.isin(prefixes, ["I", "M", "E"])  # the entity of the word before
    opens = np.isin(prefixes, ["B", "I", "M"])  # an entity that the next word may continue
    same = opens[:, np.newaxis] & (types[:, np.newaxis] == types)
    must_continue = opens if tags.scheme in _MARKS_ENDS else np.zeros_like(opens)
    pairs = np.where(continues, same, ~must_continue[:, np.newaxis])
    return Transitions(pairs, ~continues, ~must_continue)
