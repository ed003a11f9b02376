"""What a run leaves in its directory: a report page, curves, and an export with a model card."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from commands import run_here
from conftest import checkpoint_values, on_tensorflow_2, sentences, write_cola
from exports import train
from pages import Page
from runs import model_card

NUM_EXAMPLES = 40
HOSTILE = "the cat <b>sees</b> & likes"
TEXTS = [*sentences(NUM_EXAMPLES - 1, 3), HOSTILE]


@pytest.fixture(scope="module")
def cola(tmp_path_factory):
    """The flags of a run whose test set has the dev set's texts."""
    data_dir = tmp_path_factory.mktemp("cola")
    write_cola(data_dir, train=16)
    (data_dir / "dev.tsv").write_text("".join(
        f"x\t{index % 2}\t\t{text}\n" for index, text in enumerate(TEXTS)))
    (data_dir / "test.tsv").write_text("index\tsentence\n" + "".join(
        f"{index}\t{text}\n" for index, text in enumerate(TEXTS)))
    return {"task_name": "cola", "data_dir": data_dir, "num_train_epochs": 2}


@pytest.fixture(scope="module")
def run(tiny_model, cola, tmp_path_factory):
    """The output directory of a training that was evaluated, has predicted and was exported."""
    directory = tmp_path_factory.mktemp("out")
    train(tiny_model, directory, do_train=True, do_eval=True, do_predict=True, do_export=True,
          **cola)
    return directory


@on_tensorflow_2
def test_an_export_is_replaced_whole_by_one_of_the_newest_checkpoint(
        tiny_model, cola, run, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(str(run), str(out))
    run_here(dict(output_dir=out, do_export=True, export_frozen_graph="float32"))
    assert (out / "export" / "frozen_graph.pb").exists()
    first = checkpoint_values(str(out / "export" / "variables" / "variables"))
    train(tiny_model, out, do_train=True, do_export=True, **{**cola, "num_train_epochs": 3})
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


@on_tensorflow_2
def test_the_model_card_says_what_the_run_s_files_say(run):
    card = (run / "export" / "README.md").read_text(encoding="utf-8")
    results = json.loads((run / "eval_results.json").read_text())
    assert card.startswith("# cola: a fine-tuned BERT\n")
    assert "step 4." in card and "One of 2 labels" in card and "0. `0`\n1. `1`\n" in card
    for name in ("eval_accuracy", "eval_loss", "matthews_correlation"):
        assert f"| {name} | {results[name]:.5g} |" in card
    for said in ("| num_examples | 40 |", "| --learning_rate | 0.001 |", "| global batch size | 8 |",
                 "| --optimizer | adamw |", "| --precision | tf32 |",
                 "1 layer, hidden size 16", f"TensorFlow {tf.VERSION}",
                 "python -m runs.predict", "label_index"):
        assert said in card, said
    assert "frozen_graph" not in card


def test_labels_are_text_on_the_card_whatever_they_look_like():
    hostile = "<script>alert(1)</script> `a` | [b](javascript:c)"
    assert model_card._labels([hostile, "plain"])[1:3] == [
        f"0. ``{hostile}``", "1. `plain`"]
    assert model_card._text(hostile) == (
        r"&lt;script&gt;alert(1)&lt;/script&gt; \`a\` \| \[b\](javascript:c)")


@on_tensorflow_2
def test_the_report_shows_the_evaluation_the_settings_and_the_worst_mistakes(run):
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    results = json.loads((run / "eval_results.json").read_text())
    assert results["num_examples"] == NUM_EXAMPLES
    for name in ("eval_accuracy", "eval_loss", "matthews_correlation"):
        assert name in page.text and f"{results[name]:.4f}" in page.text
    for said in ("CPU:0 CPU:1", "--learning_rate", "1 layer, hidden size 16", "adamw",
                 "Examples per second", "peak memory"):
        assert said in page.text

    predicted = (run / "predict.txt").read_text().split()
    wrong = [text for index, text in enumerate(TEXTS) if predicted[index] != str(index % 2)]
    right = set(TEXTS) - set(wrong)
    assert len(wrong) + round(results["eval_accuracy"] * NUM_EXAMPLES) == NUM_EXAMPLES
    shown = [text for text in wrong if text in page.text]
    assert len(shown) >= min(20, len(wrong))
    # A right one may be a part of a wrong one; as a whole line of the page it must not be there.
    lines = {line.strip() for line in page.text.splitlines()}
    assert not lines & right
    assert "b" not in {tag for tag, _ in page.elements}
