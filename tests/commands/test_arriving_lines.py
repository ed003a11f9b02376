"""Lines of standard input are answered as they arrive, and batched when many are there."""

import os
import threading

import pytest

from commands import answers_one_by_one, run_here
from engine.disk.parts import ArrivingLines, in_chunks
from rewriting import run
from rewriting.slot_files import SlotExample
from rewriting_files import made_up_texts, write_slots


@pytest.fixture
def pipe():
    """The end of a pipe that is read, and the one that is written to."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def chunks_of(lines, size=100):
    read = iter(lambda: lines.readline(-1), b"")
    return in_chunks((line.rstrip(b"\n") for line in read), size, arriving=lines)


def test_a_chunk_is_what_has_arrived_and_a_line_ends_where_its_end_arrives(pipe):
    reading, writing = pipe
    chunks = chunks_of(ArrivingLines(reading))
    os.write(writing, "alone\n".encode())
    assert next(chunks) == [b"alone"]
    whole = "二つ\n\nthree\nbeg".encode()
    os.write(writing, whole[:2])  # within a character
    threading.Timer(0.2, os.write, (writing, whole[2:])).start()
    assert next(chunks) == ["二つ".encode(), b"", b"three"]
    os.write(writing, b"un")
    os.close(writing)
    assert next(chunks) == [b"begun"]
    assert list(chunks) == []


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\n", b"a\n\n", b"\n\na\r\nb" * 70000],
                         ids=len)
def test_lines_of_a_file_are_those_of_python_in_full_chunks(content, tmp_path):
    (tmp_path / "lines").write_bytes(content)
    with open(str(tmp_path / "lines"), "rb") as file:
        expected = [line.rstrip(b"\n") for line in file]
        file.seek(0)
        chunks = list(chunks_of(ArrivingLines(file.fileno())))
    assert [line for chunk in chunks for line in chunk] == expected
    assert [len(chunk) for chunk in chunks[:-1]] == [100] * max(len(chunks) - 1, 0)


# --- Commands ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scorer(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scorer")
    write_slots(folder / "train.jsonl", [SlotExample("the cat ", " .", ("sees", "tree"), 1)] * 4)
    run_here({**tiny_model._asdict(), "train_file": folder / "train.jsonl", "do_train": True,
              "output_dir": folder / "out", "max_seq_length": 32, "num_cpu_replicas": 1,
              "train_batch_size": 4, "num_train_epochs": 1}, run)
    return folder / "out"


def test_a_worker_for_pairs_lives_on_after_an_odd_line(scorer):
    answers, errors = answers_one_by_one("runs.predict", output_dir=scorer, lines=[
        "no tab", "sees\tthe cat [MASK] .", "sees\tthe cat .", "tree\ta “““““.", "tree\ta ““““."])
    assert ["error" in answer for answer in answers] == [True, False, True, False, False]
    assert "standard input, line 1" in answers[0]["error"]
    assert "2 of 5 have no prediction; the first: standard input, line 1" in errors


def test_rewrite_answers_a_line_before_it_gets_the_next_one_although_its_pool_has_an_odd_row(
        scorer, tmp_path):
    (tmp_path / "pool.csv").write_text("text,id\nthe dog sees a bird,1\nx,y,z\na bird likes it,2\n")
    texts = made_up_texts(3)
    answers, errors = answers_one_by_one(
        "rewriting.rewrite", texts, output_dir=scorer, pool_file=tmp_path / "pool.csv")
    assert [answer["text"] for answer in answers] == texts
    assert "pool.csv, line 3: 3 columns" in errors
