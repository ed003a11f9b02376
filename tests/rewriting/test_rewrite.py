"""`python -m rewriting.rewrite`: the best phrases of the pool, however many replicas there are."""

import json

import numpy as np
import pytest

from commands import ends_with_error, run_here
from conftest import on_tensorflow_1, plain_session
from encoder import classifier
from engine.checkpoints import checkpoints
from engine.data import store
from engine.model import INFERENCE
from rewriting import data, pairs, rewrite
from rewriting.slot_files import BERT_AD_MARK
from rewriting.texts import Slot, slots
from rewriting_files import create_here, made_up_texts, run_here as train_here

import tensorflow.compat.v1 as tf

NUM_TEXTS = 21


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """The directory of a trained scorer."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in made_up_texts(40)))
    create_here(input_file=folder / "texts.txt", output_dir=folder)
    train_here(tiny_model, folder, folder / "out", do_train=True, num_cpu_replicas=1)
    return folder / "out"


@pytest.fixture
def texts():
    return made_up_texts(NUM_TEXTS, 5)


@pytest.fixture
def phrases():
    clauses = [slot.clause for text in made_up_texts(12, 6) for slot in slots(text)]
    return list(dict.fromkeys(clauses))


@pytest.fixture
def files(tmp_path, texts, phrases):
    """The flags that name the texts and the pool, which has every phrase twice."""
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "pool.txt").write_text("".join(f"{phrase}\n" for phrase in phrases + phrases))
    return {"input_file": tmp_path / "texts.txt", "pool_file": tmp_path / "pool.txt"}


def rewrite_here(trained, **flags):
    run_here({"output_dir": trained, "num_gpus": 0, **flags}, rewrite)


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def probabilities_of(model, trained, tried):
    """The reference: pairs (slot, phrase) at full length, in one plain session."""
    encoding = model.encoding(32)
    numbers = np.arange(len(tried))
    contexts = pairs.encode_contexts([slot.before for slot, _ in tried],
                                     [slot.after for slot, _ in tried], encoding)
    ids = encoding.tokenizer.encode_batch([phrase for _, phrase in tried])
    features = pairs.Pairs(
        store.Records.of_chunk(contexts), store.Records.of_chunk({"ids": ids}), numbers, numbers,
        encoding).features(numbers, 32)
    with tf.Graph().as_default(), plain_session() as session:
        logits = classifier.forward_of(model.config(), 2)(
            {name: tf.constant(value) for name, value in features.items()}, INFERENCE)
        tf.train.Saver().restore(session, checkpoints.latest(str(trained)).path)
        return data.KIND.scores(session.run(logits.predictions["logits"]))[:, 1]


@on_tensorflow_1
def test_the_rewrites_are_the_best_of_all_pairs_of_slot_and_phrase(
        trained, tiny_model, texts, phrases, files, tmp_path):
    rewrite_here(trained, **files, output_file=tmp_path / "out.jsonl", num_candidates=1000,
                 top_k=6, num_gpus=None, num_cpu_replicas=3, predict_batch_size=3)
    answers = read_jsonl(tmp_path / "out.jsonl")
    assert [answer["text"] for answer in answers] == texts
    tried = [(number, slot, phrase) for number, text in enumerate(texts) for slot in slots(text)
             for phrase in phrases if phrase not in {slot.clause for slot in slots(text)}]
    probabilities = probabilities_of(tiny_model, trained,
                                     [(slot, phrase) for _, slot, phrase in tried])
    expected = {pair: value for pair, value in zip(tried, probabilities)}
    for number, (text, answer) in enumerate(zip(texts, answers)):
        best = sorted((value for pair, value in expected.items() if pair[0] == number),
                      reverse=True)
        found = answer["rewrites"]
        np.testing.assert_allclose([row["probability"] for row in found], best[:6], rtol=1e-5)
        for row in found:
            slot = Slot(row["before"], row["clause"], row["after"])
            assert slot in slots(text) and row["text"] == slot.filled(row["phrase"])
            assert row["probability"] == pytest.approx(
                expected[number, slot, row["phrase"]], rel=1e-5)
        assert len({row["text"] for row in found}) == len(found) and text not in {
            row["text"] for row in found}


@on_tensorflow_1
def test_the_formats_say_the_same_and_so_does_standard_output(trained, files, tmp_path, capsys):
    for form in ("jsonl", "tsv", "bert-ad"):
        rewrite_here(trained, **files, output_file=tmp_path / form, format=form, top_k=2)
    answers = read_jsonl(tmp_path / "jsonl")
    rows = [(number, row) for number, answer in enumerate(answers, start=1)
            for row in answer["rewrites"]]
    assert 0 < len(rows) < 2 * NUM_TEXTS
    header, *lines = (tmp_path / "tsv").read_text().splitlines()
    assert header.split("\t") == ["number", "probability", "clause", "phrase", "text"]
    assert lines == [f"{number}\t{row['probability']:.6g}\t{row['clause']}\t{row['phrase']}\t"
                     f"{row['text']}" for number, row in rows]
    assert (tmp_path / "bert-ad").read_text().splitlines() == [
        f"{row['probability']:.6g}\t{row['phrase']}\t{row['before']}"
        f"{BERT_AD_MARK * len(row['phrase'])}{row['after']}" for _, row in rows]
    capsys.readouterr()
    rewrite_here(trained, **files, top_k=2)
    assert capsys.readouterr().out == (tmp_path / "tsv").read_text()


def test_candidates_share_words_with_the_text_but_are_none_of_its_clauses(trained, tmp_path):
    (tmp_path / "texts.txt").write_text(
        "one cat, two birds.\nno clause\nCat, a bird sees a tree, the old  house.\n")
    (tmp_path / "pool.txt").write_text("a tree here\nThe old house\na cat sees birds\ncat\n")
    rewrite_here(trained, input_file=tmp_path / "texts.txt", pool_file=tmp_path / "pool.txt",
                 output_file=tmp_path / "out.jsonl", num_candidates=1)
    phrases = [{row["phrase"] for row in answer["rewrites"]}
               for answer in read_jsonl(tmp_path / "out.jsonl")]
    assert phrases[0] <= {"a cat sees birds", "cat"} and phrases[0] and not phrases[1]
    assert phrases[2] <= {"a tree here", "a cat sees birds"} and phrases[2]


@on_tensorflow_1
@pytest.mark.parametrize("flags, content, words", [
    ({}, "", ("p.txt holds no examples",)),
    ({}, "cat " * 40 + "\n", ("p.txt", "no phrase that the model can read")),
    ({"input_file": None, "text_column": "2"}, "a b\n", ("--text_column", "--input_file")),
    ({"output_file": "t.txt"}, "a b\n", ("--output_file: t.txt is also an input",)),
])
def test_wrong_input_is_one_line_and_leaves_no_answers(
        flags, content, words, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.txt").write_text(content)
    (tmp_path / "t.txt").write_text("one cat, two birds\n")
    with ends_with_error(capsys, *words):
        rewrite_here(trained, **{"pool_file": "p.txt", "input_file": "t.txt",
                                 "output_file": "out.tsv", **flags})
    assert not list(tmp_path.glob("out.*"))
    assert (tmp_path / "t.txt").read_text() == "one cat, two birds\n"
