"""What tests share: several CPU devices in this process, a tiny model, a small task."""

import importlib
import json
import os
import random
import signal
import sys
from typing import NamedTuple

import numpy as np
import pytest
from absl import flags as absl_flags

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
sys.path.insert(0, os.path.join(ROOT, "tests", "helpers"))

from engine.devices import devices, runtime  # noqa: E402

import tensorflow.compat.v1 as tf  # noqa: E402

# Before anything else: TensorFlow 2 makes logical devices once in a process.
runtime.session_config(num_cpu_devices=4)

SHARED_DATA = os.path.join(os.path.dirname(ROOT), "shared", "data")
WORDS = ("the a cat dog bird tree house river sees likes finds old small green and or not "
         "quickly slowly today ##s ##ed un ##like . , ? !").split()
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]


# Of tests that show the same on either runtime; slow.txt says so of slow ones.
on_tensorflow_1, on_tensorflow_2 = (
    pytest.mark.skipif(runtime.IS_TENSORFLOW_1 != wanted, reason="the other runtime tries it")
    for wanted in (True, False))


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes over a second; scripts/test.sh --fast omits it")


def pytest_collection_modifyitems(items):
    """Marks the tests of slow.txt as slow. A line is a file or a test, and may name the only runtime that tries it."""
    with open(os.path.join(ROOT, "tests", "slow.txt"), encoding="utf-8") as file:
        lines = [line.rstrip("\n").partition(" ")[::2] for line in file]
    slow = dict(lines)
    assert len(slow) == len(lines), "slow.txt has a name twice"
    other = "2.15" if runtime.IS_TENSORFLOW_1 else "1.15"
    for item in items:
        path = os.path.relpath(str(item.fspath), os.path.join(ROOT, "tests"))
        for name in {path, f"{path}::{item.originalname}"} & slow.keys():
            item.add_marker(pytest.mark.slow)
            if slow[name] == other:
                item.add_marker(pytest.mark.skip(reason="the other runtime tries it"))


class TinyModel(NamedTuple):
    """A model's files, as a user has them."""
    vocab_file: str
    bert_config_file: str
    init_checkpoint: str

    def config(self, **changes):
        from modeling import BertConfig
        with open(self.bert_config_file) as file:
            return BertConfig.from_dict({**json.load(file), **changes})

    def with_config(self, path, **changes) -> "TinyModel":
        """The model with another configuration, which is written."""
        path.write_text(self.config(**changes).to_json_string())
        return self._replace(bert_config_file=str(path))

    def encoding(self, max_seq_length=24, do_lower_case=True):
        from encoder.encoding import load_encoding
        return load_encoding(self.vocab_file, do_lower_case=do_lower_case,
                             max_seq_length=max_seq_length, vocab_size=self.config().vocab_size)


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def alarm():
    """What hangs fails."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> TinyModel:
    """1 layer, hidden 16.

    Of the last layer a classifier computes the first position alone: a test that is about layers
    takes `two_layers`.
    """
    return write_tiny_model(tmp_path_factory.mktemp("tiny_model"), num_hidden_layers=1)


@pytest.fixture(scope="session")
def two_layers(tmp_path_factory) -> TinyModel:
    """As `tiny_model`, with one more layer."""
    return write_tiny_model(tmp_path_factory.mktemp("two_layers"), num_hidden_layers=2)


def write_config(directory, dropout: float = 0.0, **changes) -> TinyModel:
    """Writes a vocabulary and a configuration; returns the model, whose checkpoint is not there."""
    (directory / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCAB))
    (directory / "bert_config.json").write_text(json.dumps(dict(
        vocab_size=len(VOCAB), hidden_size=16, num_attention_heads=2, intermediate_size=32,
        hidden_act="gelu", hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        max_position_embeddings=40, type_vocab_size=2, initializer_range=0.2, **changes)))
    return TinyModel(*(str(directory / name) for name in (
        "vocab.txt", "bert_config.json", "bert_model.ckpt")))


def write_tiny_model(directory, num_hidden_layers: int) -> TinyModel:
    """Writes random weights that are large enough for gradients to be clipped."""
    from modeling import BertModel
    model = write_config(directory, num_hidden_layers=num_hidden_layers)
    with tf.Graph().as_default(), plain_session() as session:
        tf.set_random_seed(1)
        BertModel(model.config(), False, tf.zeros([1, 4], tf.int32))
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, model.init_checkpoint, write_meta_graph=False,
                              write_state=False)
    return model


@pytest.fixture(scope="session")
def tiny_classifier(two_layers, tmp_path_factory):
    """The output directory of a model of two layers, trained for 12 steps on `write_cola`'s task."""
    from commands import on_cola, run_here
    directory = tmp_path_factory.mktemp("tiny_classifier")
    run_here(on_cola(two_layers, directory, num_train_epochs=2, learning_rate=1e-3, output_dir=directory))
    return directory


@pytest.fixture(scope="session")
def with_head(tiny_model, tmp_path_factory) -> str:
    """The checkpoint of `tiny_model` with a head of two outputs, so that nothing is drawn."""
    from engine.checkpoints import checkpoints
    prefix = str(tmp_path_factory.mktemp("with_head") / "model.ckpt")
    checkpoints.write_checkpoint(prefix, {
        **checkpoint_values(tiny_model.init_checkpoint), "output_bias": np.zeros(2, np.float32),
        "output_weights": 0.2 * np.random.RandomState(0).randn(2, 16).astype(np.float32)})
    return prefix


@pytest.fixture(scope="session")
def source(tiny_model, tmp_path_factory):
    """200 examples of `write_cola`'s task, for a training."""
    from trainings import training_source
    return training_source(tiny_model, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def models(tiny_model, tiny_classifier, tmp_path_factory):
    """Models made by the commands from one another; a test that changes one makes a copy."""
    from models_of_commands import make_all
    return make_all(tiny_model, tiny_classifier, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    from browser import Browser
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def sentences(count: int, seed: int = 0):
    """Made-up sentences of 1 to 20 words."""
    generator = random.Random(seed)
    words = [word for word in WORDS if not word.startswith("##")]
    return [" ".join(generator.choice(words) for _ in range(generator.randint(1, 20)))
            for _ in range(count)]


def write_cola(directory, *, train: int = 0, dev: int = 0, test: int = 0) -> str:
    """A task in CoLA's layout; the label says whether the sentence has a cat in it."""
    os.makedirs(directory, exist_ok=True)
    for name, count, seed in (("train", train, 1), ("dev", dev, 2)):
        rows = [f"x\t{int('cat' in text)}\t\t{text}\n" for text in sentences(count, seed)]
        with open(os.path.join(directory, f"{name}.tsv"), "w") as file:
            file.writelines(rows)
    with open(os.path.join(directory, "test.tsv"), "w") as file:
        file.write("index\tsentence\n")
        file.writelines(f"{i}\t{text}\n" for i, text in enumerate(sentences(test, 3)))
    return str(directory)


def plain_session() -> tf.Session:
    """A session that runs a graph as it was built, as those of trainings do.

    By default TensorFlow looks for a better graph at the first run of each operation, for example
    55 times where the values of a small model are loaded.
    """
    return tf.Session(config=runtime.session_config())


def cpu_devices(num_replicas: int) -> devices.Devices:
    return devices.find_devices(devices.DeviceSettings(num_cpu_replicas=num_replicas))


def googles(name: str):
    """Google's module `bert.<name>`, for its functions; skips where the package is not."""
    pytest.importorskip("bert", reason="Google's package runs on TensorFlow 1.15 only")
    _forget_googles_flags()
    module = importlib.import_module(f"bert.{name}")
    _forget_googles_flags()
    return module


def _forget_googles_flags() -> None:
    """Its scripts define flags of the same names when they are imported: no two can be."""
    for module, defined in list(absl_flags.FLAGS.flags_by_module_dict().items()):
        if module.startswith("bert."):
            for flag in list(defined):
                delattr(absl_flags.FLAGS, flag.name)


def checkpoint_values(directory_or_prefix: str):
    """Every tensor of a (newest) checkpoint."""
    reader = tf.train.load_checkpoint(directory_or_prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_same_training(expected, actual):
    """Variables to 1e-5, slots to 1e-4 of a tensor's largest value or 1e-7, as agreed on."""
    assert sorted(expected) == sorted(actual)
    for name, value in expected.items():
        if name.endswith(("adam_m", "adam_v")):
            tolerance = max(1e-4 * np.abs(value).max(), 1e-7)
        else:
            tolerance = 1e-5
        difference = np.abs(value - actual[name]).max()
        assert difference <= tolerance, (name, difference, tolerance)
