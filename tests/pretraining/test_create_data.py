"""Pretraining examples: Google's statistics, sound over any corpus, the same bytes every time."""

import gzip
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies

from commands import ends_with_error
from conftest import SHARED_DATA, WORDS, on_tensorflow_1
from engine.disk import patterns
from pretraining import texts
from pretraining_files import create_data_here
from tokenization import FullTokenizer

import tensorflow.compat.v1 as tf

ENGLISH = os.path.join(SHARED_DATA, "pretrain", "en_books.txt")
ENGLISH_VOCAB = os.path.join(SHARED_DATA, "vocab", "uncased_en", "vocab.txt")


def create(folder, vocab_file, text=None, **flags):
    """The features of the examples that create_data makes of a text."""
    paths = create_data_here(folder, vocab_file, text, **flags)
    return [example for path in paths.split(",") for example in read(path)]


def read(path):
    return [{name: np.array(feature.int64_list.value or feature.float_list.value)
             for name, feature in tf.train.Example.FromString(record).features.feature.items()}
            for record in tf.python_io.tf_record_iterator(path)]


def restored(example):
    """The ids with the masks undone, and which are masked."""
    ids, is_masked = example["input_ids"].copy(), np.zeros(len(example["input_ids"]), bool)
    count = int(example["masked_lm_weights"].sum())
    places = example["masked_lm_positions"][:count]
    ids[places], is_masked[places] = example["masked_lm_ids"][:count], True
    return ids, is_masked


def unmasked(example):
    """The tokens of an example's texts, with the masks undone."""
    ids, _ = restored(example)
    length, segments = example["input_mask"].sum(), example["segment_ids"]
    assert ids[0] == 2 and ids[length - 1] == 3 and not ids[length:].any()  # [CLS], [SEP]
    assert example["input_mask"][:length].all() and not segments[length:].any()
    num_first = length - segments.sum()
    assert segments[num_first:length].all() and ids[num_first - 1] == 3
    parts = [ids[1:num_first - 1].tolist()]
    return parts + [ids[num_first:length - 1].tolist()] if num_first < length else parts


def is_within(part, whole):
    return any(whole[start:start + len(part)] == part
               for start in range(len(whole) - len(part) + 1))


PLAIN_WORDS = [word for word in WORDS if not word.startswith("##")] + ["unlike", "cats"]
sentence = strategies.lists(strategies.sampled_from(PLAIN_WORDS), min_size=1, max_size=12)
corpus = strategies.lists(strategies.lists(sentence, min_size=1, max_size=5), min_size=2,
                          max_size=6)


@given(documents=corpus, seed=strategies.integers(0, 9), whole_words=strategies.booleans(),
       objective=strategies.sampled_from(["mlm_nsp", "mlm"]))
@settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
def test_over_any_corpus_examples_are_what_the_text_says(tiny_model, tmp_path_factory, documents,
                                                         seed, whole_words, objective):
    folder = tmp_path_factory.mktemp("corpus")
    text = "\n\n".join("\n".join(map(" ".join, document)) for document in documents)
    examples = create(folder, tiny_model.vocab_file, text, objective=objective, random_seed=seed,
                      max_seq_length=16, max_predictions_per_seq=4, dupe_factor=2,
                      do_whole_word_mask=whole_words)
    tokenizer = FullTokenizer(tiny_model.vocab_file)
    ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(" ".join(map(" ".join, document))))
           for document in documents]
    goes_on = [tokenizer.vocab[word] for word in WORDS if word.startswith("##")]
    for example in examples:
        parts = unmasked(example)
        label = example["next_sentence_labels"].tolist()
        assert label in ([0], [1]) and len(parts) == 1 + (objective == "mlm_nsp")
        homes = [[n for n, whole in enumerate(ids) if is_within(part, whole)] for part in parts]
        assert all(homes) and all(parts)
        if len(parts) == 2 and label == [0] and example["input_mask"].sum() < 16:
            assert any(is_within(parts[0] + parts[1], whole) for whole in ids)
        original, is_masked = restored(example)
        assert is_masked.sum() <= 4
        if whole_words:
            inside = np.isin(original[1:], goes_on) & ~np.isin(original[:-1], [2, 3])
            assert (is_masked[1:] == is_masked[:-1])[inside].all()


def test_blocks_have_every_token_of_the_text_once(tiny_model, tmp_path):
    documents = [["the cat sees a dog .", "a bird !"], ["the river ."], ["a house or a tree ?"]]
    text = "\n\n".join("\n".join(document) for document in documents) + "\n"
    examples = create(tmp_path, tiny_model.vocab_file, text, objective="mlm",
                      short_seq_prob=0, max_seq_length=10, dupe_factor=1)
    tokenizer = FullTokenizer(tiny_model.vocab_file)
    ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(" ".join(document)))
           for document in documents]
    # Eight tokens fit: the first document has nine.
    assert sorted(unmasked(example)[0] for example in examples) == sorted(
        [ids[0][:8], ids[0][8:], ids[1], ids[2]])


def test_short_seq_prob_is_the_share_of_short_blocks(tiny_model, tmp_path):
    sentence = "the cat sees a dog . " * 2
    text = "\n\n".join("\n".join([sentence] * 42) for _ in range(50))  # 504 tokens each, 28 blocks of 18
    examples = create(tmp_path, tiny_model.vocab_file, text, objective="mlm", short_seq_prob=0.1,
                      max_seq_length=20, dupe_factor=1)
    lengths = np.array([len(unmasked(example)[0]) for example in examples])
    assert lengths.sum() == 50 * 504
    # A tenth, less the draws of full length, plus the ends of documents with short examples.
    assert 0.07 < (lengths < 18).mean() < 0.15


def test_each_sentence_alone_and_spans_in_labelled_pairs(tiny_model, tmp_path):
    examples = create(tmp_path, tiny_model.vocab_file, "the cat sees\na dog\n\na bird\n",
                      objective="mlm", one_sentence_per_example=True, dupe_factor=1)
    assert sorted(len(unmasked(example)[0]) for example in examples) == [2, 2, 3]
    pairs = ["1\tx\tthe cat\ta bird sees the old cat", "0\t\ta dog\tthe small tree likes a river .",
             "1\tx\tcat\tthe bird sees a cat", "1\tx\tthe old cat\ta green bird"]
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    examples = create(tmp_path / "pairs", tiny_model.vocab_file, None, input_file=tmp_path / "pairs.tsv",
                      objective="span", dupe_factor=1, max_seq_length=12)
    # A first text of one token, and one as long as the second, make no example.
    assert sorted(example["next_sentence_labels"][0] for example in examples) == [0, 1]
    for example in examples:
        first, second = unmasked(example)
        places = example["masked_lm_positions"][:2]
        assert len(first) == 2 and len(second) in (6, 7)
        assert example["masked_lm_weights"].sum() == 2 and places[1] == places[0] + 1
        assert example["segment_ids"][places].all()


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_processes(tiny_model, tmp_path):
    generator = random.Random(0)
    text = "\n".join(" ".join(generator.choices(PLAIN_WORDS, k=9)) if generator.random() < 0.8
                     else "" for _ in range(600))
    contents = []
    changes = {"one": {}, "two": dict(num_processes=2), "other": dict(random_seed=1)}
    for name, flags in changes.items():
        folder = tmp_path / name
        folder.mkdir()
        create(folder, tiny_model.vocab_file, text, dupe_factor=2, max_seq_length=32, **flags)
        contents.append((folder / "out.tfrecord").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_several_outputs_share_the_examples_of_one(tiny_model, tmp_path):
    text = "the cat\na dog\n\na bird\nthe tree sees\n"
    one = create(tmp_path, tiny_model.vocab_file, text)
    several = create(tmp_path, tiny_model.vocab_file, output_file=",".join(
        str(tmp_path / name) for name in "abc"))
    assert sorted(str(sorted(example.items())) for example in one) == sorted(
        str(sorted(example.items())) for example in several)
    facts = json.loads((tmp_path / "a.json").read_text())
    assert facts["num_examples"] == len(one) and facts["dupe_factor"] == 10
    assert not [name for name in os.listdir(str(tmp_path)) if "tmp" in name or "create" in name]


def test_files_patterns_directories_and_gzip_hold_the_same_text(tiny_model, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("\ufeffthe cat\r\n\r\na dog\r\n", encoding="utf-8")
    (folder / "inner").mkdir()
    (folder / "inner" / ".hidden").write_text("the sun\n")
    inner = folder / "inner" / "b.txt.gz"
    with gzip.open(str(inner), "wb") as file:
        file.write(b"a bird\n\n\nthe tree\n")
    for names in (f"{folder}/a.txt, {inner}", f"{folder}/*", str(folder)):
        sentences = texts.read_sentences(patterns.find(names, "--input_file"))
        read_in = [(sentence.document, sentence.text) for sentence in sentences]
        assert [text for _, text in read_in] == ["the cat", "a dog", "a bird", "the tree"]
        assert len({document for document, _ in read_in}) == 4  # a file's end ends a document


def statistics(examples):
    """Means over examples, and over masked tokens."""
    masked = [(example["input_ids"][place], token) for example in examples
              for place, token, weight in zip(example["masked_lm_positions"],
                                              example["masked_lm_ids"],
                                              example["masked_lm_weights"]) if weight]
    shown, original = np.array(masked).T
    lengths = [example["input_mask"].sum() for example in examples]
    return {
        "examples": len(examples), "length": np.mean(lengths), "shorter": np.mean(
            [length < 64 for length in lengths]),
        "second": np.mean([example["segment_ids"].sum() for example in examples]),
        "negatives": np.mean([example["next_sentence_labels"][0] for example in examples]),
        "masked": len(masked) / np.sum(lengths), "mask": np.mean(shown == 103),
        "kept": np.mean(shown == original)}


@on_tensorflow_1
@pytest.mark.skipif(not os.path.exists(ENGLISH), reason="needs ../shared/data")
def test_statistics_are_those_of_googles_code(tmp_path):
    pytest.importorskip("bert", reason="Google's package runs on TensorFlow 1.15 only")
    with open(ENGLISH, encoding="utf-8") as file:
        documents = file.read().split("\n\n")
    generator = random.Random(1)
    text = "\n\n".join(document for document in generator.sample(documents, 25)
                       if len(document) < 20000)
    ours = create(tmp_path, ENGLISH_VOCAB, text, max_seq_length=64, max_predictions_per_seq=10,
                  dupe_factor=8)
    # In a process of its own: Google's modules define the same flags again and again.
    subprocess.run([sys.executable, "-m", "bert.create_pretraining_data",
                    f"--input_file={tmp_path}/text.txt", f"--vocab_file={ENGLISH_VOCAB}",
                    f"--output_file={tmp_path}/google.tfrecord", "--max_seq_length=64",
                    "--max_predictions_per_seq=10", "--dupe_factor=8"],
                   stderr=subprocess.DEVNULL, check=True)
    theirs = read(str(tmp_path / "google.tfrecord"))
    assert set(ours[0]) == set(theirs[0])
    assert {n: len(v) for n, v in ours[0].items()} == {n: len(v) for n, v in theirs[0].items()}
    expected, actual = statistics(theirs), statistics(ours)
    assert abs(actual["examples"] / expected["examples"] - 1) < 0.03
    for name, tolerance in (("length", 1.0), ("shorter", 0.04), ("second", 1.5),
                            ("negatives", 0.03), ("masked", 0.002), ("mask", 0.015),
                            ("kept", 0.015)):
        assert abs(actual[name] - expected[name]) < tolerance, (name, actual, expected)


_READ_WITH_GOOGLES_CODE = """
import sys
import numpy as np, tensorflow as tf
from bert.run_pretraining import input_fn_builder
dataset = input_fn_builder([sys.argv[1]], 12, 3, is_training=False)({"batch_size": 4})
with tf.Session() as session:
    np.savez(sys.argv[2], **session.run(dataset.make_one_shot_iterator().get_next()))
"""


def test_googles_run_pretraining_reads_the_file(tiny_model, tmp_path):
    pytest.importorskip("bert", reason="Google's package runs on TensorFlow 1.15 only")
    ours = create(tmp_path, tiny_model.vocab_file, "the cat\na dog\n\na bird\nthe tree sees\n",
                  max_seq_length=12, max_predictions_per_seq=3)
    subprocess.run([sys.executable, "-c", _READ_WITH_GOOGLES_CODE, str(tmp_path / "out.tfrecord"),
                    str(tmp_path / "batch.npz")], stderr=subprocess.DEVNULL, check=True)
    batch = np.load(str(tmp_path / "batch.npz"))
    assert sorted(batch.files) == sorted(ours[0])
    for name in batch.files:
        assert np.allclose(batch[name], [example[name] for example in ours[:4]]), name


# --- Bad input, and output that is there --------------------------------------------------


TEXT = b"the cat sees a dog .\na bird likes the tree !\n\nthe old river\nthe small house\n"


@pytest.mark.parametrize("text, flags, mentions", [
    (b"", {}, ["--input_file", "no text"]),
    (b"the old river\na small house\n", {}, ["one document", "--objective=mlm"]),
    (b"the cat\n\na d\xffog\n", {}, ["text.txt, line 3", "UTF-8"]),
    ("мышь и дом\n\nещё один текст\n".encode("utf-8"), {}, ["--vocab_file", "100%", "[UNK]"]),
    (b"1\tthe cat\n", dict(objective="span"), ["line 1", "tabs"]),
    (TEXT, dict(input_file="{}/cut.txt.gz"), ["cut.txt.gz"]),
    (TEXT, dict(vocab_file="{}/unmasked.txt"), ["unmasked.txt", "[MASK]"]),
    (TEXT, dict(input_file="{}/texts.csv"), ["texts.csv", "each line is read as a text", ".txt"]),
])
def test_one_line_says_what_is_wrong(tiny_model, tmp_path, capsys, text, flags, mentions):
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(TEXT * 100)[:100])
    (tmp_path / "unmasked.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    (tmp_path / "texts.csv").write_text("label,text\n1,the cat\n")
    flags = {name: value.format(tmp_path) if isinstance(value, str) else value
             for name, value in flags.items()}
    before = set(os.listdir(str(tmp_path))) | {"text.txt"}
    with ends_with_error(capsys, *mentions):
        create_data_here(tmp_path, text=text, **{
            "max_seq_length": 16, "vocab_file": tiny_model.vocab_file, **flags})
    assert set(os.listdir(str(tmp_path))) <= before, "something is half-written"


def test_output_of_other_settings_is_not_overwritten(tiny_model, tmp_path, capsys):
    create_data_here(tmp_path, tiny_model.vocab_file, TEXT)
    content = (tmp_path / "out.tfrecord").read_bytes()
    with ends_with_error(capsys, "made with another masked_lm_prob: was 0.15, now 0.2"):
        create_data_here(tmp_path, tiny_model.vocab_file, masked_lm_prob=0.2)
    with ends_with_error(capsys, "made with another inputs: ", "text.txt has another content"):
        create_data_here(tmp_path, tiny_model.vocab_file, TEXT + b"more\n")
    os.remove(str(tmp_path / "out.tfrecord.json"))
    with ends_with_error(capsys, "out.tfrecord"):
        create_data_here(tmp_path, tiny_model.vocab_file)
    assert (tmp_path / "out.tfrecord").read_bytes() == content


def test_a_blank_line_after_each_sentence_is_a_warning(tiny_model, tmp_path, capsys):
    text = "\n\n".join(" ".join(PLAIN_WORDS[number:number + 6]) for number in range(12))
    create(tmp_path, tiny_model.vocab_file, text, max_seq_length=16)
    assert ("WARNING: next_sentence_label is 1 in 100.0% of the examples: nothing is learned about next sentences; a "
            "blank line ends a document") in capsys.readouterr().err
    create(tmp_path, tiny_model.vocab_file, text.replace("\n\n", "\n", 8), max_seq_length=16,
           output_file=tmp_path / "documents.tfrecord")
    assert "WARNING" not in capsys.readouterr().err
