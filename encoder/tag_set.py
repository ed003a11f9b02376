"""The tags that a tagger of words learns.

A tag is "O" or a prefix and a type: "B-PER". IOB2: B begins an entity, I continues it. IOB1: B
begins one only right after another of its type, I all others. BIOES: E ends an entity of several
words, and S is one of a single word. BMES: the same with M in the place of I.

Tags come from the training set, from task.json (`of_description`) or from Hugging Face's config.json
(`from_huggingface`).
"""

from typing import Any, Dict, Iterable, Mapping, NamedTuple, Sequence, Tuple

from encoder import label_types, task_json
from engine import log
from engine.errors import UserError

OUTSIDE = "O"
IOB2, IOB1, BIOES, BMES = NAMES = ("iob2", "iob1", "bioes", "bmes")
PREFIXES = {IOB1: "BI", IOB2: "BI", BIOES: "BIES", BMES: "BMES"}
_SCHEME = "scheme"  # an entry of ours in config.json, too


class TagSet(NamedTuple):
    """What a model can predict."""
    types: Tuple[str, ...]  # of entities
    scheme: str  # of the files
    # The tags of a model of other code, in the order of its outputs. Which sequences it has learned is
    # not known: each word gets its own best tag.
    own_tags: Tuple[str, ...] = ()

    @property
    def labels(self) -> Tuple[str, ...]:
        """The tags that the model learns, in the order of its outputs."""
        return self.own_tags or labels_of(self.types, self.scheme)


def labels_of(types: Iterable[str], scheme: str) -> Tuple[str, ...]:
    """All tags of these types: "O" and, type by type, each prefix of the scheme."""
    return (OUTSIDE, *(f"{prefix}-{entity_type}" for entity_type in types
                       for prefix in PREFIXES[scheme]))


def is_tag(text: str) -> bool:
    """Whether a text is a tag of any scheme."""
    prefix, entity_type = split(text)
    return text == OUTSIDE or prefix in tuple("BIMES") and bool(entity_type)


def split(tag: str) -> Tuple[str, str]:
    """Prefix and type of a tag; the type of "O" is empty."""
    prefix, _, entity_type = tag.partition("-")
    return prefix, entity_type


def of_description(description: Mapping[str, Any], where: str) -> TagSet:
    """The tags of a trained tagger; raises a UserError if its description is damaged.

    Args:
        description: the content of task.json.
        where: the model that it describes, for the message.
    """
    types, scheme, own_tags = (description.get(name) for name in ("types", _SCHEME, "own_tags"))
    if not (_are_texts(types) and scheme in NAMES and (own_tags is None or _are_texts(own_tags))):
        raise UserError(f"{where}: {task_json.FILE} is damaged: it has the types {log.brief(types)} and "
                        f"the scheme {log.brief(scheme)}")
    return TagSet(tuple(types), scheme, tuple(own_tags or ()))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def from_huggingface(config: Mapping[str, Any], path: str, num_outputs: int) -> TagSet:
    """The tags of a Hugging Face token classifier; see `label_types.from_huggingface`."""
    tags = label_types.names_in(config, path, num_outputs)
    label_types.check_labels(tags, f"{path}: id2label")
    for tag in (*filter(lambda tag: not is_tag(tag), tags), *{OUTSIDE}.difference(tags)):
        raise UserError(f"{path}: id2label {'lacks' if tag == OUTSIDE else 'has'} {log.brief(repr(tag))}; only tags "
                        "of entities can be converted: O, and others of a letter (B, I; E, S, M) and a type, as B-PER")
    types = tuple(dict.fromkeys(split(tag)[1] for tag in tags if tag != OUTSIDE))
    scheme = config.get(_SCHEME)
    if scheme in NAMES and tuple(tags) == labels_of(types, scheme):
        return TagSet(types, scheme)
    return TagSet(types, _scheme_of(tags), tuple(tags))


def _scheme_of(tags: Sequence[str]) -> str:
    """The scheme that has these prefixes; without a B for each type, that which needs few."""
    prefixes = {split(tag)[0] for tag in tags}
    if prefixes & {"E", "S", "M"}:
        return BMES if "M" in prefixes else BIOES
    lacks_b = any(f"B-{split(tag)[1]}" not in tags for tag in tags if tag != OUTSIDE)
    return IOB1 if lacks_b else IOB2


def to_huggingface(tags: TagSet) -> Dict[str, Any]:
    """The entries of a Hugging Face config that describe the tags."""
    return {**({} if tags.own_tags else {_SCHEME: tags.scheme}), **label_types.entries_of(tags.labels)}
