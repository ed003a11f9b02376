"""The report page of a real run says what the run's files say."""

import json

import pytest

from commands import run_here
from conftest import sentences, write_cola
from pages import Page

NUM_EXAMPLES = 40
HOSTILE = "the cat <b>sees</b> & likes"


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """The output directory of a run whose test set has the dev set's texts, and those texts."""
    data_dir = tmp_path_factory.mktemp("cola")
    write_cola(data_dir, train=16)
    texts = [*sentences(NUM_EXAMPLES - 1, 3), HOSTILE]
    (data_dir / "dev.tsv").write_text("".join(
        f"x\t{index % 2}\t\t{text}\n" for index, text in enumerate(texts)))
    (data_dir / "test.tsv").write_text("index\tsentence\n" + "".join(
        f"{index}\t{text}\n" for index, text in enumerate(texts)))
    output_dir = tmp_path_factory.mktemp("run")
    run_here({**tiny_model._asdict(), "task_name": "cola", "data_dir": data_dir,
              "output_dir": output_dir, "do_train": True, "do_eval": True, "do_predict": True,
              "max_seq_length": 24, "train_batch_size": 4, "num_cpu_replicas": 2,
              "num_train_epochs": 2, "learning_rate": 1e-3})
    return output_dir, texts


def test_it_shows_the_evaluation_the_settings_and_the_worst_mistakes(run):
    output_dir, texts = run
    page = Page((output_dir / "report.html").read_text(encoding="utf-8"))
    results = json.loads((output_dir / "eval_results.json").read_text())
    assert results["num_examples"] == NUM_EXAMPLES
    for name in ("eval_accuracy", "eval_loss", "matthews_correlation"):
        assert name in page.text and f"{results[name]:.4f}" in page.text
    for said in ("CPU:0 CPU:1", "--learning_rate", "1 layer, hidden size 16", "adamw",
                 "Model TFLOP/s", "peak memory"):
        assert said in page.text

    predicted = (output_dir / "predict.txt").read_text().split()
    wrong = [text for index, text in enumerate(texts) if predicted[index] != str(index % 2)]
    right = set(texts) - set(wrong)
    assert len(wrong) + round(results["eval_accuracy"] * NUM_EXAMPLES) == NUM_EXAMPLES
    shown = [text for text in wrong if text in page.text]
    assert len(shown) >= min(20, len(wrong))
    # A right one may be a part of a wrong one; as a whole line of the page it must not be there.
    lines = {line.strip() for line in page.text.splitlines()}
    assert not lines & right
    assert "b" not in {tag for tag, _ in page.elements}


def test_evaluations_are_curves_for_tensorboard(run):
    from engine.training import summaries
    history = summaries.read_history(str(run[0] / "eval"))
    results = json.loads((run[0] / "eval_results.json").read_text())
    step, accuracy = history["eval_accuracy"][-1]
    assert step == results["global_step"] == 4
    assert accuracy == pytest.approx(results["eval_accuracy"])
