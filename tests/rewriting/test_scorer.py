"""A scorer is a model like others: it is exported, predicts, is evaluated by category, and teaches."""

import itertools
import json
import random

import numpy as np
import pytest

from commands import ends_with_error, results_of, run_here
from distillation import run as distillation_run
from engine import progress
from exports import run_saved_model
from pages import Page
from rewriting import data, evaluation, run, slot_files
from rewriting.slot_files import SlotExample
from rewriting_files import write_slots
from runs import predict
from runs.capability import Measured
from runs.report_page import Part

LONGEST = 32
NOUNS = ("cat", "dog", "bird", "tree", "house", "river")
CATEGORIES = ("news", "", "games")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Slots whose own phrase is the word before; those of the dev set have categories."""
    folder = tmp_path_factory.mktemp("scorer")
    slots = [SlotExample(f"{word} ", " .", (word, *others), 1) for word in NOUNS
             for others in itertools.combinations([noun for noun in NOUNS if noun != word], 2)]
    random.Random(0).shuffle(slots)
    write_slots(folder / "train.jsonl", slots)
    write_slots(folder / "dev.jsonl", [slot._replace(category=category) for slot, category in
                                       zip(slots[:20], itertools.cycle(CATEGORIES))])
    write_slots(folder / "test.jsonl", slots[40:])
    return folder


@pytest.fixture(scope="module")
def flags(two_layers, folder):
    return {**two_layers._asdict(), "data_dir": folder, "output_dir": folder / "out",
            "max_seq_length": LONGEST, "num_cpu_replicas": 1}


@pytest.fixture(scope="module")
def trained(flags):
    """The output directory of a training, with all that follows it, and the predictions then."""
    run_here({**flags, "do_train": True, "do_eval": True, "do_test": True, "do_predict": True,
              "do_export": True, "train_batch_size": 36, "num_train_epochs": 60, "learning_rate": 3e-3}, run)
    return flags["output_dir"], probabilities_in(flags["output_dir"])


@pytest.fixture
def scorer(trained):
    return trained[0]


@pytest.fixture
def expected(trained):
    """The probabilities of the phrases of the test set, [n, 2]."""
    return trained[1]


def slots_in(path):
    return list(slot_files.read_slots(str(path)))


def probabilities_in(scorer):
    return np.loadtxt(str(scorer / "test_results.tsv"), ndmin=2)


def test_an_export_has_the_scores_of_the_checkpoint(scorer, expected, folder, two_layers,
                                                    tmp_path):
    lines = data.load_slots(str(folder / "test.jsonl"), two_layers.encoding(LONGEST),
                            str(tmp_path), labelled=False)
    features = lines.pairs.source().fetch(np.arange(len(lines.pairs)), LONGEST)
    exported = run_saved_model(scorer / "export", features)
    assert np.ptp(expected[:, 1]) > 0.05, "scores must differ for this to mean anything"
    np.testing.assert_allclose(exported["probabilities"], expected, atol=1e-5)
    np.testing.assert_allclose(np.diff(np.log(exported["probabilities"])), np.diff(np.log(expected)),
                               rtol=1e-5, atol=1e-5)


def test_a_card_says_what_a_scorer_reads_and_how_well_it_ranks(scorer):
    card = (scorer / "export" / "README.md").read_text()
    results = results_of(scorer)
    for words in ("# rewriting", "phrases in slots of texts", "phrase [SEP] before [MASK]",
                  "python -m rewriting.rewrite --output_dir=export", "does not fit",
                  f"| mean_reciprocal_rank_test | {results['mean_reciprocal_rank_test']:.5g} |"):
        assert words in card
    assert "runs.predict" not in card


def test_the_ranking_is_the_mean_over_all_orders_of_phrases_with_equal_scores():
    counts, fitting = [4, 1, 12, 3, 5, 2], [1, 1, 1, 0, 1, 1]
    generator = np.random.RandomState(0)
    scores = generator.randint(0, 4, sum(counts)).astype(float)
    reciprocals, before, others, recalled = [], 0, 0, {count: [] for count in (1, 5, 10)}
    start = 0
    for count, fits in zip(counts, fitting):
        mine, start = scores[start:start + count], start + count
        if not fits or count == 1:
            continue
        higher, equal = (mine > mine[0]).sum(), (mine[1:] == mine[0]).sum()
        ranks = [higher + place for place in range(1, equal + 2)]  # each as likely
        reciprocals.append(np.mean([1 / rank for rank in ranks]))
        before += np.mean([count - rank for rank in ranks])
        others += count - 1
        for limit in recalled:
            recalled[limit].append(np.mean([rank <= limit for rank in ranks]))
    found = evaluation.rank(np.array(counts), np.array(fitting), scores)
    assert found == pytest.approx({
        "mean_reciprocal_rank": np.mean(reciprocals), "pair_accuracy": before / others,
        **{f"recall_at_{limit}": np.mean(values) for limit, values in recalled.items()}})


def test_held_out_sets_are_ranked_on_any_number_of_replicas(scorer, flags, folder):
    results = results_of(scorer)
    for suffix, name in (("", "dev"), ("_test", "test")):
        count = len(slots_in(folder / f"{name}.jsonl"))
        assert (results["num_slots" + suffix], results["num_pairs" + suffix]) == (count, 3 * count)
        assert set(evaluation.METRICS) < {key[:len(key) - len(suffix)] for key in results}
    run_here({**flags, "do_eval": True, "do_test": True, "num_cpu_replicas": 3,
              "eval_batch_size": 2}, run)
    again = results_of(scorer)
    assert again["eval_loss"] == pytest.approx(results["eval_loss"], rel=1e-5)


def test_predictions_are_those_that_the_evaluation_ranks(scorer, expected, folder):
    reciprocals = [1.0 / (1 + np.sum(of_slot[1:, 1] > of_slot[0, 1])) for of_slot in
                   np.split(expected, len(slots_in(folder / "test.jsonl")))]
    results = results_of(scorer)
    assert results["mean_reciprocal_rank_test"] == pytest.approx(np.mean(reciprocals))
    assert results["recall_at_1_test"] > 0.9, "it learns"


ODD = ["0\t" + "dog " * 40 + "\ta " + "“" * 160 + ".", "0\tcat\ta cat.", "0\t \ta “.", "cat"]


def test_a_line_of_any_file_has_its_prediction_in_its_place_and_an_odd_one_none(
        scorer, expected, flags, folder, tmp_path, capsys, monkeypatch):
    """The phrases of the test set in another order, without labels, in bert-ad's lines."""
    lines = [f"0\t{phrase}\t{slot.before}{slot_files.BERT_AD_MARK * len(phrase)}{slot.after}"
             for slot in slots_in(folder / "test.jsonl") for phrase in slot.phrases]
    order = random.Random(0).sample(range(len(lines)), len(lines))
    shuffled = [lines[number] for number in order]
    shuffled[2:2] = ODD
    (tmp_path / "lines.tsv").write_text("\n".join(shuffled) + "\n", encoding="utf-8")
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    for _ in range(2):  # the second time from the store
        run_here({**flags, "test_file": tmp_path / "lines.tsv", "do_predict": True,
                  "predict_labels": "index", "num_cpu_replicas": 3, "predict_batch_size": 2}, run)
        said = capsys.readouterr().err
        assert f"Scoring: {len(shuffled):,} pairs in" in said and "pairs/s" in said
        assert f"/{len(shuffled)} pairs, " in said
        warning, = [line for line in said.splitlines() if "no score" in line]
        assert f"4 of {len(shuffled)} phrases" in warning
        assert "phrase 3: it has no tokens, or more than 14" in warning
    rows = (scorer / "test_results.tsv").read_text().splitlines()
    assert rows[2:6] == ["\t"] * 4
    found = np.loadtxt(rows[:2] + rows[6:])
    np.testing.assert_allclose(found, expected[order], atol=1e-6)
    labels = (scorer / "predict.txt").read_text().splitlines()
    assert labels[2:6] == [""] * 4  # the others as in bert-ad's predict.txt
    assert labels[:2] + labels[6:] == [str(row.argmax()) for row in found]


def test_json_lines_to_score_have_phrases_with_or_without_labels(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (
        {"before": "a ", "after": ".", "phrases": ["cat", "dog"]},
        {"before": "a ", "clause": "tree", "after": ".", "negatives": ["cat"]})))
    assert list(slot_files.read_slots(str(tmp_path / "a.jsonl"), labelled=False)) == [
        SlotExample("a ", ".", ("cat", "dog"), 0), SlotExample("a ", ".", ("tree", "cat"), 0)]


@pytest.mark.parametrize("content, changes, words", [
    ("0\t" + "dog " * 40 + "\ta " + "“" * 160 + ".\n", {},
     ("lines.tsv", "phrase 1", "more than 14")),
    ("0\tcat\ta “““.\n", {"do_test": True}, ("line 1", "3 columns")),
    ("", {}, ("lines.tsv", "no slots")),
    ("0\tcat\ta “““.\n", {"export_int8": True}, ("--do_export",))])
def test_lines_that_cannot_be_scored_are_refused(content, changes, words, flags, scorer, tmp_path,
                                                 monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.tsv").write_text(content, encoding="utf-8")
    before = (scorer / "predict.txt").read_text()
    with ends_with_error(capsys, *words):
        run_here({**flags, "do_predict": True, "test_file": tmp_path / "lines.tsv", **changes}, run)
    assert (scorer / "predict.txt").read_text() == before


@pytest.mark.parametrize("which, name, row", [
    ("export", "pairs.tsv", "{phrase}\t{before}{marks}{after}\n"),
    ("", "pairs.jsonl", '{{"text": "{phrase}", "text_pair": "{before}[MASK] [MASK]{after}"}}\n')])
def test_predict_scores_phrases_in_texts_with_a_slot(which, name, row, scorer, expected, folder,
                                                     tmp_path, capsys):
    rows = [row.format(phrase=phrase, before=slot.before, after=slot.after,
                       marks=slot_files.BERT_AD_MARK * len(phrase))
            for slot in slots_in(folder / "test.jsonl") for phrase in slot.phrases]
    rows[1:1] = [rows[0].replace("[MASK]", "").replace(slot_files.BERT_AD_MARK, ""),
                 row.format(phrase="dog " * 40, before="a ", after="", marks="“" * 160)]
    (tmp_path / name).write_text("".join(rows), encoding="utf-8")
    run_here({"output_dir": scorer / which, "input_file": tmp_path / name, "num_cpu_replicas": 1,
              "output_file": tmp_path / "scores.tsv"}, predict)
    header, *found = (tmp_path / "scores.tsv").read_text().splitlines()
    assert header == "label\tdoes not fit\tfits" and found[1:3] == ["\t\t"] * 2
    scores = np.array([line.split("\t")[1:] for line in found[:1] + found[3:]], float)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    warning, = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert f"2 of {len(rows)} have no prediction; the first: the phrase '" in warning


def test_the_metrics_of_a_category_are_those_of_its_slots_alone(scorer, folder, two_layers,
                                                                tmp_path):
    slots = slots_in(folder / "dev.jsonl")
    rows = results_of(scorer)["per_category"]
    assert [row["category"] for row in rows] == sorted(CATEGORIES)
    assert sum(row["num_slots"] for row in rows) == len(slots)
    encoding = two_layers.encoding(LONGEST)
    logits = np.random.RandomState(0).normal(size=(3 * len(slots), 2))
    parts = dict(zip(range(len(slots)), np.split(logits, len(slots))))

    def load(name, some):
        return data.load_slots(write_slots(tmp_path / f"{name}.jsonl", some), encoding,
                               str(tmp_path))

    for row in evaluation.per_category(load("all", slots), logits):
        own = [number for number, slot in enumerate(slots) if slot.category == row["category"]]
        alone = evaluation.results_of(load(f"only {row['category']}", [slots[i] for i in own]),
                                      np.concatenate([parts[i] for i in own]))
        assert {name: row[name] for name in alone if name != "eval_loss"} == pytest.approx(
            {name: value for name, value in alone.items() if name != "eval_loss"})
        assert (row["num_slots"], row["num_pairs"]) == (len(own), 3 * len(own))


def test_the_report_shows_the_ranks_and_the_worst_misses_first(two_layers, scorer, tmp_path):
    too_long = "old " * 40
    path = write_slots(tmp_path / "dev.jsonl", [
        SlotExample("the ", " here .", ("tree", too_long, "house"), 1),
        SlotExample("", " and a cat", ("river", too_long, "green", "dog"), 1),
        SlotExample("the ", " sees .", ("cat", "dog", "bird"), 1)])
    slots = data.load_slots(path, two_layers.encoding(LONGEST), str(tmp_path))
    scores = np.array([3, 1, -1, 0, -2, 0.5, 2, 0.5])
    ranks, misses = evaluation.page(Measured({}, shown=evaluation.Shown(slots, scores)))
    assert [row[:2] for row in ranks.content] == [
        ("1", 1), ("2 – 5", 2), ("6 – 10", 0), ("more than 10", 0)]
    assert misses.content == [
        {"Text": [Part("the "), Part("cat", "0.50"), Part(" sees .")],
         "Ahead": [Part("dog", "2.00", False), Part(" "), Part("bird", "0.50", False), Part(" ")]},
        {"Text": [Part(""), Part("river", "-1.00"), Part(" and a cat")],
         "Ahead": [Part("green", "0.00", False), Part(" ")]}]
    rows = Page((scorer / "report.html").read_text(encoding="utf-8")).rows
    results = results_of(scorer)
    assert ["Rank", "Slots", "Share"] in rows
    assert ["1", str(round(20 * results["recall_at_1"])), f"{results['recall_at_1']:.4f}"] in rows


def test_a_scorer_teaches_a_smaller_one(scorer, expected, flags, folder, tmp_path, capsys):
    distil = {"teacher": scorer, "data_dir": folder, "do_train": True, "num_cpu_replicas": 1,
              "train_batch_size": 16, "learning_rate": 3e-3}
    with ends_with_error(capsys, "--do_eval", "rewriting.run --do_eval"):
        run_here({**distil, "stage": "prediction", "student": "1,16,2,32", "do_eval": True,
                  "output_dir": tmp_path / "refused"}, distillation_run)
    run_here({**distil, "stage": "intermediate", "student": "1,16,2,32", "num_train_epochs": 10,
              "output_dir": tmp_path / "stage1"}, distillation_run)
    run_here({**distil, "stage": "prediction", "student": tmp_path / "stage1",
              "num_train_epochs": 60, "output_dir": tmp_path / "student"}, distillation_run)
    run_here({**flags, "output_dir": tmp_path / "student", "do_eval": True, "do_predict": True,
              "bert_config_file": tmp_path / "student" / "bert_config.json",
              "init_checkpoint": None}, run)
    odds = [np.diff(np.log(probabilities))[:, 0]
            for probabilities in (expected, probabilities_in(tmp_path / "student"))]
    assert np.corrcoef(odds)[0, 1] > 0.5
    results = results_of(tmp_path / "student")
    assert results["mean_reciprocal_rank"] > results["chance"]["mean_reciprocal_rank"]


@pytest.mark.parametrize("changes, words", [
    ({"do_train": False}, ("--do_train", "--do_test")),
    ({"max_seq_length": 4}, ("--max_seq_length=4", "5")),
    ({"dev_file": "alone.jsonl", "do_eval": True}, ("alone.jsonl", "nothing to rank")),
    ({"train_file": "long.jsonl"}, ("long.jsonl", "--max_seq_length=32")),
    ({"metric_for_best": "f1", "eval_each_epoch": True, "do_eval": True},
     ("--metric_for_best=f1", "recall_at_10")),
    ({"do_train": False, "do_eval": True}, ("output_weights", "--do_train")),
    ({"do_train": False, "do_test": True, "init_checkpoint": None, "bert_config_file": None},
     ("--output_dir=", "out has no trained model", "--init_checkpoint")),
])
def test_wrong_input_is_one_line(changes, words, flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_slots(tmp_path / "alone.jsonl", [SlotExample("a ", ".", ("cat",), 1)])
    write_slots(tmp_path / "long.jsonl", [SlotExample("a ", ".", ("cat " * 40,), 1)])
    with ends_with_error(capsys, *words):
        run_here({**flags, "output_dir": tmp_path / "out", "do_train": True, **changes}, run)
