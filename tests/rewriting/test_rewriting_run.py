"""`python -m rewriting.run`: slots are ranked."""

import json

import numpy as np
import pytest

from commands import ends_with_error, results_in
from conftest import on_tensorflow_2
from rewriting import evaluation
from rewriting.slot_files import SlotExample
from rewriting_files import create_here, made_up_texts, run_here, write_slots


@pytest.fixture(scope="module")
def slots_dir(tmp_path_factory):
    """The sets of 60 texts."""
    folder = tmp_path_factory.mktemp("slots")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in made_up_texts(60)))
    create_here(input_file=folder / "texts.txt", output_dir=folder, num_negatives=3,
                num_eval_negatives=6, dev_fraction=0.2, test_fraction=0.2)
    return folder


def test_the_ranking_is_the_mean_over_all_orders_of_phrases_with_equal_scores():
    counts, fitting = [4, 1, 12, 3, 5, 2], [1, 1, 1, 0, 1, 1]
    generator = np.random.RandomState(0)
    scores = generator.randint(0, 4, sum(counts)).astype(float)
    reciprocals, before, others, recalled = [], 0, 0, {count: [] for count in (1, 5, 10)}
    start = 0
    for count, fits in zip(counts, fitting):
        mine, start = scores[start:start + count], start + count
        if not fits or count == 1:
            continue
        higher, equal = (mine > mine[0]).sum(), (mine[1:] == mine[0]).sum()
        ranks = [higher + place for place in range(1, equal + 2)]  # each as likely
        reciprocals.append(np.mean([1 / rank for rank in ranks]))
        before += np.mean([count - rank for rank in ranks])
        others += count - 1
        for limit in recalled:
            recalled[limit].append(np.mean([rank <= limit for rank in ranks]))
    found = evaluation.rank(np.array(counts), np.array(fitting), scores)
    assert found == pytest.approx({
        "mean_reciprocal_rank": np.mean(reciprocals), "pair_accuracy": before / others,
        **{f"recall_at_{limit}": np.mean(values) for limit, values in recalled.items()}})


@on_tensorflow_2
def test_a_scorer_is_trained_evaluated_on_the_way_and_ranked(tiny_model, slots_dir, tmp_path):
    run_here(tiny_model, slots_dir, tmp_path, do_train=True, do_eval=True, do_test=True,
             eval_each_epoch=True)
    results = results_in(tmp_path)
    for name in ("eval_accuracy", "eval_loss", *evaluation.METRICS):
        assert name in results and name + "_test" in results
    details = json.loads((tmp_path / "eval_results.json").read_text())
    for suffix, name in (("", "dev"), ("_test", "test")):
        count = len((slots_dir / f"{name}.jsonl").read_text().splitlines())
        assert (details["num_slots" + suffix], details["num_pairs" + suffix]) == (count, 7 * count)
    evaluations = json.loads((tmp_path / "evaluations.json").read_text())
    assert evaluations["metric"] == "mean_reciprocal_rank"
    assert evaluations["evaluations"][-1]["eval_loss"] == pytest.approx(results["eval_loss"])
    # The same model, ranked anew on another number of replicas.
    run_here(tiny_model, slots_dir, tmp_path, do_eval=True, num_cpu_replicas=3, eval_batch_size=2)
    assert results_in(tmp_path)["eval_loss"] == pytest.approx(results["eval_loss"], rel=1e-5)


@pytest.mark.parametrize("flags, words", [
    ({"do_train": False}, ("--do_train", "--do_test")),
    ({"data_dir": "nowhere"}, ("--data_dir=nowhere",)),
    ({"max_seq_length": 4}, ("--max_seq_length=4", "5")),
    ({"dev_file": "alone.jsonl", "do_eval": True}, ("alone.jsonl", "nothing to rank")),
    ({"train_file": "long.jsonl"}, ("long.jsonl", "--max_seq_length=32")),
    ({"metric_for_best": "f1", "eval_each_epoch": True, "do_eval": True},
     ("--metric_for_best=f1", "recall_at_10")),
    ({"do_train": False, "do_eval": True}, ("output_weights", "--do_train")),
    ({"do_train": False, "do_test": True, "init_checkpoint": None, "bert_config_file": None},
     ("--output_dir=", "out has no trained model", "--init_checkpoint")),
])
def test_wrong_input_is_one_line(flags, words, tiny_model, slots_dir, tmp_path, monkeypatch,
                                 capsys):
    monkeypatch.chdir(tmp_path)
    write_slots(tmp_path / "alone.jsonl", [SlotExample("a ", ".", ("cat",), 1)])
    write_slots(tmp_path / "long.jsonl", [SlotExample("a ", ".", ("cat " * 40,), 1)])
    with ends_with_error(capsys, *words):
        run_here(tiny_model, **{"slots_dir": slots_dir, "output_dir": tmp_path / "out",
                                "do_train": True, **flags})
