"""Damage to what earlier runs wrote is found on opening: one line, or what is whole is taken.

`test_fuzz.py` damages all files of a run, its stores among them, and runs a command on them.
"""

import itertools
import json
import os
import struct

import pytest

from augmentation import word_vectors
from checkpoint_index import crc32c, entry, masked, write as write_index
from encoder import pretraining_tfrecords
from encoder.model_files import load_config
from engine.checkpoints import checkpoint_files, checkpoints
from engine.errors import UserError
from engine.training import summaries

import tensorflow.compat.v1 as tf


TIMES = itertools.count(1)


def flip(path, position: int) -> None:
    """Changes a bit of a byte; the file's time differs from those of all earlier versions."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(bytes(content))
    time = next(TIMES)
    os.utime(str(path), ns=(time, time))


# --- Checkpoints ---------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """A directory with the checkpoints of steps 1, 2 and 3, whose value is the step's."""
    with tf.Graph().as_default(), tf.Session() as session:
        value = tf.get_variable("value", [50])
        step = tf.train.get_or_create_global_step()
        saver = tf.train.Saver()
        for number in range(1, 4):
            session.run([value.initializer, step.initializer])
            session.run([tf.assign(value, [number] * 50), tf.assign(step, number)])
            name = checkpoints.checkpoint_name(number)
            checkpoint_files.save(saver, session, str(tmp_path / name))
    return tmp_path


def data_of(folder, step: int):
    return folder / f"model.ckpt-{step}.data-00000-of-00001"


def newest_of(folder) -> int:
    return checkpoints.latest(str(folder)).global_step


def test_the_list_of_checkpoints_is_tensorflow_s(trained):
    assert tf.train.latest_checkpoint(str(trained)) == str(trained / "model.ckpt-3")
    state = tf.train.get_checkpoint_state(str(trained))
    assert list(state.all_model_checkpoint_paths) == [
        str(trained / f"model.ckpt-{step}") for step in (1, 2, 3)]


def test_the_newest_that_is_whole_is_taken_and_the_others_are_said_once(trained, capsys):
    flip(data_of(trained, 3), 30)
    data_of(trained, 2).write_bytes(data_of(trained, 2).read_bytes()[:-1])
    assert newest_of(trained) == newest_of(trained) == 1
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and "model.ckpt-3 is damaged" in warnings[0]
    assert "model.ckpt-2 is damaged (cut short" in warnings[1]
    with pytest.raises(UserError, match="model.ckpt-3 is no TensorFlow checkpoint, or is damaged"):
        checkpoints.open_checkpoint(str(trained / "model.ckpt-3"))
    data_of(trained, 1).unlink()
    with pytest.raises(UserError, match="all checkpoints are damaged.*remove them to start anew"):
        newest_of(trained)


def test_the_file_checkpoint_is_for_other_programs(trained):
    (trained / "checkpoint").write_bytes(b'model_checkpoint_path: "../../other/model.ckpt-1"\n')
    assert newest_of(trained) == 3


def evaluated(folder, **changes) -> None:
    (folder / "evaluations.json").write_text(json.dumps({
        "metric": "eval_accuracy", "best_checkpoint": "model.ckpt-1", "evaluations": [
            {"step": step, "eval_accuracy": value} for step, value in ((1, 0.9), (2, 0.8), (3, 0.7))],
        **changes}))


def test_in_the_place_of_a_damaged_best_the_next_best_is_taken(trained, capsys):
    evaluated(trained)
    assert checkpoints.best(str(trained)).global_step == 1
    flip(data_of(trained, 1), 30)
    assert checkpoints.best(str(trained)).global_step == 2
    assert "model.ckpt-1 is damaged" in capsys.readouterr().err
    evaluated(trained, best_checkpoint="../elsewhere/model.ckpt-2")  # the name leads nowhere else
    assert checkpoints.best(str(trained)).path == str(trained / "model.ckpt-2")


@pytest.mark.parametrize("make, said", [
    (os.mkfifo, "is no regular file"),
    (lambda path: os.symlink("/dev/zero", path), "is no regular file"),
    (lambda path: os.symlink(path, path), "symbolic links"), (os.mkdir, "Is a directory")])
@pytest.mark.parametrize("place", ["index", "data-00000-of-00001"])
def test_no_pipe_device_or_link_to_itself_stands_for_a_file_of_a_checkpoint(
        place, make, said, trained, capsys, alarm):
    path = trained / f"model.ckpt-3.{place}"
    path.unlink()
    make(str(path))
    assert newest_of(trained) == 2
    assert "model.ckpt-3 is damaged (" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"model.ckpt-3 is no TensorFlow checkpoint.*{path}.*{said}"):
        checkpoints.open_checkpoint(str(trained / "model.ckpt-3"))


# What TensorFlow's reader ends the process for, or reads as objects.
FOREIGN = {
    "more elements than can be counted": entry([2**62, 4]),
    "more elements, and none of them": entry([2**62, 4, 0]),
    "fewer elements than none": entry([-1]),
    "too many dimensions": entry([1] * 255),
    "more bytes than memory": entry([2**38], size=2**40),
    "a reference": entry([2], dtype=101, size=8),
    "objects": entry([1], dtype=20, size=200),
    "no type": entry([2], dtype=0, size=8),
    "a type of the future": entry([2], dtype=99, size=8),
    "a slice twice": entry([4], slices=[[(0, 2)], [(0, 2)]])}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_variable_that_cannot_be_is_damage(name, trained, capsys):
    write_index(str(trained / "model.ckpt-3"), {"a/kernel": FOREIGN[name]}, bytes(64))
    os.truncate(str(data_of(trained, 3)), 1 << 40)
    assert newest_of(trained) == 2
    with pytest.raises(UserError, match="model.ckpt-3.index: a/kernel is no whole array of numbers"):
        checkpoints.open_checkpoint(str(trained / "model.ckpt-3"))


@pytest.mark.parametrize("name, changes, said", [
    (b"a" * 2000, {}, " is no index of a checkpoint"), (b"\xff/kernel", {}, ": \ufffd/kernel is no"),
    # Two readers would read it in two ways.
    (b"a", dict(compression=1), " is no index of a"), (b"a", dict(restarts=(0, 3)), " is no index of a")])
def test_an_index_has_short_names_and_one_meaning(name, changes, said, trained):
    write_index(str(trained / "model.ckpt-3"), {name: entry([-1])}, **changes)
    with pytest.raises(UserError, match=f"model.ckpt-3.index{said}"):
        checkpoints.open_checkpoint(str(trained / "model.ckpt-3"))


def test_texts_in_a_checkpoint_are_not_read(trained):
    """Their lengths stand in the file of values, and TensorFlow allocates as much."""
    write_index(str(trained / "model.ckpt-3"), {"a": entry([2**40], dtype=7, size=9)}, bytes(9))
    assert checkpoints.open_checkpoint(str(trained / "model.ckpt-3")).shapes == {}


def test_variables_are_those_that_tensorflow_lists(trained, two_layers):
    for prefix in (str(trained / "model.ckpt-3"), two_layers.init_checkpoint):
        described = checkpoints.describe(prefix)
        assert sorted((name, list(described.shapes[name])) for name in described.shapes) == [
            (name, shape) for name, shape in tf.train.list_variables(prefix)]
        assert described.dtypes == tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()


# --- Curves and weights of others ------------------------------------------------------------


def test_curves_whose_lengths_cannot_be_are_left_out(tmp_path, capsys, alarm):
    summaries.write_evaluation(str(tmp_path), {"loss": 3.0}, 7)
    length = struct.pack("<Q", 2**62)
    (tmp_path / "eval" / "events.out.tfevents.1").write_bytes(
        length + struct.pack("<I", masked(crc32c(length))) + bytes(50))
    os.mkfifo(str(tmp_path / "eval" / "events.out.tfevents.2"))
    assert summaries.read_history(str(tmp_path / "eval")) == {"loss": [(7, 3.0)]}
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and all(line.endswith("its curves are left out") for line in warnings)


# --- Numbers in files, before anything is allocated by them --------------------------------


@pytest.mark.parametrize("changes, said", [
    *((changes, "GB, and this machine has") for changes in (
        dict(vocab_size=10**9, hidden_size=10**5), dict(num_hidden_layers=10**9),
        dict(max_position_embeddings=10**18), dict(intermediate_size=10**30))),
    *((dict(initializer_range=value), "initializer_range is .* must be a deviation of 0 or more")
      for value in ([], "<script>", None, True, -0.1, float("nan"), float("inf"))),
    *((dict(hidden_act=name), "hidden_act is .*, must be a name or null")
      for name in (["gelu"], 0, True, {}))])
def test_a_config_that_no_model_can_have_is_refused(changes, said, tiny_model, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**tiny_model.config().to_dict(), **changes}))
    with pytest.raises(UserError, match=said):
        load_config(str(path))


@pytest.mark.parametrize("count", [1, 2])
def test_a_record_longer_than_its_file_is_refused(count, tmp_path):
    path = tmp_path / "a.tfrecord"
    with tf.python_io.TFRecordWriter(str(path)) as writer:
        for _ in range(count):
            writer.write(b"x" * 10)
    content = bytearray(path.read_bytes())
    content[-26:-18] = struct.pack("<Q", 2**62)  # the length of the last one
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match=f"record {count} goes .* bytes beyond its end"):
        next(pretraining_tfrecords.read_chunks(str(path), {}, 9))


@pytest.mark.parametrize("header", ["3 999999999999", f"3 {'9' * 5000}", "²² 5"])
def test_a_dimension_beyond_the_file_s_is_refused(header, tmp_path):
    (tmp_path / "vectors.txt").write_text(f"{header}\ncat 1 2 3\n")
    with pytest.raises(UserError, match="vectors.txt"):
        word_vectors.load(str(tmp_path / "vectors.txt"))
