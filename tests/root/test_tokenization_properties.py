"""The fast path, the reference and Google's own code give the same ids for every text."""

import pathlib
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenization

DATA = pathlib.Path(tokenization.__file__).resolve().parent.parent / "shared" / "data"

# What is hard for one reason or another; whole items so that examples hold them often.
NASTY = (
    " ", "  ", "\t", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2028", "\u3000",
    "\0", "\x07", "\x7f", "\xad", "\u200b", "\u200d", "\u202e", "\ufeff", "\ufffd", "\ue000",
    "[MASK]", "[CLS]", "[UNK]", "##ing", "##", "'", "don't", ".", "!?", "$", "^", "`", "_",
    "\u1fef", "“", "—", "。", "，", "、", "¿", "\u037e", "\u0387", "\u0301", "\u0327\u0301",
    "\u0345", "\u0338", "é", "e\u0301", "É", "ﬁ", "ß", "ẞ", "İ", "I", "ı", "i\u0307", "Σ", "ΑΣ",
    "Σ'Α", "ΑΣ.", "ς", "中", "中国", "\uf900", "\U00020000", "\U0002f800", "𝒳", "か", "が",
    "カ\u3099", "한국", "한", "שָׁלוֹם", "مَرحبا", "हिन्दी", "ภาษา", "😀", "👩\u200d👩", "👍🏽", "🫠",
    "\u0378", "\U0003fffd", "\ud800", "\udc00", "\uffff", "\U0010ffff", "want", "WANTED", "un",
    "1", "½", "²", "x" * 199, "y" * 300, "É" * 150, "e\u0301" * 150,
)
PIECES = ("want", "##want", "##ed", "un", "##ing", "e", "##e", "é", "##é", "É", "i", "##i", "I",
          "##I", "σ", "##σ", "ς", "##ς", "α", "##α", "Σ", "##Σ", "Α", "##Α", "x", "##x", "中", "国",
          "豈", "'", ".", "!", "[", "]", "#", "mask", "`", "—", "。", "か", "##か", "ss", "##ß", "ß",
          "😀", "##😀", "\u0301", "##\u0301", "1", "##1", "½", "##½")

texts = st.lists(
    st.one_of(st.sampled_from(NASTY), st.text(st.characters(blacklist_categories=()), max_size=4)),
    max_size=12).map("".join)


@pytest.fixture(scope="module")
def toy_vocab_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") + PIECES
    path.write_bytes("\n".join(tokens).encode("utf-8"))
    return str(path)


@pytest.fixture(scope="module", params=[True, False], ids=["lower", "cased"])
def toy(request, toy_vocab_file):
    return tokenization.BatchTokenizer(toy_vocab_file, do_lower_case=request.param)


@pytest.fixture(scope="module")
def google():
    return pytest.importorskip("bert.tokenization",
                               reason="needs Google's code (bert-tensorflow, TensorFlow 1.15)")


def reference_ids(tokenizer, text):
    return tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))


def batch_ids(tokenizer, batch):
    """The fast path's ids of each text of `batch`, as lists."""
    ids, lengths = tokenizer.encode_batch(batch)
    assert ids.shape == (lengths.sum(),) and lengths.shape == (len(batch),)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] if batch else []


def differing(batch, left, right):
    return [(text, a, b) for text, a, b in zip(batch, left, right) if a != b][:3]


@settings(max_examples=300, deadline=None)
@given(batch=st.lists(texts, max_size=8))
def test_the_fast_path_equals_the_reference_on_nasty_texts(toy, batch):
    assert batch_ids(toy, batch) == [reference_ids(toy, text) for text in batch]


@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_the_reference_equals_googles_code_on_nasty_texts(toy, google, toy_vocab_file, text):
    do_lower_case = toy.basic_tokenizer.do_lower_case
    basic = google.BasicTokenizer(do_lower_case=do_lower_case)
    assert toy.basic_tokenizer.tokenize(text) == basic.tokenize(text)
    full = google.FullTokenizer(toy_vocab_file, do_lower_case=do_lower_case)
    assert toy.tokenize(text) == full.tokenize(text)
    assert reference_ids(toy, text) == full.convert_tokens_to_ids(full.tokenize(text))


def code_points():
    """Every assigned code point, and some of the others, which all are alike."""
    return [code_point for code_point in range(0x110000)
            if unicodedata.category(chr(code_point)) not in ("Cn", "Co", "Cs")
            or code_point % 61 == 0]


@pytest.fixture
def code_point_texts():
    """Each code point alone, and inside a word before Σ, which lower-cases by context."""
    found = code_points()
    yield [" ".join("{0} A{0}Σ".format(chr(code_point)) for code_point in found[first:first + 64])
           for first in range(0, len(found), 64)]
    for table in (tokenization._CLEAN, tokenization._WITHOUT_ACCENTS,
                  tokenization._SPACED_PUNCTUATION):
        table.clear()  # Half a gigabyte of characters that no other test needs.


def test_the_fast_path_equals_the_reference_on_every_assigned_code_point(toy, code_point_texts):
    expected = [reference_ids(toy, text) for text in code_point_texts]
    assert not differing(code_point_texts, batch_ids(toy, code_point_texts), expected)


def test_the_reference_equals_googles_code_on_every_assigned_code_point(toy, google, code_point_texts):
    theirs = google.BasicTokenizer(do_lower_case=toy.basic_tokenizer.do_lower_case)
    for text in code_point_texts:
        assert toy.basic_tokenizer.tokenize(text) == theirs.tokenize(text)


# Real data.


REAL = [("glue/CoLA/train.tsv", "uncased_en", True), ("pretrain/en_books.txt", "cased_en", False),
        ("glue/XNLI/xnli.dev.tsv", "chinese", True), ("zh/THUCNews/dev.txt", "chinese", True)]


@pytest.fixture(params=REAL, ids=["-".join(map(str, case)) for case in REAL])
def real(request):
    """The vocabulary's path, the casing, and some 300 lines from all over a real file."""
    path, vocab, do_lower_case = request.param
    if not DATA.is_dir():
        pytest.skip("needs the data sets in ../shared/data")
    lines = (DATA / path).read_text(encoding="utf-8").split("\n")
    return str(DATA / "vocab" / vocab / "vocab.txt"), do_lower_case, lines[::len(lines) // 300]


def test_both_paths_equal_googles_code_on_real_data(real, google):
    vocab_file, do_lower_case, lines = real
    theirs = google.FullTokenizer(vocab_file, do_lower_case=do_lower_case)
    expected = [reference_ids(theirs, line) for line in lines]
    ours = tokenization.BatchTokenizer(vocab_file, do_lower_case=do_lower_case)
    assert not differing(lines, batch_ids(ours, lines), expected)
    assert not differing(lines, [reference_ids(ours, line) for line in lines], expected)
