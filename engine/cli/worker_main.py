"""Runs one worker for `engine.launch`, on the worker's machine, and makes sure that it exits.

  python -m engine.cli.worker_main LOCAL_INDEX PROCESSES COMMAND...

It takes the worker's share of the machine's cards and the cores beside them. Each byte on standard
input is the number of a signal for the worker. EOF on standard input means that the launcher or its
connection died: the worker is killed, so that no orphan trains on beside its replacement.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from typing import List, MutableMapping, Set

from engine import log
from engine.cli import command
from engine.disk import files
from engine.errors import UserError

_CARDS = "CUDA_VISIBLE_DEVICES"
END_SECONDS = 30.0  # between SIGTERM and SIGKILL: a worker finishes a step and saves it


def main(arguments: List[str]) -> int:
    """Returns the worker's exit status; 128 + the signal's number if a signal ended it."""
    index, processes, *words = arguments
    try:
        take_cards(os.environ, int(index), int(processes))
    except UserError as error:
        command.exit_with(error)
    if int(processes) > 1 and os.environ.get(_CARDS):
        try:
            pin(os.environ[_CARDS])
        except (OSError, UserError) as error:  # a worker on other cores is only slower
            log.warn(f"the worker runs on all cores, not only those beside its cards: {error}")
    worker = subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL)
    threading.Thread(target=_pass_signals, args=(worker,), daemon=True).start()
    return status_of(worker.wait())


def take_cards(environment: MutableMapping[str, str], index: int, processes: int) -> None:
    """Limits CUDA_VISIBLE_DEVICES to this process's share of the machine's cards.

    Changes nothing for a single process, or on a machine without cards.

    Args:
        environment: the environment of the process that will open the cards.
        index: the number of this process on its machine, from 0.
        processes: the number of processes that share the visible cards.
    """
    visible = _visible_cards(environment)
    if processes == 1 or not visible:
        return
    if len(visible) % processes:
        raise UserError(f"{len(visible)} cards ({','.join(visible)}) cannot be shared out evenly "
                        f"among {processes} processes; show a multiple of {processes} with "
                        f"{_CARDS}, or start fewer processes on each machine")
    share = len(visible) // processes
    environment[_CARDS] = ",".join(visible[index * share:(index + 1) * share])


def pin(cards: str, pci_devices: str = "/sys/bus/pci/devices") -> None:
    """Pins this process, and so its worker, to the cores beside its cards, if the machine names them.

    Args:
        cards: as in CUDA_VISIBLE_DEVICES.
        pci_devices: the kernel's folder of PCI devices.
    """
    cores: Set[int] = set()
    for bus_id in _nvidia_smi(f"--id={cards}", "--query-gpu=pci.bus_id", "--format=csv,noheader"):
        path = os.path.join(pci_devices, bus_id[-12:].lower(), "local_cpulist")  # the domain has 4 digits
        if not os.path.exists(path):
            return
        ranges = files.read_text(path, "the kernel's list of a card's cores")
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", ranges):
            cores.update(range(int(first), int(last or first) + 1))
    allowed = os.sched_getaffinity(0)
    if cores & allowed and not allowed <= cores:
        os.sched_setaffinity(0, cores & allowed)
        log.info(f"The worker of the GPUs {cards} runs on the {len(cores & allowed)} cores beside them, "
                 f"of {len(allowed)}")


def status_of(code: int) -> int:
    """A shell's exit status for the return code of a `Popen`."""
    return code if code >= 0 else 128 - code


def _pass_signals(worker: subprocess.Popen) -> None:
    # Not through sys.stdin: the interpreter could not take its lock at exit.
    for byte in iter(lambda: os.read(0, 1), b""):
        worker.send_signal(byte[0])
    worker.terminate()
    try:
        worker.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()


def _visible_cards(environment: MutableMapping[str, str]) -> List[str]:
    """The names of the visible cards; empty if the user wants none or the machine has none."""
    value = environment.get(_CARDS)
    if value is not None:
        names = [name.strip() for name in value.split(",") if name.strip()]
        return [] if names and names[0].startswith("-") else names
    cards = [line for line in _nvidia_smi("-L") if line.startswith("GPU ")]
    return [str(number) for number in range(len(cards))]


def _nvidia_smi(*arguments: str) -> List[str]:
    """The lines that nvidia-smi prints; none if it is missing."""
    try:
        return subprocess.run(["nvidia-smi", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True).stdout.splitlines()
    except OSError:
        return []


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # EOF on standard input does the work
    sys.exit(main(sys.argv[1:]))
