"""Tagged files: schemes, formats, windows and scores by entity."""

import json
import os
import random

import numpy as np
import pytest

from conftest import SHARED_DATA
from encoder.tag_set import NAMES, TagSet
from engine.errors import UserError
from tagging import data, evaluation, formats, report, schemes
from tagging.formats import Layout
from tagging.schemes import Entity

SPELLED = {
    "iob1": ["I-A", "I-A", "B-A", "O", "I-B", "I-A"],
    "iob2": ["B-A", "I-A", "B-A", "O", "B-B", "B-A"],
    "bioes": ["B-A", "E-A", "S-A", "O", "S-B", "S-A"],
    "bmes": ["B-A", "E-A", "S-A", "O", "S-B", "S-A"]}
ENTITIES = [Entity("A", 0, 1), Entity("A", 2, 2), Entity("B", 4, 4), Entity("A", 5, 5)]


@pytest.mark.parametrize("scheme", NAMES)
def test_a_scheme_spells_entities_and_is_read_back(scheme):
    assert schemes.spell(ENTITIES, 6, scheme) == SPELLED[scheme]
    assert schemes.entities(SPELLED[scheme]) == ENTITIES


@pytest.mark.parametrize("sentences, scheme, num_odd", [
    *(((tags,), "bioes" if name == "bmes" else name, 0) for name, tags in SPELLED.items()),
    ((["B-A", "M-A", "E-A"],), "bmes", 0),
    ((["B-A", "I-A"], ["O", "B-B"], ["O", "I-A"]), "iob2", 1),
    ((["O", "S-A"], ["B-A", "O", "I-A"]), "bioes", 1)])
def test_the_scheme_of_a_file_spells_most_of_its_sentences(
        sentences, scheme, num_odd, tmp_path, capsys):
    text = "\n".join("".join(f"the {tag}\n" for tag in tags) for tags in sentences)
    tags = data.find_tags(read(tmp_path / "a.txt", text))
    assert tags.scheme == scheme and set(tags.types) <= {"A", "B"}
    odd = f"{num_odd} of {len(sentences)} sentences are not tagged as {scheme} has it"
    assert (odd in "".join(capsys.readouterr())) == bool(num_odd)


@pytest.mark.parametrize("scheme", ("iob2", "bioes", "bmes"))
def test_a_sequence_is_allowed_if_its_entities_spell_it(scheme):
    two = TagSet(("A", "B"), scheme)
    labels, (pairs, first, last) = two.labels, schemes.transitions(two)
    generator = random.Random(1)
    num_allowed = 0
    for _ in range(2000):
        chosen = [generator.randrange(len(labels)) for _ in range(generator.randint(1, 4))]
        tags = [labels[index] for index in chosen]
        is_allowed = (first[chosen[0]] and last[chosen[-1]]
                      and all(pairs[pair] for pair in zip(chosen, chosen[1:])))
        assert is_allowed == (schemes.spell(schemes.entities(tags), len(tags), scheme) == tags)
        num_allowed += is_allowed
    assert 100 < num_allowed < 1900


def read(path, text, **layout):
    path.write_text(text, encoding="utf-8")
    return formats.open_file(str(path), Layout(**layout), has_tags=True)


def test_entities_that_all_end_within_words_are_refused(tmp_path):
    inclusive = json.dumps({"text": "happy cat runs", "entities": [{"start": 6, "end": 8, "label": "ANI"}]}) + "\n"
    right = inclusive.replace("8", "9")
    with pytest.raises(UserError, match="a.jsonl: all 2 entities begin or end within a word.*last character"):
        data.find_tags(read(tmp_path / "a.jsonl", 2 * inclusive))
    assert data.find_tags(read(tmp_path / "a.jsonl", inclusive + right)).types == ("ANI",)


def test_columns_are_read_and_every_line_is_kept(tmp_path):
    text = ("-DOCSTART- -X- O\n\nthe DT O\ncat NN I-X\n  \n\nriver  NN I-X\n")
    file = read(tmp_path / "a.txt", text)
    found = list(file.sentences())
    assert [sentence.words for sentence in found] == [["the", "cat"], ["river"]]
    assert [sentence.lines for sentence in found] == [(3, 4), (7,)]
    assert [sentence.tags for sentence in found] == [["O", "I-X"], ["I-X"]]
    assert list(file.with_predictions(iter([["O", "O"], ["I-Y"]]))) == [
        "-DOCSTART- -X- O O", "", "the DT O O", "cat NN I-X O", "  ", "", "river  NN I-X I-Y"]


@pytest.mark.parametrize("by", [" ", "\t"])
@pytest.mark.parametrize("columns, document", [
    (2, "-DOCSTART-"), (4, "-DOCSTART- O"), (4, "-DOCSTART- -X- -X- O"), (2, "-DOCSTART- (1 EU)"),
    (2, " -DOCSTART- "), (3, "-DOCSTART-(1) O"), (1, "-DOCSTART-")])
def test_lines_between_documents_have_any_columns(columns, document, by, tmp_path):
    rows = [by.join((word, *["NN"] * (columns - 2), tag)[:columns])
            for word, tag in (("Anna", "B-PER"), ("runs", "O"), ("Bob", "B-PER"))]
    for document in {document, document.replace(" ", by)}:
        path = tmp_path / "a.txt"
        path.write_text("\n".join((document, "", *rows[:2], document, rows[2], "", document)) + "\n")
        file = formats.open_file(str(path), Layout(), has_tags=columns > 1)
        assert [sentence.words for sentence in file.sentences()] == [["Anna", "runs"], ["Bob"]]
        assert [sentence.lines for sentence in file.sentences()] == [(3, 4), (6,)]
        written = list(file.with_predictions(iter([["O", "X"], ["Y"]])))
        assert [line.split()[-1:] for line in written] == [
            ["O"], [], ["O"], ["X"], ["O"], ["Y"], [], ["O"]]
        path.write_text("\n".join(written) + "\n")  # as conlleval gets it, it can be read again
        assert len(list(formats.open_file(str(path), Layout(), has_tags=False).sentences())) == 2


@pytest.mark.parametrize("by", [" ", "\t"])
def test_a_mark_of_unicode_may_be_a_word(by, tmp_path):
    words = ["\ufeff", "Paris", "\ufeff", "\u0085", "\u200b", "\u2028", "\u00a0"]
    text = "".join(f"{word}{by}O\n" for word in words)
    file = read(tmp_path / "a.txt", text + "\n\ufeff\n\ufeffRome O\n".replace(" ", by))
    assert [sentence.words for sentence in file.sentences()] == [words, ["Rome"]]
    written = list(file.with_predictions(iter([["A"] * len(words), ["A"]])))
    assert written[:len(words)] == [f"{word}{by}O{by}A" for word in words]


def test_columns_are_chosen_and_words_between_tabs_may_have_spaces(tmp_path):
    file = read(tmp_path / "a.tsv", "B-X \tNew York\t1\nO\u00a0\tis\t2\n", word_column=2, tag_column=1)
    assert [(one.words, one.tags) for one in file.sentences()] == [
        (["New York", "is"], ["B-X", "O"])]
    assert next(file.with_predictions(iter([["O", "O"]]))) == "B-X \tNew York\t1\tO"


@pytest.mark.parametrize("has_tags", [True, False])
def test_numbers_of_words_are_refused_as_words(has_tags, tmp_path):
    rows = "1\tSchartau\tB-PER\tO\n2\tsagte\tO\tO\n3\tBerliner\tB-LOC\tB-OTH\n\n"  # GermEval's
    (tmp_path / "a.tsv").write_text(4 * rows)
    with pytest.raises(UserError, match="a.tsv, line 1: the words in column 1 count 1, 2, 3 .*--word_column.*--tag_column"):
        formats.open_file(str(tmp_path / "a.tsv"), Layout(), has_tags=has_tags)
    assert next(read(tmp_path / "a.tsv", 4 * rows, word_column=2, tag_column=3).sentences()).words[0] == "Schartau"
    assert len(list(read(tmp_path / "a.tsv", 40 * "1 O\nthe O\n\n").sentences())) == 40


def test_words_of_the_report_have_spaces_between_them():
    assert "".join(report.with_spaces(["", "New", "York", "我", "在"])) == " New York我在"


def test_clueners_lines_are_read(tmp_path):
    value = {"text": "我在Google 工作", "label": {"company": {"Google": [[2, 7]]}}}
    (sentence,) = read(tmp_path / "a.json", json.dumps(value) + "\n\n").sentences()
    assert sentence.words == ["我", "在", "Google", "工", "作"]
    assert sentence.tags == ["O", "O", "B-company", "O", "O"]


@pytest.mark.parametrize("key, span", [
    ("entities", {"start": 4, "end": 12, "label": "LOC"}), ("spans", [4, 12, "LOC"]),
    ("entities", {"start": 4, "end": 12, "label": "LOC", "text": "New York"}), ("label", [4, 12, "LOC"])])
def test_spans_are_read_and_written(tmp_path, key, span):
    file = read(tmp_path / "a.jsonl", json.dumps({"text": "see New York.", key: [span]}) + "\n")
    (sentence,) = file.sentences()
    assert sentence.words == ["see", "New", "York", "."]
    assert sentence.tags == ["O", "B-LOC", "I-LOC", "O"] and not sentence.missed
    (line,) = file.with_predictions(iter([sentence.tags]))
    assert json.loads(line)["predicted"] == [
        {"start": 4, "end": 12, "label": "LOC", "text": "New York"}]


def test_what_prodigys_users_did_not_accept_is_left_out_of_tagged_files(tmp_path):
    def written(*answers):
        return "".join(json.dumps({"text": f"Anna{i}", "spans": [[0, 4, f"T{i}"]], "answer": answer}) + "\n\n"
                       for i, answer in enumerate(answers))

    answers = "accept", "reject", "ignore", "accept", "reject"
    file = read(tmp_path / "a.jsonl", written(*answers))
    assert [one.words[1] for one in file.sentences()] == ["0", "3"] and data.find_tags(file).types == ("T0", "T3")
    assert file.left_out == "the 2 examples are those with 'accept'; left out: 2 'reject', 1 'ignore'"
    untagged = formats.open_file(file.path, Layout(), has_tags=False)
    assert len(list(untagged.sentences())) == 5 and not untagged.left_out  # each gets a prediction
    for others in (["accept"] * 5, [*answers, "later"], ["good"] * 5):
        file = read(tmp_path / "a.jsonl", written(*others))
        assert len(list(file.sentences())) == len(others) and not file.left_out


def test_only_spaces_and_tabs_stand_between_columns(tmp_path):
    text = "10\u00a0000 O\n\u3000 O\nParis  B-X \n \u2003 I-X\n"
    file = read(tmp_path / "a.txt", text)
    (sentence,) = file.sentences()
    assert sentence.words == ["10\u00a0000", "\u3000", "Paris", "\u2003"]
    assert sentence.tags == ["O", "O", "B-X", "I-X"]
    assert list(file.with_predictions(iter([["A", "B", "C", "D"]]))) == [
        "10\u00a0000 O A", "\u3000 O B", "Paris  B-X C", " \u2003 I-X D"]


def test_a_combining_mark_belongs_to_what_it_follows():
    text = "I \u2764\ufe0fAnna 1\ufe0f\u20e3Bob e\u0301t \u0301x"
    assert [text[start:end] for start, end in formats.units_of(text)] == [
        "I", "\u2764\ufe0f", "Anna", "1\ufe0f\u20e3", "Bob", "e\u0301t", "\u0301", "x"]


def test_spans_that_no_tags_can_spell_are_told():
    units = formats.units_of("New York3 x")
    assert units == [(0, 3), (4, 8), (8, 9), (10, 11)]
    assert formats.tags_of_spans([(0, 8, "A"), (4, 8, "B"), (1, 3, "C"), (10, 11, "D")], units) == (
        ["B-A", "I-A", "O", "B-D"], ["B", "C"])


@pytest.mark.parametrize("name, text, message", [
    ("a.txt", "\n \n", "a.txt holds no sentences"),
    ("a.txt", "the O\ncat\n", r"a.txt, line 2: 1 columns, and the first line has 2"),
    ("a.txt", "the\ncat\n", r"a.txt, line 1: 1 columns, and words and tags need one each"),
    ("a.txt", "the O\ncat NN\n", "a.txt, line 2: 'NN' is no tag: .* is --tag_column right"),
    ("a.json", '{"text": "a", "label": {}}\n{"text"\n',
     r"a.json, line 2: not JSON \(.*character 8"),
    ("a.json", '{"text": "a"}\n', 'a.json, line 1: the object has no "label", "entities"'),
    ("a.json", '{"text": "我在北京", "spans": [{"start": 2, "end": 3, "label": "LOC", "text": "北京"}]}\n',  # the last character
     "a.json, line 1: 'spans' is .*, with the end behind the last one"),
    ("a.json", '{"text": "a b", "label": {"x": {"a": [[0, 1]]}}}\n',
     "a.json, line 1: 'label' is .* of characters of the text")])
def test_a_broken_file_is_an_error_with_its_line(tmp_path, name, text, message):
    with pytest.raises(UserError, match=message):
        list(read(tmp_path / name, text).sentences())


def test_scores_are_those_worked_out_by_hand():
    true = [[Entity("A", 0, 1), Entity("B", 3, 3)], [Entity("A", 0, 0)], []]
    predicted = [[Entity("A", 0, 1), Entity("A", 3, 3)], [], [Entity("C", 1, 2)]]
    total, rows = evaluation.score(zip(true, predicted), missed={"B": 1})
    assert total == pytest.approx((1 / 3, 1 / 4, 2 / 7))
    assert [list(row.values()) for row in rows] == [
        ["A", 0.5, 0.5, 0.5, 2, 2], ["B", 0.0, 0.0, 0.0, 2, 0], ["C", 0.0, 0.0, 0.0, 0, 1]]
    assert evaluation.score([([], [])], missed={}) == ((0.0, 0.0, 0.0), [])


def test_scores_are_conllevals_for_forbidden_sequences_too():
    conlleval = pytest.importorskip("conlleval")
    generator = random.Random(3)
    for trial in range(60):
        tags = ["O", *(f"{prefix}-{name}" for prefix in ("BI", "BIES")[trial % 2] for name in "XY")]
        true = [[generator.choice(tags) for _ in range(generator.randint(1, 12))]
                for _ in range(8)]
        predicted = [[tag if generator.random() < 0.7 else generator.choice(tags) for tag in some]
                     for some in true]
        lines = [line for pair in zip(true, predicted)
                 for line in [*(f"word {a} {b}" for a, b in zip(*pair)), ""]]
        expected = conlleval.evaluate(lines)
        total, rows = evaluation.score(((schemes.entities(a), schemes.entities(b))
                                        for a, b in zip(true, predicted)), missed={})
        found = {row["type"]: (row["precision"], row["recall"], row["f1"]) for row in rows}
        for scores, reference in [(total, expected["overall"]), *(
                (found[name], slot) for name, slot in expected["slots"]["chunks"].items())]:
            reference = reference.get("chunks", reference)["evals"]
            assert scores == pytest.approx([reference[name] for name in ("prec", "rec", "f1")], abs=1e-12)


@pytest.mark.parametrize("name, scheme, counts", [
    ("ner_en/conll2003_testb.txt", "iob1", (3453, 46435, 5648, 0)),
    ("ner_zh/resume_dev.char.bmes", "bmes", (463, 13890, 1497, 0)),
    ("ner_zh/cluener_dev.json", "iob2", (1343, 47758, 3066, 6))])
def test_real_files_are_read_whole_and_spelled_again(name, scheme, counts):
    path = os.path.join(SHARED_DATA, name)
    if not os.path.exists(path):
        pytest.skip(f"{path} is not there")
    file, found = formats.open_file(path, Layout(), has_tags=True), np.zeros(4, int)
    for sentence in file.sentences():
        entities = schemes.entities(sentence.tags)
        assert schemes.spell(entities, len(sentence.words), scheme) == sentence.tags
        found += [1, len(sentence.words), len(entities), len(sentence.missed)]
    assert data.find_tags(file).scheme == scheme and tuple(found) == counts
