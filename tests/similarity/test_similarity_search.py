"""An index holds the vectors of its documents; a search ranks all of them."""

import json
import os
import re
import shutil
import signal
import tempfile
from unittest import mock

import numpy as np
import pytest

from commands import answers_one_by_one, ends_with_error, run_here
from conftest import plain_session, sentences
from engine import interruption
from engine.disk import parts
from engine.disk.artifact import GrowingFile
from modeling import BertModel
from similarity import index, mining, search
from similarity_files import write_model
from tokenization import FullTokenizer

import tensorflow.compat.v1 as tf

DOCUMENTS = sentences(40, seed=1)
QUERIES = ["a cat", *sentences(5, seed=2)]
PREFIX = "the: "


@pytest.fixture(scope="module")
def model_dir(two_layers, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "model", two_layers, query_prefix=PREFIX)


@pytest.fixture(scope="module")
def vector_of(two_layers):
    """The vector of a text, computed alone: the mean of the states of the last layer."""
    tokenizer = FullTokenizer(two_layers.vocab_file)
    with tf.Graph().as_default(), plain_session() as session:
        ids = tf.placeholder(tf.int32, [1, None])
        states = BertModel(two_layers.config(), False, ids).get_sequence_output()
        tf.train.Saver().restore(session, two_layers.init_checkpoint)

        def vector(text):
            tokens = ["[CLS]", *tokenizer.tokenize(text)[:22], "[SEP]"]
            mean = session.run(states, {
                ids: [tokenizer.convert_tokens_to_ids(tokens)]})[0].mean(axis=0)
            return mean / np.linalg.norm(mean)
        yield vector


def ask(flags, queries=QUERIES):
    """Runs the command with these lines on standard input; returns the lines of its output."""
    with tempfile.TemporaryFile() as file, mock.patch.object(
            search, "ArrivingLines", lambda: parts.ArrivingLines(file.fileno())):
        file.write("".join(f"{query}\n" for query in queries).encode("utf-8", "surrogateescape"))
        file.seek(0)
        run_here(flags, search)
    return flags["output_file"].read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def built(model_dir, tmp_path_factory):
    """The flags of a search that has built its index, and its answers."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in DOCUMENTS))
    flags = {"model_dir": model_dir, "documents": folder / "texts.txt", "num_cpu_replicas": 1,
             "output_dir": folder / "index", "output_file": folder / "found.jsonl", "top_k": 4}
    return flags, ask(flags)


@pytest.fixture
def answers(built):
    return built[1]


@pytest.fixture
def flags(built, tmp_path):
    """The flags of a search in a copy of the index."""
    shutil.copytree(str(built[0]["output_dir"]), str(tmp_path / "index"))
    return {**built[0], "output_dir": tmp_path / "index", "output_file": tmp_path / "found.jsonl"}


@pytest.mark.parametrize("form", ["jsonl", "tsv"])
def test_a_query_that_is_no_text_gets_its_error_and_the_others_their_answers(flags, form, capsys):
    flags.update(output_file=flags["output_file"].with_name("found." + form), top_k=1)
    expected = ask(flags)
    found = ask(flags, [*QUERIES[:2], "a\0cat", "\udcff", *QUERIES[2:]])
    first = 2 + (form == "tsv")
    odd, found[first:first + 2] = found[first:first + 2], []
    assert found == expected
    if form == "tsv":
        assert odd == ["\t\t\t\t"] * 2
    else:
        assert "line 3: holds a NUL byte" in json.loads(odd[0])["error"]
        assert "line 4: not UTF-8" in json.loads(odd[1])["error"]
    said = "WARNING: 2 of 8 queries have no answer; the first: standard input, line 3: holds a NUL"
    assert said in capsys.readouterr().err
    with ends_with_error(capsys, "standard input, line 1: holds a NUL byte"):
        ask(flags, ["a\0cat"] * 3)


def test_the_log_counts_the_different_texts_of_queries(flags, capsys):
    ask(flags, ["a cat", "a cat"])
    assert "Searching: 1 text" in capsys.readouterr().err


def test_the_nearest_documents_of_a_query_come_in_order_with_their_cosines(
        flags, answers, vector_of):
    found = list(map(json.loads, answers))
    matrix = np.array([[vector_of(PREFIX + query) @ vector_of(text) for text in DOCUMENTS]
                       for query in QUERIES])
    assert [answer["query"] for answer in found] == QUERIES
    for answer, row in zip(found, matrix):
        numbers = [entry["document"] - 1 for entry in answer["found"]]
        assert len(set(numbers)) == 4
        assert [entry["text"] for entry in answer["found"]] == [DOCUMENTS[n] for n in numbers]
        scores = [entry["score"] for entry in answer["found"]]
        np.testing.assert_allclose(scores, np.sort(row)[::-1][:4], atol=2e-6)
        np.testing.assert_allclose(scores, row[numbers], atol=2e-6)
    # The index serves later searches without the documents, and its vectors other programs.
    again = map(json.loads, ask({**flags, "documents": None, "num_cpu_replicas": 2}))
    assert [[entry["text"] for entry in answer["found"]] for answer in again] == [
        [entry["text"] for entry in answer["found"]] for answer in found]
    np.testing.assert_allclose(np.load(str(flags["output_dir"] / "vectors.npy")),
                               [vector_of(text) for text in DOCUMENTS], atol=1e-5)


def test_tsv_has_a_line_for_each_answer_and_no_tab_of_a_text(flags, tmp_path):
    (tmp_path / "texts.jsonl").write_text(
        '{"id": 1, "text": "a\\tcat\\nlikes"}\n{"id": 2, "text": "a"}\n')
    flags.update(documents=tmp_path / "texts.jsonl", output_file=tmp_path / "found.tsv",
                 output_dir=tmp_path / "other", text_column="text")
    header, *rows = (line.split("\t") for line in ask(flags, ["a cat likes"]))
    assert header == ["query", "rank", "score", "document", "text"]
    assert [row[:2] + row[3:] for row in rows] == [
        ["a cat likes", "1", "1", "a cat likes"], ["a cat likes", "2", "2", "a"]]


def test_the_first_components_alone_are_vectors_too(flags, tmp_path, vector_of):
    found = [json.loads(line) for line in ask(
        {**flags, "output_dir": tmp_path / "short", "vector_size": 6, "top_k": 1})]
    matrix = np.array([[np.dot(*(values[:6] / np.linalg.norm(values[:6]) for values in (
        vector_of(PREFIX + query), vector_of(text)))) for text in DOCUMENTS] for query in QUERIES])
    np.testing.assert_allclose([answer["found"][0]["score"] for answer in found],
                               matrix.max(axis=1), atol=2e-6)


def test_documents_of_pairs_are_all_texts_but_the_anchors_once(flags, tmp_path):
    (tmp_path / "pairs.tsv").write_text(
        "anchor\tpositive\tnegative\na cat\ta dog\ta tree\na bird\ta tree\ta house\n")
    ask({**flags, "documents": tmp_path / "pairs.tsv", "output_dir": tmp_path / "pairs"})
    lines = (tmp_path / "pairs" / "texts.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == ["a dog", "a tree", "a house"]


@pytest.mark.parametrize("name", ["texts.jsonl", "vectors.npy"])
def test_interrupted_it_ends_with_the_bytes_of_an_undisturbed_run(
        name, flags, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(index, "_CHUNK_TEXTS", 7)
    whole = ask({**flags, "output_dir": tmp_path / "whole"})

    append = GrowingFile.append

    def interrupting(file, *chunk):
        if file.num_rows >= 14 and file.path.endswith(name):
            raise interruption.Interrupted(signal.SIGTERM)
        append(file, *chunk)

    flags["output_dir"] = tmp_path / "cut"
    values = search.define_flags()
    values(["search", *(f"--{key}={value}" for key, value in flags.items())])
    with monkeypatch.context() as patch, pytest.raises(interruption.Interrupted):
        patch.setattr(GrowingFile, "append", interrupting)
        search.main(values)
    capsys.readouterr()
    assert ask(flags) == whole
    assert f"{name}.part: 14 " in capsys.readouterr().err
    for file in ("texts.jsonl", "vectors.npy"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_query_is_answered_before_the_next_one_comes(flags, answers):
    found, _ = answers_one_by_one("similarity.search", QUERIES, top_k=1, **{
        name: flags[name] for name in ("model_dir", "output_dir")})
    assert [each["found"][0]["document"] for each in found] == [
        json.loads(answer)["found"][0]["document"] for answer in answers]


# --- Hard negatives ----------------------------------------------------------------------


PAIRS = [*zip(sentences(12, seed=3), sentences(12, seed=4)),
         ("a cat", "a dog"), ("a cat", "a tree")]


def mine(flags, tmp_path, **changes):
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + "".join(
        f"{anchor}\t{positive}\n" for anchor, positive in PAIRS))
    run_here({**flags, "documents": None, "mine_negatives": tmp_path / "pairs.tsv", **changes},
             search)
    return flags["output_file"].read_text().splitlines()


def expected_negatives(vector_of, documents, ranks, margin, count):
    expected = []
    for anchor, positive in PAIRS:
        query = vector_of(PREFIX + anchor)
        scores = np.array([query @ vector_of(text) for text in documents])
        known = {anchor, *(other for same, other in PAIRS if same == anchor)}
        order = np.argsort(-scores, kind="stable")[ranks[0] - 1:ranks[1]]
        negatives = [documents[number] for number in order
                     if scores[number] <= query @ vector_of(positive) - margin
                     and documents[number] not in known][:count]
        if len(negatives) == count:
            expected.append([anchor, positive, *negatives])
    return expected


@pytest.mark.parametrize("ranks, margin, count", [((2, 5), 0.0, 2), ((1, 100), 0.1, 1)])
def test_negatives_are_the_nearest_documents_that_are_no_positives(
        ranks, margin, count, flags, tmp_path, vector_of, monkeypatch, capsys):
    monkeypatch.setattr(mining, "_CHUNK_PAIRS", 5)
    rows = list(map(json.loads, mine(
        flags, tmp_path, negative_ranks=f"{ranks[0]}-{ranks[1]}", negative_margin=margin,
        num_negatives=count, output_dir=tmp_path / "of_pairs")))
    expected = expected_negatives(vector_of, [positive for _, positive in PAIRS],
                                  ranks, margin, count)
    assert [list(row.values()) for row in rows] == expected
    assert list(rows[0]) == ["anchor", "positive", *(f"negative_{n + 1}" for n in range(count))]
    left_out = len(PAIRS) - len(expected)
    assert 0 < len(expected)
    assert (f"Left out {left_out} of 14 pairs" in capsys.readouterr().err) == bool(left_out)


def test_negatives_come_from_other_documents_where_there_is_an_index_of_them(
        flags, tmp_path, vector_of):
    flags["output_file"] = tmp_path / "train.tsv"
    header, *rows = (line.split("\t") for line in mine(flags, tmp_path, negative_ranks="1-40"))
    assert header == ["anchor", "positive", "negative_1"]
    assert rows == expected_negatives(vector_of, DOCUMENTS, (1, 40), 0.0, 1)


# --- Wrong input -------------------------------------------------------------------------


@pytest.mark.parametrize("changes, words", [
    ({"documents": None, "output_dir": "new"}, ("--output_dir", "--documents")),
    ({"documents": "empty line.txt", "output_dir": "new"}, ("empty line.txt, line 2", "empty")),
    ({"model_dir": "encoder"}, ("--model_dir=encoder", "python -m similarity.run")),
    ({"vector_size": 17}, ("--vector_size=17", "16 components")),
    ({"mine_negatives": "empty line.txt"}, ("--mine_negatives", "single texts")),
    ({"mine_negatives": "pairs.tsv", "negative_ranks": "41-50"}, ("no pair has 1 negative",)),
    ({"output_file": "pairs.tsv", "mine_negatives": "pairs.tsv"}, ("also an input",)),
    # A user's own file, or an index of something else, is not replaced.
    ({"documents": "texts.jsonl", "output_dir": "."}, ("texts.jsonl has no record of what it was made from",)),
    ({"documents": "pairs.tsv"}, ("texts.jsonl was made with another --documents",)),
    ({"documents": None, "vector_size": 4}, ("another model", "--vector_size")),
])
def test_wrong_input_is_one_line(changes, words, flags, two_layers, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty line.txt").write_text("a\n\nb\n")
    (tmp_path / "pairs.tsv").write_text("a cat\ta dog\na bird\ta tree\n")
    (tmp_path / "texts.jsonl").write_text('{"text": "a cat"}\n')
    shutil.copytree(os.path.dirname(two_layers.vocab_file), "encoder")
    vectors = (flags["output_dir"] / "vectors.npy").read_bytes()
    with ends_with_error(capsys, *words):
        ask({**flags, **changes})
    assert not flags["output_file"].exists()
    assert (flags["output_dir"] / "vectors.npy").read_bytes() == vectors
    assert (tmp_path / "texts.jsonl").read_text() == '{"text": "a cat"}\n'


def damage(folder, name, change):
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(change(content))


def test_a_text_that_is_none_is_named_in_an_index_of_1_0_0(flags, capsys):
    for name in ("texts.jsonl.json", "vectors.npy.json"):  # whose records had no hashes
        record = json.loads((flags["output_dir"] / name).read_text())
        del record["content"]
        (flags["output_dir"] / name).write_text(json.dumps(record))
    damage(flags["output_dir"], "texts.jsonl", lambda content: re.sub(b"[^\n]", b"1", content))
    with ends_with_error(capsys, "texts.jsonl, line", "JSON string"):
        ask({**flags, "documents": None})


def test_damaged_vectors_are_built_again_from_the_documents(flags, answers, capsys):
    damage(flags["output_dir"], "vectors.npy", lambda content: content[:-400] + bytes(400))
    assert ask(flags) == answers
    assert "vectors.npy is not as it was written: it is made again" in capsys.readouterr().err
    assert ask({**flags, "documents": None}) == answers


@pytest.mark.parametrize("name, change, words", [
    ("texts.jsonl", lambda content: content.replace(b"a", b"b"), ("texts.jsonl is not as it was written",)),
    ("vectors.npy", lambda content: content[:-400] + bytes(400), (
        "vectors.npy is not as it was written", "build it again")),
    ("vectors.npy.json", lambda content: content.replace(b'"rows": 40', b'"rows": -1'),
     ("are not as their records say",)),
    ("texts.jsonl.json", None, ("texts.jsonl has no record", "build it again"))])
def test_a_damaged_index_is_named(name, change, words, flags, capsys):
    damage(flags["output_dir"], name, change)
    with ends_with_error(capsys, *words):
        ask({**flags, "documents": None})


def test_vectors_of_other_documents_are_seen_though_their_record_came_with_them(flags, tmp_path, capsys):
    (tmp_path / "others.txt").write_text("".join(f"{text}\n" for text in reversed(DOCUMENTS)))
    ask({**flags, "documents": tmp_path / "others.txt", "output_dir": tmp_path / "other"})
    for name in ("vectors.npy", "vectors.npy.json"):
        shutil.copy(str(tmp_path / "other" / name), str(flags["output_dir"]))
    with ends_with_error(capsys, "vectors.npy and texts.jsonl are not as", "of different documents", "build it again"):
        ask({**flags, "documents": None})
