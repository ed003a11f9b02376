"""The flags of run_classifier.py: the original's and ours, explained, and errors that name them."""

import json
import re
import subprocess
import sys

import pytest
from absl import flags as absl_flags

import run_classifier
from commands import run_command
from engine import inference
from engine.cli import command


def test_a_misspelt_flag_is_an_error_that_names_the_nearest_one():
    process = run_command("--num_gpu=2", "--do_train")
    assert process.returncode == 2
    assert "num_gpu'. Did you mean: num_gpus" in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr


def test_help_explains_every_flag_and_shows_how_to_call_the_command():
    process = run_command("--help")
    assert process.returncode == 0
    assert "python run_classifier.py --task_name=cola" in process.stdout
    for name in run_classifier.define_flags():
        assert re.search(rf"^  --(\[no\])?{name}:", process.stdout, re.M), name


def test_an_argument_that_is_no_flag_is_an_error(capsys):
    with pytest.raises(SystemExit) as exit_status:
        command.run(run_classifier.main, run_classifier.define_flags(), usage="",
                    argv=["run_classifier.py", "train"])
    assert exit_status.value.code == 2
    assert capsys.readouterr().err.startswith("error: Unexpected argument 'train'")


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
