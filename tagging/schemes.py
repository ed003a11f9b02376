"""Schemes of tags: how the tags of words spell entities, which may follow which, and guessing one.

A tag is "O" or a prefix and a type: "B-PER". IOB2: B begins an entity, I continues it. IOB1: B
begins one only right after another of its type, I all others. BIOES: E ends an entity of several
words, and S is one of a single word. BMES: the same with M in the place of I.
"""

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from engine import log
from engine.errors import UserError

OUTSIDE = "O"
IOB1, IOB2, BIOES, BMES = NAMES = ("iob1", "iob2", "bioes", "bmes")

_PREFIXES = {IOB1: "BI", IOB2: "BI", BIOES: "BIES", BMES: "BMES"}
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


def split(tag: str) -> Tuple[str, str]:
    """Prefix and type of a tag; raises a ValueError if it is none."""
    prefix, dash, entity_type = tag.partition("-")
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if prefix not in tuple("BIMES") or not dash or not entity_type:
        raise ValueError(f"{tag[:40]!r} is no tag: O, or one of B, I, M, E and S, a hyphen and a "
                         "type, as in B-PER")
    return prefix, entity_type


def entities(tags: Sequence[str]) -> List[Entity]:
    """The entities that tags of any scheme spell, read as conlleval reads them.

    An entity begins at B or S, at any other tag whose type is not that of the word before, and
    after E and S; it ends before the next word that does not continue it. So a sequence that its
    scheme forbids has entities, too.
    """
    found: List[Entity] = []
    before, type_before = OUTSIDE, ""
    for position, tag in enumerate(tags):
        prefix, entity_type = split(tag)
        if prefix != OUTSIDE:
            if _begins(before, type_before, prefix, entity_type):
                found.append(Entity(entity_type, position, position))
            else:
                found[-1] = found[-1]._replace(last=position)
        before, type_before = prefix, entity_type
    return found


def _begins(before: str, type_before: str, prefix: str, entity_type: str) -> bool:
    return prefix in "BS" or before in (OUTSIDE, "E", "S") or entity_type != type_before


def spell(found: Iterable[Entity], num_words: int, scheme: str) -> List[str]:
    """The tags of a sentence with these entities, which do not overlap."""
    tags = [OUTSIDE] * num_words
    inside = _PREFIXES[scheme][1]
    before: Optional[Entity] = None
    for entity in sorted(found, key=lambda entity: entity.first):
        prefixes = ["B"] + [inside] * (entity.last - entity.first)
        if scheme in _MARKS_ENDS:
            prefixes[-1] = "E" if len(prefixes) > 1 else "S"
        elif scheme == IOB1 and (before is None or before.type != entity.type
                                 or before.last + 1 < entity.first):
            prefixes[0] = inside
        tags[entity.first:entity.last + 1] = [f"{prefix}-{entity.type}" for prefix in prefixes]
        before = entity
    return tags


def learned(scheme: str) -> str:
    """The scheme that a model learns for files in this one: IOB2 for IOB1, whose tags depend on
    the entity before."""
    return IOB2 if scheme == IOB1 else scheme


def labels_of(types: Iterable[str], scheme: str) -> Tuple[str, ...]:
    """All tags of these types: "O" and, type by type, each prefix of the scheme."""
    return (OUTSIDE, *(f"{prefix}-{entity_type}" for entity_type in types
                       for prefix in _PREFIXES[scheme]))


def transitions(labels: Sequence[str], scheme: str) -> Transitions:
    """Which of the labels of a scheme other than IOB1 may follow which."""
    prefixes, types = zip(*map(split, labels))
    prefixes, types = np.array(prefixes), np.array(types)
    continues = np.isin(prefixes, ["I", "M", "E"])  # the entity of the word before
    opens = np.isin(prefixes, ["B", "I", "M"])  # an entity that the next word may continue
    same = opens[:, np.newaxis] & (types[:, np.newaxis] == types)
    must_continue = opens if scheme in _MARKS_ENDS else np.zeros_like(opens)
    pairs = np.where(continues, same, ~must_continue[:, np.newaxis])
    return Transitions(pairs, ~continues, ~must_continue)


class Evidence:
    """Collects what the tags of a file say about its scheme.

    Args:
        path: of the file, for messages.
    """

    def __init__(self, path: str):
        self._path = path
        self._prefixes: Dict[str, int] = {}  # → the first line that has it
        self._types: Dict[str, int] = {}
        # The first line of a B that IOB1 would not have, and of an I that IOB2 would not.
        self._against: Dict[str, int] = {}
        # How many tags do not follow the one before as BIOES has it, and the line of the first.
        self._num_broken, self._first_broken = 0, 0

    @property
    def types(self) -> List[str]:
        """The types of the entities, in alphabetical order."""
        return sorted(self._types)

    def add(self, tags: Sequence[str], lines: Sequence[int]) -> None:
        """Takes in a sentence; raises a UserError at what is not a tag."""
        before, type_before = OUTSIDE, ""
        for tag, line in zip(tags, lines):
            try:
                prefix, entity_type = split(tag)
            except ValueError as error:
                raise UserError(f"{self._path}, line {line}: {error}; is --tag_column right?"
                                ) from error
            self._prefixes.setdefault(prefix, line)
            if entity_type:
                self._types.setdefault(entity_type, line)
            self._weigh(before, type_before == entity_type, prefix, line)
            before, type_before = prefix, entity_type
        self._weigh(before, False, OUTSIDE, lines[-1])

    def _weigh(self, before: str, same_type: bool, prefix: str, line: int) -> None:
        follows = same_type and before in ("B", "I", "M")
        if prefix == "B" and not (same_type and before in ("B", "I")):
            self._against.setdefault(IOB1, line)
        if prefix == "I" and not follows:
            self._against.setdefault(IOB2, line)
        must_follow, continues = before in ("B", "I", "M"), prefix in ("I", "M", "E")
        if continues and not follows or must_follow and not continues:
            self._num_broken += 1
            self._first_broken = self._first_broken or line

    def scheme(self, given: Optional[str] = None) -> str:
        """The scheme of the tags: `given`, or else the only one that has them all.

        Raises:
            UserError: no scheme has them all, or not the given one; or no word has an entity.
        """
        if not self._types:
            raise UserError(f"{self._path} has no entity: every tag is O; is --tag_column right?")
        scheme = given or self._guess()
        self.check(scheme, is_given=given is not None)
        return scheme

    def check(self, scheme: str, *, is_given: bool) -> None:
        """Raises a UserError if the tags are not of a scheme.

        Args:
            is_given: the user names it: then IOB1 and IOB2 may be mixed.
        """
        for prefix, line in self._prefixes.items():
            if prefix not in _PREFIXES[scheme] + OUTSIDE:
                raise UserError(f"{self._path}, line {line}: a tag with {prefix}-, which the "
                                f"scheme {scheme} does not have; all files must be in one scheme")
        self._check_order(scheme, is_given=is_given)

    def _guess(self) -> str:
        prefixes = set(self._prefixes)
        if "M" in prefixes:
            return BMES
        if prefixes & {"E", "S"}:
            return BIOES
        return IOB1 if IOB2 in self._against and IOB1 not in self._against else IOB2

    def _check_order(self, scheme: str, *, is_given: bool) -> None:
        if scheme in _MARKS_ENDS:
            if self._num_broken:
                log.warn(f"{self._path}: {self._num_broken:,} tags do not follow the one before "
                         f"them as {scheme} has it (the first: line {self._first_broken}); "
                         "entities are read as conlleval reads them")
        elif scheme in self._against and not is_given:
            other = IOB1 if scheme == IOB2 else IOB2
            mixed = other in self._against
            raise UserError(
                f"{self._path}{' mixes schemes:' if mixed else ','} line {self._against[scheme]} "
                f"is tagged as only {other} has it, and "
                + (f"line {self._against[other]} as only {scheme} has it" if mixed
                   else f"the scheme is {scheme}")
                + "; correct the file, or name the scheme with --scheme: then entities are read "
                "as conlleval reads them")
