"""Runs the scripts: on a machine that has next to nothing, or with a Python that starts at once."""

import os
import shutil
import subprocess
import sys
import threading
from multiprocessing import connection, reduction
from typing import List

import pytest

import processes
from conftest import ROOT
from noise_of_commands import RUN_MARKED

TOOLS = ("bash", "cat", "cksum", "dirname", "mkdir", "realpath")


@pytest.fixture(name="bare_machine")
def bare_machine_fixture(tmp_path):
    """The environment variables of a machine without any Python."""
    for tool in TOOLS:
        os.symlink(shutil.which(tool), tmp_path / tool)
    return {"PATH": str(tmp_path), "HOME": str(tmp_path)}


# Asks the tests' process to start Python, and ends as that ends.
_CLIENT = """#!{python} -SE
import os, sys
from multiprocessing import connection, reduction
with connection.Client({address!r}, "AF_UNIX") as tests:
    tests.send((sys.argv[1:], os.getcwd(), dict(os.environ)))
    for stream in range(3):
        reduction.send_handle(tests, stream, None)
    os._exit(tests.recv() & 255)
"""


@pytest.fixture(name="forking_python", scope="session")
def forking_python_fixture(tmp_path_factory):
    """An interpreter for PYTHON=... whose processes are forks, with the lines of our log marked."""
    folder = tmp_path_factory.mktemp("python")
    program, address = folder / "python", str(folder / "socket")
    program.write_text(_CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with connection.Listener(address, "AF_UNIX") as listener:
        threading.Thread(target=_serve, args=[listener], daemon=True).start()
        yield str(program)


def _serve(listener: connection.Listener) -> None:
    while True:
        with listener.accept() as client:
            arguments, folder, environment = client.recv()
            streams = [reduction.recv_handle(client) for _ in range(3)]
            process = processes.start(
                _marked(arguments), cwd=folder, env=processes.with_our_loading(environment),
                stdin=streams[0], stdout=streams[1], stderr=streams[2])
            for stream in streams:
                os.close(stream)
            client.send(process.wait())


def _marked(arguments: List[str]) -> List[str]:
    program, *rest = arguments
    if program == "-m":
        return ["-c", RUN_MARKED, *rest]
    return arguments if program == "-c" else ["-c", RUN_MARKED, program[:-len(".py")], *rest]


def run(machine, command, **variables):
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail; {command}"], cwd=ROOT, encoding="utf-8",
        env={**machine, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def assert_one_error_line(result, *parts):
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1
    for part in parts:
        assert part in result.stderr
