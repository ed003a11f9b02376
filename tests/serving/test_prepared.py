"""Files for onnxruntime: who makes them, who sees what is wrong with them, and a service that loads no TensorFlow."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from commands import ends_with_error, run_here
from conftest import ROOT, write_cola
from encoder import convert
from engine.checkpoints import onnx_file
from engine.disk import files
from engine.errors import UserError
from runs import kinds
from runs.prepared import INT8, Prepared
from runs.rows import Example
from runs.text_predictor import TextPredictor
from serving import run
from services import Service, assert_close, toy_models
from test_served_model import answer, examples_of, serve, texts_of

pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")
# Answers with each model as `python -m serving.run` opens it, and asserts what is loaded.
OPEN_WITHOUT_TENSORFLOW = """
import json, sys
from serving import without_tensorflow
without_tensorflow.leave_out()
from absl import flags
from engine.cli import device_flags
from runs.rows import Example
from serving import app, model
values = flags.FlagValues()
model.define_flags(values)
values(["", "--num_gpus=0", *sys.argv[1:2]])
devices = device_flags.find_devices(values, training=False)
asked = json.load(sys.stdin)
models = {folder: model.serve("toy", folder, values, devices) for folder in asked}
without_tensorflow.end()
for folder, texts in asked.items():
    results = models[folder].answer([Example(tuple(text)) for text in texts], truncate=True,
                                    deadline=model.Deadline(60))
    print(json.dumps([{"error": result} if isinstance(result, str) else result.entry for result in results]))
assert not [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]
with open("/proc/self/maps") as maps:
    assert "libtensorflow" not in maps.read()
"""


@pytest.fixture(scope="module")
def toys(tiny_model, tmp_path_factory):
    """A model of each kind, prepared in float32 and in int8; onnxruntime 1.10 cannot compute the tagger."""
    import onnxruntime
    folders = toy_models(tmp_path_factory.mktemp("toys"), tiny_model)
    if onnxruntime.__version__.startswith("1.10."):
        folders.pop("tagger")
    for folder in folders.values():
        Prepared(folder, "--model", INT8).make()
    return folders


def answers_without_tensorflow(asked, *flags):
    """What a process without TensorFlow answers, for each folder."""
    texts = {folder: [example.texts for example in examples] for folder, examples in asked.items()}
    done = subprocess.run([sys.executable, "-c", OPEN_WITHOUT_TENSORFLOW, *flags], cwd=ROOT, input=json.dumps(texts),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0, done.stderr
    assert "Converting" not in done.stderr
    return dict(zip(asked, map(json.loads, done.stdout.splitlines())))


def test_each_kind_answers_without_tensorflow_as_the_predictor_does_and_its_folder_stays_as_it_is(toys):
    before = {folder: sorted(os.listdir(folder)) for folder in toys.values()}
    texts = {folder: texts_of(kinds.open_reader(folder)[1].takes, 12) for folder in toys.values()}
    answers = answers_without_tensorflow({folder: examples_of(rows) for folder, rows in texts.items()})
    for folder, rows in texts.items():
        predictor = TextPredictor(folder, num_cpu_replicas=1)
        assert_close(answers[folder], predictor(rows))
        predictor.close()
    assert {folder: sorted(os.listdir(folder)) for folder in toys.values()} == before


def test_a_file_gives_equal_predictions_at_every_length(toys):
    for folder in toys.values():
        kept = Prepared(folder, "--model")
        _, reader = kept.open()
        source = reader.encode(examples_of(texts_of(reader.takes, 12))).source
        opened = onnx_file.open_session(kept.path, 1)
        names, shortest = [tensor.name for tensor in opened.get_inputs()], source.lengths.argmin()
        first, *others = (opened.run(None, {name: source.fetch(np.array([shortest]), length)[name] for name in names})
                          for length in range(source.lengths[shortest], source.lengths[shortest] + 9))
        for found in others:
            for of_first, values in zip(first, found):  # what is of padding alone is left out
                np.testing.assert_allclose(of_first, values[tuple(map(slice, of_first.shape))], atol=1e-5)


def unprepared(trained, tmp_path):
    """A copy of a model's folder without a file for onnxruntime."""
    return shutil.copytree(str(trained), str(tmp_path / "model"), ignore=shutil.ignore_patterns("serving-*"))


def started(folder):
    """A service in an interpreter of its own: forks of the tests' have TensorFlow."""
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="1")
    return Service({"a": folder}, env=environment, engine=None, num_cpu_replicas=None, num_gpus=0)


def assert_labels(service):
    assert {each["label"] for each in service.post("/predict", {"inputs": "the cat"}).body} == {"0", "1"}


def test_the_command_prepares_and_then_serves_without_tensorflow(tiny_classifier, tmp_path):
    folder = unprepared(tiny_classifier, tmp_path)

    def command(*arguments):  # an interpreter of its own: forks of the tests' have TensorFlow
        return subprocess.run([sys.executable, "-m", "serving.run", f"--model={folder}", *arguments], cwd=ROOT,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    first, again = command("--prepare"), command("--prepare")
    path = Prepared(folder, "--model").path
    assert first.returncode == again.returncode == 0, first.stderr
    assert f"Converting the model to ONNX: {path}" in first.stderr and os.path.exists(path)
    assert f"{path} is whole: nothing is left to do" in again.stderr
    with started(folder) as service:
        assert [line for line in service.lines if "Converting" in line] == []
        assert_labels(service)
        assert service.get("/info").body["model_dtype"] == "float32"
        with open(f"/proc/{service.process.pid}/maps") as maps:
            assert "libtensorflow" not in maps.read()
        assert service.stop() == 0


def test_a_first_start_converts_the_model_and_serves_it(tiny_classifier, tmp_path):
    folder = unprepared(tiny_classifier, tmp_path)
    with started(folder) as service:
        path = Prepared(folder, "--model").path
        assert [line for line in service.lines if "Converting" in line] == [
            f"Converting the model to ONNX: {path}\n"] and os.path.exists(path)
        assert_labels(service)
        assert service.stop() == 0


def test_a_file_of_another_model_is_seen_and_made_again(toys, tmp_path, capfd):
    folder = shutil.copytree(toys["pairs"], str(tmp_path / "model"))
    own, other = Prepared(folder, "--model"), Prepared(toys["classifier"], "--model")
    for ending in ("", ".json"):
        shutil.copy(other.path + ending, own.path + ending)
    assert own.state().name == "other"
    served = serve(folder, engine="onnxruntime")
    assert "label" in answer(served, [Example(("the cat", "a dog"))])[0].entry
    served.close()
    assert "was made with another" in capfd.readouterr().err and own.state().name == "whole"


def test_a_conversion_removes_files_of_other_checkpoints_and_none_of_the_user_or_another_version(toys, tmp_path):
    folder = shutil.copytree(toys["classifier"], str(tmp_path / "model"), ignore=shutil.ignore_patterns("serving-*"))
    own, names = Prepared(folder, "--model"), {}
    for digit, ending, facts in (
            ("a", "", {"version": "1.9"}), ("b", f"-{INT8}", {"version": "1.9", "weights": INT8}),  # another version's
            ("c", "-mine", {"task.json": "old"}), ("d", "", None), ("v1", "", None),  # the user's
            ("e", "", {"task.json": "old"}), ("f", f"-{INT8}", {"task.json": "old", "version": "1.9", "weights": INT8})):
        path = os.path.join(folder, f"serving-{digit * 16 if len(digit) == 1 else digit}{ending}.onnx")
        names[digit] = [os.path.basename(path)]
        open(path, "w").close()
        if facts:
            files.write_json(f"{path}.json", {"facts": {**own.facts, **facts}, "checkpoint": "", "shapes": {}})
            names[digit].append(f"{names[digit][0]}.json")
    own.make()
    left = {name for name in os.listdir(folder) if name.startswith("serving-")}
    assert left == {os.path.basename(own.path + ending) for ending in ("", ".json")}.union(
        *(names[digit] for digit in ("a", "b", "c", "d", "v1")))


@pytest.mark.parametrize("kind", ["classifier", "tagger"])
def test_int8_answers_nearly_as_float32(kind, toys):
    if kind not in toys:
        pytest.skip("onnxruntime 1.10 cannot compute it")
    exact, served = (serve(toys[kind], engine=engine) for engine in ("onnxruntime", "int8"))
    assert (exact.dtype, served.dtype) == ("float32", "int8")
    texts = examples_of(texts_of(served.reader.takes, 20))
    predictions, others = ([each._sessions[0].run(source.fetch(np.arange(20), source.max_length)) for source in (
        each.reader.encode(texts).source,)][0] for each in (exact, served))
    for name, values in predictions.items():
        if values.dtype.kind == "f":
            is_text = np.abs(values) < 100  # not padding
            assert 0 < np.abs(values - others[name])[is_text].max() < 0.3  # a tagger's loss is a sum
    exact.close()
    served.close()


def test_int8_keeps_the_output_layer_and_is_made_of_float32_alone(toys, tmp_path):
    import onnx
    float32, int8 = Prepared(toys["pairs"], "--model"), Prepared(toys["pairs"], "--model", INT8)
    nodes = onnx.load(int8.path).graph.node
    assert any(node.op_type == "MatMulInteger" for node in nodes)
    last = next(node for node in nodes if "logits" in node.output)
    if last.op_type == "Add":
        last = next(node for node in nodes if node.output[0] in last.input)
    assert last.op_type in ("MatMul", "Gemm")
    assert float32.record()["facts"] != int8.record()["facts"]
    with pytest.raises(UserError, match="is int8 already: give the model in float32"):
        onnx_file.quantize(str(tmp_path / "again.onnx"), int8.path)


def test_an_export_holds_the_files_and_says_how_int8_agrees(tiny_classifier, tmp_path, capsys):
    shutil.copytree(str(tiny_classifier), str(tmp_path / "out"))
    data = write_cola(tmp_path / "cola", dev=60)
    run_here(dict(output_dir=tmp_path / "out", task_name="cola", data_dir=data, do_eval=True, do_export=True,
                  export_int8=True, num_cpu_replicas=1))
    said = capsys.readouterr().err
    for name in ("equal answers, labels: ", "eval_loss: ", "eval_accuracy: "):
        assert f"int8 beside float32: {name}" in said
    export = str(tmp_path / "out" / "export")
    for weights in ("float32", "int8"):
        assert Prepared(export, "--model", weights).state().name == "whole"
    with open(os.path.join(export, "README.md"), encoding="utf-8") as file:
        card = file.read()
    assert "## In int8" in card and "equal answers, labels" in card
    served = serve(export, engine="int8")
    assert served.card == card and served.dtype == "int8"
    served.close()
    with ends_with_error(capsys, "--export_int8 needs --do_export"):
        run_here(dict(output_dir=tmp_path / "out", do_eval=True, export_int8=True))


def test_a_file_in_int8_for_others_computes_nearly_the_same(tiny_classifier, tmp_path, capsys):
    import onnxruntime
    shutil.copytree(str(tiny_classifier), str(tmp_path / "out"))
    run_here(dict(output_dir=tmp_path / "out", do_export=True))
    outputs = []
    for name, int8 in (("exact", False), ("int8", True)):
        run_here(dict(from_tensorflow=tmp_path / "out" / "export", to_onnx=tmp_path / name, int8=int8), convert)
        session = onnxruntime.InferenceSession(str(tmp_path / name), providers=["CPUExecutionProvider"])
        outputs.append(session.run(["probabilities"], {
            tensor.name: np.ones((2, 8), np.int64) for tensor in session.get_inputs()})[0])
        weights = session.get_modelmeta().custom_metadata_map.get("weights")
        assert weights == ('"int8"' if int8 else None)
    assert 0 < np.abs(outputs[0] - outputs[1]).max() < 0.05
    with ends_with_error(capsys, "--int8 needs --to_onnx"):
        run_here(dict(from_tensorflow=tmp_path / "out", output_dir=tmp_path / "other", int8=True), convert)


def test_an_engine_that_is_not_installed_is_one_line(toys, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for engine in ("onnxruntime", "int8"):
        with ends_with_error(capsys, f"--engine={engine}: onnxruntime is missing", "pip install"):
            run_here(dict(model=toys["pairs"], port=0, num_cpu_replicas=1, engine=engine), run)
    with ends_with_error(capsys, "--prepare: --engine=tensorflow"):
        run_here(dict(model=toys["pairs"], prepare=True, engine="tensorflow"), run)
