"""Tokenization by hand: every rule of the reference, and every vocabulary that is refused.

`test_tokenization_properties.py` compares the fast path with the reference, and that with Google's.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tokenization
from conftest import ROOT

VOCAB = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "hello", "cafe",
         "café", "##é", "!", ",", "$", "[", "]", "mask", "中", "国", "ας", "σ", "##ας", "i", "##i")


@pytest.fixture
def vocab_file(tmp_path):
    return write_vocab(tmp_path / "vocab.txt", "\n".join(VOCAB) + "\n")


def write_vocab(path, text):
    path.write_bytes(text.encode("utf-8"))
    return str(path)


def test_importing_the_module_does_not_import_tensorflow():
    code = "import sys, tokenization; print('tensorflow' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT) == b"False\n"


# Cleaning and splitting.


@pytest.mark.parametrize("text, lower, kept", [
    (" \tHello,  World!\r\n", "hello , world !", "Hello , World !"),
    ("a_b c$d e^f `g`", "a _ b c $ d e ^ f ` g `", "a _ b c $ d e ^ f ` g `"),
    ("Café CAFE\u0301", "cafe cafe", "Café CAFE\u0301"),
    ("ah中国zz", "ah 中 国 zz", "ah 中 国 zz"),
    ("\U00020000x\uf900", "\U00020000 x \u8c48", "\U00020000 x \uf900"),  # NFD maps U+F900.
    ("かな 한국", "かな \u1112\u1161\u11ab\u1100\u116e\u11a8", "かな 한국"),  # NFD takes Hangul apart.
    ("a\0b\ufffdc\u0007d\u200be\ue000f", "abcdef", "abcdef"),  # Controls, format, private use.
    ("a\ud800b", "ab", "ab"),  # A lone surrogate.
    ("a\U0003fffdb", "ab", "ab"),  # Unassigned.
    ("a\u00a0b\u3000c\u2028d", "a b c d", "a b c d"),  # The last is a space to str.split only.
    ("a\x85b\x1cc", "abc", "abc"),  # Controls here, although str.split takes them for spaces.
    ("ΟΔΟΣ ΟΣ'Α", "οδος οσ ' α", "ΟΔΟΣ ΟΣ ' Α"),  # Σ ends no word before an apostrophe.
    ("İstanbul ISI", "istanbul isi", "İstanbul ISI"),  # İ lower-cases to i and a combining dot.
    ("Straße ﬁ", "straße ﬁ", "Straße ﬁ"),  # NFD, not NFKD: the ligature stays.
    ("\u1fef", "`", "\u1fef"),  # NFD makes ASCII of it, which is punctuation then.
    ("“Ça—va?” ¿Sí!", "“ ca — va ? ” ¿ si !", "“ Ça — va ? ” ¿ Sí !"),
    ("שָׁלוֹם مَرحبا", "שלום مرحبا", "שָׁלוֹם مَرحبا"),
    ("😀x👩\u200d👩", "😀x👩👩", "😀x👩👩"),  # Symbols are letters here; joiners go.
    ("हिन्दी", "हिनदी", "हिन्दी"),  # The virama (Mn) goes, vowel signs (Mc) stay.
    ("\u0301", "", "\u0301"),
    ("", "", ""),
])
def test_basic_tokens_are_those_worked_out_by_hand(text, lower, kept):
    assert tokenization.BasicTokenizer().tokenize(text) == lower.split(" " if lower else None)
    assert (tokenization.BasicTokenizer(do_lower_case=False).tokenize(text)
            == kept.split(" " if kept else None))


def test_every_ideograph_block_is_split_up_to_its_last_character_and_no_further():
    tokenize = tokenization.BasicTokenizer(do_lower_case=False).tokenize
    for inside in "\u3400\u4dbf\u4e00\u9fef\uf900\ufad9\U00020000\U0002ceA1\U0002f800\U0002fa1d":
        if tokenization._is_control(inside):
            continue  # Unassigned in this Python's Unicode: dropped, as by Google's code.
        assert tokenize(f"a{inside}b") == ["a", inside, "b"]
    for outside in "\u33ff\u4dc0\ua000\ufb00\u3042\uac00":
        assert tokenize(f"a{outside}b") == [f"a{outside}b"]


# WordPiece.


def test_word_pieces_are_the_longest_first_and_a_word_without_pieces_is_unknown():
    tokenizer = tokenization.WordpieceTokenizer(vocab={"un": 0, "una": 1, "##aff": 2, "##able": 3})
    assert tokenizer.tokenize("unaffable") == ["[UNK]"]  # "una" is taken, and "##ff" is none.
    del tokenizer.vocab["una"]
    assert tokenizer.tokenize("unaffable  un\tx") == ["un", "##aff", "##able", "un", "[UNK]"]
    assert tokenizer.tokenize("") == []


def test_a_word_of_more_than_200_characters_is_unknown():
    tokenizer = tokenization.WordpieceTokenizer(vocab={"i": 0, "##i": 1})
    assert tokenizer.tokenize("i" * 200) == ["i"] + ["##i"] * 199
    assert tokenizer.tokenize("i" * 201) == ["[UNK]"]
    shorter = tokenization.WordpieceTokenizer({"i": 0, "##i": 1}, "<unk>", 2)
    assert shorter.tokenize("ii iii") == ["i", "##i", "<unk>"]


# Both paths on a vocabulary of 25 lines.


@pytest.mark.parametrize("text, ids", [
    ("unaffable, Hello!", [5, 6, 7, 13, 8, 12]),
    ("Café caf\u0065\u0301", [9, 9]),
    ("中国 国中", [18, 19, 19, 18]),
    ("ΑΣ ΣΑΣ", [20, 21, 22]),
    ("[MASK] [CLS]", [15, 17, 16, 15, 1, 16]),  # A special token in a text is text.
    ("İi", [23, 24]),
    ("i" * 200 + " " + "i" * 201, [23] + [24] * 199 + [1]),
    ("xyzzy", [1]),
    (b"caf\xc3\xa9\xff", [9]),  # Bytes, of which the last is not UTF-8.
    (" \n", []),
])
def test_ids_of_both_paths_are_those_worked_out_by_hand(vocab_file, text, ids):
    tokenizer = tokenization.BatchTokenizer(vocab_file)
    assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) == ids
    assert tokenizer.encode_batch([text])[0].tolist() == ids


def test_a_batch_is_one_flat_array_and_one_length_for_each_text(vocab_file):
    ids, lengths = tokenization.BatchTokenizer(vocab_file).encode_batch(
        ["hello!", "", "中国", "hello!"])
    assert ids.tolist() == [8, 12, 18, 19, 8, 12] and ids.dtype == np.int32
    assert lengths.tolist() == [2, 0, 2, 2] and lengths.dtype == np.int64
    ids, lengths = tokenization.BatchTokenizer(vocab_file).encode_batch([])
    assert (ids.shape, ids.dtype, lengths.shape, lengths.dtype) == ((0,), np.int32, (0,), np.int64)


def test_ids_stay_the_same_when_the_remembered_words_are_forgotten(vocab_file, monkeypatch):
    monkeypatch.setattr(tokenization, "_MAX_REMEMBERED_WORDS", 2)
    tokenizer = tokenization.BatchTokenizer(vocab_file)
    ids, _ = tokenizer.encode_batch(["hello un cafe mask hello", "mask un"])
    assert ids.tolist() == [8, 5, 9, 17, 8, 17, 5]
    assert len(tokenizer._word_ids) <= 2


def test_tokens_and_ids_convert_into_each_other_and_unknown_ones_raise(vocab_file):
    tokenizer = tokenization.FullTokenizer(vocab_file)
    assert tokenizer.convert_tokens_to_ids(["un", "##aff"]) == [5, 6]
    assert tokenizer.convert_ids_to_tokens([5, 6]) == ["un", "##aff"]
    assert tokenization.convert_tokens_to_ids(tokenizer.vocab, ["[CLS]"]) == [2]
    assert tokenization.convert_ids_to_tokens(tokenizer.inv_vocab, [2]) == ["[CLS]"]
    with pytest.raises(KeyError):
        tokenizer.convert_tokens_to_ids(["absent"])


# Vocabularies.


def test_an_id_is_a_line_number_with_blank_and_repeated_lines_counted(tmp_path):
    vocab = tokenization.load_vocab(write_vocab(tmp_path / "v", "a\n\n b \r\na\nc\u2028d\n\ne"))
    assert list(vocab.items()) == [("a", 3), ("", 5), ("b", 2), ("c\u2028d", 4), ("e", 6)]


def test_a_vocabulary_may_be_named_by_a_path_or_by_bytes(vocab_file):
    expected = tokenization.load_vocab(vocab_file)
    for name in (pathlib.Path(vocab_file), os.fsencode(vocab_file)):
        assert tokenization.load_vocab(name) == expected


def test_a_vocabulary_without_most_special_tokens_serves_the_reference(tmp_path, vocab_file):
    tiny = write_vocab(tmp_path / "tiny.txt", "[UNK]\n[CLS]\nhello\n")
    assert tokenization.FullTokenizer(tiny).tokenize("Hello you") == ["hello", "[UNK]"]
    without_mask = write_vocab(tmp_path / "no_mask.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n")
    assert tokenization.BatchTokenizer(without_mask).mask_id is None
    assert tokenization.BatchTokenizer(vocab_file).mask_id == 4


# Text conversion and the check of casing.


def test_text_and_utf8_bytes_become_str_and_nothing_else_does():
    for convert in (tokenization.convert_to_unicode, tokenization.printable_text):
        assert convert("é") == "é"
        assert convert(b"\xc3\xa9\xff") == "é"
        with pytest.raises(ValueError, match="Unsupported string type"):
            convert(1.5)


@pytest.mark.parametrize("do_lower_case, folder", [
    (False, "uncased_L-24_H-1024_A-16"), (False, "chinese_L-12_H-768_A-12"),
    (True, "cased_L-12_H-768_A-12"), (True, "multi_cased_L-12_H-768_A-12"),
])
def test_the_wrong_casing_for_a_published_checkpoint_is_an_error(do_lower_case, folder):
    checkpoint = f"/models/{folder}/bert_model.ckpt"
    with pytest.raises(ValueError, match=f"{checkpoint}.* give --do_lower_case={not do_lower_case}"):
        tokenization.validate_case_matches_checkpoint(do_lower_case, checkpoint)
    tokenization.validate_case_matches_checkpoint(not do_lower_case, checkpoint)


@pytest.mark.parametrize("checkpoint", [
    None, "", "bert_model.ckpt", "/models/mine/bert_model.ckpt",
    "/models/cased_L-12_H-768_A-12/model.ckpt-100",
])
def test_any_casing_passes_where_the_checkpoint_is_not_a_known_one(checkpoint):
    for do_lower_case in (True, False):
        tokenization.validate_case_matches_checkpoint(do_lower_case, checkpoint)
