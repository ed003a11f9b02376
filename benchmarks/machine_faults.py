"""Faults at random moments of trainings on several hosts: does any hang, or end with other weights?

  python -m benchmarks.machine_faults --work_dir=DIR --runs=50

Each run trains a toy on 2 or 3 hosts (`benchmarks/hosts.py`) under `engine.launch`, and one of them
meets one fault:

  kill   its worker is killed
  stop   its worker is stopped, and stays so
  cut    its link is cut, and mended once the loss was noticed
  slow   its link passes 1 Mbit/s for some seconds
  lose   its power fails: the link is cut and all its processes are killed; it comes back

The run must end by itself with the weights of the run on as many hosts that nothing disturbed. A run
that is measured has a file in DIR; called again, the command goes on with the others. Ends with
status 1 if a run hung, failed, or ended with other weights. Needs Linux and root.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from benchmarks import campaign, hosts, report, toy_task
from engine.disk import files

FAULTS = ("kill", "stop", "cut", "slow", "lose")
COUNTS = (2, 3)
EXAMPLES, EPOCHS, BATCH = 48, 25, 2
HEARTBEAT_SECONDS = 3
PEER_SECONDS = 20  # for which the others are tried at the start: one may be stopped before that
SLOW_SECONDS = 5
HANG_SECONDS = 240  # more than any run takes with one fault
TOLERANCE = 1e-5


class Event(NamedTuple):
    """A line that the launcher or a worker printed."""
    seconds: float  # since the start
    line: str


class Training:
    """A training under the launcher, watched.

    Attributes:
        events: the lines printed so far.
    """

    def __init__(self, network: hosts.Network, work_dir: str, output_dir: str):
        task = os.path.join(work_dir, "task")
        os.makedirs(task, exist_ok=True)
        flags = toy_task.write(task, examples=EXAMPLES, length=16, layers=2, hidden=32,
                               vocab_size=200, dropout=0.1)
        names = ",".join(host.address for host in network.hosts)
        path = network.install_ssh(os.path.join(work_dir, "bin"))
        self.start = time.time()
        self.events: List[Event] = []
        self.process = subprocess.Popen(
            [*network.hosts[0].enter, sys.executable, "-m", "engine.launch", f"--hosts={names}",
             "--", "run_classifier.py", *flags, f"--output_dir={output_dir}",
             f"--train_batch_size={BATCH}", f"--num_train_epochs={EPOCHS}", "--num_cpu_replicas=1",
             "--save_checkpoints_steps=10", f"--heartbeat_timeout={HEARTBEAT_SECONDS}",
             f"--peer_timeout={PEER_SECONDS}"],
            cwd=report.ROOT, stderr=subprocess.PIPE, universal_newlines=True, env={
                **os.environ, "CUDA_VISIBLE_DEVICES": "",
                "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str, after: float, until: float) -> Optional[float]:
        """When a line matched, after some moment; None if none has until another, or the end."""
        while True:
            is_over = self.process.poll() is not None or time.time() - self.start > until
            for event in list(self.events):
                if event.seconds >= after and re.search(pattern, event.line):
                    return event.seconds
            if is_over:
                return None
            time.sleep(0.02)

    def end(self) -> Optional[int]:
        """Its exit status; None if it hung."""
        try:
            self.process.wait(max(0, self.start + HANG_SECONDS - time.time()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        self._reader.join(HANG_SECONDS)
        return self.process.returncode

    def _read(self) -> None:
        for line in self.process.stderr:
            self.events.append(Event(time.time() - self.start, line))


def worker_of(host: hosts.Host) -> Optional[int]:
    """The process id of the worker on a host; None if there is none now."""
    for pid in host.processes():
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                words = file.read().split("\0")
        except OSError:
            continue
        if words[1:2] == ["run_classifier.py"]:
            return pid
    return None


def strike(fault: str, network: hosts.Network, victim: int, training: Training) -> bool:
    """Does it to a host, and undoes what must not last; returns whether there was a worker."""
    host, now = network.hosts[victim], time.time() - training.start
    pid = worker_of(host)
    if pid is None:
        return False
    if fault in ("kill", "stop"):
        os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
    elif fault == "slow":
        network.slow_down(host, "1mbit")
        time.sleep(SLOW_SECONDS)
        network.speed_up(host)
    else:
        (network.cut if fault == "cut" else network.lose)(host)
        training.wait_for(r"^WARNING: \[\S+\] (was )?ended", now, HANG_SECONDS)
        network.mend(host)
    return True


def noticed_seconds(training: Training, victim: int, count: int, struck: float) -> Optional[float]:
    """From the fault until the last of the other workers has named the victim."""
    times = []
    for index in set(range(count)) - {victim}:
        prefix = "" if index == 0 else rf"\[\S+:{index}\] "
        times.append(training.wait_for(rf"^{prefix}error: .*worker {victim} \(", struck, 0))
    return None if None in times else max(times) - struck


def resumed_seconds(training: Training, struck: float) -> Optional[float]:
    """From the restart to the end of the next step."""
    restart = training.wait_for("^All workers are started again", struck, 0)
    step = restart and training.wait_for(r"^step \d+/", restart, 0)
    return step and step - restart


def train_undisturbed(work_dir: str, count: int) -> float:
    """Trains in DIR/expected-COUNT, once; returns the seconds that it took."""
    output_dir = os.path.join(work_dir, f"expected-{count}")
    path = os.path.join(output_dir, "seconds.json")
    if not os.path.exists(path):
        shutil.rmtree(output_dir, ignore_errors=True)
        with hosts.Network(count) as network:
            training = Training(network, work_dir, output_dir)
            if training.end() != 0:
                sys.exit("".join(event.line for event in training.events))
            files.write_text(path, json.dumps(time.time() - training.start))
    with open(path) as file:
        return json.load(file)


def run(work_dir: str, number: int, seed: int) -> Dict[str, Any]:
    """One training with one fault; the faults and the numbers of hosts take turns."""
    fault, count = FAULTS[number % len(FAULTS)], COUNTS[number // len(FAULTS) % len(COUNTS)]
    generator = random.Random(f"{seed}-{number}")
    # The launcher is on the first host, and could not start anything if that were lost.
    victim, moment = generator.randrange(fault == "lose", count), generator.random()
    seconds = train_undisturbed(work_dir, count)
    expected = campaign.values_of(os.path.join(work_dir, f"expected-{count}"))
    with tempfile.TemporaryDirectory(dir=work_dir) as output_dir, hosts.Network(count) as network:
        training = Training(network, work_dir, output_dir)
        time.sleep(moment * seconds)
        struck = time.time() - training.start
        found = strike(fault, network, victim, training)
        status = training.end()
        result = {
            "fault": fault, "hosts": count, "victim": victim, "struck": struck, "found": found,
            "status": status, "noticed": noticed_seconds(training, victim, count, struck),
            "resumed": resumed_seconds(training, struck),
            "restarts": sum("are started again" in event.line for event in training.events),
            "difference": campaign.difference(output_dir, expected) if status == 0 else None}
        if not is_good(result):
            result["log"] = "".join(event.line for event in training.events)
    return result


def is_good(result: Dict[str, Any]) -> bool:
    return result["status"] == 0 and result["difference"] <= TOLERANCE


def row(fault: str, results: List[Dict[str, Any]]) -> Dict[str, str]:
    def median(key: str) -> str:
        values = [result[key] for result in results if result[key] is not None]
        return f"{np.median(values):.1f} ({max(values):.1f})" if values else "–"

    differences = [result["difference"] for result in results if result["difference"] is not None]
    return {
        "fault": fault, "runs": str(len(results)),
        "on 2, 3 hosts": ", ".join(str(sum(result["hosts"] == count for result in results))
                                   for count in COUNTS),
        "met a worker": str(sum(result["found"] for result in results)),
        "hung": str(sum(result["status"] is None for result in results)),
        "failed": str(sum(bool(result["status"]) for result in results)),
        "other weights": str(sum(value > TOLERANCE for value in differences)),
        "bit for bit": str(differences.count(0.0)),
        "restarts": str(sum(result["restarts"] for result in results)),
        "to notice, s (most)": median("noticed"), "restart to next step, s (most)": median("resumed")}


def rows(results: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    return [row(fault, [result for result in results if result["fault"] == fault])
            for fault in FAULTS]


if __name__ == "__main__":
    if hosts.why_not():
        sys.exit(hosts.why_not())
    campaign.conduct(
        "machine_faults", __doc__, 50, run,
        f"Faults on several hosts, heartbeat timeout {HEARTBEAT_SECONDS} s", rows,
        lambda result: not is_good(result))
