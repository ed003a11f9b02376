"""Users' files in the layouts of other libraries: each is read as it is meant, or refused by name."""

import json

import pytest

from conftest import sentences
from engine.errors import UserError
from runs import columns, table_head
from task_files import user_task
from tasks.model_folder import Classification
from test_own_data import make_task, rows_of

# Three examples a round: no label, one, several.
FLAGS = [(0, 1, 1), (0, 0, 0), (1, 0, 0), (0, 1, 0)]
NAMES = ("trip", "room", "staff")
NUMBERED = ("LABEL_0", "LABEL_1", "LABEL_2")
CSV = "id,comment_text,trip,room,staff\n"


def names_of(flags, names=NAMES):
    return [name for name, has_it in zip(names, flags) if has_it]


def labels_of(task, name="train"):
    return [label for _, _, label in rows_of(task, name)]


def expected(names=NAMES):
    return [",".join(names_of(flags, names)) for flags in FLAGS]


def jsonl(values, key="labels"):
    return "".join(json.dumps({"text": f"the text {i}", key: value}) + "\n"
                   for i, value in enumerate(values))


def rows(form, values=FLAGS, start=""):
    """A row for each; `form` has {i}, and {0}, {1}, {2} for its values."""
    return start + "".join(form.format(*each, i=i) + "\n" for i, each in enumerate(values))


def csv(values):
    return "text,labels\n" + "".join(
        'the text {},"{}"\n'.format(i, str(value).replace('"', '""')) for i, value in enumerate(values))


COLUMNS = "{i},the text {i},{0},{1},{2}"
WORDS = [["no", "yes", "yes"], ["no", "no", "no"], ["yes", "no", "no"], ["no", "yes", "no"]]
LAYOUTS = {
    "0 and 1 in JSON": ("train.jsonl", jsonl(FLAGS), {}, NUMBERED),
    "1.0": ("train.jsonl", jsonl([list(map(float, each)) for each in FLAGS]), {}, NUMBERED),
    "true": ("train.jsonl", jsonl([list(map(bool, each)) for each in FLAGS]), {}, NUMBERED),
    "two classes": ("train.jsonl", jsonl([each[1:] for each in FLAGS]), {}, None),
    "0 and 1 in CSV": ("train.csv", csv(map(list, FLAGS)), {}, NUMBERED),
    "separated 0 and 1": ("train.tsv", rows("the text {i}\t{0},{1},{2}"),
                          {"label_kind": "multi_label"}, NUMBERED),
    "names in JSON": ("train.jsonl", jsonl(map(names_of, FLAGS)), {}, sorted(NAMES)),
    "Python's lists": ("train.csv", csv(map(names_of, FLAGS)), {}, sorted(NAMES)),
    "JSON's lists": ("train.tsv", "text\tlabels\n" + "".join(
        f"the text {i}\t{json.dumps(names_of(each))}\n" for i, each in enumerate(FLAGS)), {}, sorted(NAMES)),
    "Python's tuples of 0 and 1": ("train.csv", csv(FLAGS), {}, NUMBERED),
    "NumPy's 0 and 1": ("train.csv", csv(str(list(each)).replace(",", "") for each in FLAGS), {}, NUMBERED),
    "Python's tuples": ("train.csv", csv(tuple(names_of(each)) for each in FLAGS), {}, sorted(NAMES)),
    "Python's sets": ("train.csv", csv(set(names_of(each)) or {} for each in FLAGS), {}, sorted(NAMES)),
    "NumPy's names": ("train.csv", csv(str(names_of(each)).replace(",", "\n") for each in FLAGS), {}, sorted(NAMES)),
    "numbers of classes": ("train.jsonl", jsonl(names_of(each, (0, 1, 2)) for each in FLAGS), {}, None),
    "objects": ("train.jsonl", jsonl([dict(zip(NAMES, each)) for each in FLAGS]), {}, sorted(NAMES)),
    "columns": ("train.csv", rows(COLUMNS, start=CSV), {}, NAMES),
    "columns of words": ("train.csv", rows(COLUMNS, WORDS, CSV), {}, NAMES),
    "given columns": ("train.csv", rows(COLUMNS, start=CSV), {"label_column": "staff,trip"}, None),
    "columns beside a pair": ("train.tsv", rows(
        "the text {i}\tits pair\t{0}\t{1}\t{2}", start="text_a\ttext_b\ttrip\troom\tstaff\n"), {}, NAMES),
    "columns without names": ("train.tsv", rows("{0}\tthe text {i}\t{1}\t{2}"), {}, NUMBERED),
    "keys": ("train.jsonl", "".join(json.dumps(dict(zip(NAMES, each), comment=f"the text {i}")) + "\n"
                                    for i, each in enumerate(FLAGS)), {}, NAMES)}
OTHERS = {"two classes": (NUMBERED[:2], [",".join(names_of(each[1:], NUMBERED)) for each in FLAGS]),
          "numbers of classes": (("0", "1", "2"), expected("012")),
          "given columns": (("staff", "trip"), ["staff", "", "trip", ""])}


@pytest.mark.parametrize("name", LAYOUTS)
def test_several_labels_are_read_in_every_layout(name, tmp_path, capsys):
    file, text, options, labels = LAYOUTS[name]
    task = make_task(tmp_path, {file: text}, **options)
    labels, values = OTHERS.get(name) or (tuple(labels), expected(NAMES))
    if labels == NUMBERED:
        values = expected(NUMBERED)
    assert task.kind.name == "multi_label" and task.kind.labels == labels
    assert [set(label.split(",")) for label in labels_of(task)] == [
        set(value.split(",")) for value in values]
    said = capsys.readouterr().err
    assert f"({', '.join(labels)})" in said
    if name in ("objects", "names in JSON"):
        basis = {"objects": "objects"}.get(name, "lists")
        assert f"any number for each example (detected: they are {basis}; see --label_kind)" in said
    # Other files of the run, and of later commands, are read in the same way.
    trained = Classification(task.kind, len(task.train.columns.texts) == 2, task.trained_columns)
    later = user_task(tmp_path, ["dev", "test"], trained, dev_file=str(tmp_path / file),
                      test_file=str(tmp_path / file))
    assert rows_of(later, "dev") == rows_of(task, "train") and not later.dev.more_labels
    assert rows_of(later, "test")[0][0] == "the text 0"


REFUSED = {
    "another length": ("train.jsonl", jsonl([*FLAGS, (0, 1)]), {}, ("line 5", "3 values", "has 2")),
    "another value": ("train.jsonl", jsonl([*FLAGS, (0, 2, 1)]), {}, ("line 5", "'2'", "0 or 1")),
    "probabilities": ("train.jsonl", jsonl([(0.1, 0.9, 0), (0.5, 0.2, 0)]), {}, ("[0.1, 0.9, 0]", "list of numbers")),
    "grades": ("train.jsonl", jsonl([(5, 4, 5), (1, 1, 2)]), {}, ("[5, 4, 5]", "list of numbers")),
    "nothing in a list": ("train.jsonl", jsonl([*FLAGS, (0, None, 1)]), {}, ("line 5", "null")),
    "an object of numbers": ("train.jsonl", jsonl([{"a": 1, "b": 0}, {"a": 0.4, "b": 1}]), {}, ("line 2", "'0.4'")),
    "a missing cell": ("train.csv", rows(COLUMNS, [*FLAGS, (1, "", 0)] + FLAGS * 2, CSV), {}, ("line 6", "''", "0 or 1")),
    "another cell": ("train.csv", rows(COLUMNS, [*FLAGS, (1, -1, 0)], CSV),
                     {"label_column": "trip,room,staff"}, ("line 6", "'-1'")),
    "a missing column": ("train.csv", rows(COLUMNS, start=CSV), {"label_column": "trip,rooms"},
                         ("no column 'rooms'", "--label_column")),
    "columns as classes": ("train.csv", rows(COLUMNS, start=CSV), {"label_kind": "classes"},
                           ("line 2", "'room': '1'", "one label", "--label_kind=multi_label")),
    "columns as numbers": ("train.csv", rows(COLUMNS, start=CSV), {"label_kind": "regression"},
                           ("trip, room, staff", "--label_column", "regression")),
    "a list among classes": ("train.csv", csv(["a", "b", "a", "b", ["a", "b"]]), {}, ("line 6", "--label_kind"))}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_labels_is_refused_by_name(name, tmp_path):
    file, text, options, parts = REFUSED[name]
    with pytest.raises(UserError) as error:
        make_task(tmp_path, {file: text}, **options)
    for part in (file, *parts):
        assert part in str(error.value)


def test_columns_of_labels_are_found_by_name_in_the_other_files(tmp_path):
    train, options = rows(COLUMNS, start=CSV), {"label_column": "trip,room,staff"}
    dev = "room,trip,staff,comment_text\n1,0,0,the text 7\n"
    task = make_task(tmp_path, {"train.csv": train, "dev.csv": dev}, **options)
    assert rows_of(task, "dev") == [("the text 7", None, "room")]
    with pytest.raises(UserError, match="dev.csv has no column 'staff' for --label_column"):
        make_task(tmp_path, {"train.csv": train, "dev.csv": "room,trip,comment_text\n1,0,a b\n"}, **options)
    (tmp_path / "dev.csv").unlink()
    task = make_task(tmp_path, {"train.csv": train, "test.csv": "id,comment_text\n7,the text 7\n"})
    assert rows_of(task, "test") == [("the text 7", None, None)]
    single = columns.Trained("2", None, "1,3", None, 4)
    table = table_head.Table("x", "tsv", (), 2, [["the text", "more"]])
    assert single.roles_in(table) == {"text": ["1"], "label": ["1", "2"]}


@pytest.mark.parametrize("header, found", [
    ("ID,UTTERANCE,Title", {"text": ["UTTERANCE"]}),
    ("utterance,INTENT,x", {"text": ["utterance"], "label": ["INTENT"]}),
    ("UTTERANCE,Utterance,x", {"text": ["Utterance"]}), ("UTTERANCE,utterance,x", {})])
def test_the_columns_of_the_training_are_found_in_another_case(header, found):
    table = table_head.Table("x", "csv", tuple(header.split(",")), 3, [["1", "the text", "2"]])
    assert columns.Trained("Utterance", None, "Intent", None, 3).roles_in(table) == found


@pytest.mark.parametrize("header, form, labels", [
    ("text,label,length\n", "the text {i},{0},7", ("0", "1")),
    ("id,text,label\n", "{1},the text {i},{0}", ("0", "1")),
    ("text,label,odd\n", "the text {i},{0},{1}", ("0", "1")),
    ("text,is_good,fold\n", "the text {i},{0},0", None)])
def test_one_column_of_0_and_1_stays_classes(header, form, labels, tmp_path, capsys):
    text = rows(form, FLAGS * 2, header)
    options = {} if labels else {"label_column": "is_good"}
    assert make_task(tmp_path, {"train.csv": text}, **options).kind.labels == ("0", "1")
    assert ("--label_column=label,odd" in capsys.readouterr().err) == ("odd" in header)


ONE_EACH = [(1, 0, 0), (0, 0, 1), (0, 1, 0)] * 2
ONE_HOT = {"columns": ("train.csv", rows(COLUMNS, ONE_EACH, CSV), NAMES),
           "lists": ("train.jsonl", jsonl(ONE_EACH), NUMBERED),
           "lists as texts": ("train.csv", csv(map(list, ONE_EACH)), NUMBERED),
           "objects": ("train.jsonl", jsonl(dict(zip(NAMES, each)) for each in ONE_EACH), sorted(NAMES))}


@pytest.mark.parametrize("name", ONE_HOT)
def test_one_1_in_every_row_is_one_class(name, tmp_path, capsys):
    file, text, labels = ONE_HOT[name]
    task = make_task(tmp_path, {file: text})
    assert task.kind.name == "classes" and task.kind.labels == tuple(labels)
    assert "with exactly one label in each row; see --label_kind" in capsys.readouterr().err
    names = NAMES if "room" in labels else NUMBERED
    assert labels_of(task) == [names[each.index(1)] for each in ONE_EACH]
    assert make_task(tmp_path, {file: text}, label_kind="classes").kind.labels == tuple(labels)
    assert make_task(tmp_path, {file: text}, label_kind="multi_label").kind.name == "multi_label"
    # A later set has to keep to it.
    more = {"columns": "9,the text,1,1,0\n", "lists as texts": 'the text,"[1, 1, 0]"\n'}.get(
        name) or jsonl([[1, 1, 0] if name == "lists" else dict(trip=1, room=1, staff=0)])
    with pytest.raises(UserError, match="dev.*, line .*--label_kind=multi_label"):
        labels_of(make_task(tmp_path, {file: text, file.replace("train", "dev"): text + more}), "dev")


@pytest.mark.parametrize("text, more", [
    (rows(COLUMNS, [(1, 0, 0), (0, 0, 0), (0, 1, 0)] * 2, CSV), ""),
    ("text,label\na b,room;staff\nc d,room\ne f,staff\n", "--label_separator=';'"),
    (rows(COLUMNS, FLAGS, CSV), None)])
def test_the_log_says_where_no_example_has_several_labels(text, more, tmp_path, capsys):
    assert make_task(tmp_path, {"train.csv": text}, label_kind="multi_label").kind.name == "multi_label"
    said = capsys.readouterr().err
    assert ("no example has more than one" in said) == (more is not None)
    assert ("seems to be several" in said) == bool(more) and (more or "") in said


@pytest.mark.parametrize("absent, present", [("-1", "1"), ("", "x"), ("nan", "1.0")])
def test_columns_with_the_same_two_values_are_refused(absent, present, tmp_path, capsys):
    values = [[(absent, present)[value] for value in each] for each in FLAGS * 2]
    text = rows("the text {i},{0},{1},{2}", values, "text,trip,room,staff\n")
    with pytest.raises(UserError, match="all have the values .*write 0 or 1 in all of them.*--label_column"):
        make_task(tmp_path, {"train.csv": text})
    text = rows("the text {i},{0},{1},{2}", [["a" + value for value in each] for each in values], "text,label,room,staff\n")
    make_task(tmp_path, {"train.csv": text})
    assert "column room,staff has the same values as the label's, column label" in capsys.readouterr().err


@pytest.mark.parametrize("separator", [",", "|", "#", " "])
def test_a_label_that_joins_others_is_told(separator, tmp_path, capsys):
    labels = ["room", "staff", separator.join(["room", "staff"])] * 2
    task = make_task(tmp_path, {"train.tsv": "text\tlabel\n" + "".join(
        f"the text {i}\t{label}\n" for i, label in enumerate(labels))})
    assert task.kind.name == "classes"
    way = f"--label_separator={separator!r}" if separator.strip() else "and write commas between them"
    assert f"--label_kind=multi_label {way}" in capsys.readouterr().err


@pytest.mark.parametrize("one, other", [
    ("Yes", "yes"), ("not good", "not  good"), ("not good", "not\u00a0good"), ("caf\u00e9", "cafe\u0301"),
    ("good", "go\u200bod")])
def test_labels_that_look_alike_are_told(one, other, tmp_path, capsys):
    text = "text\tlabel\n" + "".join(f"the text {i}\t{label}\n" for i, label in enumerate([one, f"{other} ", "x"] * 2))
    labels = make_task(tmp_path, {"train.tsv": text}).kind.labels
    assert set(labels) == {one, other, "x"} and len(labels) == 3
    alike = ", ".join(repr(label) for label in labels if label != "x")
    assert f"case, spaces or Unicode form alone, and are learned as different ones: {alike}" in capsys.readouterr().err


@pytest.mark.parametrize("labels, said", [
    ([0, 1.0, 1, 0.0], "labels are equal numbers, and are learned as different ones: '0', '0.0', '1', '1.0'"),
    (["good", "NA", "bad", "good"], "the label 'NA' of 2 examples often stands for a missing value"),
    (["good", "n/a", "bad", "good"], "the label 'n/a' of 2 examples often stands for a missing value"),
    (["yes", "-", "no", "yes"], "the label '-' of 2 examples often stands for a missing value"),
    (["?", "yes", "no", "yes"], "the label '?' of 2 examples often stands for a missing value"),
    ([2, 1, -1, 0], "the label '-1' of 2 examples often stands for a missing value"),
    ([0, 1, -1, 0], None), ([0, 2, -1, -2], None), ([1, 2, -1, 3], None), (["+", "-", "0", "+"], None),
    ([".", "?", "word", "?"], None), (["+", "-", "?", "+"], None)])
def test_labels_that_may_be_the_same_or_none_are_told(labels, said, tmp_path, capsys):
    make_task(tmp_path, {"train.jsonl": jsonl(labels * 2, "label")})
    warning = capsys.readouterr().err
    assert said in warning if said else "WARNING" not in warning


def test_decimal_commas_are_refused_with_the_way_out(tmp_path):
    labels = ["0,5", "1,0", "2,5", "1,0"] * 3
    with pytest.raises(UserError, match="train.csv, line 2: the label is '0,5'.* decimal comma: write 0.5"):
        make_task(tmp_path, {"train.csv": csv(labels)})
    assert make_task(tmp_path, {"train.csv": csv(labels)}, label_kind="multi_label").kind.labels == ("0", "1", "2", "5")


@pytest.mark.parametrize("first", ["# exported", "", "sep=;"])
def test_a_first_line_that_is_no_row_is_named(first, tmp_path):
    text = f"{first}\ntext,label\nthe text,good\na text,bad\n"
    with pytest.raises(UserError, match="has one column.*line 1 is " + repr(first) + ".*remove it"):
        make_task(tmp_path, {"train.csv": text})
    with pytest.raises(UserError, match="has one column.*line 1 is 'text'.*columns are separated by"):
        make_task(tmp_path, {"train.csv": "text\nthe text\n"})


# --- The first row, and second texts -------------------------------------------------------

TEXTS = sentences(24, 3)


def test_the_keys_are_those_of_all_first_rows(tmp_path, capsys):
    objects = [dict(sentence1=text, label=i % 2, **({"sentence2": text} if i else {}))
               for i, text in enumerate(TEXTS)]
    with pytest.raises(UserError, match="line 1: the object has no 'sentence2'; it has 'sentence1'"):
        rows_of(make_task(tmp_path, {"train.jsonl": "".join(json.dumps(each) + "\n" for each in objects)}),
                "train")
    objects = [dict({"note": i % 2} if i else {}, text=text, sort="ab"[i % 2]) for i, text in enumerate(TEXTS)]
    capsys.readouterr()
    task = make_task(tmp_path, {"train.jsonl": "".join(json.dumps(each) + "\n" for each in objects)})
    assert task.kind.labels == ("a", "b") and "only in some objects: note" in capsys.readouterr().err


@pytest.mark.parametrize("header", [
    "query1 query2", "question1 question2", "text_1 text_2", "sentence_A sentence_B", "texta textb",
    "question sentence", "question passage", "query document", "query doc", "question context",
    "claim evidence", "context response", "premise hypothesis", "text text_pair", "s1 s2"])
def test_the_names_of_a_pair_are_known(header, tmp_path, capsys):
    header = header.replace(" ", "\t")
    text = f"{header}\tlabel\n" + "".join(f"{each}\t{each} too\t{i % 2}\n" for i, each in enumerate(TEXTS))
    assert rows_of(make_task(tmp_path, {"train.tsv": text}), "train")[0] == (TEXTS[0], TEXTS[0] + " too", "0")
    assert "WARNING" not in capsys.readouterr().err


@pytest.mark.parametrize("header, unread", [
    ("title\tbody\tlabel\n", "body"), ("", "1"), ("label_text\twhat\tlabel\n", "label_text")])
def test_a_column_of_texts_that_is_not_read_is_a_warning(header, unread, tmp_path, capsys):
    text = header + "".join(f"{each}\t{each} and more\t{i % 2}\n" for i, each in enumerate(TEXTS))
    make_task(tmp_path, {"train.tsv": text})
    said = capsys.readouterr().err
    assert "WARNING" in said and f"column {unread} are not read" in said
    assert f"--text_pair_column={unread}" in said
    make_task(tmp_path, {"train.tsv": text}, text_column="1")
    assert "are not read" not in capsys.readouterr().err


def test_repeated_texts_that_are_not_read_are_a_warning(tmp_path, capsys):
    """Those of a search: each query stands beside many texts."""
    text = "query\ttext\tlabel\n" + "".join(
        f"how do I find {each}\t{each} and more of number {i}\t{i % 2}\n" for i in range(5) for each in TEXTS)
    make_task(tmp_path, {"train.tsv": text})
    assert "the texts in column query are not read" in capsys.readouterr().err


def test_numbers_are_no_second_texts(tmp_path):
    text = "comment\tq1\tq2\tlabel\n" + "".join(f"{each}\t{i}\t{9 - i}\t{'ab'[i % 2]}\n" for i, each in enumerate(TEXTS))
    assert rows_of(make_task(tmp_path, {"train.tsv": text}), "train")[0] == (TEXTS[0], None, "a")


@pytest.mark.parametrize("name, values, is_pair", [
    ("answer", ["good"], False), ("answer", ["good", "bad"], False), ("sentence2", ["accept"], False),
    ("answer", TEXTS, True), ("text_b", ["food", "staff"], True)])
def test_a_column_that_repeats_a_value_is_no_second_text(name, values, is_pair, tmp_path, capsys):
    text = "".join(json.dumps({"text": each, "meta": {"source": "x"}, name: values[i % len(values)],
                               "label": "ab"[i % 2]}) + "\n" for i, each in enumerate(TEXTS))
    task = make_task(tmp_path, {"train.jsonl": text})
    assert rows_of(task, "train")[0] == (TEXTS[0], values[0] if is_pair else None, "a")
    assert (f"set --text_pair_column={name}" in capsys.readouterr().err) != is_pair
    if not is_pair:
        task = make_task(tmp_path, {"train.jsonl": text}, text_pair_column=name)
        assert rows_of(task, "train")[0] == (TEXTS[0], values[0], "a")


ANSWERS = ["accept", "reject", "accept", "ignore"]


@pytest.mark.parametrize("file", ["train.jsonl", "train.csv"])
def test_what_prodigys_users_did_not_accept_is_left_out_and_counted(file, tmp_path, capsys):
    labels = ["a", "x", "b", "y"]  # of what is left out: 'x' and 'y'
    values = [dict(text=each, label=labels[i % 4], answer=ANSWERS[i % 4]) for i, each in enumerate(TEXTS)]

    def written(values):
        if file == "train.jsonl":
            return "".join(json.dumps(each) + "\n" for each in values)
        return rows(",".join(['"{}"', "{}", "{}"][:len(values[0])]), [each.values() for each in values],
                    ",".join(values[0]) + "\n")

    test = file.replace("train", "test")
    task = make_task(tmp_path, {file: written(values), file.replace("train", "dev"): written(values),
                                test: written(values)})
    said = capsys.readouterr().err
    assert task.kind.labels == ("a", "b") and "WARNING" not in said and "not read: answer" not in said.split("test.")[0]
    for name in ("train", "dev"):
        assert rows_of(task, name) == [(text, None, labels[i % 4]) for i, text in enumerate(TEXTS) if i % 2 == 0]
        assert "the 12 examples are those with 'accept'; left out: 6 'reject', 6 'ignore'" in capsys.readouterr().err
    assert len(rows_of(task, "test")) == len(TEXTS)  # a prediction for each
    # Other answers, and labels of the same values, are no verdicts.
    for changes in (dict(answer="maybe"), dict(label="c")):
        task = make_task(tmp_path, {file: written([*values, {**values[0], **changes}, {**values[2], **changes}])})
        assert len(rows_of(task, "train")) == (26 if "answer" in changes else 14)
    values = [dict(text=each["text"], answer=each["answer"]) for each in values]
    assert make_task(tmp_path, {file: written(values)}).kind.labels == ("accept", "ignore", "reject")


@pytest.mark.parametrize("header, ids", [
    (",tweet,feeling", range(24)), ("Unnamed: 0,tweet,price", range(24)), (",tweet,feeling", range(100, 0, -4)),
    (",tweet,price", range(24)), ("ID,tweet,price", range(24)), ("number,tweet,price", range(24))])
def test_a_column_that_numbers_the_rows_has_no_role(header, ids, tmp_path, capsys):
    labels = [f"{row}.25" if "price" in header else "good bad".split()[row % 2] for row in range(24)]
    content = header + "\n" + "".join(f'{row},"{text}",{label}\n' for row, text, label in zip(ids, TEXTS, labels))
    task = make_task(tmp_path, {"train.csv": content, "test.csv": content})
    numbers = header.split(",")[0] or "1"
    assert f"a header line, text in column tweet, label in column {header.split(',')[2]}, not read: {numbers} " in (
        capsys.readouterr().err)
    assert [(text, str(label)) for text, _, label in rows_of(task, "train")] == list(zip(TEXTS, labels))
    assert [text for text, *_ in rows_of(task, "test")] == TEXTS


def test_a_column_that_counts_is_the_label_if_no_other_is_left(tmp_path):
    task = make_task(tmp_path, {"train.tsv": "".join(f"{text}\t{row}\n" for row, text in enumerate(TEXTS))},
                     label_kind="regression")
    assert [label for *_, label in rows_of(task, "train")] == [str(row) for row in range(24)]


def test_empty_second_texts_are_counted(tmp_path, capsys):
    text = "sentence1\tsentence2\tlabel\n" + "".join(
        f"{each}\t{'' if i % 4 else each}\t{i % 2}\n" for i, each in enumerate(TEXTS))
    assert len(rows_of(make_task(tmp_path, {"train.tsv": text}), "train")) == 24
    assert "18 of 24 pairs have an empty second text" in capsys.readouterr().err
