"""Random damage to files: to bytes, and to what a file of its format holds."""

import json
import os
import random
import struct
import tempfile
from typing import Any, Callable, Dict, Iterator, Tuple

import tensorflow.compat.v1 as tf

# What stands in the place of a value, a cell or a word.
_JSON_VALUES = (None, True, -1, 0, 1e308, 10**9, 10**30, 0.5, "", "w1", "\ud800", "<script>", [], {},
                [[]], float("nan"), "x" * 5000)
_CELLS = (b"", b" ", b"-1", b"1e999", b"nan", b"w1", b"w1 " * 500, b"\"", b"\xff\xfe", b"\0",
          b"\xe2\x80\xa8", b"O", b"I-X", b"9" * 30)
Change = Tuple[bytes, str]  # the new content, and what was done, in words


def mutate(path: str, generator: random.Random) -> str:
    """Damages a file; returns what was done, in words."""
    structured = _STRUCTURED.get(os.path.splitext(path)[1], _change_bytes)
    kind = generator.choice((_change_bytes, structured, structured))
    with open(path, "rb") as file:
        changed = content = file.read()
    while changed == content:
        try:
            changed, what = kind(content, generator)
        except (ValueError, IndexError, struct.error):  # it does not have that structure
            changed, what = _change_bytes(content, generator)
    with open(path, "wb") as file:
        file.write(changed)
    return what


def _change_bytes(content: bytes, generator: random.Random) -> Change:
    start = generator.randrange(len(content) + 1)
    end = min(len(content), start + generator.choice((1, 1, 2, 8, 100, len(content))))
    middle = content[start:end]
    what, new = generator.choice((
        ("flipped", bytes(byte ^ (1 << generator.randrange(8)) for byte in middle)),
        ("removed", b""), ("repeated", middle * 3), ("zeroed", b"\0" * len(middle)),
        ("added to", bytes(generator.randrange(256) for _ in range(16)) + middle)))
    rest = generator.choice((content[end:], content[end:], b""))
    return content[:start] + new + rest, f"bytes {start} to {end} {what}, then {len(rest)} bytes"


def _change_json(content: bytes, generator: random.Random) -> Change:
    """Of one entry, at any depth."""
    value = [json.loads(content.decode("utf-8"))]  # so that all of it may be replaced
    holder, key = generator.choice(list(_places(value)))
    how = generator.choice(("replaced", "replaced", "removed", "wrapped"))
    if how == "removed":
        del holder[key]
    else:
        holder[key] = [holder[key]] if how == "wrapped" else generator.choice(_JSON_VALUES)
    return (b"\n".join(json.dumps(entry).encode("utf-8") for entry in value),
            f"entry {key!r} {how}: {str(value)[:20]!r}")


def _places(value: Any) -> Iterator[Tuple[Any, Any]]:
    if isinstance(value, (dict, list)):
        for key in (list(value) if isinstance(value, dict) else range(len(value))):
            yield value, key
            yield from _places(value[key])


def _change_line(of_line: Callable[[bytes, random.Random], Change]) -> Callable[..., Change]:
    """A change of one line of a text, which may also be lost or repeated."""
    def change(content: bytes, generator: random.Random) -> Change:
        lines = content.split(b"\n")
        number = generator.randrange(len(lines))
        line, what = of_line(lines[number], generator)
        two = [lines[number], generator.choice(lines)]
        new = generator.choice(([line], [line], [line], [], two))
        return (b"\n".join([*lines[:number], *new, *lines[number + 1:]]),
                f"line {number + 1}: {what if new == [line] else f'{len(new)} lines'}")
    return change


def _change_cells(line: bytes, generator: random.Random) -> Change:
    """Of a line of words or cells."""
    separator = next((each for each in (b"\t", b",") if each in line), b" ")
    cells = line.split(separator)
    cell = generator.randrange(len(cells))
    what, new = generator.choice((("replaced", [generator.choice(_CELLS)]), ("removed", []),
                                  ("repeated", cells[cell:cell + 1] * 2)))
    return separator.join(cells[:cell] + new + cells[cell + 1:]), f"cell {cell + 1} {what}"


def _change_record(content: bytes, generator: random.Random) -> Change:
    """Of TFRecords of Examples: a feature of the first, whose checksum is right."""
    length, = struct.unpack_from("<Q", content)
    example = tf.train.Example.FromString(content[12:12 + length])
    name = generator.choice(sorted(example.features.feature))
    feature = example.features.feature[name]
    values = getattr(feature, feature.WhichOneof("kind") or "int64_list").value
    what, new = generator.choice((("longer", [*values, *[7] * 5000]), ("emptied", []), (
        "other value", [generator.choice((-1, 7, 10**9)), *values[1:]])))
    values[:] = new
    with tempfile.NamedTemporaryFile() as file:
        with tf.python_io.TFRecordWriter(file.name) as writer:
            writer.write(example.SerializeToString())
        return file.read() + content[16 + length:], f"record 1: {name} {what}"


def _change_safetensors(content: bytes, generator: random.Random) -> Change:
    length, = struct.unpack_from("<Q", content)
    header, what = _change_json(content[8:8 + length], generator)
    return struct.pack("<Q", len(header)) + header + content[8 + length:], what


_STRUCTURED: Dict[str, Callable[[bytes, random.Random], Change]] = {
    ".json": _change_json, ".jsonl": _change_line(_change_json), ".tfrecord": _change_record,
    ".safetensors": _change_safetensors,
    **dict.fromkeys((".txt", ".tsv", ".csv", ".conll", ""), _change_line(_change_cells))}
