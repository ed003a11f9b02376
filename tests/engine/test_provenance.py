"""What an output was made from is known by its content: its size and time only save reading it."""

import os

import pytest

from engine.disk import files, parts, provenance
from engine.disk.provenance import Source


@pytest.fixture
def path(tmp_path):
    (tmp_path / "texts.csv").write_text("a\nb\nc\nd\n")
    return str(tmp_path / "texts.csv")


def record_of(**facts):
    return {"facts": provenance.as_json(facts)}


def rewrite(path, text, time=(5, 5)):
    with open(path, "w") as file:
        file.write(text)
    os.utime(path, time)


def test_the_same_content_is_the_same_source_whatever_its_name_and_time(path):
    record = record_of(input=[Source(path)], seed=1)
    os.utime(path, (1, 1))
    assert provenance.difference(record, dict(input=[Source(path)], seed=1)) is None
    os.rename(path, f"{path}.moved")
    assert provenance.difference(record, dict(input=[Source(f"{path}.moved")], seed=1)) is None


def test_a_difference_names_the_file(path):
    record = record_of(input=[Source(path)], seed=1)
    rewrite(path, "a\nb\nc\nD\n")
    assert provenance.difference(record, dict(input=[Source(path)], seed=1)) == (
        f"input: {path} has another content")
    rewrite(f"{path}.more", "more")
    record = record_of(input=[Source(path)])
    assert provenance.difference(record, dict(input=[Source(path), Source(f"{path}.more")])) == (
        f"input: {path}.more has another content")
    assert provenance.difference(record_of(input=[Source(path)] * 2), dict(input=[Source(path)]))
    assert provenance.difference(record_of(seed=1), dict(seed=2)) == "seed: was 1, now 2"
    assert provenance.difference(record_of(vocabulary="0" * 64), dict(vocabulary="1" * 64)) == "vocabulary"


def test_an_unchanged_file_is_not_read(path, monkeypatch):
    record = record_of(input=[Source(path)])
    monkeypatch.delattr(files, "hash_of_file")
    assert provenance.difference(record, dict(input=[Source(path)])) is None


def in_place(path):
    rewrite(path, "A\nb\nc\nd\n")


def another_file(path):
    """As an archive unpacks one, beside the old file and then in its place."""
    rewrite(f"{path}.new", "A\nb\nc\nd\n")
    os.replace(f"{path}.new", path)


@pytest.mark.parametrize("change", [in_place, another_file])
def test_a_file_of_the_recorded_size_and_time_with_another_content_is_another(change, path, tmp_path):
    os.utime(path, (5, 5))
    record, known = record_of(input=[Source(path)]), provenance.content_hash(path, str(tmp_path))
    change(path)
    assert os.stat(path).st_mtime == 5
    assert "another content" in provenance.difference(record, dict(input=[Source(path)]))
    assert provenance.content_hash(path, str(tmp_path)) != known


def test_a_record_without_change_time_and_inode_is_decided_by_its_hash(path):
    status, digest = os.stat(path), Source(path).fact()[3]
    record = {"facts": dict(input=[[path, status.st_size, status.st_mtime_ns, digest]])}
    assert provenance.difference(record, dict(input=[Source(path)])) is None
    rewrite(path, "A\nb\nc\nd\n")
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert "another content" in provenance.difference(record, dict(input=[Source(path)]))


def test_records_of_1_0_0_had_a_hash_or_size_and_time(path):
    status = os.stat(path)
    by_time = {"facts": dict(input=[[path, status.st_size, status.st_mtime_ns]],
                             model=[os.path.splitext(path)[0], status.st_mtime])}
    by_hash = {"facts": dict(input=Source(path).fact()[3])}
    assert provenance.difference(by_time, dict(input=[Source(path)], model=Source(path))) is None
    os.utime(path, (1, 1))
    assert provenance.difference(by_hash, dict(input=Source(path))) is None
    for name in ("input", "model"):
        facts = dict(input=[Source(path)]) if name == "input" else dict(model=Source(path))
        assert provenance.difference(by_time, facts) == (
            f"{name}: {path} has not the size and time that 1.0.0 recorded")
    rewrite(path, "other")
    assert "another content" in provenance.difference(by_hash, dict(input=Source(path)))


@pytest.mark.parametrize("records, text", [
    (None, 'a,b\n"c\nd",e\nf,g\n'), (parts.LINES, "a\n\nb\nc\nd\ne\n"),
    (parts.DOCUMENTS, "a\nb\n\nc\n\nd\ne\nf\n")])
def test_a_part_is_known_by_its_own_records(path, records, text):
    """A byte that changes makes another part of that in which its record is, and of no other."""
    rewrite(path, text)

    def hashes():
        return [Source(part, records).fact()[3] for index in range(3)
                for part in parts.parts_of([path], index, 3)]
    before = hashes()
    assert len(set(before)) > 1
    for place, letter in enumerate(text):
        if letter.isalpha():
            rewrite(path, text[:place] + "x" + text[place + 1:])
            assert sum(map(str.__ne__, before, hashes())) == 1
