"""A worker that meets the others and calls a function of this file, without a training.

  python -m tests.helpers.toy_worker --call=FUNCTION --arguments=JSON
"""

import json
import os

from absl import flags

from engine.cli import command
from engine.disk import files
from engine.workers import cluster, coordination


def agree(us, directory):
    names = us.gather("name", f"worker {us.cluster.index}")
    assert us.from_chief("number", lambda: 5) == 5
    us.compare("facts", {"same": [1, {"of": "all"}]})
    us.wait("all")
    files.write_json(os.path.join(directory, f"{us.cluster.index}.json"), names)


def exchange(us, length):
    """The chief sends each of two texts of so many bytes; then all three send a third of one."""
    for text in ("x" * length, '"' * (length // 4)):  # a quote takes four bytes: JSON of JSON
        assert us.from_chief("text", lambda: [text]) == [text]
    third = str(us.cluster.index) * (length // 3 - 99)
    assert [(len(each), each[0]) for each in us.gather("texts", third)] == [(len(third), each) for each in "012"]


def do_another_thing(us):
    """Workers 0 and 2 wait for all; worker 1 waits for the chief, which says nothing to it."""
    if us.cluster.index == 1:
        us.from_chief("number", lambda: 5)
    us.wait("all")


def fail(us, index, said):
    if us.cluster.index == index:
        raise ValueError(said)
    us.wait("never")


def lose_reader(us):
    """Nobody reads the chief's output any more."""
    if us.is_chief:
        raise BrokenPipeError
    us.wait("never")


def hang(us, directory):
    us.wait("all here")
    open(os.path.join(directory, f"here{us.cluster.index}"), "w").close()
    us.hear(us.others[0], "never")


def hang_once(us, directory):
    if not os.path.exists(os.path.join(directory, f"here{us.cluster.index}")):
        hang(us, directory)


def build(us, report, disks):
    """Notes who has built what all read, on the disk of each."""
    from engine.workers import worker_dirs
    directory = disks[us.cluster.index]
    path = os.path.join(directory, "built")
    worker_dirs.find_builder(directory, us)

    def make():
        if not os.path.exists(path):
            files.write_text(path, f"worker {us.cluster.index}")

    worker_dirs.build_once(path, {}, make)
    with open(path) as built:
        files.write_text(os.path.join(report, f"read_by_{us.cluster.index}"), built.read())


def begin(us, report, directories):
    """Notes what each worker finds in its output directory, and writes there."""
    from engine.checkpoints import checkpoint_files
    from engine.workers import worker_dirs
    index = us.cluster.index
    own = worker_dirs.output_directory(directories[index], us, is_training=True)
    hashes = {name: files.hash_of_file(os.path.join(own, name)) for name in os.listdir(own)
             if os.path.isfile(os.path.join(own, name))}
    files.write_json(os.path.join(report, f"{index}.json"), [
        hashes, checkpoint_files.list_checkpoints(own), own])
    files.write_text(os.path.join(own, f"by_{index}"), "")


def main(values):
    us = coordination.Peers(cluster.from_environment(), values.heartbeat_timeout)
    command.at_exit(us.leave)
    us.meet(values.peer_timeout)
    globals()[values.call](us, *json.loads(values.arguments))
    us.wait_for_chief()


def define_flags():
    values = flags.FlagValues()
    flags.DEFINE_string("call", None, "", flag_values=values)
    flags.DEFINE_string("arguments", "[]", "", flag_values=values)
    flags.DEFINE_float("peer_timeout", 60.0, "", flag_values=values)
    flags.DEFINE_float("heartbeat_timeout", 30.0, "", flag_values=values)
    flags.DEFINE_bool("do_train", True, "", flag_values=values)  # what several workers do
    return values


if __name__ == "__main__":
    command.run(main, define_flags(), usage=__doc__)
