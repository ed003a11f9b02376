"""Proves that the shell scripts find a Python that works, and say in one line where none does."""

import os
import re
import shutil
import sys

import pytest
from conftest import ROOT, on_tensorflow_1, write_cola
from masked_lm import write_tiny_masked_lm
from noise_of_commands import noise
from rewriting_files import made_up_texts
from shell_scripts import TOOLS, assert_one_error_line, run
from shell_scripts import bare_machine_fixture, forking_python_fixture  # noqa: F401 (fixtures)

STARTS = "Starting TensorFlow"  # the first line of a recipe, before it waits
RECIPES = ("scripts/quickstart.sh", "scripts/distill.sh")
pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="needs a POSIX shell")


def install_python(machine, name, text):
    path = os.path.join(machine["PATH"], name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def test_a_machine_without_python_gets_one_line_that_says_what_to_install(bare_machine):
    result = run(bare_machine, "source scripts/environment.sh; use_environment")
    assert_one_error_line(result, "install Python 3.11", "3.7 for TensorFlow 1.15", "uv", "PYTHON=")


def test_a_shim_that_leads_nowhere_is_passed_over(bare_machine):
    install_python(bare_machine, "python3.11", "#!/bin/sh\nexit 127\n")
    result = run(bare_machine, "source scripts/environment.sh; find_python 3.11 3.10 || echo none")
    assert result.stdout == "none\n"


def test_an_interpreter_is_found_by_its_version_on_the_path_or_in_pyenv(bare_machine, tmp_path):
    version = "{}.{}".format(*sys.version_info)
    folder = tmp_path / ".pyenv" / "versions" / f"{version}.99" / "bin"
    folder.mkdir(parents=True)
    real = folder / f"python{version}"
    real.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    real.chmod(0o755)
    find = f"source scripts/environment.sh; find_python 3.1 {version}"
    assert run(bare_machine, find).stdout == f"{real}\n"
    install_python(bare_machine, f"python{version}", real.read_text())
    assert run(bare_machine, find).stdout == f"{tmp_path / f'python{version}'}\n"


@on_tensorflow_1
def test_an_environment_that_has_tensorflow_is_used_as_it_is(bare_machine):
    result = run(bare_machine, "source scripts/environment.sh; use_environment; echo $python",
                 PYTHON=sys.executable)
    assert (result.returncode, result.stdout) == (0, f"{sys.executable}\n"), result.stderr


@pytest.mark.parametrize("version, is_supported", [("1.15", True), ("2.15", True), ("2.16", False)])
def test_a_supported_tensorflow_is_known_before_it_starts(bare_machine, tmp_path, version, is_supported):
    package = tmp_path / "tensorflow"
    header = package / "include" / "tensorflow" / "core" / "public" / "version.h"
    header.parent.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('it starts')")
    header.write_text("#define TF_MAJOR_VERSION {}\n#define TF_MINOR_VERSION {}\n".format(*version.split(".")))
    result = run(bare_machine, f"source scripts/environment.sh; has_supported_tensorflow {sys.executable}",
                 PYTHONPATH=str(tmp_path))
    assert (result.returncode == 0) == is_supported


def test_a_recipe_knows_a_folder_by_what_its_files_hold(tmp_path):
    """Labels swapped by an archive with fixed times are other data; a copy's times are nothing."""
    data, flag = tmp_path / "data", tmp_path / "rows.tsv"
    (data / "assets").mkdir(parents=True)

    def fingerprint():
        return run(os.environ, f"source scripts/inputs.sh; fingerprint {data} "
                   f"--train_file={flag} '' --seed=1").stdout

    def write(path, text, time=(5, 5)):
        path.write_text(text)
        os.utime(str(path), time)
        return fingerprint()

    known = [write(data / "train.tsv", "a\t1\n"), write(data / "train.tsv", "a\t0\n"),
             write(data / "assets" / "vocab.txt", "x"), write(flag, "1"), write(flag, "2")]
    assert len(set(known)) == len(known) and all(known)
    assert write(flag, "2", (6, 6)) == known[-1]


@on_tensorflow_1
def test_what_an_environment_of_the_user_lacks_is_named_and_not_installed(bare_machine):
    result = run(bare_machine, "source scripts/environment.sh; use_environment; "
                 "require tests/requirements.txt pytest no_such_module", PYTHON=sys.executable)
    assert_one_error_line(result, "lacks no_such_module", "tests/requirements.txt")


@pytest.mark.parametrize("works", [True, False])
def test_uv_brings_a_python_where_every_one_is_too_new(bare_machine, tmp_path, works):
    """A stand-in for uv has a folder of Pythons, or says why it cannot download one."""
    install_python(bare_machine, "python3.13", "#!/bin/sh\necho 3.13\n")
    install_python(bare_machine, "uv", """#!/bin/sh
case "$2 $3 $4" in
  "install --quiet 3.11") """ + ("" if works else "echo Connection refused >&2; exit 2") + """;;
  "find 3.11 ") echo "$UV_PYTHON_PREFERENCE/python3.11";;
esac
""")
    result = run(bare_machine, "source scripts/environment.sh; python=$(bring_python); echo $python")
    if works:
        assert (result.stdout, result.stderr) == ("only-managed/python3.11\n", "")
    else:
        assert result.returncode == 2 and result.stderr.splitlines() == [
            "Connection refused", "error: uv could not bring Python 3.11; its lines above say why"]


@on_tensorflow_1
@pytest.mark.parametrize("recipe, variables, part", [
    ("quickstart", {"DATA_DIR": "/"}, "DATA_DIR and TASK go together"),
    ("distill", {"TASK": "cola"}, "DATA_DIR and TASK go together"),
    ("quickstart", {"DATA_DIR": "/no/where", "TASK": "cola"}, "DATA_DIR=/no/where is not a folder"),
    ("distill", {"MODEL": "/no/where"}, "MODEL=/no/where is not a folder"),
    ("quickstart", {"PYTHON": "no-such-python"}, "PYTHON=no-such-python"),
    ("distill", {"STUDENT": "4,312"}, "STUDENT=4,312 is neither layers,hidden,heads,intermediate nor a"),
    ("distill", {"STUDENT": "no/where"}, "STUDENT=no/where is neither"),
    ("distill", {"MASKED_LM": "no/where"}, "MASKED_LM=no/where is not a folder"),
    ("distill", {"GLOVE": "docs"}, "GLOVE=docs is not a file"),
    ("rewrite", {}, "TEXTS and MODEL are required"),
    ("rewrite", {"TEXTS": "/no/where.txt", "MODEL": "/"}, "there is no file /no/where.txt"),
    ("rewrite", {"TEXTS": "README.md", "MODEL": "/no/where"}, "MODEL=/no/where is not a folder"),
    ("rewrite", {"TEXTS": "README.md", "MODEL": "/", "POOL": "no.txt"}, "POOL=no.txt is not a file"),
])
def test_a_recipe_refuses_bad_settings_in_one_line(
        bare_machine, tmp_path, recipe, variables, part):
    result = run(bare_machine, f"scripts/{recipe}.sh", OUTPUT_DIR=str(tmp_path / "out"), **variables)
    assert_one_error_line(result, part)
    assert not (tmp_path / "out").exists() or "PYTHON" in variables


@on_tensorflow_1
def test_paths_are_those_of_the_folder_that_a_recipe_is_called_from(bare_machine, tmp_path):
    (tmp_path / "here" / "model").mkdir(parents=True)
    (tmp_path / "here" / "model" / "config.json").write_text("")
    (tmp_path / "here" / "vectors.txt").write_text("")
    given = dict(MODEL="model", MASKED_LM="../here/model", STUDENT="./model", GLOVE="vectors.txt",
                 POOL="../here/vectors.txt")
    sources = "".join(f"source {ROOT}/scripts/{name}.sh; " for name in ("environment", "inputs"))
    result = run(bare_machine, f"{sources} cd {tmp_path}/here; work=out; check_inputs; cd /; "
                 "echo $work $MODEL $MASKED_LM $STUDENT $GLOVE $POOL", **given)
    assert result.stdout.split() == [f"{tmp_path}/here/{name}" for name in (
        "out", "model", "model", "model", "vectors.txt", "vectors.txt")], result.stderr
    shape = run(bare_machine, f"{sources} work=$HOME; check_inputs; echo $STUDENT",
                STUDENT="1,8,2,12")
    assert shape.stdout == "1,8,2,12\n"


@pytest.mark.parametrize("flags, replicas, batch", [
    ("", 2, 16), ("--num_cpu_replicas=4", 4, 8), ("--do_train -num_cpu_replicas 8 --seed 1", 8, 4)])
def test_recipes_divide_their_batch_by_the_replicas_on_the_cpu(flags, replicas, batch, bare_machine):
    result = run(bare_machine, "source scripts/inputs.sh; answer() { printf '0\ntrue\n'; }; python=answer model=; "
                 f'look_at_model_and_cards {flags}; echo "${{on_all_replicas[@]}}"')
    assert result.stdout == f"--num_cpu_replicas={replicas} --train_batch_size={batch}\n", result.stderr


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_refuses_a_folder_that_is_no_model(
        bare_machine, forking_python, tmp_path, recipe):
    (tmp_path / "notes").mkdir()
    result = run(bare_machine, recipe, OUTPUT_DIR=str(tmp_path / "out"),
                 MODEL=str(tmp_path / "notes"), PYTHON=forking_python)
    assert_one_error_line(result, "neither bert_config.json", "nor config.json")


def test_the_quickstart_shows_predictions_below_a_heading(tiny_model, forking_python, tmp_path):
    result = run(
        os.environ, "scripts/quickstart.sh --max_seq_length=16 --num_train_epochs=0.02",
        MODEL=os.path.dirname(tiny_model.vocab_file), OUTPUT_DIR=str(tmp_path / "out"),
        PYTHON=forking_python, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr
    assert noise(result.stderr, STARTS) == [] and result.stderr.startswith(STARTS)
    whole = result.stdout + result.stderr
    assert whole.count("eval_loss = ") == whole.count("eval_accuracy = ") == 1
    assert not re.search(r"^\W*(log: )? *loss = ", whole, re.M), "it is the eval_loss"
    shown = result.stdout.split("first rows of the test set")[1].splitlines()
    assert shown[0] == ", with their predictions (1: a sentence, 0: its words are scrambled):"
    assert shown[1] == "  prediction\tindex\tsentence"
    assert [re.match(r"  [01]\t(\d)\t", line).group(1) for line in shown[2:5]] == ["0", "1", "2"]
    assert shown[5] == ""


def test_a_recipe_without_a_training_set_leaves_no_folder_of_results(
        tiny_model, forking_python, tmp_path):
    (tmp_path / "cola").mkdir()
    (tmp_path / "cola" / "dev.tsv").write_text("x\t1\t\ta cat\n")
    result = run(
        os.environ, "scripts/quickstart.sh --max_seq_length=16", TASK="cola",
        MODEL=os.path.dirname(tiny_model.vocab_file), OUTPUT_DIR=str(tmp_path / "out"),
        DATA_DIR=str(tmp_path / "cola"), PYTHON=forking_python, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 2
    assert "train.tsv: No such file" in result.stderr.splitlines()[-1], result.stderr
    assert os.listdir(str(tmp_path / "out")) == []


def test_rewriting_says_what_our_log_says_and_nothing_else(tiny_model, forking_python, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in made_up_texts(60)))
    result = run(
        os.environ, "scripts/rewrite.sh --num_train_epochs=1", TEXTS=str(tmp_path / "texts.txt"),
        MODEL=os.path.dirname(tiny_model.vocab_file), OUTPUT_DIR=str(tmp_path / "out"),
        MAX_SEQ_LENGTH="32", PYTHON=forking_python, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr
    assert noise(result.stderr, STARTS) == [] and result.stderr.startswith(STARTS)


def test_distilling_ends_with_the_metrics_and_does_each_step_once(
        tiny_model, forking_python, tmp_path):
    model, masked_lm = (os.path.dirname(files.vocab_file) for files in (
        tiny_model, write_tiny_masked_lm(tiny_model, tmp_path / "masked_lm")))
    settings = dict(
        MODEL=model, MASKED_LM=masked_lm, TASK="cola", STUDENT="1,8,2,12",
        DATA_DIR=write_cola(tmp_path / "cola", train=32, dev=9), TEACHER_EPOCHS="1",
        INTERMEDIATE_EPOCHS="1", PREDICTION_EPOCHS="1", OUTPUT_DIR=str(tmp_path / "out"),
        PYTHON=forking_python, CUDA_VISIBLE_DEVICES="")
    command = "scripts/distill.sh --max_seq_length=16"
    whole = run(os.environ, command, **settings)
    assert whole.returncode == 0, whole.stderr
    assert noise(whole.stderr, STARTS, "--- ") == [], "nor the step that begins"
    assert re.search(r"of the teacher .*\n  eval_acc(.*\n)+.*of the student .*\n  eval_acc",
                     whole.stdout)
    of_teacher, of_first_stage, of_second_stage = map(
        int, re.findall(r"(\d+) examples x 1 epoch", whole.stderr))
    assert of_teacher == 32 and of_first_stage == of_second_stage > 64, "it is augmented"
    for path in (tmp_path / "out").glob("results-*/*/eval_results.txt"):
        path.write_text("eval_accuracy = 0.123\n")  # of another evaluation
    again = run(os.environ, command, **settings)
    assert again.stdout == whole.stdout and "step" not in again.stderr
