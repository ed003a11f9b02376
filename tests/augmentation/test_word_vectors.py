"""Files of word vectors: formats are read, and a broken line is named."""

import pytest

from augmentation import word_vectors
from engine.errors import UserError


@pytest.mark.parametrize("content", [
    "5 2\na 1 0\nb 1 0.1\nc 0 1\nd -1 0\n",  # word2vec's header
    "a 1 0 \r\nb 1 0.1 \r\nc 0 1 \r\nd -1 0 \r\n",
    "a 1 0\nB 1 0\nb 1 0.1\nat name@domain.com 1 0\n. . . 1 0\nc 0 1\n12 1 0\nd -1 0",
    "a 1 0\na 0 1\nb 1 0.1\nb 1 0\nc 0 1\nd -1 0\n",
])
def test_formats_of_the_wild_are_read_and_only_lower_cased_words_of_letters_kept(
        content, tmp_path):
    (tmp_path / "vectors.txt").write_text(content)
    vectors = word_vectors.load(str(tmp_path / "vectors.txt"))
    assert [vectors.nearest(word, 9) for word in ("a", "c", "at", "B", "12")] == [
        ["b", "c", "d"], ["b", "a", "d"], [], [], []]


@pytest.mark.parametrize("content, wrong", [
    (b"a 1 0\nb 0 1\nword 0.5\nc 1 1\n", ", line 3: must be a word and 2 numbers"),
    (b"a 1 0\nword 0.5 0,5\n", ", line 2: must be a word and 2 numbers"),
    (b"a 1 0\nword 0.5 nan\n", ", line 2: must be a word and 2 numbers"),
    (b"w\xff 1 1\n", ", line 1: not UTF-8"),
    (b"", ""), (b"word\n", ""), (b"1 0.5 0.5\n", ""),
])
def test_a_broken_line_or_file_is_named(content, wrong, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match="vectors.txt" + wrong):
        word_vectors.load(str(path))
