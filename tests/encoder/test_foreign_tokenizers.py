"""Tokenizers of Hugging Face folders: what ours computes is converted, anything else refused by its name."""

import copy
import json
import os

import pytest
import tokenizers

import extract_features
import tokenization
from commands import run_here
from conftest import VOCAB, WORDS, TinyModel
from encoder import convert, tokenizer_files, vocabulary
from engine.errors import UserError
from huggingface_folders import write_bare_encoder

SPECIAL = {"id": "[CLS]", "type_id": 0}, {"id": "[SEP]", "type_id": 0}, {"id": "[SEP]", "type_id": 1}
TEMPLATE = [{"SpecialToken": SPECIAL[0]}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": SPECIAL[1]}]
# What transformers 4 writes for a BertTokenizerFast, but the vocabulary.
CONFIG = {"do_lower_case": True, "unk_token": "[UNK]", "sep_token": {"content": "[SEP]", "lstrip": False},
          "tokenize_chinese_chars": True, "strip_accents": None, "do_basic_tokenize": True, "never_split": None,
          "tokenizer_class": "BertTokenizer", "model_max_length": 512,
          "added_tokens_decoder": {"1": {"content": "[UNK]", "special": True}}}
FAST = {"added_tokens": [{"id": 1, "content": "[UNK]", "special": True}],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": TEMPLATE, "pair": [
            *TEMPLATE, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": SPECIAL[2]}]},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {token: row for row, token in enumerate(VOCAB)}}}


def write(folder, config=(), fast=(), **others):
    """A folder with these entries in the place of those above; an entry of FAST replaces entries of a part."""
    parts = copy.deepcopy(FAST)
    for name, value in dict(fast).items():
        parts[name] = {**parts[name], **value} if isinstance(value, dict) and "type" not in value else value
    for name, content in (("tokenizer_config.json", {**CONFIG, **dict(config)}), ("tokenizer.json", parts),
                          *((f"{name}.json", value) for name, value in others.items())):
        (folder / name).write_text(json.dumps(content))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCAB))
    return str(folder)


@pytest.mark.parametrize("config, fast, lower", [
    ({}, {}, True), ({"tokenizer_class": "BertTokenizerFast"}, {}, True), ({"never_split": []}, {}, True),
    ({"tokenizer_class": "DistilBertTokenizer", "strip_accents": True}, {}, True),
    ({"do_lower_case": False, "strip_accents": False}, {"normalizer": {"lowercase": False}}, False),
    ({"do_lower_case": None}, {"normalizer": {"lowercase": False}}, False),  # tokenizer.json alone says so
    ({"tokenizer_class": "PreTrainedTokenizerFast"}, {"normalizer": {
        "type": "Sequence", "normalizers": [FAST["normalizer"]]}}, True)])
def test_what_bert_s_own_tokenizers_write_is_read(tmp_path, config, fast, lower):
    assert vocabulary.read_casing(write(tmp_path, config, fast), VOCAB) is lower


def test_what_the_package_tokenizers_writes_is_read_and_gives_the_same_ids(tmp_path, tiny_model):
    theirs = tokenizers.BertWordPieceTokenizer(tiny_model.vocab_file, lowercase=True)
    theirs.save(str(tmp_path / "tokenizer.json"))
    assert tokenizer_files.read(str(tmp_path))["do_lower_case"] is True
    assert vocabulary.read_tokens(str(tmp_path), len(VOCAB)) == VOCAB


@pytest.mark.parametrize("lower", [True, False])
def test_what_is_written_for_it_is_read_here_and_gives_our_ids_there(tmp_path, lower):
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCAB))
    ours = tokenization.BatchTokenizer(str(tmp_path / "vocab.txt"), lower)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_files.fast(ours.vocab, lower)))
    assert tokenizer_files.read(str(tmp_path))["do_lower_case"] is lower
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    first, second = f"{' '.join(WORDS)}, {WORDS[0].upper()}!", "W\u00c4rter 中" + WORDS[1] + "x " + "y" * 150
    found, begin, end = theirs.encode(first, second), VOCAB.index("[CLS]"), VOCAB.index("[SEP]")
    of_first, of_second = (ours.encode_batch([text])[0].tolist() for text in (first, second))
    assert found.ids == [begin, *of_first, end, *of_second, end]
    assert found.type_ids == [0] * (len(of_first) + 2) + [1] * (len(of_second) + 1)


@pytest.mark.parametrize("config, fast, others, shown", [
    ({"tokenizer_class": "BertJapaneseTokenizer"}, {}, {}, "tokenizer_class is 'BertJapaneseTokenizer'"),
    ({"word_tokenizer_type": "mecab", "tokenizer_class": None}, {}, {}, "word_tokenizer_type is 'mecab'"),
    ({"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}}, {}, {}, "auto_map"),
    ({"strip_accents": False}, {}, {}, "strip_accents is False, do_lower_case True"),
    ({"never_split": ["covid-19"]}, {}, {}, "never_split is ['covid-19']"),
    ({"cls_token": "<s>"}, {}, {}, "cls_token is '<s>'"),
    ({"do_lower_case": False}, {}, {}, "normalizer.lowercase is True, do_lower_case False"),
    ({}, {"normalizer": {"type": "NFKC"}}, {}, "normalizer.type is 'NFKC'"),
    ({}, {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}]}}, {},
     "normalizer.type is 'Sequence'"),
    ({}, {"normalizer": {"handle_chinese_chars": False}}, {}, "normalizer.handle_chinese_chars is False"),
    ({}, {"pre_tokenizer": {"type": "WhitespaceSplit"}}, {}, "pre_tokenizer.type is 'WhitespaceSplit'"),
    ({}, {"pre_tokenizer": {"type": "ByteLevel"}, "model": {"type": "BPE", "merges": []}}, {}, "is 'BPE'"),
    ({}, {"model": {"continuing_subword_prefix": "@@"}}, {}, "continuing_subword_prefix is '@@'"),
    ({}, {"model": {"max_input_chars_per_word": 20}}, {}, "max_input_chars_per_word is 20"),
    ({}, {"post_processor": {"type": "RobertaProcessing"}}, {}, "post_processor.type is 'RobertaProcessing'"),
    ({}, {"added_tokens": [{"id": 6, "content": "the", "special": False}]}, {}, "added token 'the'"),
    ({}, {}, {"added_tokens": {"[E1]": 99}}, "added_tokens.json: the added token '[E1]'"),
    ({}, {}, {"special_tokens_map": {"additional_special_tokens": ["[E2]"]}}, "added token '[E2]'")])
def test_any_other_tokenizer_is_refused_by_its_name(tmp_path, config, fast, others, shown):
    with pytest.raises(UserError) as refused:
        vocabulary.read_casing(write(tmp_path, config, fast, **others), VOCAB)
    assert shown in str(refused.value) and str(tmp_path) in str(refused.value)


def test_a_conversion_ends_before_anything_is_written(tmp_path):
    source, config = write_bare_encoder(tmp_path / "source"), tmp_path / "source" / "config.json"
    plain = config.read_text()
    config.write_text(json.dumps(dict(json.loads(plain), tokenizer_class="BertJapaneseTokenizer")))
    with pytest.raises(UserError, match="config.json: tokenizer_class is 'BertJapaneseTokenizer'"):
        convert.convert_from_huggingface(source, str(tmp_path / "out"))
    config.write_text(plain)
    os.rename(os.path.join(source, "vocab.txt"), os.path.join(source, "spiece.model"))
    with pytest.raises(UserError, match="spiece.model: it is of SentencePiece or BPE"):
        convert.convert_from_huggingface(source, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_two_vocabularies_in_one_folder_are_refused(tmp_path):
    source = write(tmp_path)
    assert vocabulary.read_tokens(source, len(VOCAB)) == VOCAB
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in [*VOCAB[:6], "zzz", *VOCAB[6:]]))
    with pytest.raises(UserError, match="are different vocabularies: 'a' is row 6"):
        vocabulary.read_tokens(source, 99)


@pytest.mark.parametrize("moved, warns", [(2, False), (4, True)])
def test_a_vocabulary_that_is_not_the_model_s_is_a_warning(tiny_model: TinyModel, tmp_path, capsys, moved, warns):
    """Of 33 rows, a tenth are 3.3."""
    tokens = [*VOCAB[:-moved], *(f"new{number}" for number in range(moved))]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    vocabulary.warn_of_another(str(tmp_path / "vocab.txt"), os.path.dirname(tiny_model.vocab_file))
    said = capsys.readouterr().err
    assert (f"4 of the {len(VOCAB)} rows of" in said) == warns and bool(said) == warns


def test_commands_that_take_a_vocabulary_and_a_model_warn(tiny_classifier, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCAB[:5] + VOCAB[:4:-1]))
    run_here(dict(from_tensorflow=tiny_classifier, vocab_file=tmp_path / "vocab.txt",
                  output_dir=tmp_path / "out"), convert)
    assert "the model's own vocabulary, stand elsewhere in it" in capsys.readouterr().err
    (tmp_path / "texts.txt").write_text("the cat\n")
    run_here(dict(init_checkpoint=tiny_classifier, vocab_file=tmp_path / "vocab.txt", max_seq_length=16, layers=-1,
                  input_file=tmp_path / "texts.txt", output_file=tmp_path / "features.jsonl"), extract_features)
    assert "the model's own vocabulary, stand elsewhere in it" in capsys.readouterr().err
