"""The first 20 losses of toy runs are those in golden_losses.json: training is what it was.

Each capability that trains runs through its command, on two replicas with dropout. CONTRIBUTING.md
says how the file is written anew.
"""

import importlib
import json
import os

import numpy as np

from golden import GOLDEN, RUNTIME, losses_of, read_golden
from reproducible_model import write_model
from scripts.flags_page import commands
from toy_runs import RUNS, STEPS, train


def test_every_command_that_trains_has_a_toy_run():
    training = {name for name in commands()
                if "do_train" in importlib.import_module(name).define_flags()}
    assert {run.split(" ")[0] for run in RUNS} == training


def test_a_run_has_the_losses_that_it_always_had(tmp_path):
    model, losses_of_runs = write_model(tmp_path / "model"), {}
    for run in RUNS:
        train(run, tmp_path, model)
        losses_of_runs[run] = losses_of(tmp_path / run)
    if os.environ.get("WRITE_GOLDEN_LOSSES"):
        golden = {**(read_golden() if os.path.exists(GOLDEN) else {}), RUNTIME: losses_of_runs}
        with open(GOLDEN, "w", encoding="utf-8") as file:
            file.write(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    golden = read_golden()[RUNTIME]
    assert sorted(losses_of_runs) == sorted(golden)
    for run, losses in losses_of_runs.items():
        # Processors add up in other orders, and the steps carry the differences on.
        np.testing.assert_allclose(losses, golden[run], rtol=1e-4, err_msg=run)
        assert len(set(losses)) == STEPS, f"{run}: a training that moves nothing proves nothing"
