"""--ray_address: the parts of a command's input, made by the processes of a Ray cluster.

Ray keeps an actor on each GPU or, in a cluster without GPUs, on each core. It restarts a lost one
wherever there is room, and repeats its part. An actor makes a part as --shard does: it leaves a complete
part as it is, and goes on with one that was begun. Only this module knows Ray.
"""

import contextlib
import importlib
import logging
import os
import pathlib
import signal
import socket
import sys
import time
from typing import Callable, Dict, Iterator, List, Tuple

from absl import flags

from engine import interruption, log
from engine.cli import shards
from engine.disk import files
from engine.errors import UserError
from engine.progress import Counter, counted

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_MOST_LOSSES = 10  # processes that a part may lose in a round
# Until it knows that a machine is lost, Ray 2.7 may use up a part's tries there, within a second.
_ROUNDS = 3
_SECONDS_TO_NOTICE = 20.0  # Ray notices the loss of a machine after five of its checks
_SECONDS_TO_CONNECT = 10.0
_LOST = "too many of its processes were lost; Ray's logs say why"


def run(main: Callable[[flags.FlagValues], None], argv: List[str], values: flags.FlagValues) -> None:
    """Makes all parts of a command's input, and lists those that cannot be made on standard output.

    Args:
        main: the command's `main`, whose module has `define_flags()`. It may also have `open_model(values)`,
            a context manager, and `run(values, model)`: all parts of an actor then share one open model.
        argv, values: the command's arguments, and the same as flags.
    """
    count, command = values.shards, _name_of(main)
    missing = dict.fromkeys(range(count), _LOST)
    # Ray prints messages of its own, which are not the command's output.
    with contextlib.redirect_stdout(sys.stderr), _connected(values.ray_address):
        for number in range(_ROUNDS):
            if _LOST in missing.values():
                if number:
                    time.sleep(_SECONDS_TO_NOTICE)
                _make(command, argv, count, missing)
    for index, reason in sorted(missing.items()):
        print(f"{index}/{count}\t{log.visible(reason)}")
    if missing:
        index, reason = min(missing.items())
        raise UserError(f"{len(missing):,} of {counted(count, 'parts')} are missing, {index}/{count} because of: "
                        f"{reason}; once this is mended, the same command makes them")


def _name_of(main: Callable[[flags.FlagValues], None]) -> str:
    """The name under which other processes import the module of a function."""
    module = sys.modules[main.__module__]
    if module.__name__ != "__main__":
        return module.__name__
    return module.__spec__.name if module.__spec__ else pathlib.Path(module.__file__).stem


@contextlib.contextmanager
def _connected(address: str) -> Iterator[None]:
    """A context with a connection to a cluster; "local" starts one, which ends with the context."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # reports nothing to Ray's makers
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--ray_address={address} needs Ray: pip install -r runs/requirements.txt") from error
    paths = [_ROOT, os.environ.get("PYTHONPATH")]
    try:
        if ":" in address and "://" not in address:  # Ray 2.7 looks for two minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_CONNECT).close()
        ray.init(address=address, logging_level=logging.ERROR, include_dashboard=False, runtime_env={
            "env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, paths))}})
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise UserError(f"--ray_address={address}: no Ray cluster can be reached "
                        f"({log.brief(error) or type(error).__name__}); `ray "
                        "start --head` starts one, and --ray_address=local one for this command") from error
    finally:
        for number, handler in handlers.items():  # Ray sets its own
            signal.signal(number, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _make(command: str, argv: List[str], count: int, missing: Dict[int, str]) -> None:
    """Makes the lost parts, and removes those that are done from `missing` (part → why it is missing)."""
    from ray import exceptions
    lost = [index for index, reason in missing.items() if reason == _LOST]
    pool = _start_workers(command, argv, len(lost))
    for index in lost:
        pool.submit(lambda worker, index: worker.make.remote(index, count), index)
    with Counter(command, unit="parts", total=len(lost), contents="lines") as counter:
        while pool.has_next():
            try:
                index, missing[index], num_lines = pool.get_next_unordered()
                if not missing[index]:
                    del missing[index]
                counter.advance(1, contents=num_lines)
            except exceptions.RayActorError as error:
                if error.actor_init_failed:
                    raise
            except interruption.Interrupted as interrupted:
                interrupted.said = (f"{count - len(missing):,} of {count:,} parts are there; the same command "
                                    "makes the others")
                raise
            # Once no part waits: room for a worker that has lost its place with a machine.
            pool.pop_idle()


def _start_workers(command: str, argv: List[str], most: int):
    """A pool of actors, at most as many as there are parts."""
    import ray
    from ray.util import ActorPool
    has = ray.cluster_resources()
    unit, name = ("GPU", "num_gpus") if has.get("GPU") else ("CPU", "num_cpus")
    num_workers = min(most, int(has.get(unit, 0)))
    if not num_workers:
        raise UserError("the Ray cluster has neither GPUs nor CPUs")
    log.info(f"{command}: {counted(most, 'parts')} on {counted(num_workers, unit + 's')} of a Ray cluster")
    actor = ray.remote(max_restarts=-1, max_task_retries=_MOST_LOSSES, **{name: 1})(_Worker)
    return ActorPool([actor.remote(command, argv, os.getcwd()) for _ in range(num_workers)])


class _Worker:
    """An actor's process, which makes one part after the other."""

    def __init__(self, command: str, argv: List[str], folder: str):
        os.chdir(folder)  # the command's, for relative paths
        log.quiet()  # Ray prints what remains, the warnings, where the command was started
        self._module = importlib.import_module(command)
        self._argv = argv
        self._open, self._model = contextlib.ExitStack(), None

    def make(self, index: int, count: int) -> Tuple[int, str, int]:
        """Makes a part. Returns its number, why it cannot be made or "", and how many lines it has done."""
        values = self._module.define_flags()
        values(self._argv)
        values.ray_address, values.shards, values.shard = None, None, f"{index}/{count}"
        reason, num_done = "", shards.num_lines(values)
        try:
            self._run_when_free(values)
        except UserError as error:
            reason = str(error)
        except Exception as error:
            if not files.disk_errno(error):
                raise
            reason = str(error)
        return index, reason, shards.num_lines(values) - num_done

    def _run_when_free(self, values: flags.FlagValues) -> None:
        """Waits for a process that still writes the part: Ray ends those of a killed command late."""
        for _ in range(int(_SECONDS_TO_NOTICE)):
            with contextlib.suppress(files.Held):
                self._run(values)
                return
            time.sleep(1.0)
        self._run(values)

    def _run(self, values: flags.FlagValues) -> None:
        if not hasattr(self._module, "open_model"):
            self._module.main(values)
            return
        self._model = self._model or self._open.enter_context(self._module.open_model(values))
        self._module.run(values, self._model)
