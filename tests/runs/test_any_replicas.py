"""Every training steps alike on one replica, and on two with two micro-batches each."""

import numpy as np

from commands import run_here
from conftest import (assert_same_training, checkpoint_values, on_tensorflow_2,
                      write_tiny_model)
from golden import losses_of
from toy_runs import RUNS, STEPS, flags_of, module_of


@on_tensorflow_2  # of the capabilities' losses; how a runtime adds up is tried with one, on both
def test_1x8_and_2x2x2_end_with_the_same_variables_slots_step_and_losses(tmp_path):
    (tmp_path / "model").mkdir()
    model = write_tiny_model(tmp_path / "model", num_hidden_layers=1)
    for run in RUNS:
        flags = {**flags_of(run, tmp_path, model), "learning_rate": 5e-5}
        one, two = tmp_path / run, tmp_path / "other" / run
        run_here({**flags, "num_cpu_replicas": 1, "train_batch_size": 8}, module_of(run))
        run_here({**flags, "train_batch_size": 2, "gradient_accumulation_steps": 2,
                  "output_dir": two}, module_of(run))
        assert_same_training(checkpoint_values(str(one)), checkpoint_values(str(two)))
        np.testing.assert_allclose(losses_of(two), losses_of(one), rtol=1e-5, err_msg=run)
        assert len(set(losses_of(one))) == STEPS, "a training that moves nothing proves nothing"
