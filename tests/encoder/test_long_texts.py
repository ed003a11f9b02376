"""Texts that do not fit: what is kept of them, and how their windows' scores become one."""

import json
import shutil

import numpy as np
import pytest

from commands import answers_of, ends_with_error, results_of, run_here
from conftest import on_tensorflow_1, sentences
from encoder.encoding import encode_texts_and_pairs
from encoder.long_texts import LongTexts, of_description
from engine.errors import UserError

LENGTH = 12
TEXTS = ["", "the", *sentences(40, seed=5), "the cat " * 20]


def encoding_of(model, ways, length=LENGTH):
    return model.encoding(length)._replace(long_texts=ways.check(length))


def cut_by_hand(a, b, room, ways):
    """The records of two lists of tokens, as (tokens of a, tokens of b)."""
    kept_a, kept_b = len(a), len(b)
    while kept_a + kept_b > room:
        if kept_a > kept_b:
            kept_a -= 1
        else:
            kept_b -= 1
    if ways.long_texts == "windows":
        longer, size = (a, kept_a) if len(a) > len(b) else (b, kept_b)
        overlap = size // 4 if ways.window_overlap is None else ways.window_overlap
        starts, step = [0], max(size - overlap, 1)
        while starts[-1] + size < len(longer):
            starts.append(min(starts[-1] + step, len(longer) - size))
        windows = [longer[start:start + size] for start in starts]
        return [(window, b[:kept_b]) if longer is a else (a[:kept_a], window)
                for window in windows]

    def cut(tokens, kept):
        head = kept
        if ways.long_texts == "head_tail" and kept < len(tokens):
            head = kept // 4
        return tokens[:head] + tokens[len(tokens) - (kept - head):]
    return [(cut(a, kept_a), cut(b, kept_b))]


@pytest.mark.parametrize("ways", [
    LongTexts(), LongTexts("head_tail"), LongTexts("windows"),
    LongTexts("windows", window_overlap=9)])
@pytest.mark.parametrize("pairs", [False, True])
def test_records_are_as_cut_by_hand(ways, pairs, tiny_model):
    encoding = encoding_of(tiny_model, ways)
    seconds = list(reversed(TEXTS)) if pairs else [""] * len(TEXTS)
    chunk = encode_texts_and_pairs(TEXTS, seconds, encoding)
    ids, lengths = chunk["input_ids"]
    found = [encoding.tokenizer.convert_ids_to_tokens(part.tolist())
             for part in np.split(ids, np.cumsum(lengths)[:-1])]
    expected, numbers, left_out = [], [], []
    for number, texts in enumerate(zip(TEXTS, seconds)):
        a, b = map(encoding.tokenizer.tokenize, texts)
        room = LENGTH - (3 if b else 2)
        for first, second in cut_by_hand(a, b, room, ways):
            expected.append(["[CLS]", *first, "[SEP]"] + ([*second, "[SEP]"] if second else []))
            numbers.append(number)
            left_out.append(max(len(a) + len(b) - room, 0))
    assert found == expected
    assert chunk["text"].tolist() == numbers and chunk["num_left_out"].tolist() == left_out


def test_a_pair_without_room_for_windows_is_one_record(tiny_model):
    encoding = encoding_of(tiny_model, LongTexts("windows"), length=4)
    chunk = encode_texts_and_pairs(["the cat"], ["a dog and a bird"], encoding)
    assert chunk["text"].tolist() == [0] and chunk["num_left_out"].tolist() == [6]


def write_task(folder):
    """Texts of one to 20 words; the label says whether there is a cat in it."""
    for name, count, seed in (("train", 40, 1), ("dev", 15, 2)):
        (folder / f"{name}.tsv").write_text("".join(
            f"{'yes' if 'cat' in text else 'no'}\t{text}\n" for text in sentences(count, seed)))
    (folder / "test.tsv").write_text("".join(f"{text}\n" for text in sentences(9, 3)))
    return str(folder)


@pytest.fixture(scope="module")
def flags(tiny_model, tmp_path_factory):
    return {**tiny_model._asdict(), "task_name": "file", "max_seq_length": LENGTH,
            "data_dir": write_task(tmp_path_factory.mktemp("task")), "train_batch_size": 8,
            "num_train_epochs": 1, "learning_rate": 1e-3, "num_cpu_replicas": 1}


@on_tensorflow_1
def test_windows_are_trained_and_each_texts_prediction_is_that_of_its_windows(
        flags, tmp_path, capsys):
    out = tmp_path / "out"
    run_here({**flags, "long_texts": "windows", "window_overlap": 3,
              "do_train": True, "eval_each_epoch": True, "do_eval": True, "do_predict": True,
              "output_dir": out})
    said = capsys.readouterr().err
    train, dev, test = (sentences(count, seed) for count, seed in ((40, 1), (15, 2), (9, 3)))
    for name, texts in (("train", train), ("dev", dev), ("test", test)):
        longer = sum(len(text.split()) > LENGTH - 2 for text in texts)
        assert (f"{name}.tsv: {longer} of {len(texts)} texts are longer than --max_seq_length=12: "
                "each becomes several windows") in said
    assert f"= 8 examples per step; {sum(len(windows_of(text)) for text in train)} ex" in said
    results = results_of(out)
    assert results["num_examples"] == len(dev)
    on_the_way = json.loads((out / "evaluations.json").read_text())["evaluations"][-1]
    assert on_the_way["eval_loss"] == pytest.approx(results["eval_loss"], rel=1e-5)
    found = np.loadtxt(str(out / "test_results.tsv"), ndmin=2)
    np.testing.assert_allclose(found, by_windows(out, test, tmp_path), atol=1e-5)
    # The folder remembers; another way is another run.
    run_here({**flags, "do_predict": True, "output_dir": out})
    np.testing.assert_array_equal(np.loadtxt(str(out / "test_results.tsv"), ndmin=2), found)
    with ends_with_error(capsys, "belongs to a run with another --long_texts"):
        run_here({**flags, "long_texts": "head", "do_eval": True, "output_dir": out})
    np.testing.assert_allclose(predicted(out, test, tmp_path), found, atol=1e-5)


def windows_of(text):
    words = text.split()
    return [" ".join(window) for window, _ in cut_by_hand(
        words, [], LENGTH - 2, LongTexts("windows", window_overlap=3))]


def predicted(model_dir, texts, tmp_path):
    """The probabilities that runs.predict writes."""
    return np.array([list(answer["probabilities"].values())
                     for answer in answers_of(model_dir, texts, tmp_path, num_cpu_replicas=2)])


def by_windows(model_dir, texts, tmp_path):
    """The probabilities of texts whose windows are predicted as texts of their own."""
    plain = tmp_path / "plain"
    shutil.copytree(str(model_dir), str(plain), ignore=shutil.ignore_patterns("run.json"))
    description = json.loads((plain / "task.json").read_text())
    assert description.pop("long_texts") == {
        "long_texts": "windows", "window_overlap": 3}
    (plain / "task.json").write_text(json.dumps(description))
    windows = [windows_of(text) for text in texts]
    logits = np.log(predicted(plain, sum(windows, []), tmp_path))
    ends = np.cumsum([len(each) for each in windows])
    means = np.array([part.mean(axis=0) for part in np.split(logits, ends[:-1])])
    return np.exp(means) / np.exp(means).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("changes, message", [
    ({"window_overlap": 3}, "--window_overlap needs --long_texts=windows"),
    ({"long_texts": "windows", "window_overlap": 10}, "--window_overlap=10: of a single text"),
    ({"long_texts": "windows", "window_overlap": 0}, "--window_overlap=0: must be")])
def test_flags_that_do_not_fit_together_are_one_line(changes, message, flags, tmp_path, capsys):
    with ends_with_error(capsys, message):
        run_here({**flags, **changes, "do_train": True, "output_dir": tmp_path / "out"})
    assert not (tmp_path / "out").exists()


def test_a_damaged_description_is_refused():
    assert of_description({}) == LongTexts()
    for damaged in ("windows", {"long_texts": "tail"}, {"unknown": 1},
                    {"long_texts": "windows", "window_overlap": "3"}):
        with pytest.raises(UserError, match="task.json .* damaged"):
            of_description({"long_texts": damaged})
