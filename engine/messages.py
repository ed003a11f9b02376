"""What workers say to each other, and the only place that decodes what arrives on a connection.

A message is a line of JSON with the keys and types of one of the kinds below. `decode` raises a
ValueError for everything else, and whoever reads the connection closes it.
"""

import hashlib
import hmac
import json
import re
import secrets
from typing import Any, Callable, Dict, Mapping

Message = Dict[str, Any]
Kind = Mapping[str, Callable[[Any], bool]]  # the message's keys, and what each value must be

LONGEST_GREETING = 1 << 12  # bytes of a message before both sides know each other
LONGEST = 1 << 23  # of one after that: parts of files are the longest
_LONGEST_OUTLINE = 1 << 18  # of one without its strings: small values take far more memory
_DEEPEST = 32
_LONGEST_TEXT = 1000  # characters of what people read


def decode(line: bytes, *kinds: Kind) -> Message:
    """The message in a line. Raises a ValueError if it is of none of the kinds."""
    _check_size(line)
    try:
        message = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        message = None
    for kind in kinds:
        if isinstance(message, dict) and set(message) == set(kind) and all(
                is_valid(message[key]) for key, is_valid in kind.items()):
            return message
    raise ValueError("it sent what is no message of a worker")


def encode(message: Message) -> bytes:
    """The line of a message."""
    return json.dumps(message).encode("utf-8") + b"\n"


def last_words(status: int, why: str) -> Message:
    """What a worker says when it ends: its exit status and the reason."""
    return {"status": status, "why": printable(why)}


def printable(text: str) -> str:
    """A text for people: control characters are escaped, the end is cut off where it is long."""
    escaped = "".join(letter if letter.isprintable() else repr(letter)[1:-1]
                      for letter in text[:_LONGEST_TEXT])
    return escaped[:_LONGEST_TEXT]


def nonce() -> str:
    """A number that is used once, so that no proof holds twice."""
    return secrets.token_hex(32)


def digest(value: Any) -> str:
    """A hash of a value of JSON's types."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8")).hexdigest()


def proof(secret: str, value: Any) -> str:
    """What shows that the sender of a value knows the secret. An empty one is known to all."""
    return hmac.new(secret.encode("utf-8"), digest(value).encode("ascii"), "sha256").hexdigest()


def is_proof(found: str, secret: str, value: Any) -> bool:
    """Whether a proof is that of the secret and the value."""
    return hmac.compare_digest(found, proof(secret, value))


def _check_size(line: bytes) -> None:
    """Raises a ValueError if the value of a line would take much more memory than the line."""
    is_small = len(line) <= LONGEST and line.count(b'"') <= _LONGEST_OUTLINE
    if is_small:
        strings = line.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outline = b"".join(strings[::2])
        is_small = len(outline) <= _LONGEST_OUTLINE and _depth(outline) <= _DEEPEST
    if not is_small:
        raise ValueError("it sent a message that is too large")


def _depth(outline: bytes) -> int:
    depth = deepest = 0
    for byte in outline:
        if byte in b"[{":
            depth += 1
            deepest = max(depth, deepest)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= _LONGEST_TEXT


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value))


def _is_from(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and lowest <= value <= highest


# A worker that listens begins; the one that has reached it says who it is.
CHALLENGE = {"challenge": _is_hash}
HELLO = {"from": _is_from(0, 1 << 20), "to": _is_from(0, 1 << 20), "cluster": _is_hash,
         "nonce": _is_hash, "proof": _is_hash}
# The hello of a worker that ends before it has met the others.
FAREWELL = {**HELLO, "status": _is_from(1, 255), "why": _is_text}
WELCOME = {"welcome": _is_hash}
REFUSAL = {"refused": _is_text}

# Once both sides know each other.
HEARTBEAT: Kind = {}
VALUE = {"key": _is_text, "value": lambda value: True}
LAST_WORDS = {"status": _is_from(0, 255), "why": _is_text}
JOINED = (HEARTBEAT, VALUE, LAST_WORDS)
