"""`python -m rewriting.create_data`: every clause once, no text in two sets, always the same."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import ends_with_error
from engine.cli import command
from engine.errors import UserError
from rewriting import create_data, slot_files
from rewriting.slot_files import SlotExample, read_slots
from rewriting.texts import Slot, slots
from rewriting_files import create_here, made_up_texts

SETS = ("train", "dev", "test")


def read_sets(folder):
    return {name: [json.loads(line) for line in
                   (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
            for name in SETS}


@pytest.fixture
def texts_file(tmp_path):
    texts = made_up_texts(150)
    texts += texts[:30]  # identical ones
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    return tmp_path / "texts.txt"


@pytest.mark.parametrize("kind", ["random", "bm25", "bm25,random"])
def test_every_clause_is_one_positive_and_negatives_are_clauses_of_other_texts_of_its_set(
        kind, texts_file, tmp_path):
    create_here(input_file=texts_file, output_dir=tmp_path / "out", negatives=kind,
                num_negatives=3, num_eval_negatives=5, dev_fraction=0.2, test_fraction=0.2)
    found = read_sets(tmp_path / "out")
    texts = texts_file.read_text().splitlines()
    positives = sorted(slot for text in texts for slot in slots(text))
    assert positives == sorted(Slot(row["before"], row["clause"], row["after"])
                               for name in SETS for row in found[name])
    for name in SETS:
        clauses_of_set = {row["clause"] for row in found[name]}
        assert found[name]
        for row in found[name]:
            text = row["before"] + row["clause"] + row["after"]
            own = {slot.clause for slot in slots(text)}
            assert len(row["negatives"]) == len(set(row["negatives"])) == (
                3 if name == "train" else 5)
            assert set(row["negatives"]) <= clauses_of_set - own
    of_sets = [{row["before"] + row["clause"] + row["after"] for row in found[name]}
               for name in SETS]
    assert sum(map(len, of_sets)) == len(set.union(*of_sets)), "no text is in two sets"
    pool = (tmp_path / "out" / "pool.txt").read_text().splitlines()
    assert pool == [row["clause"] for row in found["train"]]
    pairs = [line.split("\t") for line in (tmp_path / "out" / "pairs.tsv").read_text().splitlines()]
    assert [(label, phrase, text) for label, _, phrase, text in pairs] == [
        (label, phrase, row["before"] + row["clause"] + row["after"]) for row in found["train"]
        for label, phrase in zip("1000", [row["clause"], *row["negatives"]])]


def test_the_same_seed_gives_the_same_bytes_and_another_one_other_sets(texts_file, tmp_path):
    def contents(folder, seed):
        create_here(input_file=texts_file, output_dir=tmp_path / folder, seed=seed,
                    negatives="random,bm25")
        names = ["dev.jsonl", "pairs.tsv", "pool.txt", "test.jsonl", "train.jsonl"]
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == sorted(
            [*names, *(f"{name}.json" for name in names)])
        return {name: (tmp_path / folder / f"{name}.jsonl").read_bytes() for name in SETS}

    first = contents("first", 1)
    assert contents("again", 1) == first
    assert contents("other", 2)["dev"] != first["dev"]


def test_sets_that_are_whole_are_left_as_they_are_and_damaged_ones_written_again(
        texts_file, tmp_path, capsys):
    def state():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "slots").iterdir()}

    create_here(input_file=texts_file, output_dir=tmp_path / "slots")
    before, pairs = state(), (tmp_path / "slots" / "pairs.tsv").read_bytes()
    os.utime(str(texts_file), (1, 1))
    create_here(input_file=texts_file, output_dir=tmp_path / "slots")
    assert state() == before
    assert "pairs.tsv are whole: nothing is left to do" in capsys.readouterr().err
    (tmp_path / "slots" / "dev.jsonl").write_text("{}")
    create_here(input_file=texts_file, output_dir=tmp_path / "slots")
    assert state() != before and (tmp_path / "slots" / "pairs.tsv").read_bytes() == pairs
    assert "dev.jsonl is not as it was written: it is made again" in capsys.readouterr().err


@pytest.mark.parametrize("name, changes", [
    ("train.jsonl", {}), ("test.tsv", {"format": "bert-ad"}), ("pool.txt", {})])
def test_a_file_that_is_not_of_this_command_is_refused_and_stays(name, changes, texts_file, tmp_path, capsys):
    flags = dict(changes, input_file=texts_file, output_dir=tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine\n")
    with ends_with_error(capsys, f"{tmp_path}/out/{name} has no record of what it was made from; name another output"):
        create_here(**flags)
    assert [(path.name, path.read_text()) for path in (tmp_path / "out").iterdir()] == [(name, "mine\n")]
    (tmp_path / "out" / name).unlink()
    create_here(**flags)
    create_here(**flags, seed=5)
    assert f"{name} was made with another --seed: was 42, now 5: it is made again" in capsys.readouterr().err


def test_an_input_in_the_output_folder_is_refused_and_stays(tmp_path, capsys):
    """Also one that another command has made, and that has a record."""
    for name, content in {"train.jsonl": '{"text": "so it is, and was"}\n', "train.jsonl.json": "{}"}.items():
        (tmp_path / name).write_text(content)
        with ends_with_error(capsys, f"--output_dir: {tmp_path}/train.jsonl is also an input; name another output"):
            create_here(input_file=tmp_path / "train.jsonl", output_dir=tmp_path)
    assert (tmp_path / "train.jsonl").read_text() == '{"text": "so it is, and was"}\n'


def test_files_of_any_format_are_read_by_column_with_their_categories(tmp_path, capsys):
    (tmp_path / "a.csv").write_text('kind,text\nnews,"so it is, and so\nit was"\n')
    (tmp_path / "b.jsonl").write_text(
        '{"text": "\\u4e0d\\u9519\\uff0c\\u4fbf\\u5b9c", "kind": "shops"}\n')
    for form in slot_files.EXTENSIONS:
        command.run(create_data.main, create_data.define_flags(), usage="", argv=[
            "create_data", f"--input_file={tmp_path}/a.csv", f"--input_file={tmp_path}/b.jsonl",
            f"--output_dir={tmp_path}/out", f"--format={form}", "--category_column=kind",
            "--dev_fraction=0", "--test_fraction=0"])
    written = list(read_slots(str(tmp_path / "out" / "train.jsonl")))
    assert {(slot.phrases[0], slot.category) for slot in written} == {
        ("so it is", "news"), ("and so", "news"), ("it was", "news"), ("不错", "shops"),
        ("便宜", "shops")}
    assert list(read_slots(str(tmp_path / "out" / "train.tsv"))) == [
        slot for slot in written if "\n" not in slot.before + slot.after]
    with ends_with_error(capsys, "no column 'sort' for --category_column"):
        create_here(category_column="sort", input_file=tmp_path / "a.csv", output_dir=tmp_path)


def test_a_longer_clause_is_no_slot(tmp_path, capsys):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}, {'and so on ' * 9}, the end is near .\n"
                            for text in made_up_texts(40)))
    create_here(input_file=path, output_dir=tmp_path)
    assert "and so on" in (tmp_path / "pool.txt").read_text()
    create_here(input_file=path, output_dir=tmp_path, max_clause_words=8)
    assert max(len(phrase.split()) for slots_of_set in read_sets(tmp_path).values()
               for slot in slots_of_set for phrase in [slot["clause"], *slot["negatives"]]) <= 8
    assert "and so on" not in (tmp_path / "pool.txt").read_text()
    with ends_with_error(capsys, "--max_clause_words=1: must be between 2 and 10000"):
        create_here(input_file=path, output_dir=tmp_path, max_clause_words=1)


def test_negatives_of_bm25_share_words_with_the_text_where_clauses_do(tmp_path):
    texts = ["the red fox, a hen house.", "the old fox, the hen coop.", "two ships, the blue sea.",
             "five boats, one blue lake."]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    create_here(input_file=tmp_path / "texts.txt", output_dir=tmp_path, negatives="bm25",
                num_negatives=1, dev_fraction=0, test_fraction=0)
    hard = {row["clause"]: row["negatives"] for row in read_sets(tmp_path)["train"]}
    assert hard["a hen house"] == ["the old fox"] and hard["five boats"] == ["the blue sea"]


phrases = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\t\r\n"),
                  min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(phrases, phrases.filter(str.strip), phrases,
       st.lists(phrases.filter(str.strip), max_size=3, unique=True))
def test_what_is_written_is_read_again_byte_for_byte(tmp_path_factory, before, clause, after,
                                                     negatives):
    slot = SlotExample(before, after, (clause, *negatives), 1)
    path = tmp_path_factory.getbasetemp() / "slot.jsonl"
    with open(str(path), "w", encoding="utf-8", newline="\n") as file:
        assert slot_files.write_slot(slot, "jsonl", file)
    assert list(read_slots(str(path))) == [slot]


BERT_AD = """\
1\t1\t房间很大\t交通方便，““““。服务一般
0\t1\t不推荐\t交通方便，“““。服务一般
1\t2\t服务一般\t他说：“好”，““““
0\t0\t价格\t““！房间很大\t价格！房间很大
"""


def test_bert_ads_lines_are_read_and_consecutive_lines_of_a_slot_become_one(tmp_path):
    (tmp_path / "train.tsv").write_text(BERT_AD, encoding="utf-8")
    assert list(read_slots(str(tmp_path / "train.tsv"))) == [
        SlotExample("交通方便，", "。服务一般", ("房间很大", "不推荐"), 1),
        SlotExample("他说：“好”，", "", ("服务一般",), 1),
        SlotExample("", "！房间很大", ("价格",), 0)]


def test_a_quotation_mark_right_behind_the_slot_is_not_written_in_bert_ads_format(tmp_path):
    with open(str(tmp_path / "a.tsv"), "w", encoding="utf-8") as file:
        assert not slot_files.write_slot(SlotExample("好，", "“好”", ("很大",), 1), "bert-ad", file)
    assert (tmp_path / "a.tsv").read_text() == ""


@pytest.mark.parametrize("name, content, words", [
    ("a.tsv", "1\t0\t很大\t““，很好\n1\t0\t很大\n", ("line 2", "3 columns")),
    ("a.tsv", "2\t0\t很大\t““，很好\n", ("line 1", "'2'", "0 or 1")),
    ("a.tsv", "1\t0\t很大\t很小，很好\n", ("line 1", "no slot in clause 0")),
    ("a.tsv", "", ("no slots",)),
    ("a.jsonl", '{"before": "a", "clause": "b"}\n', ("line 1", '"after"')),
    ("a.jsonl", '{"before": "a", "clause": "b", "after": "", "negatives": "c"}\n', ("line 1",)),
    ("a.jsonl", '{"before": "a", "clause": " ", "after": ""}\n', ("line 1", "phrase is empty")),
    ("a.csv", "1,2\n", (".jsonl",)),
])
def test_a_line_that_is_not_a_slot_is_named(name, content, words, tmp_path):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as error:
        list(read_slots(str(tmp_path / name)))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("flags, content, words", [
    ({}, "", ("texts.txt holds no examples",)),
    ({}, "no second clause\nhere either\n", ("texts.txt", "two clauses")),
    ({"dev_fraction": 0.6, "test_fraction": 0.4}, "a b, c d\n", ("--dev_fraction=0.6",)),
    ({"negatives": "hard"}, "a b, c d\n", ("--negatives=hard", "bm25")),
])
def test_wrong_input_is_one_line_and_leaves_nothing(flags, content, words, tmp_path, monkeypatch,
                                                    capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text(content)
    with ends_with_error(capsys, *words):
        create_here(**{"input_file": "texts.txt", "output_dir": "out", **flags})
    assert not list((tmp_path / "out").glob("*")) and not list((tmp_path / "out").glob(".*"))


def test_too_few_clauses_for_the_negatives_asked_for_are_said(tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("so it is, and was.\nbut not now, or then.\n")
    create_here(input_file=tmp_path / "texts.txt", output_dir=tmp_path, num_negatives=4,
                dev_fraction=0, test_fraction=0)
    assert [len(row["negatives"]) for row in read_sets(tmp_path)["train"]] == [2] * 4
    said = capsys.readouterr().err
    assert "4 slots have fewer negatives" in said and "is empty" not in said, "as asked for"
    create_here(input_file=tmp_path / "texts.txt", output_dir=tmp_path / "out", dev_fraction=0.001)
    assert f"{tmp_path / 'out' / 'dev.jsonl'} is empty" in capsys.readouterr().err
