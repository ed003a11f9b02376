"""Hosts in this machine: network namespaces, joined by veth pairs to a switch.

Each has its own addresses, ports and link. A link can be cut, mended and made slow. Needs Linux,
root and the programs `ip` and `tc`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from typing import List, NamedTuple

_PREFIX = "bert-hosts"
_SUBNET = "10.77.0"


class Host(NamedTuple):
    """A host; run a command there with `[*host.enter, ...]`."""
    namespace: str
    address: str
    port: str  # the switch's end of its link

    @property
    def enter(self) -> List[str]:
        return ["ip", "netns", "exec", self.namespace]


class Network:
    """Some hosts and their switch. Use it as a context manager, which removes them.

    Attributes:
        hosts: the hosts, by number.
    """

    def __init__(self, count: int):
        self._switch = f"{_PREFIX}-{os.getpid()}-switch"
        self.hosts = [Host(f"{_PREFIX}-{os.getpid()}-{number}", f"{_SUBNET}.{number + 1}",
                           f"port{number}") for number in range(count)]

    def __enter__(self) -> "Network":
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception) -> None:
        there = [line.split()[0] for line in _ip("netns", "list").splitlines() if line]
        for namespace in (*(host.namespace for host in self.hosts), self._switch):
            if namespace in there:
                for pid in _ip("netns", "pids", namespace).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                _ip("netns", "delete", namespace)

    def install_ssh(self, folder) -> str:
        """Writes a program of that name, which reaches the hosts; returns the folder for PATH."""
        os.makedirs(folder, exist_ok=True)
        cases = "".join(f"{host.address}) name={host.namespace} ;;\n" for host in self.hosts)
        path = os.path.join(str(folder), "ssh")
        with open(path, "w") as file:
            file.write(f"""#!/bin/sh
while [ "$1" = -T -o "$1" = -o ]; do [ "$1" = -o ] && shift; shift; done
[ "$1" = -- ] && shift
case "$1" in {cases}esac
if ! ip -n $name link show eth0 | grep -q LOWER_UP; then
  echo "ssh: connect to host $1: No route to host" >&2
  exit 255
fi
shift
exec ip netns exec $name env -i sh -c "$*"
""")
        os.chmod(path, 0o755)
        return str(folder)

    def cut(self, host: Host) -> None:
        """Nothing passes the host's link any more, and nobody is told."""
        _ip("-n", self._switch, "link", "set", host.port, "down")

    def mend(self, host: Host) -> None:
        """Joins the link again."""
        _ip("-n", self._switch, "link", "set", host.port, "up")

    def slow_down(self, host: Host, rate: str) -> None:
        """Both directions of the host's link pass no more than `rate`, such as '8mbit'."""
        for namespace, link in ((host.namespace, "eth0"), (self._switch, host.port)):
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", link, "root", "tbf", "rate",
                 rate, "burst", "32kbit", "latency", "400ms")

    def _make(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        for host in self.hosts:
            _ip("netns", "add", host.namespace)
            _ip("-n", self._switch, "link", "add", host.port, "type", "veth", "peer", "name",
                "eth0", "netns", host.namespace)
            _ip("-n", self._switch, "link", "set", host.port, "master", "switch", "up")
            _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", host.namespace, "link", "set", link, "up")


def why_not() -> str:
    """Why this machine cannot have such hosts; empty if it can."""
    missing = [program for program in ("ip", "tc") if not shutil.which(program)]
    if missing:
        return f"{' and '.join(missing)} not found, of the package iproute2"
    try:
        with Network(1) as network:
            network.slow_down(network.hosts[0], "8mbit")
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    return ""


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*arguments: str) -> str:
    return subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, check=True).stdout
