"""The protocol between workers, and the only decoder of network input.

A message is a line of JSON with the keys and types of one of the kinds below. `decode` raises a
ValueError for everything else, and the receiver closes the connection.
"""

import contextlib
import json
import re
from typing import Any, Callable, Dict, Mapping

from engine import log

Message = Dict[str, Any]
Kind = Mapping[str, Callable[[Any], bool]]  # key → check of its value

LONGEST_GREETING = 1 << 12  # bytes of a message during the handshake
LONGEST = 1 << 23  # bytes of a later message: parts of files are the longest
_DEEPEST = 32  # nesting of a message
_LONGEST_TEXT = 1000  # characters of a text for people


def decode(line: bytes, *kinds: Kind) -> Message:
    """The message in a line. Raises a ValueError if it is of none of the kinds."""
    message = None
    with contextlib.suppress(ValueError, RecursionError):
        message = json.loads(line.decode("utf-8"))
    for kind in kinds:
        if isinstance(message, dict) and set(message) == set(kind) and _is_shallow(message) and all(
                is_valid(message[key]) for key, is_valid in kind.items()):
            return message
    raise ValueError("it sent an invalid message")


def encode(message: Message) -> bytes:
    """The line of a message."""
    return json.dumps(message).encode("utf-8") + b"\n"


def cut(text: str) -> str:
    """Escapes control characters in a text, and cuts it to _LONGEST_TEXT."""
    return log.visible(text[:_LONGEST_TEXT])[:_LONGEST_TEXT]


def _is_shallow(value: Any, depth: int = _DEEPEST) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_shallow(each, depth - 1) for each in inner)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value == cut(value)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value))


def _is_from(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and lowest <= value <= highest


# The handshake: a worker says its number; the chief, and then the worker, answers with a heartbeat.
HELLO = {"from": _is_from(0, 1 << 20), "cluster": _is_hash}
REFUSAL = {"refused": _is_text}

# After the handshake. The last words are the exit message of a worker, which the chief passes on.
HEARTBEAT: Kind = {}
VALUE = {"key": _is_text, "value": lambda value: True}
LAST_WORDS = {"worker": _is_from(0, 1 << 20), "status": _is_from(0, 255), "why": _is_text}
JOINED = (HEARTBEAT, VALUE, LAST_WORDS)
