"""Proves that the shell scripts find a Python that works, and say in one line where none does."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT, on_tensorflow_1, on_tensorflow_2, write_cola
from masked_lm import write_tiny_masked_lm
from noise_of_commands import noise
from shell_scripts import TOOLS, assert_one_error_line, run
from shell_scripts import bare_machine_fixture, forking_python_fixture  # noqa: F401 (fixtures)

RECIPES = ("scripts/quickstart.sh", "scripts/distill.sh")
pytestmark = pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="needs a POSIX shell")


def install_python(machine, name, text):
    path = os.path.join(machine["PATH"], name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def test_a_machine_without_python_gets_one_line_that_says_what_to_install(bare_machine):
    result = run(bare_machine, "source scripts/environment.sh; use_environment")
    assert_one_error_line(result, "install Python 3.11", "3.7 for TensorFlow 1.15", "PYTHON=")


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


@on_tensorflow_1
def test_what_an_environment_of_the_user_lacks_is_named_and_not_installed(bare_machine):
    result = run(bare_machine, "source scripts/environment.sh; use_environment; "
                 "require tests/requirements.txt pytest no_such_module", PYTHON=sys.executable)
    assert_one_error_line(result, "lacks no_such_module", "tests/requirements.txt")


def test_what_is_installed_is_installed_anew_when_a_file_of_requirements_changes(
        bare_machine, tmp_path):
    (tmp_path / "requirements.txt").write_text("one==1\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "requirements.txt").write_text("two==2\n")
    command = "source scripts/environment.sh; repository=$HOME; stamp folder -r requirements.txt"
    before = run(bare_machine, command).stdout
    assert before.startswith("folder/installed-") and run(bare_machine, command).stdout == before
    (tmp_path / "inner" / "requirements.txt").write_text("two==3\n")
    assert run(bare_machine, command).stdout != before


# --- Where every Python is too new -----------------------------------------------------------

BRING_PYTHON = "source scripts/environment.sh; repository=$HOME; python=$(bring_python); echo $python"


@pytest.fixture
def downloads(bare_machine, tmp_path):
    """Environment variables with which uv finds its Python 3.11 in a folder: this very one."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("stands in for the Python 3.11 that is downloaded")
    folder = tmp_path / "downloads"
    binary = folder / "python" / "bin" / "python3.11"
    binary.parent.mkdir(parents=True)
    library = folder / "python" / "lib" / "python3.11"
    library.mkdir(parents=True)
    (library / "_sysconfigdata__linux_.py").write_text(  # uv wants it, in CPython's form
        "# system configuration generated and used by the sysconfig module\n"
        "build_time_vars = {}\n")
    binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    binary.chmod(0o755)
    archive = shutil.make_archive(str(folder / "python-3.11"), "gztar", str(folder), "python")
    system, machine = platform.system().lower(), platform.machine()
    (folder / "list.json").write_text(json.dumps({f"cpython-3.11.99-{system}-{machine}-gnu": {
        "name": "cpython", "arch": {"family": machine, "variant": None}, "os": system,
        "libc": "gnu", "major": 3, "minor": 11, "patch": 99, "prerelease": "", "variant": None,
        "url": f"file://{archive}", "sha256": None, "build": "20240101"}}))
    return {"UV_PYTHON_DOWNLOADS_JSON_URL": str(folder / "list.json")}


def uv_binary():
    return pytest.importorskip("uv", reason="has no build for Python 3.7").find_uv_bin()


def test_uv_brings_a_python_where_every_one_is_too_new(bare_machine, downloads, tmp_path):
    os.symlink(uv_binary(), tmp_path / "uv")
    install_python(bare_machine, "python3.13", "#!/bin/sh\necho 3.13\n")
    result = run(bare_machine, BRING_PYTHON, **downloads)
    assert result.returncode == 0, result.stderr
    assert len(result.stderr.splitlines()) == 1 and "uv has brought 3.11" in result.stderr
    python = result.stdout.strip()
    assert python.startswith(f"{tmp_path}/.venv-uv/")
    version = subprocess.check_output([python, "--version"], universal_newlines=True)
    assert version.startswith("Python 3.11.")
    again = run(bare_machine, BRING_PYTHON)  # nothing is downloaded any more
    assert (again.stdout, again.stderr) == (result.stdout, "")


def test_uv_comes_from_pip_where_it_is_not_installed(bare_machine, downloads, tmp_path):
    """The package is one made here, whose program is the real uv's."""
    folder, record = tmp_path / "packages", "uv-0.13.9.dist-info/RECORD"
    members = {"uv-0.13.9.data/scripts/uv": f'#!/bin/sh\nexec "{uv_binary()}" "$@"\n',
               "uv-0.13.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: uv\n"
                                               "Version: 0.13.9\n",
               "uv-0.13.9.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                                            "Tag: py3-none-any\n"}
    folder.mkdir()
    with zipfile.ZipFile(str(folder / "uv-0.13.9-py3-none-any.whl"), "w") as wheel:
        for name, text in members.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100755 << 16
            wheel.writestr(entry, text)
        wheel.writestr(record, "".join(f"{name},,\n" for name in [*members, record]))
    install_python(bare_machine, "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    result = run(bare_machine, BRING_PYTHON, **downloads, PIP_NO_INDEX="1",
                 PIP_FIND_LINKS=str(folder), PIP_CONFIG_FILE=os.devnull)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{tmp_path}/.venv-uv/python/")
    assert (tmp_path / ".venv-uv" / "bin" / "uv").exists()


def test_a_python_that_is_new_and_without_pip_gets_one_line(bare_machine):
    install_python(bare_machine, "python3", "#!/bin/sh\nexit 1\n")
    result = run(bare_machine, "source scripts/environment.sh; use_environment")
    assert_one_error_line(result, "uv could not bring one", "install Python 3.11", "PYTHON=")


@pytest.mark.parametrize("has_uv", [False, True], ids=["no uv", "no Python"])
def test_what_cannot_be_downloaded_is_told_and_what_to_install(bare_machine, tmp_path, has_uv):
    if has_uv:
        os.symlink(uv_binary(), tmp_path / "uv")
    install_python(bare_machine, "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    result = run(bare_machine, BRING_PYTHON, PIP_CONFIG_FILE=os.devnull, PIP_RETRIES="1",
                 PIP_INDEX_URL="http://127.0.0.1:9/simple", UV_HTTP_RETRIES="0",
                 UV_PYTHON_INSTALL_MIRROR="http://127.0.0.1:9")  # where nobody listens
    assert result.returncode == 2 and "Connection refused" in result.stderr
    assert re.search("^error: there is no Python .*: install Python 3.11 .*PYTHON=",
                     result.stderr.splitlines()[-1])


@on_tensorflow_2
def test_check_runs_the_linter_before_the_tests(bare_machine, forking_python):
    pytest.importorskip("ruff")
    result = run(bare_machine, "scripts/check.sh --version", PYTHON=forking_python)
    assert result.returncode == 0, result.stdout + result.stderr
    checked, tested = result.stdout.splitlines()
    assert checked == "All checks passed!" and tested.startswith("pytest ")


@on_tensorflow_1
@pytest.mark.parametrize("variables, part", [
    ({"DATA_DIR": "/"}, "DATA_DIR and TASK go together"),
    ({"TASK": "cola"}, "DATA_DIR and TASK go together"),
    ({"DATA_DIR": "/no/where", "TASK": "cola"}, "DATA_DIR=/no/where is not a folder"),
    ({"MODEL": "/no/where"}, "MODEL=/no/where is not a folder"),
    ({"PYTHON": "no-such-python"}, "PYTHON=no-such-python"),
])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_refuses_bad_settings_in_one_line(bare_machine, tmp_path, recipe, variables, part):
    result = run(bare_machine, recipe, OUTPUT_DIR=str(tmp_path / "out"), **variables)
    assert_one_error_line(result, part)


@on_tensorflow_1
@pytest.mark.parametrize("recipe, variables, part", [
    ("distill", {"STUDENT": "4,312"}, "STUDENT=4,312 is neither layers,hidden,heads,intermediate nor a"),
    ("distill", {"STUDENT": "no/where"}, "STUDENT=no/where is neither"),
    ("distill", {"MASKED_LM": "no/where"}, "MASKED_LM=no/where is not a folder"),
    ("distill", {"GLOVE": "docs"}, "GLOVE=docs is not a file"),
    ("rewrite", {}, "TEXTS and MODEL are required"),
    ("rewrite", {"TEXTS": "/no/where.txt", "MODEL": "/"}, "there is no file /no/where.txt"),
    ("rewrite", {"TEXTS": "README.md", "MODEL": "/no/where"}, "MODEL=/no/where is not a folder"),
    ("rewrite", {"TEXTS": "README.md", "MODEL": "/", "POOL": "no.txt"}, "POOL=no.txt is not a file"),
])
def test_distilling_and_rewriting_refuse_bad_settings_in_one_line(
        bare_machine, tmp_path, recipe, variables, part):
    result = run(bare_machine, f"scripts/{recipe}.sh", OUTPUT_DIR=str(tmp_path / "out"), **variables)
    assert_one_error_line(result, part)
    assert not (tmp_path / "out").exists()


@on_tensorflow_1
def test_paths_are_those_of_the_folder_that_a_recipe_is_called_from(bare_machine, tmp_path):
    (tmp_path / "here" / "model").mkdir(parents=True)
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


@on_tensorflow_2
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_refuses_a_folder_that_is_no_model(
        bare_machine, forking_python, tmp_path, recipe):
    (tmp_path / "notes").mkdir()
    result = run(bare_machine, recipe, OUTPUT_DIR=str(tmp_path / "out"),
                 MODEL=str(tmp_path / "notes"), PYTHON=forking_python)
    assert_one_error_line(result, "neither bert_config.json", "nor config.json")


@on_tensorflow_2
def test_the_quickstart_names_the_files_of_questions_that_it_wants(
        tiny_model, forking_python, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train-v1.1.json").write_text("{}")
    result = run(dict(os.environ), "scripts/quickstart.sh", OUTPUT_DIR=str(tmp_path / "out"),
                 MODEL=os.path.dirname(tiny_model.vocab_file), PYTHON=forking_python,
                 DATA_DIR=str(tmp_path / "data"), TASK="squad")
    assert_one_error_line(result, "data must hold one dev*.json, with questions in SQuAD's format")


@on_tensorflow_2
def test_distilling_ends_with_a_table_and_does_each_step_once(
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
    assert noise(whole.stderr, "--- ") == [], "nor the step that begins"
    assert re.search(r"\| teacher \| 1 × 16 \|.*\n\| student \| 1 × 8 \|", whole.stdout)
    of_teacher, of_first_stage, of_second_stage = map(
        int, re.findall(r"(\d+) examples x 1 epoch", whole.stderr))
    assert of_teacher == 32 and of_first_stage == of_second_stage > 64, "it is augmented"
    again = run(os.environ, command, **settings)
    assert again.stdout == whole.stdout and "step" not in again.stderr
