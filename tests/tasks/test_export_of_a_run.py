"""What `--do_export` leaves in a run's directory: the newest model whole, and a card of the run."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from commands import run_here
from conftest import checkpoint_values, on_tensorflow_1
from exports import cola_flags, train
from runs import model_card


@pytest.fixture(scope="module")
def cola(tmp_path_factory):
    return cola_flags(tmp_path_factory.mktemp("cola"))


@pytest.fixture(scope="module")
def run(tiny_model, cola, tmp_path_factory):
    """The output directory of a training that was evaluated and exported."""
    directory = tmp_path_factory.mktemp("out")
    train(tiny_model, directory, do_train=True, do_eval=True, do_export=True, **cola)
    return directory


@on_tensorflow_1
def test_an_export_is_replaced_whole_by_one_of_the_newest_checkpoint(
        tiny_model, cola, run, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(str(run), str(out))
    run_here(dict(output_dir=out, do_export=True, export_frozen_graph="float32"))
    assert (out / "export" / "frozen_graph.pb").exists()
    first = checkpoint_values(str(out / "export" / "variables" / "variables"))
    train(tiny_model, out, do_train=True, do_export=True, **{**cola, "num_train_epochs": 2})
    second = checkpoint_values(str(out / "export" / "variables" / "variables"))
    assert np.abs(second["output_weights"] - first["output_weights"]).max() > 0
    np.testing.assert_array_equal(second["output_weights"],
                                  checkpoint_values(str(out))["output_weights"])
    assert sorted(os.listdir(str(out / "export"))) == [
        "README.md", "assets.extra", "saved_model.pb", "variables"]
    assert sorted(os.listdir(str(out / "export" / "assets.extra"))) == [
        "bert_config.json", "task.json", "tokenizer_config.json", "vocab.txt"]
    assert [name for name in os.listdir(str(out)) if "export" in name] == ["export"]
    # The evaluation was of the earlier checkpoint.
    assert "not evaluated" in (out / "export" / "README.md").read_text(encoding="utf-8")


def test_the_model_card_says_what_the_run_s_files_say(run):
    card = (run / "export" / "README.md").read_text(encoding="utf-8")
    results = json.loads((run / "eval_results.json").read_text())
    assert card.startswith("# cola: a fine-tuned BERT\n")
    assert "step 2." in card and "One of 2 labels" in card and "0. `0`\n1. `1`\n" in card
    for name in ("eval_accuracy", "eval_loss", "matthews_correlation"):
        assert f"| {name} | {results[name]:.5g} |" in card
    for said in ("| num_examples | 9 |", "| --learning_rate | 0.001 |", "| global batch size | 8 |",
                 "| --optimizer | adamw |", "| --precision | tf32 |",
                 "1 layer, hidden size 16", f"| TensorFlow | {tf.VERSION} |",
                 "python -m runs.predict", "label_index"):
        assert said in card, said
    assert "frozen_graph" not in card


def test_labels_are_text_on_the_card_whatever_they_look_like():
    hostile = "<script>alert(1)</script> `a` | [b](javascript:c)"
    assert model_card._labels([hostile, "plain"])[1:3] == [
        f"0. ``{hostile}``", "1. `plain`"]
    row, = model_card._table(["label"], [[hostile]])[2:-1]
    assert row == (r"| &lt;script&gt;alert(1)&lt;/script&gt; \`a\` \| \[b\](javascript:c) |")
