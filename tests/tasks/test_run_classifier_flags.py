"""The flags of run_classifier.py: the original's and ours, explained, and errors that name them."""

import json
import subprocess
import sys

import pytest
from absl import flags as absl_flags

import run_classifier
from commands import ends_with_error
from engine import inference
from engine.cli import command


def test_an_argument_that_is_no_flag_is_an_error(capsys):
    with ends_with_error(capsys, "error: Unexpected argument 'train'"):
        command.run(run_classifier.main, run_classifier.define_flags(), usage="",
                    argv=["run_classifier.py", "train"])


PRINT_GOOGLES_FLAGS = """
import json
from absl import flags
import bert.run_classifier
print(json.dumps([[flag.name, flag.default, flag.flag_type()] for flag
                  in flags.FLAGS.flags_by_module_dict()["bert.run_classifier"]]))
"""


def test_all_flags_of_the_original_are_there_with_its_defaults():
    pytest.importorskip("bert", reason="Google's package runs on TensorFlow 1.15 only")
    # In a process of its own: its scripts define flags of the same names.
    theirs = json.loads(subprocess.check_output(
        [sys.executable, "-c", PRINT_GOOGLES_FLAGS], stderr=subprocess.DEVNULL))
    ours = run_classifier.define_flags()
    assert len(theirs) > 20
    for name, default, flag_type in theirs:
        own = ours[name].default
        if name in ("eval_batch_size", "predict_batch_size"):  # on cards, as many as have 16,000 tokens
            assert own is None
            own = inference.CPU_BATCH_SIZE
        assert own == default, name
        assert ours[name].flag_type() == flag_type, name


def test_importing_the_command_defines_no_flag_of_the_process():
    assert "num_gpus" not in absl_flags.FLAGS and "replicas_per_gpu" not in absl_flags.FLAGS
    assert run_classifier.define_flags()["seed"].default == 42
