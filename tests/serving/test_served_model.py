"""A served model of each kind, asked by many callers at a time, beside `TextPredictor`."""

import errno
import os
import shutil
import threading

import numpy as np
import pytest
from absl import flags

from commands import run_here
from conftest import checkpoint_values, on_tensorflow_1, on_tensorflow_2, sentences
from engine.checkpoints import checkpoints
from engine.cli import device_flags
from engine.disk import files
from engine.errors import UserError
from runs import kinds
from runs.capability import PAIR
from runs.rows import Example
from runs.text_predictor import TextPredictor
from serving import model, session
from serving.model import Deadline
from services import assert_close, toy_models

SECONDS = 60.0


def values_of(**options):
    values = flags.FlagValues()
    model.define_flags(values)
    options = {"num_cpu_replicas": 1, "engine": "tensorflow", **options}
    values(["", *(f"--{name}={value}" for name, value in options.items() if value is not None)])
    return values


def serve(folder, **options):
    values = values_of(**options)
    return model.serve("toy", str(folder), values, device_flags.find_devices(values, training=False))


def answer(served, examples, truncate=True):
    return served.answer(examples, truncate=truncate, deadline=Deadline(SECONDS))


def texts_of(takes, count=12):
    firsts, seconds = sentences(count), sentences(count, seed=1)
    if takes.most is None:  # two choices or three
        return [(first, second, *firsts[:1 + index % 2]) for index, (first, second) in enumerate(zip(firsts, seconds))]
    if takes.pairs:  # a scorer reads the slot, and answers the others with an error
        return [(first, f"{second} [MASK] {first}" if index % 3 else second)
                for index, (first, second) in enumerate(zip(firsts, seconds))]
    return firsts


def examples_of(texts):
    return [Example((text,) if isinstance(text, str) else text) for text in texts]


KINDS = ["classifier", "multi", "regression", "pairs", "tagger", "reader", "scorer", "vectors", "choice"]


@pytest.fixture(scope="module")
def toys(tiny_model, tmp_path_factory):
    return toy_models(tmp_path_factory.mktemp("toys"), tiny_model)


# With TensorFlow of any number of texts; test_http_routes.py asks every kind. With onnxruntime each graph:
# test_prepared.py asks every kind on TensorFlow 2.15.
@pytest.mark.parametrize("kind, engine", [
    *((kind, session.TENSORFLOW) for kind in ("vectors", "choice")), ("classifier", session.ONNXRUNTIME),
    *(pytest.param(kind, session.ONNXRUNTIME, marks=on_tensorflow_1)
      for kind in ("tagger", "reader", "vectors", "choice"))])
def test_each_kind_answers_many_callers_as_the_predictor_does(toys, kind, engine):
    if engine == "onnxruntime":
        onnxruntime = pytest.importorskip("onnxruntime")
        if kind == "tagger" and onnxruntime.__version__.startswith("1.10."):
            with pytest.raises(UserError, match="--engine=onnxruntime: onnxruntime .* cannot compute"):
                serve(toys[kind], engine=engine)
            return
    served, predictor = serve(toys[kind], engine=engine), TextPredictor(toys[kind], num_cpu_replicas=1)
    texts = texts_of(served.reader.takes)
    assert_close(entries(ask_at_a_time(served, texts)), predictor(texts))
    if served.reader.takes.pairs is None:
        pairs = texts_of(PAIR)
        assert_close(entries(answer(served, examples_of(pairs))), predictor(pairs))
    served.close()
    predictor.close()


@on_tensorflow_2
def test_a_damaged_file_of_onnxruntime_is_made_again(toys, tmp_path, capfd):
    pytest.importorskip("onnxruntime")
    shutil.copytree(toys["classifier"], str(tmp_path / "model"), ignore=shutil.ignore_patterns("serving-*"))

    def answers():
        served = serve(tmp_path / "model", engine=None)
        try:
            return answer(served, [Example(("the cat",))])[0].entry, capfd.readouterr().err
        finally:
            served.close()

    expected, _ = answers()
    path, = (tmp_path / "model").glob("serving-*.onnx")
    whole = path.read_bytes()
    path.write_bytes(whole[:len(whole) // 2] + bytes(8) + whole[len(whole) // 2 + 8:])
    entry, said = answers()
    assert_close(entry, expected)
    assert f"{path} is not as it was written: it is made again" in said
    assert answers() == (entry, "")


@on_tensorflow_2
def test_a_model_s_folder_that_takes_no_file_is_served(toys, tmp_path, monkeypatch, capfd):
    pytest.importorskip("onnxruntime")
    shutil.copytree(toys["classifier"], str(tmp_path / "model"), ignore=shutil.ignore_patterns("serving-*"))
    publish = files.publish

    def refused(temporary, path):
        if str(tmp_path) in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        publish(temporary, path)

    monkeypatch.setattr(files, "publish", refused)
    served = serve(tmp_path / "model", engine="onnxruntime")
    assert "label" in answer(served, [Example(("the cat",))])[0].entry
    served.close()
    assert not list((tmp_path / "model").glob("serving-*"))
    assert os.strerror(errno.EROFS) in capfd.readouterr().err


def test_onnxruntime_computes_by_default_in_float32_from_a_file_that_the_first_start_makes(
        toys, tmp_path, capfd):
    pytest.importorskip("onnxruntime")
    shutil.copytree(toys["classifier"], str(tmp_path / "model"), ignore=shutil.ignore_patterns("serving-*"))

    def open_and_close(**options):
        for path in (tmp_path / "model").glob("serving-*.onnx"):
            os.utime(str(path), (0, 0))
        served = serve(tmp_path / "model", **{"engine": None, **options})
        served.close()
        file, = (tmp_path / "model").glob("serving-*.onnx")
        return file, os.path.getmtime(str(file)), capfd.readouterr().err

    first, _, said = open_and_close()
    assert f"Converting the model to ONNX: {first}" in said
    assert open_and_close() == (first, 0, "")
    assert "TensorFlow computes: onnxruntime computes on the CPU in float32" in open_and_close(
        precision="bfloat16")[-1]
    with pytest.raises(UserError, match="--engine=onnxruntime: .* leave --precision out"):
        serve(tmp_path / "model", engine="onnxruntime", precision="bfloat16")
    prefix = checkpoints.open_checkpoint(str(tmp_path / "model")).path
    checkpoints.write_checkpoint(prefix, {
        **checkpoint_values(prefix), "output_bias": np.array([0, 9], np.float32)})
    second, made_at, _ = open_and_close()
    assert second != first and made_at


def test_the_newest_numbered_version_of_an_export_that_opens_is_served(tiny_classifier, tmp_path, capfd):
    shutil.copytree(str(tiny_classifier), str(tmp_path / "out"))
    run_here(dict(output_dir=tmp_path / "out", do_export=True))
    for version in ("1", "2"):
        shutil.copytree(str(tmp_path / "out" / "export"), str(tmp_path / "models" / version))
    os.mkdir(str(tmp_path / "models" / "3"))
    served = serve(tmp_path / "models")
    assert served.sha == "2" and "the version before it is served" in capfd.readouterr().err
    assert served.card.startswith("# ")
    served.close()


def test_there_is_a_toy_of_every_kind(toys):
    assert set(toys) == set(KINDS)
    values = {kinds.open_reader(folder)[0].description()["kind"] for folder in toys.values()}
    assert values == set(kinds.CLASSES)


def test_bfloat16_answers_as_the_predictor_does_in_it(toys):
    served = serve(toys["pairs"], precision="bfloat16")
    texts = texts_of(PAIR)
    expected, exact = (TextPredictor(toys["pairs"], num_cpu_replicas=1, precision=precision)(texts)
                       for precision in ("bfloat16", "float32"))
    values = entries(ask_at_a_time(served, texts))
    differences = [[abs(one["probabilities"]["yes"] - other["probabilities"]["yes"])
                    for one, other in zip(values, others)] for others in (expected, exact)]
    assert max(differences[0]) < 0.02 and 0 < max(differences[1]) < 0.05
    served.close()


def entries(results):
    return [{"error": result} if isinstance(result, str) else result.entry for result in results]


def ask_at_a_time(served, texts):
    """The results for all texts, of callers with 1 to 5 texts each."""
    bounds = np.cumsum([0, *[1 + number % 5 for number in range(len(texts))]])
    parts = [texts[start:stop] for start, stop in zip(bounds, bounds[1:]) if start < len(texts)]
    results = [None] * len(parts)

    def ask(number):
        results[number] = answer(served, examples_of(parts[number]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return [result for part in results for result in part]
