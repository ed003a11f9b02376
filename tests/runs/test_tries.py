"""Several tries in one command: each as by itself, the best is kept, an interrupted search goes on."""

import json
import os
import re
import shutil
import statistics

import numpy as np
import pytest

import toy_runs
from commands import ends_with_error, on_cola, results_of, run_here
from conftest import checkpoint_values
from engine.checkpoints import checkpoints
from pages import Page
from runs.text_predictor import TextPredictor
from trainings import crash_after

RATES, SEEDS = ("0.001", "0.01"), ("3", "5")
NAMES = [f"lr-{rate}_seed-{seed}" for rate in RATES for seed in SEEDS]


@pytest.fixture(scope="module")
def flags(tiny_model, tmp_path_factory):
    """The flags of a search. A try has 6 steps of 8 examples."""
    folder = tmp_path_factory.mktemp("search")
    return on_cola(
        tiny_model, folder, dev=21, test=5, store_dir=folder / "store", train_batch_size=4, num_cpu_replicas=2,
        do_eval=True, do_predict=True, metric_for_best="eval_loss", eval_every_steps=3, seeds=",".join(SEEDS),
        learning_rates=",".join(RATES))


@pytest.fixture(scope="module")
def searched(flags):
    run_here(flags)
    return flags["output_dir"]


def best_of(out):
    return min(NAMES, key=lambda name: results_of(out / "tries" / name)["eval_loss"])


def test_the_results_are_those_of_all_tries(searched):
    results, tries = results_of(searched), [results_of(searched / "tries" / name) for name in NAMES]
    assert [row["try"] for row in results["tries"]] == NAMES
    for metric, best, worst in (("eval_loss", min, max), ("eval_accuracy", max, min)):
        values = [each[metric] for each in tries]
        assert [row[metric] for row in results["tries"]] == pytest.approx(values)
        for name, function in (("mean", statistics.mean), ("deviation", statistics.stdev),
                               ("best", best), ("worst", worst)):
            assert results[f"{metric}_{name}"] == pytest.approx(function(values))
    assert results["eval_loss"] == results["eval_loss_best"]
    page = (searched / "report.html").read_text(encoding="utf-8")
    rows = Page(page).rows
    assert [row[0] for row in rows if row[:1] and row[0] in NAMES] == NAMES
    tiles = re.search('<dl class="metrics">(.*?)</dl>', page, re.DOTALL).group(1).replace("<wbr>", "")
    assert re.findall("<dt>(.*?)</dt>", tiles) == ["eval_accuracy", "matthews_correlation", "eval_loss"]
    assert rows[0] == ["metric", "best", "mean", "deviation", "worst"]
    for row in rows[1:4]:
        assert row[1:] == [f"{results[f'{row[0]}_{of}']:.4f}" for of in rows[0][1:]]


def test_only_the_best_is_kept_and_ends_as_a_command_of_its_own(
        flags, searched, tmp_path, capsys):
    best = best_of(searched)
    for name in NAMES:
        assert bool(checkpoints.latest(str(searched / "tries" / name))) == (name == best)
    kept = checkpoint_values(str(searched / "tries" / best))
    np.testing.assert_equal(checkpoint_values(str(searched)), kept)
    rate, seed = best[len("lr-"):].split("_seed-")
    run_here(dict(flags, seeds=None, learning_rates=None, seed=seed, learning_rate=rate,
                  output_dir=tmp_path))
    expected, of_search = results_of(tmp_path), results_of(searched)
    assert {name: of_search[name] for name in expected} == expected
    for name in ("test_results.tsv", "predict.txt"):
        assert (tmp_path / name).read_bytes() == (searched / name).read_bytes()
    with ends_with_error(capsys, "a model of a single training", "--output_dir"):
        run_here(dict(flags, output_dir=tmp_path))
    record = json.loads((searched / "run.json").read_text())
    shutil.copytree(str(searched), str(tmp_path / "out"))
    record["settings"]["--num_train_epochs"] = 2.0  # a command of its own has trained it further
    (tmp_path / "out" / "run.json").write_text(json.dumps(record))
    with ends_with_error(capsys, "a model of a single training", "--output_dir"):
        run_here(dict(flags, output_dir=tmp_path / "out"))


def test_a_finished_search_trains_only_what_is_new(flags, searched, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(str(searched), str(out))
    capsys.readouterr()
    run_here(dict(flags, output_dir=out, do_predict=False))
    assert (out / "test_results.tsv").exists()  # they are this model's
    said = capsys.readouterr().err
    assert "Training on" not in said and "_deviation" not in said, "it is a column"
    assert re.search("^metric +best +mean +deviation +worst\neval_accuracy ", said, re.M)
    assert results_of(out) == results_of(searched)
    run_here(dict(flags, output_dir=out, seeds="3,5,6"))
    assert capsys.readouterr().err.count("Training on") == 2  # the new seed at each rate
    assert len(results_of(out)["tries"]) == 6


def test_a_smaller_search_trains_its_best_again_if_its_weights_are_gone(
        flags, searched, tmp_path, capsys):
    out, best = tmp_path / "out", best_of(searched)
    shutil.copytree(str(searched), str(out))
    other = next(name for name in NAMES if name != best)
    (out / "ensemble.json").write_text(json.dumps({"members": NAMES}))  # as of version 1.0.0
    answers, expected = (TextPredictor(str(each), num_cpu_replicas=1)(["the cat"]) for each in (out, searched))
    assert answers == expected
    assert "ensemble.json names several tries, and the best alone predicts" in capsys.readouterr().err
    rate, seed = other[len("lr-"):].split("_seed-")
    capsys.readouterr()
    run_here(dict(flags, output_dir=out, seeds=seed, learning_rates=rate, do_predict=False))
    assert not (out / "test_results.tsv").exists()  # they were another model's
    said = capsys.readouterr().err
    assert "it is trained again" in said and "ensemble.json" not in said
    better = results_of(searched / "tries" / best)["eval_loss"]
    assert f"{best}, of an earlier search, has eval_loss {better:.4f}, and the best of this one" in said
    assert results_of(out)["eval_loss"] == results_of(searched / "tries" / other)["eval_loss"]


def test_an_interrupted_search_ends_like_an_undisturbed_one(flags, searched, tmp_path, capsys):
    flags = dict(flags, learning_rates=RATES[0], do_predict=None)
    with crash_after(3):
        run_here(dict(flags, output_dir=tmp_path / "out"))
    capsys.readouterr()
    run_here(dict(flags, output_dir=tmp_path / "out"))
    assert "Resuming from" in capsys.readouterr().err
    assert results_of(tmp_path / "out")["tries"] == results_of(searched)["tries"][:len(SEEDS)]
    with ends_with_error(capsys, "is a try with another --num_train_epochs: was 1", "--output_dir"):
        run_here(dict(flags, output_dir=tmp_path / "out", num_train_epochs=2))
    shutil.rmtree(str(tmp_path / "out" / "tries" / NAMES[1]))
    other = dict(flags, output_dir=tmp_path / "out", num_cpu_replicas=1)
    with ends_with_error(capsys, "a try with another global batch size: was 8, now 4", "set --allow_batch_change"):
        run_here(other)
    run_here(dict(other, allow_batch_change=True))
    said = capsys.readouterr().err
    assert said.count("Training on") == 1 and "Training on CPU:0: 1 replica x 4 = 4 examples per step" in said


def test_a_search_keeps_its_dev_set(searched, flags, tmp_path, capsys):
    out, data = tmp_path / "out", tmp_path / "data"
    shutil.copytree(str(searched), str(out))
    shutil.copytree(str(flags["data_dir"]), str(data))
    dev = (data / "dev.tsv").read_text().splitlines(True)
    (data / "dev.tsv").write_text("".join(dev[:-1]))
    other = dict(flags, output_dir=out, data_dir=data, do_predict=None)
    before = results_of(out)
    with ends_with_error(capsys, f"{NAMES[0]} is a training that another dev set has judged", "another --output_dir"):
        run_here(dict(other, seeds="7"))  # of the same folder
    assert results_of(out) == before
    for name in NAMES:  # as version 2.0.0 wrote it
        path = out / "tries" / name / "run.json"
        path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "dev_set"}))
    run_here(other)
    assert "Training on" not in capsys.readouterr().err
    begun = dict(flags, output_dir=tmp_path / "begun", do_predict=None, eval_every_steps=None, metric_for_best=None,
                 save_checkpoints_steps=3)
    with crash_after(3):  # in its first try
        run_here(begun)
    with ends_with_error(capsys, f"{NAMES[0]} is a training that another dev set has judged"):
        run_here(dict(begun, data_dir=data))


@pytest.mark.parametrize("changes, parts", (
    (dict(do_eval=None, do_predict=None), ("--seeds", "--do_eval")),
    (dict(seed=3), ("--seeds and --seed exclude",)),
    (dict(learning_rate=1e-3), ("--learning_rates and --learning_rate exclude",)),
    (dict(seeds="1,x"), ("--seeds=1,x", "whole numbers")),
    (dict(seeds="1,1"), ("--seeds=1,1", "different")),
    (dict(seeds=None, num_seeds=0), ("--num_seeds=0",)),
    (dict(learning_rates="0.1,nan"), ("--learning_rates=0.1,nan", "greater than 0")),
    (dict(learning_rates=""), ("--learning_rates=",))))
def test_flags_that_make_no_search_are_refused(changes, parts, flags, tmp_path, capsys):
    with ends_with_error(capsys, *parts):
        run_here({**flags, "output_dir": tmp_path / "out", **changes})
    assert not os.path.exists(str(tmp_path / "out"))


def test_other_commands_search_too(tiny_model, tmp_path):
    toy_runs.train("similarity.run", tmp_path, tiny_model, do_eval=True, num_seeds=2, num_train_epochs=0.5)
    results = results_of(tmp_path / "similarity.run")
    assert [row["try"] for row in results["tries"]] == ["lr-0.001_seed-42", "lr-0.001_seed-43"]
    assert results["mrr_at_10"] == results["mrr_at_10_best"] >= results["mrr_at_10_mean"]
