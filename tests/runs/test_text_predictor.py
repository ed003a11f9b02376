"""A trained model as a function of texts, beside the command on a file of the same texts."""

import json
import pickle

import pytest

import processes
from commands import run_here
from conftest import sentences, write_cola
from engine.errors import UserError
from runs import predict
from runs.text_predictor import TextPredictor

TEXTS = sentences(9)


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text_predictor")
    run_here({**tiny_model._asdict(), "task_name": "cola", "output_dir": folder / "out",
              "data_dir": write_cola(folder / "cola", train=16), "do_train": True, "max_seq_length": 24,
              "train_batch_size": 4, "num_cpu_replicas": 1, "num_train_epochs": 1})
    return str(folder / "out")


@pytest.fixture(scope="module")
def expected(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    run_here(dict(output_dir=trained, input_file=folder / "texts.txt", header=False,
                  output_file=folder / "found.jsonl", num_cpu_replicas=1), predict)
    return [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]


def assert_same(found, expected):
    assert [each["label"] for each in found] == [each["label"] for each in expected]
    for one, other in zip(found, expected):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


def test_it_answers_as_the_command_whatever_the_size_of_the_list(trained, expected):
    predictor = TextPredictor(trained, num_cpu_replicas=1, precision="float32")
    assert_same(predictor(TEXTS), expected)
    assert_same([predictor([text])[0] for text in TEXTS], expected)
    assert predictor([]) == []
    predictor.close()
    assert_same(predictor(TEXTS[:2]), expected[:2])
    predictor.close()


def test_a_pickled_one_opens_the_model_where_it_is_called(trained, expected):
    predictor = TextPredictor(trained, num_cpu_replicas=1)
    predictor(TEXTS[:1])
    data = pickle.dumps(predictor)
    predictor.close()
    assert len(data) < 1000
    program = ("import json, pickle, sys\n"
               f"predictor = pickle.loads(bytes.fromhex({data.hex()!r}))\n"
               f"print(json.dumps(predictor({TEXTS!r})))\n")
    process = processes.run(["-c", program])
    assert process.returncode == 0, process.stderr
    assert_same(json.loads(process.stdout.splitlines()[-1]), expected)


def test_pairs_for_a_model_of_single_texts_and_a_folder_without_model_are_refused(trained, tmp_path):
    predictor = TextPredictor(trained, num_cpu_replicas=1)
    with pytest.raises(UserError, match="the model takes single texts"):
        predictor([("one", "two")])
    with pytest.raises(UserError, match="no trained"):
        TextPredictor(str(tmp_path))(["one"])
