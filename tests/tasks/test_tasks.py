"""The task table, the reading of its files and the making of features, against Google's code.

Where Google's package has no such task, or does not run, against rows worked out by hand.
"""

import numpy as np
import pytest

import run_classifier
import tokenization
from conftest import TinyModel, sentences
from engine.errors import UserError
from task_files import MRPC_HEADER, NASTY, XNLI_HEADER, our_examples, write_rows
from tasks import metrics
from tasks.data import TextSet, load_texts
from runs.rows import Example
from tasks.table import TASKS, find_task

# (task, split, header, row, the example that it is), as GLUE publishes the files.
QNLI, STS_B = "index question sentence label", (
    "index genre filename year old_index source1 source2 sentence1 sentence2 score")
ROWS = [
    ("sst-2", "train", "sentence label", "a fine film |1", ("a fine film ", None, 1)),
    ("sst-2", "dev", "sentence label", "dull .|0", ("dull .", None, 0)),
    ("sst-2", "test", "index sentence", "7|a fine film", ("a fine film", None, None)),
    ("qqp", "train", "id qid1 qid2 question1 question2 is_duplicate",
     "133273|213221|213222|How?|Why?|1", ("How?", "Why?", 1)),
    ("qqp", "dev", "id qid1 qid2 question1 question2 is_duplicate",
     "201359|303345|303346|How?|Why?|0", ("How?", "Why?", 0)),
    ("qqp", "test", "id question1 question2", "0|How?|Why?", ("How?", "Why?", None)),
    ("qnli", "train", QNLI, "0|When?|In 1990.|entailment", ("When?", "In 1990.", 0)),
    ("qnli", "dev", QNLI, "0|When?|A dog.|not_entailment", ("When?", "A dog.", 1)),
    ("qnli", "test", "index question sentence", "0|When?|In 1990.", ("When?", "In 1990.", None)),
    ("rte", "train", "index sentence1 sentence2 label", "0|A.|B.|not_entailment", ("A.", "B.", 1)),
    ("rte", "dev", "index sentence1 sentence2 label", "0|A.|B.|entailment", ("A.", "B.", 0)),
    ("rte", "test", "index sentence1 sentence2", "0|A.|B.", ("A.", "B.", None)),
    ("wnli", "train", "index sentence1 sentence2 label", "0|A.|B.|1", ("A.", "B.", 1)),
    ("wnli", "dev", "index sentence1 sentence2 label", "0|A.|B.|0", ("A.", "B.", 0)),
    ("wnli", "test", "index sentence1 sentence2", "0|A.|B.", ("A.", "B.", None)),
    ("sts-b", "train", STS_B, "0|main|MSRvid|2012|1|none|none|A.|B.|3.800", ("A.", "B.", 3.8)),
    ("sts-b", "dev", STS_B, "0|main|MSRvid|2012|1|none|none|A.|B.|0", ("A.", "B.", 0.0)),
    ("sts-b", "test", STS_B[:-6], "0|main|MSRvid|2012|1|none|none|A.|B.", ("A.", "B.", None)),
    ("xnli", "test", " ".join(XNLI_HEADER), "zh|neutral|||||A|B|1", ("A", "B", None)),
]


@pytest.mark.parametrize("task_name, split_name, header, row, expected", ROWS)
def test_the_tasks_that_the_original_lacks_read_glues_files(
        task_name, split_name, header, row, expected, tmp_path):
    split = getattr(TASKS[task_name], split_name)
    write_rows(tmp_path, split.file, [header.split(), row.split("|")])
    *texts, label = expected
    assert our_examples(task_name, split_name, str(tmp_path)) == [
        Example(tuple(text for text in texts if text is not None), label)]


# Hugging Face's columns, in all three files.
@pytest.mark.parametrize("task_name, split_name, header, column", [
    ("sst-2", "test", "sentence label idx", "2 is 'label'"), ("cola", "test", "sentence label idx", "2 is 'label'"),
    ("sst-2", "test", "sentence Idx label", "2 is 'Idx'"), ("sst-2", "train", "idx sentence label", "1 is 'idx'"),
    *((name, split, "sentence1 sentence2 label idx", "3 is 'label'")
      for name in ("rte", "qnli", "wnli") for split in ("train", "test")),
    ("qqp", "test", "question1 question2 label idx", "3 is 'label'")])
def test_a_file_whose_header_has_no_text_where_the_task_has_one_is_refused(
        task_name, split_name, header, column, tmp_path):
    write_rows(tmp_path, f"{split_name}.tsv", [header.split(), ["a film", "a film", "-1", "0"][-len(header.split()):]])
    with pytest.raises(UserError, match=f"{split_name}.tsv, line 1: column {column}, .*GLUE.*--task_name=file"):
        our_examples(task_name, split_name, str(tmp_path))


def test_the_broken_rows_of_qqp_are_left_out_and_counted(tmp_path, capsys):
    write_rows(tmp_path, "train.tsv", [["header"], ["1", "2", "3", "a", "b", "1"],
                                       ["1", "2", "3", "broken"], ["4", "5", "6", "c", "d", "0"]])
    assert our_examples("qqp", "train", str(tmp_path)) == [Example(("a", "b"), 1),
                                                           Example(("c", "d"), 0)]
    assert "skipped 1 rows with too few columns" in capsys.readouterr().err


def test_tasks_are_found_however_their_names_are_spelt():
    for name in ("SST-2", "sst2", "sst_2"):
        assert find_task(name) == ("sst-2", TASKS["sst-2"])
    assert find_task("CoLA")[0] == "cola"
    with pytest.raises(UserError, match="sqaud.*cola, mnli, mrpc, qnli, qqp, rte, sst-2"):
        find_task("sqaud")


# --- Features ------------------------------------------------------------------------------

PAIR_TASK = TASKS["mrpc"]


def load_pairs(model: TinyModel, directory, pairs, max_seq_length: int) -> TextSet:
    """Pairs of texts as a training set of MRPC's."""
    write_rows(directory, "train.tsv", [MRPC_HEADER] + [
        [str(i % 2), "1", "2", *pair] for i, pair in enumerate(pairs)])
    return load_texts(PAIR_TASK.within(str(directory)).train, PAIR_TASK.kind,
                      model.encoding(max_seq_length), str(directory / "store"))


def features_of(texts: TextSet):
    source = texts.source(with_labels=True)
    return source.fetch(np.arange(len(texts)), source.max_length)


@pytest.mark.parametrize("max_seq_length", [3, 8, 40])
def test_features_equal_those_of_googles_convert_single_example(max_seq_length, tiny_model, tmp_path):
    """Of ours, which `test_google_interface.py` holds against Google's."""
    pairs = list(zip(sentences(60, seed=4), sentences(60, seed=5)))
    pairs += [("", "a cat"), ("a cat", ""), ("", ""), ("a \u2603 cat", "\u00a0"), NASTY[:2]]
    features = features_of(load_pairs(tiny_model, tmp_path, pairs, max_seq_length))
    examples = [run_classifier.InputExample("", *pair, label=str(row % 2)) for row, pair in enumerate(pairs)]
    expected = run_classifier.convert_examples_to_features(
        examples, ["0", "1"], max_seq_length, tokenization.FullTokenizer(tiny_model.vocab_file))
    for name in ("input_ids", "input_mask", "segment_ids"):
        assert features[name].tolist() == [getattr(each, name) for each in expected], name
    assert features["label_ids"].tolist() == [each.label_id for each in expected]


def test_a_store_is_made_anew_for_another_length_casing_or_content_and_else_reused(
        tiny_model, tmp_path, capsys):
    def prepared(text: str, max_seq_length: int = 8, do_lower_case: bool = True) -> bool:
        write_rows(tmp_path, "train.tsv", [MRPC_HEADER, ["1", "2", "3", text, "dog"]])
        encoding = tiny_model.encoding(max_seq_length, do_lower_case)
        capsys.readouterr()
        load_texts(PAIR_TASK.within(str(tmp_path)).train, PAIR_TASK.kind, encoding, str(tmp_path / "store"))
        return ": 1 example" in capsys.readouterr().err

    assert prepared("A cat")
    assert not prepared("A cat")
    assert prepared("A cat", max_seq_length=9)
    assert prepared("A cat", do_lower_case=False)
    assert prepared("A bird")
    assert not prepared("A cat")


# --- Metrics -------------------------------------------------------------------------------


OF_CLASSES = (metrics.accuracy, metrics.f1, metrics.matthews_correlation)
OF_NUMBERS = (metrics.pearson, metrics.spearman)
NONE = float("nan")  # a correlation that does not exist


@pytest.mark.parametrize("functions, labels, predicted, expected", [
    # 2 true positives, 1 false positive, 1 false negative, 1 true negative.
    (OF_CLASSES, [1, 1, 0, 0, 1], [1, 0, 0, 1, 1],
     [3 / 5, 2 * 2 / (2 * 2 + 1 + 1), (2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2)]),
    (OF_CLASSES, [0], [0], [1, 0, 0]), (OF_CLASSES, [1], [1], [1, 1, 0]),
    (OF_NUMBERS, [1.0], [2.0], [NONE, NONE]), (OF_NUMBERS, [1.0, 1.0], [1.0, 2.0], [NONE, NONE]),
    (OF_NUMBERS, [1.0, 2.0], [3.0, 3.0], [NONE, NONE])])
def test_metrics_are_as_worked_out_by_hand(functions, labels, predicted, expected):
    losses = np.arange(len(labels)) + 1.0
    assert list(metrics.evaluate(functions, np.array(labels), np.array(predicted), losses).values()) == (
        pytest.approx([*expected, losses.mean()], nan_ok=True))
