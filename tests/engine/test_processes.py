"""A fork with TensorFlow loaded is a process like a new interpreter, as far as tests can see."""

import os
import signal

import pytest

import processes

PROGRAM = """
import os, sys
print(sys.argv, os.getcwd(), os.environ["MINE"], os.getppid(), "tensorflow" in sys.modules,
      sys.stdin.read(), flush=True)
sys.stderr.write("a line\\n")
sys.stderr.flush()
if sys.argv[1] == "7":
    sys.exit(7)
os.kill(os.getpid(), -int(sys.argv[1]))
"""


@pytest.mark.parametrize("more, is_fork", [({}, True), ({"PYTHONHASHSEED": "1"}, False)])
@pytest.mark.parametrize("status", [7, -signal.SIGTERM, -signal.SIGKILL])
def test_it_has_arguments_a_directory_an_environment_streams_and_a_status(
        more, is_fork, status, tmp_path):
    directory = os.path.realpath(str(tmp_path))
    process = processes.run(["-c", PROGRAM, str(int(status)), "b c"], cwd=directory, input="typed",
                            env={**os.environ, "MINE": "here", **more})
    assert process.returncode == status and process.stderr == "a line\n"
    assert process.stdout == (f"{['-c', str(int(status)), 'b c']} {directory} here {os.getpid()} "
                              f"{is_fork} typed\n")


def test_it_draws_numbers_of_its_own():
    program = "import random, numpy; print(random.random(), numpy.random.rand())"
    first, second = (processes.run(["-c", program]).stdout.split() for _ in range(2))
    assert not set(first) & set(second)
