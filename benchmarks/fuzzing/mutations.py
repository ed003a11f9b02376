"""Random damage to files: to bytes, and to what a file of its format holds."""

import json
import os
import random
import struct
import tempfile
from typing import Any, Callable, Dict, List

import tensorflow.compat.v1 as tf

# What stands in the place of a value, a cell or a word.
_JSON_VALUES = (None, True, -1, 0, 1e308, 10**9, 10**30, 0.5, "", "w1", "\ud800", "<script>", [], {},
                [[]], float("nan"), "x" * 5000)
_CELLS = (b"", b" ", b"-1", b"1e999", b"nan", b"w1", b"w1 " * 500, b"\"", b"\xff\xfe", b"\0",
          b"\xe2\x80\xa8", b"O", b"I-X", b"9" * 30)


def _flip_middle(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x40]))


# Damage to any file, in words.
PLAIN: Dict[str, Callable[[str], None]] = {
    "a bit flipped": _flip_middle,
    "cut short": lambda path: os.truncate(path, max(os.path.getsize(path) - 2, 0)),
    "removed": os.remove}


def mutate(path: str, generator: random.Random) -> str:
    """Damages a file; returns what was done, in words."""
    kinds: List[Callable] = [_change_bytes]
    structured = _STRUCTURED.get(os.path.splitext(path)[1])
    if structured:
        kinds += [structured] * 2
    kind = generator.choice(kinds)
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


def _change_bytes(content: bytes, generator: random.Random):
    start = generator.randrange(len(content) + 1)
    end = min(len(content), start + generator.choice((1, 1, 2, 8, 100, len(content))))
    what = generator.choice(("flipped", "cut", "removed", "repeated", "zeroed", "random", "added"))
    middle = content[start:end]
    new = {"flipped": bytes(byte ^ (1 << generator.randrange(8)) for byte in middle),
           "cut": b"", "removed": b"", "repeated": middle * 3, "zeroed": b"\0" * len(middle),
           "random": bytes(generator.randrange(256) for _ in middle),
           "added": bytes(generator.randrange(256) for _ in range(16)) + middle}[what]
    rest = b"" if what == "cut" else content[end:]
    return content[:start] + new + rest, f"bytes {start} to {end} {what}"


def _change_json(content: bytes, generator: random.Random):
    value = json.loads(content.decode("utf-8"))
    what = _change_value(value, generator)
    return json.dumps(value).encode("utf-8"), what


def _change_value(value: Any, generator: random.Random) -> str:
    """Changes one entry, at any depth, of a list or dictionary."""
    places = list(_places(value))
    holder, key = places[generator.randrange(len(places))]
    how = generator.choice(("replaced", "replaced", "removed", "renamed", "wrapped"))
    if how == "removed":
        del holder[key]
    elif how == "renamed" and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
    elif how == "wrapped":
        holder[key] = [holder[key]]
    else:
        holder[key] = generator.choice(_JSON_VALUES)
        how = f"replaced by {str(holder[key])[:20]!r}"
    return f"entry {key!r} {how}"


def _places(value: Any):
    if isinstance(value, (dict, list)):
        for key in (list(value) if isinstance(value, dict) else range(len(value))):
            yield value, key
            yield from _places(value[key])


def _change_json_lines(content: bytes, generator: random.Random):
    lines = content.split(b"\n")
    number = generator.randrange(len(lines) - 1)
    value = [json.loads(lines[number].decode("utf-8"))]  # so that all of it may be replaced
    what = _change_value(value, generator)
    lines[number] = b"\n".join(json.dumps(entry).encode("utf-8") for entry in value)
    return b"\n".join(lines), f"line {number + 1}: {what}"


def _change_table(content: bytes, generator: random.Random):
    """Of a text whose lines are words or cells."""
    lines = content.split(b"\n")
    number = generator.randrange(len(lines))
    separator = b"\t" if b"\t" in lines[number] else b"," if b"," in lines[number] else b" "
    cells = lines[number].split(separator)
    cell = generator.randrange(len(cells))
    what = generator.choice(("replaced", "replaced", "removed", "repeated", "line removed",
                             "line repeated", "line copied"))
    if what == "replaced":
        cells[cell] = generator.choice(_CELLS)
    elif what == "removed":
        del cells[cell]
    elif what == "repeated":
        cells.insert(cell, cells[cell])
    changed = [separator.join(cells)]
    if what.startswith("line"):
        changed = {"line removed": [], "line repeated": changed * 2,
                   "line copied": [changed[0], lines[generator.randrange(len(lines))]]}[what]
    return b"\n".join([*lines[:number], *changed, *lines[number + 1:]]), (
        f"line {number + 1}, cell {cell + 1}: {what}")


def _change_record(content: bytes, generator: random.Random):
    """Of TFRecords of Examples: a feature of one, in a record whose checksum is right."""
    records, position = [], 0
    while position < len(content):
        length, = struct.unpack_from("<Q", content, position)
        records.append(content[position + 12:position + 12 + length])
        position += 16 + length
    number = generator.randrange(len(records))
    example = tf.train.Example.FromString(records[number])
    name = generator.choice(sorted(example.features.feature))
    feature = example.features.feature[name]
    what = generator.choice(("removed", "emptied", "longer", "other type", "other value"))
    if what == "removed":
        del example.features.feature[name]
    elif what == "emptied":
        feature.Clear()
    elif what == "other type":
        feature.bytes_list.value.append(b"w1")
    else:
        kind = feature.WhichOneof("kind") or "int64_list"
        values = getattr(feature, kind).value
        new = generator.choice((-1, 10**9, 7))
        if what == "longer" or not values:
            values.extend([new] * generator.choice((1, 5000)))
        else:
            values[generator.randrange(len(values))] = new
    records[number] = example.SerializeToString()
    return _tfrecords(records), f"record {number + 1}: {name} {what}"


def _tfrecords(records: List[bytes]) -> bytes:
    with tempfile.NamedTemporaryFile() as file:
        with tf.python_io.TFRecordWriter(file.name) as writer:
            for record in records:
                writer.write(record)
        return file.read()


def _change_safetensors(content: bytes, generator: random.Random):
    length, = struct.unpack_from("<Q", content)
    header, what = _change_json(content[8:8 + length], generator)
    return struct.pack("<Q", len(header)) + header + content[8 + length:], what


_STRUCTURED: Dict[str, Callable] = {
    ".json": _change_json, ".jsonl": _change_json_lines, ".txt": _change_table,
    ".tsv": _change_table, ".csv": _change_table, ".conll": _change_table,
    ".tfrecord": _change_record, ".safetensors": _change_safetensors, "": _change_table}
