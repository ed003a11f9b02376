"""Tagged files: schemes, formats, windows and scores by entity."""

import json
import os
import random

import numpy as np
import pytest

from conftest import SHARED_DATA
from engine.errors import UserError
from tagging import formats, report, schemes, scores, windows
from tagging.formats import Layout
from tagging.schemes import Entity

SPELLED = {
    "iob1": ["I-A", "I-A", "B-A", "O", "I-B", "I-A"],
    "iob2": ["B-A", "I-A", "B-A", "O", "B-B", "B-A"],
    "bioes": ["B-A", "E-A", "S-A", "O", "S-B", "S-A"],
    "bmes": ["B-A", "E-A", "S-A", "O", "S-B", "S-A"]}
ENTITIES = [Entity("A", 0, 1), Entity("A", 2, 2), Entity("B", 4, 4), Entity("A", 5, 5)]


def evidence_of(*sentences, path="ner.txt"):
    evidence, line = schemes.Evidence(path), 1
    for tags in sentences:
        evidence.add(tags, range(line, line + len(tags)))
        line += len(tags) + 1
    return evidence


@pytest.mark.parametrize("scheme", schemes.NAMES)
def test_a_scheme_spells_entities_and_is_read_back(scheme):
    assert schemes.spell(ENTITIES, 6, scheme) == SPELLED[scheme]
    assert schemes.entities(SPELLED[scheme]) == ENTITIES


def test_the_scheme_of_tags_is_found():
    for scheme, tags in SPELLED.items():
        assert evidence_of(tags).scheme() == ("bioes" if scheme == "bmes" else scheme)
    assert evidence_of(["B-A", "M-A", "E-A"]).scheme() == "bmes"
    assert evidence_of(["B-A", "I-A"], ["O", "B-A"]).types == ["A"]


@pytest.mark.parametrize("sentences, message", [
    ((["I-A", "O"], ["O", "B-A"]),
     "ner.txt mixes schemes: line 1 is tagged as only iob1 has it, and line 5 as only iob2"),
    ((["B-A", "M-A", "E-A"], ["I-A"]), "ner.txt, line 5: a tag with I-, which the scheme bmes"),
    ((["B-A", "NN"],), "ner.txt, line 2: 'NN' is no tag"),
    ((["O"],), "ner.txt has no entity: every tag is O")])
def test_tags_of_no_scheme_are_refused(sentences, message):
    with pytest.raises(UserError, match=message):
        evidence_of(*sentences).scheme()


def test_a_named_scheme_is_not_guessed(capsys):
    assert evidence_of(["I-A", "O"], ["O", "B-A"]).scheme("iob2") == "iob2"
    assert evidence_of(["B-A", "O", "I-A"]).scheme("bioes") == "bioes"
    assert "ner.txt: 3 tags do not follow the one before" in "".join(capsys.readouterr())


@pytest.mark.parametrize("scheme", ("iob2", "bioes", "bmes"))
def test_a_sequence_is_allowed_if_its_entities_spell_it(scheme):
    labels = schemes.labels_of(("A", "B"), scheme)
    pairs, first, last = schemes.transitions(labels, scheme)
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


def test_columns_are_read_and_every_line_is_kept(tmp_path):
    text = ("-DOCSTART- -X- O\n\nthe DT O\ncat NN I-X\n  \n\nriver  NN I-X\n")
    file = read(tmp_path / "a.txt", text)
    found = list(file.sentences())
    assert [sentence.words for sentence in found] == [["the", "cat"], ["river"]]
    assert [sentence.lines for sentence in found] == [[3, 4], [7]]
    assert [sentence.tags for sentence in found] == [["O", "I-X"], ["I-X"]]
    assert list(file.with_predictions([["O", "O"], ["I-Y"]])) == [
        "-DOCSTART- -X- O O", "", "the DT O O", "cat NN I-X O", "  ", "", "river  NN I-X I-Y"]


def test_columns_are_chosen_and_words_between_tabs_may_have_spaces(tmp_path):
    file = read(tmp_path / "a.tsv", "B-X\tNew York\t1\nO\tis\t2\n", word_column=2, tag_column=1)
    assert [(one.words, one.tags) for one in file.sentences()] == [
        (["New York", "is"], ["B-X", "O"])]
    assert next(file.with_predictions([["O", "O"]])) == "B-X\tNew York\t1\tO"


def test_words_of_the_report_have_spaces_between_them():
    assert report.text_of(["", "New", "York", "我", "在"], 0, 5) == " New York我在"


def test_clueners_lines_are_read_and_written(tmp_path):
    value = {"text": "我在Google 工作", "label": {"company": {"Google": [[2, 7]]}}}
    file = read(tmp_path / "a.json", json.dumps(value, ensure_ascii=False) + "\n\n")
    (sentence,) = file.sentences()
    assert sentence.words == ["我", "在", "Google", "工", "作"]
    assert sentence.tags == ["O", "O", "B-company", "O", "O"]
    line, blank = file.with_predictions([["B-name", "I-name", "O", "O", "O"]])
    assert blank == ""
    assert json.loads(line) == {**value, "predicted": {"name": {"我在": [[0, 1]]}}}


def test_lines_without_entities_get_the_form_that_is_asked_for(tmp_path):
    file = read(tmp_path / "a.json", '{"id": 3, "text": "see New York."}\n')
    tags = [["O", "B-LOC", "I-LOC", "O"]]
    for form, expected in ((True, {"LOC": {"New York": [[4, 11]]}}),
                           (False, [{"start": 4, "end": 12, "label": "LOC"}])):
        (line,) = file.with_predictions(tags, lists_mentions=form)
        assert json.loads(line) == {"id": 3, "text": "see New York.", "predicted": expected}


@pytest.mark.parametrize("key, span", [
    ("entities", {"start": 4, "end": 12, "label": "LOC"}), ("spans", [4, 12, "LOC"]),
    ("label", [4, 12, "LOC"])])
def test_spans_are_read_and_written(tmp_path, key, span):
    file = read(tmp_path / "a.jsonl", json.dumps({"text": "see New York.", key: [span]}) + "\n")
    (sentence,) = file.sentences()
    assert sentence.words == ["see", "New", "York", "."]
    assert sentence.tags == ["O", "B-LOC", "I-LOC", "O"] and not sentence.missed
    (line,) = file.with_predictions([sentence.tags])
    assert json.loads(line)["predicted"] == [{"start": 4, "end": 12, "label": "LOC"}]


def test_only_spaces_and_tabs_stand_between_columns(tmp_path):
    text = "10\u00a0000 O\n\u3000 O\nParis  B-X \n \u2003 I-X\n"
    file = read(tmp_path / "a.txt", text)
    (sentence,) = file.sentences()
    assert sentence.words == ["10\u00a0000", "\u3000", "Paris", "\u2003"]
    assert sentence.tags == ["O", "O", "B-X", "I-X"]
    assert list(file.with_predictions([["A", "B", "C", "D"]])) == [
        "10\u00a0000 O A", "\u3000 O B", "Paris  B-X C", " \u2003 I-X D"]


def test_a_combining_mark_belongs_to_what_it_follows():
    text = "I \u2764\ufe0fAnna 1\ufe0f\u20e3Bob e\u0301t \u0301x"
    assert [text[start:end] for start, end in formats.units_of(text)] == [
        "I", "\u2764\ufe0f", "Anna", "1\ufe0f\u20e3", "Bob", "e\u0301t", "\u0301", "x"]


def test_half_a_character_in_a_type_is_replaced(tmp_path):
    file = read(tmp_path / "a.jsonl", '{"text": "a b", "entities": [[0, 1, "\\ud83d"]]}\n')
    assert next(file.sentences()).tags == ["B-\ufffd", "O"]


def test_spans_that_no_tags_can_spell_are_told():
    units = formats.units_of("New York3 x")
    assert units == [(0, 3), (4, 8), (8, 9), (10, 11)]
    assert formats.tags_of_spans([(0, 8, "A"), (4, 8, "B"), (1, 3, "C"), (10, 11, "D")], units) == (
        ["B-A", "I-A", "O", "B-D"], ["B", "C"])


@pytest.mark.parametrize("name, text, message", [
    ("a.txt", "\n \n", "a.txt holds no sentences"),
    ("a.txt", "the O\ncat\n", r"a.txt, line 2: 1 columns, and the first line has 2"),
    ("a.txt", "the\ncat\n", r"a.txt, line 1: 1 columns, and words and tags need one each"),
    ("a.json", "", "a.json holds no sentences"),
    ("a.json", '{"text": "a", "label": {}}\n{"text"\n',
     r"a.json, line 2: not JSON \(.*character 8"),
    ("a.json", '{"label": {}}\n', 'a.json, line 1: the object has no "text"'),
    ("a.json", '{"text": "a"}\n', 'a.json, line 1: the object has no "label", "entities"'),
    ("a.json", '{"text": "a", "label": {"x": [1]}}\n', "a.json, line 1: 'label' is"),
    ("a.json", '{"text": "a b", "label": {"x": {"a": [[0, 1]]}}}\n',
     "a.json, line 1: the mention 'a' is not at the characters 0 to 1, where the text has 'a '"),
    ("a.json", '{"text": "a", "label": [[0, 2, "x"]]}\n',
     "a.json, line 1: a span of 'x' from character 0 to before 2, and the text has 1")])
def test_a_broken_file_is_an_error_with_its_line(tmp_path, name, text, message):
    with pytest.raises(UserError, match=message):
        list(read(tmp_path / name, text).sentences())


def test_windows_cover_each_word_with_a_quarter_of_context():
    generator = np.random.RandomState(0)
    for _ in range(200):
        limit = generator.randint(3, 40)
        counts = generator.randint(1, min(limit, 5) + 1, generator.randint(1, 200))
        found = windows.cut(counts, limit)
        assert found[0].first == 0 and found[-1].end == len(counts)
        assert all(counts[window.first:window.end].sum() <= limit for window in found)
        assert all(before.first < after.first <= before.end
                   for before, after in zip(found, found[1:]))
        for word, window in enumerate(windows.deciding(counts, found)):
            assert found[window].first <= word < found[window].end
    assert windows.cut([1] * 10, 10) == [(0, 10)]
    assert windows.cut([1] * 10, 4) == [(0, 4), (2, 6), (4, 8), (6, 10)]
    assert windows.deciding([1] * 10, windows.cut([1] * 10, 4)).tolist() == [
        0, 0, 0, 1, 1, 2, 2, 3, 3, 3]


def test_scores_are_those_worked_out_by_hand():
    true = [[Entity("A", 0, 1), Entity("B", 3, 3)], [Entity("A", 0, 0)], []]
    predicted = [[Entity("A", 0, 1), Entity("A", 3, 3)], [], [Entity("C", 1, 2)]]
    total, per_type = scores.score(zip(true, predicted), missed=["B"])
    assert total == (4, 3, 1)
    assert (total.precision, total.recall) == (1 / 3, 1 / 4)
    assert total.f1 == pytest.approx(2 / 7)
    assert per_type == {"A": (2, 2, 1), "B": (2, 0, 0), "C": (0, 1, 0)}
    assert (per_type["B"].f1, per_type["C"].recall) == (0.0, 0.0)


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
        total, per_type = scores.score((schemes.entities(a), schemes.entities(b))
                                       for a, b in zip(true, predicted))
        for found, reference in [(total, expected["overall"]), *(
                (per_type[name], slot) for name, slot in expected["slots"]["chunks"].items())]:
            reference = reference.get("chunks", reference)["evals"]
            assert found.precision == pytest.approx(reference["prec"], abs=1e-12)
            assert found.recall == pytest.approx(reference["rec"], abs=1e-12)
            assert found.f1 == pytest.approx(reference["f1"], abs=1e-12)


@pytest.mark.parametrize("name, scheme, counts", [
    ("ner_en/conll2003_testb.txt", "iob1", (3453, 46435, 5648, 0)),
    ("ner_zh/resume_dev.char.bmes", "bmes", (463, 13890, 1497, 0)),
    ("ner_zh/cluener_dev.json", "iob2", (1343, 47758, 3066, 6))])
def test_real_files_are_read_whole_and_spelled_again(name, scheme, counts):
    path = os.path.join(SHARED_DATA, name)
    if not os.path.exists(path):
        pytest.skip(f"{path} is not there")
    evidence, found = schemes.Evidence(path), np.zeros(4, int)
    for sentence in formats.open_file(path, Layout(), has_tags=True).sentences():
        evidence.add(sentence.tags, sentence.lines)
        entities = schemes.entities(sentence.tags)
        assert schemes.spell(entities, len(sentence.words), scheme) == sentence.tags
        found += [1, len(sentence.words), len(entities), len(sentence.missed)]
    assert evidence.scheme() == scheme and tuple(found) == counts
