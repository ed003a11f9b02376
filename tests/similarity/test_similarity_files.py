"""The columns of a file decide its layout; the log names it, and bad input gets one line."""

import json

import numpy as np
import pytest

from commands import ends_with_error, run_here
from engine.errors import UserError
from runs import column_values
from runs.rows import Example
from similarity import data, files, run
from similarity_files import pairs, write

PAIR, TRIPLE = ["a cat", "a dog"], ["a cat", "a dog", "the house"]
STS_B = ["index", "genre", "sentence1", "sentence2", "score"]


def opened(tmp_path, name, content, labelled=True, header=None, **given):
    (tmp_path / name).write_text(content)
    return files.open_file(str(tmp_path / name), given, header, labelled=labelled)


def lines(*rows, by="\t"):
    return "".join(by.join(map(str, row)) + "\n" for row in rows)


@pytest.mark.parametrize("name, content, given, expected", [
    ("train.txt", lines(["a cat"], ["text"]), {}, [["a cat"], ["text"]]),
    ("train.tsv", lines(PAIR, TRIPLE[:2]), {}, [PAIR, PAIR]),
    ("train.tsv", lines(TRIPLE, TRIPLE), {}, [TRIPLE, TRIPLE]),
    ("train.csv", lines(["anchor", "positive"], PAIR, by=","), {}, [PAIR]),
    ("train.tsv", lines([0, 1], ["the quiet cat", "a dog"]), {}, [["the quiet cat", "a dog"]]),
    ("train.csv", lines(["id", "anchor", "positive", "negative_1", "negative_2"],
                        [1, *TRIPLE, "x"], by=","), {}, [[*TRIPLE, "x"]]),
    ("train.csv", lines(["answer", "question"], PAIR, by=","), {}, [PAIR[::-1]]),
    ("train.tsv", lines(*([f"q{number}", *PAIR] for number in range(12))), {}, [PAIR] * 12),  # ids
    ("train.csv", lines(["x", "y", "z"], [1, *PAIR], by=","),
     dict(text=["z", "y"], header=True), [PAIR[::-1]]),
    ("train.tsv", lines([1, *PAIR]), dict(text=["2", "3"], header=False), [PAIR]),
    ("train.jsonl", json.dumps(dict(query="a cat", passage="a dog", negative="the house")), {},
     [TRIPLE]),
    ("train.jsonl", json.dumps(dict(a="a cat", b="a dog")), {}, [PAIR])])
def test_texts_are_anchors_positives_and_hard_negatives(name, content, given, expected, tmp_path):
    file = opened(tmp_path, name, content, **given)
    assert [example.texts for example in file.examples()] == list(map(tuple, expected))
    assert not file.has_scores and file.num_texts == len(expected[0])


IDS = [1000 + 7 * row for row in range(12)]


@pytest.mark.parametrize("name, ids, header, column", [
    ("train.csv", range(12), ",title,body", "1"), ("train.csv", [0, 1] * 6, "Unnamed: 0,title,body", "Unnamed: 0"),
    ("train.csv", range(5, 17), "row,title,body", "row"), ("train.tsv", IDS, "", "1"),
    ("train.jsonl", IDS, "post_id,utterance,reply", "post_id")])
def test_numbers_of_rows_and_ids_are_no_scores(name, ids, header, column, tmp_path, capsys):
    rows = [(number, f"a cat {place}", "a dog") for place, number in enumerate(ids)]
    if name.endswith("jsonl"):
        content = "".join(json.dumps(dict(zip(header.split(","), row))) + "\n" for row in rows)
    else:
        content = lines(*[header.split(",")] * bool(header), *rows, by="," if name.endswith("csv") else "\t")
    file = opened(tmp_path, name, content)
    assert [example.texts for example in file.examples()] == [row[1:] for row in rows] and not file.has_scores
    assert (f"column {column} numbers the rows or has ids, and is not read; to read scores there, set "
            f"--label_column={column}") in capsys.readouterr().err
    file = opened(tmp_path, name, content, label=[column])
    assert file.has_scores and [example.label for example in file.examples()] == list(ids)


@pytest.mark.parametrize("header, form, count", [
    ("", "doc-{}", 12), ("key,title,body\n", "MED-{}", 12), ("qid,title,body\n", "x{}", 3),
    ("Query ID,title,body\n", "number", 3), (",title,body\n", "2024-01-{}", 12)])
def test_ids_with_letters_are_no_texts(header, form, count, tmp_path, capsys):
    rows = [(form.format(7 * number + 1), f"a cat {number}", "a dog") for number in range(count)]
    name, by = ("train.csv", ",") if header else ("train.tsv", "\t")
    file = opened(tmp_path, name, header + lines(*rows, by=by))
    assert [example.texts for example in file.examples()] == [row[1:] for row in rows]
    column = header.split(",")[0] or "1"
    assert f"column {column} numbers the rows or has ids, and is not read" in capsys.readouterr().err


@pytest.mark.parametrize("header", ["label_id", "class_id"])
def test_ids_of_labels_are_labels(header, tmp_path):
    rows = [(place % 2, f"a cat {place}", "a dog") for place in range(12)]
    file = opened(tmp_path, "train.tsv", lines((header, "first", "second"), *rows))
    assert [example.label for example in file.examples()] == [row[0] for row in rows] and file.has_scores


def test_a_first_row_above_ids_with_letters_is_no_header(tmp_path):
    rows = [("", "spam"), *((f"http://x.y/{place}", "ham") for place in range(12))]
    assert not column_values.are_names(rows[0], rows[1:], usual=())
    assert column_values.are_names(rows[0], [(place, "ham") for place in range(12)], usual=())


@pytest.mark.parametrize("header", ["valid,grid\n", "word,other\n"])
def test_single_words_are_texts(header, tmp_path):
    rows = [(f"{letter}ord", f"w{letter}rd") for letter in "abcdefghijkl"]
    file = opened(tmp_path, "train.csv", header + lines(*rows, by=","), header=True)
    assert [example.texts for example in file.examples()] == rows


@pytest.mark.parametrize("header", ["", "x\ty\tz\n", "sentence1\tsentence2\tscore\n"])
@pytest.mark.parametrize("scores", [[0.5 + row for row in range(12)], [0, 1] * 6, [*range(6)] * 2, [3, 1000, 7]])
def test_other_numbers_are_scores(header, scores, tmp_path):
    content = header + lines(*[(f"a cat {place}", "a dog", score) for place, score in enumerate(scores)])
    file = opened(tmp_path, "train.tsv", content, header=bool(header))
    assert file.has_scores and [example.label for example in file.examples()] == scores


def test_a_column_that_is_named_as_scores_may_count(tmp_path):
    content = lines(("title", "body", "score"), *[(f"a cat {score}", "a dog", score) for score in range(12)])
    assert [example.label for example in opened(tmp_path, "train.tsv", content).examples()] == list(range(12))


@pytest.mark.parametrize("names, flag", [(["sentence1", "sentence2", "score", "score"], "label"),
                                         (["sentence1", "sentence1", "sentence2", "score"], "text")])
def test_of_two_columns_with_one_name_none_is_taken_in_silence(names, flag, tmp_path):
    with pytest.raises(UserError, match=f"2 columns are named .*; choose one by its number, from 1, with --{flag}_column"):
        opened(tmp_path, "train.tsv", lines(names, ["a cat", "a dog", 1, 0]))


@pytest.mark.parametrize("name, content, given", [
    ("train.tsv", lines([*PAIR, 1], [*PAIR[::-1], 0]), {}),
    ("train.tsv", lines([1, *PAIR], [0, *PAIR[::-1]]), {}),
    ("train.tsv", lines(["id", "query1", "query2", "label"], [1, *PAIR, 1], [2, *PAIR[::-1], 0]), {}),
    ("train.tsv", lines(STS_B, [0, "news", *PAIR, 1], [1, "news", *PAIR[::-1], 0]), {}),
    ("train.csv", lines(["text_a", "text_b", "label"], [*PAIR, 1], [*PAIR[::-1], 0], by=","), {}),
    ("train.jsonl", "".join(json.dumps(dict(label=score, sentence1=first, sentence2=second)) + "\n"
                            for first, second, score in ((*PAIR, 1), (*PAIR[::-1], 0.0))), {}),
    ("train.tsv", lines([1, *PAIR, 1], [2, *PAIR[::-1], 0]),
     dict(text=["2", "3"], label=["4"]))])
def test_numbers_beside_two_texts_are_scores(name, content, given, tmp_path):
    file = opened(tmp_path, name, content, **given)
    assert list(file.examples()) == [Example(tuple(PAIR), 1.0), Example(tuple(PAIR[::-1]), 0.0)]
    assert file.has_scores
    # A test set's are not read, but known to be no texts.
    test = opened(tmp_path, name, content, **given, labelled=False)
    assert [example.texts for example in test.examples()] == [tuple(PAIR), tuple(PAIR[::-1])]


def test_the_log_says_what_a_file_is_and_which_columns_are_read(tmp_path, capsys):
    opened(tmp_path, "train.tsv", lines(STS_B, [0, "news", *PAIR, 1], [1, "news", *PAIR[::-1], 0]), text=[])
    assert ("train.tsv: pairs with a score: a header line, text in column sentence1,sentence2, label in column score, "
            "not read: index, genre (detected); to change that, set --header or --text_column or --label_column"
            ) in capsys.readouterr().err
    opened(tmp_path, "train.tsv", lines(PAIR, PAIR[::-1]), text=["2", "1"])
    assert capsys.readouterr().err.endswith("train.tsv: anchors with a positive\n")  # the flag says the columns


def test_a_test_set_may_lack_the_label_that_the_flag_names(tmp_path):
    file = opened(tmp_path, "test.tsv", lines(STS_B[:-1], [0, "news", *PAIR]),
                  label=["score"], labelled=False)
    assert list(file.examples()) == [Example(tuple(PAIR))]


def test_an_entailment_is_the_positive_and_a_contradiction_the_hard_negative(tmp_path, capsys):
    rows = [("p", "e1", "entailment"), ("q", "e", "entailment"), ("p", "n", "neutral"),
            ("p", "c", "contradiction"), ("r", "c", "contradiction"), ("p", "e2", "entailment"),
            ("r", "x", "-")]
    file = opened(tmp_path, "train.tsv", lines(("sentence1", "sentence2", "gold_label"), *rows))
    assert [example.texts for example in file.examples()] == [("p", "e1", "c"), ("p", "e2", "c")]
    assert "left out 2 of 3 premises" in capsys.readouterr().err
    rest = [row for row in rows if row[2] != "contradiction"]
    file = opened(tmp_path, "train.tsv", lines(*rest))
    assert [example.texts for example in file.examples()] == [
        ("p", "e1"), ("p", "e2"), ("q", "e")]
    # A few contradictions do not leave out the other premises.
    many = [(f"p{n}", "e", "entailment") for n in range(9)]
    file = opened(tmp_path, "train.tsv", lines(*many, ("p0", "c", "contradiction")))
    assert len(list(file.examples())) == 9 and file.num_texts == 2


def test_relations_in_capitals_are_no_texts(tmp_path):  # as SICK's
    content = lines(*[(f"cat {n}", f"dog {n}", ("ENTAILMENT", "NEUTRAL")[n % 2]) for n in range(12)])
    with pytest.raises(UserError, match="line 1: the label is 'ENTAILMENT', and must be one of contradiction, entailment"):
        list(opened(tmp_path, "train.tsv", content).examples())


@pytest.mark.parametrize("name, numbers, is_refused", [
    ("hypothesis", [0, 1, 2], True), ("Hypothesis", [-1, 0, 2.0], True), ("hypothesis", [0, 1], False),
    ("hypothesis", [0, 1, 2, 3], False), ("hypothesis", [0.5, 1, 2], False), ("text_b", [0, 1, 2], False)])
def test_numbers_of_relations_are_no_scores(name, numbers, is_refused, tmp_path):
    content = "".join(json.dumps({"premise": "a cat", name: "a dog", "label": number}) + "\n" for number in numbers)
    if is_refused:
        with pytest.raises(UserError, match="train.jsonl: column label .*entailment for 0, .*contradiction for 2"):
            opened(tmp_path, "train.jsonl", content, text=["premise", name])
    else:
        assert opened(tmp_path, "train.jsonl", content, text=["premise", name]).has_scores
    # Labels of a test set are not read.
    assert opened(tmp_path, "train.jsonl", content, text=["premise", name], labelled=False).num_texts == 2


@pytest.mark.parametrize("label, numbers, is_told", [
    ("label", [0, 1, 2], True), ("Gold_Label", [2, -1, 0, 1], True), ("score", [0, 1, 2], False),
    ("label", [0, 1, 2, 3], False), ("label", [0, 1], False), ("labels", [0, 0.5, 1, 2], False)])
def test_scores_that_may_be_classes_of_nli_are_told(label, numbers, is_told, tmp_path, capsys):
    content = lines(["sentence_A", "sentence_B", label], *[[*PAIR, number] for number in numbers])
    assert opened(tmp_path, "train.tsv", content).has_scores
    said = capsys.readouterr().err
    assert ("WARNING" in said) == is_told
    assert (f"numbers in column {label} are read as scores; if they are the classes of NLI, where 0 is entailment, "
            "write entailment for 0, neutral for 1, contradiction for 2" in said) == is_told


def test_a_question_and_its_paragraph_are_a_pair(tmp_path):
    content = dict(data=[dict(paragraphs=[dict(context="a cat sees the dog", qas=[
        dict(id="1", question="who ?"), dict(id="2", question="what ?")])])])
    file = opened(tmp_path, "train.json", json.dumps(content))
    assert [example.texts for example in file.examples()] == [
        ("who ?", "a cat sees the dog"), ("what ?", "a cat sees the dog")]


def test_of_scores_the_upper_half_are_pairs(tmp_path, capsys):
    rows = [(*PAIR, score) for score in (5, 2.5, 2.6, 0)]
    file = opened(tmp_path, "train.tsv", lines(*rows)).as_pairs()
    assert [example.label for example in file.examples()] == [5, 2.6] and not file.has_scores
    assert "2 of 4 pairs whose score is above 2.5" in capsys.readouterr().err
    with pytest.raises(UserError, match="no pair has a score above 0"):
        opened(tmp_path, "train.tsv", lines((*PAIR, 0), (*PAIR, -1))).as_pairs()


@pytest.mark.parametrize("name, content, given, parts", [
    ("train.tsv", lines(PAIR, ["a cat", " "]), {}, ("train.tsv, line 2", "a text is empty")),
    *(("train.tsv", lines(["text_a", "text_b", "score"], *[[*PAIR, 0.5]] * 12, [*PAIR, odd]), {},
       (f"line 14: the label is '{odd}'", "a finite number", "1234.5"))
      for odd in ("nan", "NA", "1,5", "high")),
    ("train.tsv", lines(PAIR, TRIPLE), {}, ("line 2: 3 columns", "2")),
    ("train.csv", "The sailors wait, near a bridge.\n" * 2, {}, ("CSV without a header", ".txt", "--text_column")),
    ("train.tsv", lines(*[[*PAIR, 1]] * 1000, [*PAIR, "much"]), {}, ("line 1001", "'much'", "number")),
    ("train.tsv", lines(*[[*PAIR, "neutral"]] * 1000, [*PAIR, "no"]), {},
     ("line 1001", "'no'", "entailment")),
    ("train.tsv", lines([*TRIPLE, 1], [*TRIPLE, 0]), {}, ("column 4", "3 texts", "--text_column")),
    ("train.tsv", lines(["sentence1", "sentence2", "label"], [*PAIR, "good"]), {},
     ("column label has 'good'",)),
    ("train.tsv", lines(["sentence1", "sentence2"], PAIR), dict(text=["sentence1", "other"]),
     ("no column 'other' for --text_column", "sentence1, sentence2")),
    ("train.tsv", lines(PAIR), dict(text=["1", "1"]), ("--text_column must name different columns",)),
    ("train.json", "{}", {}, ("has no 'data'",)),
    ("train.tsv", lines(["sentence1", "sentence2", "label"], [*PAIR, "neutral"]), {},
     ("holds no examples",))])
def test_bad_input_is_one_line_that_says_where(name, content, given, parts, tmp_path):
    with pytest.raises(UserError) as error:
        list(opened(tmp_path, name, content, **given).examples())
    for part in parts:
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content, flags, parts", [
    (lines(["a cat"], ["a dog"]), dict(loss="score"), ("--loss=score", "single texts")),
    (lines(["a cat"], ["a dog"]), dict(query_prefix="query: "), ("--query_prefix", "single texts")),
    (lines([*PAIR, 1], [*PAIR, 0]), dict(symmetric=True), ("--symmetric", "--loss=ranking")),
    (lines(PAIR), dict(matryoshka="17"), ("--matryoshka=17", "16 components")),
    (lines(PAIR), dict(train_batch_size=4), ("1 example",)),
    (lines(PAIR), dict(train_batch_size=1), ("--train_batch_size=1", "nothing to compare")),
    (lines(PAIR, PAIR), dict(do_eval=True, dev="one\ntwo\n"), ("dev.tsv has single texts",))])
def test_flags_that_do_not_fit_are_one_line(content, flags, parts, tiny_model, tmp_path, capsys):
    (tmp_path / "train.tsv").write_text(content)
    (tmp_path / "dev.tsv").write_text(flags.pop("dev", ""))
    with ends_with_error(capsys, *parts):
        run_here({**tiny_model._asdict(), **dict(
            data_dir=tmp_path, output_dir=tmp_path / "out", do_train=True, train_batch_size=2,
            max_seq_length=16, num_cpu_replicas=1), **flags}, run)


def features_of(texts, indices, **changes):
    source = texts.training_source()._replace(**changes)
    return source.fetch(np.array(indices), *source.lengths_of_batch(np.array(indices)))


def test_a_batch_holds_the_texts_of_its_examples(tiny_model, tmp_path):
    rows, encoding = pairs(30), tiny_model.encoding(24)
    path = write(tmp_path / "train.tsv", rows)
    texts = data.load(files.open_file(str(path), {}, None, labelled=True), encoding, "old: ",
                      str(tmp_path / "store"))
    batch, tokenizer = features_of(texts, [4, 0, 7]), encoding.tokenizer

    def words(name, *place):
        ids, mask = (batch[f"{name}_{part}"][place] for part in ("ids", "mask"))
        assert not ids[mask == 0].any()
        return tokenizer.convert_ids_to_tokens(ids[mask == 1].tolist())[1:-1]
    for place, index in enumerate([4, 0, 7]):
        anchor, *others = rows[index]
        assert words("anchor", place) == tokenizer.tokenize("old: " + anchor)[:22]
        for number, text in enumerate(others):
            assert words("candidate", place, number) == tokenizer.tokenize(text)[:22]
    assert batch["anchor_ids"].shape[1] % 8 == 0 and batch["candidate_ids"].shape[2] % 8 == 0
    longest = features_of(texts, [4, 0, 7], dynamic_padding=False)
    # Across machines, the gradient of the word embeddings is padded to as many rows.
    assert longest["anchor_ids"].size + longest["candidate_ids"].size == 3 * texts.training_source().most_tokens


def test_anchors_and_candidates_have_the_lengths_of_a_compiled_batch(tiny_model):
    texts = data.encode([Example(row) for row in pairs(40)], tiny_model.encoding(40), "")
    widths = set()
    for first in range(0, 40, 4):
        indices = range(first, first + 4)
        batch, plain = features_of(texts, indices, buckets=np.array([16, 40])), features_of(
            texts, indices)
        for name in ("anchor_ids", "candidate_ids"):
            widths.add(batch[name].shape[-1])
            width = plain[name].shape[-1]
            np.testing.assert_array_equal(batch[name][..., :width], plain[name])
            assert not batch[name][..., width:].any()
    assert widths == {16, 40}


def test_equal_texts_have_equal_keys_that_float32_holds(tiny_model):
    rows = pairs(60)
    texts = data.encode([Example(row) for row in rows], tiny_model.encoding(24), "")
    keys = features_of(texts, range(60))["keys"].reshape(-1, 2)
    whole = keys[:, 0].astype(np.int64) * 2**24 + keys[:, 1].astype(np.int64)
    flat = [text for row in rows for text in row]
    assert len(set(zip(flat, whole.tolist()))) == len(set(flat)) == len(texts) < len(flat)
    np.testing.assert_array_equal(whole, texts.keys.ravel().astype(np.int64))
    # Equal anchors and positives are what shall not share a step; hard negatives may.
    np.testing.assert_array_equal(texts.training_source(spread=True).keys, texts.keys[:, :2])
    assert texts.training_source().keys is None
    # What is predicted of the distinct texts finds its way back to all.
    of_positives = texts.training_source().fetch(np.arange(60), 24, 24)["candidate_ids"][:, 0]
    np.testing.assert_array_equal(
        texts.source().fetch(texts.numbers[:, 1], 24)["input_ids"], of_positives)


def test_the_keys_are_those_of_all_first_rows(tmp_path, capsys):
    rows = [dict(anchor="a cat", positive="a dog"), dict(anchor="a", positive="b", negative="the house")]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    with pytest.raises(UserError, match="line 1: the object has no 'negative'; .*--text_column"):
        list(opened(tmp_path, "train.jsonl", content).examples())
    file = opened(tmp_path, "train.jsonl", content, text=["anchor", "positive"])
    assert [example.texts for example in file.examples()] == [("a cat", "a dog"), ("a", "b")]
    content = '{"x": "a cat", "y": "a dog"}\n{"note": "new", "x": "a", "y": "b"}\n'
    assert opened(tmp_path, "train.jsonl", content).num_texts == 2
    assert "only some objects have: note" in capsys.readouterr().err


@pytest.mark.parametrize("name, is_read", [
    ("negative", True), ("Hard_Negative", True), ("negative_12", True), ("negative2", True),
    ("negative_id", False), ("negative_score", False), ("hard_negatives_source", False)])
def test_negatives_have_that_name_or_a_number_behind_it(name, is_read, tmp_path):
    file = opened(tmp_path, "train.csv", lines(["query", "positive", name], TRIPLE, by=","))
    assert [example.texts for example in file.examples()] == [tuple(TRIPLE[:2 + is_read])]


@pytest.mark.parametrize("header, texts", [
    ("sentence", [0]), ("id,sentence", [1]), ("context,response", [0, 1]), ("answer,context", [1, 0])])
def test_one_column_is_no_pair(header, texts, tmp_path):
    row = ["the quiet cat", "the small dog"][:header.count(",") + 1]
    file = opened(tmp_path, "train.csv", lines(header.split(","), row, by=","))
    assert [example.texts for example in file.examples()] == [tuple(row[place] for place in texts)]


@pytest.mark.parametrize("header, flag", [
    ("anchor,positive,neg1", "anchor,positive,neg1"), ("text1,text2,text3", "text1,text2,text3")])
def test_texts_that_are_not_read_are_a_warning(header, flag, tmp_path, capsys):
    rows = [[f"{text} number {i}" for text in ("the quiet cat", "the small dog", "the old house")] for i in range(12)]
    content = lines(header.split(","), *rows, by=",")
    assert opened(tmp_path, "train.csv", content).num_texts == 2
    said = capsys.readouterr().err
    assert "WARNING" in said and "are not read" in said and f"set --text_column={flag}" in said
    assert opened(tmp_path, "train.csv", content, text=flag.split(",")).num_texts == 3
    assert "WARNING" not in capsys.readouterr().err


@pytest.mark.parametrize("header, of_row", [
    ("sentence_A,sentence_B,relatedness_score", lambda i: [i % 5 + 0.5]),  # as SICK's
    ("premise,hypothesis,relation", lambda i: [("entailment", "contradiction")[i % 2]])])
def test_labels_that_are_not_read_are_a_warning(header, of_row, tmp_path, capsys):
    rows = [[f"the quiet cat number {i}", f"the small dog number {i}", *of_row(i)] for i in range(12)]
    names = header.split(",")
    content = lines(names, *rows, by=",")
    opened(tmp_path, "train.csv", content)
    assert f"column {names[2]} is not read, and each pair counts as similar; if it says how similar the texts of a pair " \
        f"are, set --label_column={names[2]}" in capsys.readouterr().err
    opened(tmp_path, "train.csv", content, label=[names[2]])
    assert "WARNING" not in capsys.readouterr().err
    opened(tmp_path, "train.csv", content, labelled=False)
    assert "WARNING" not in capsys.readouterr().err
