"""--shard=I/N: a command takes one of N parts of its input, and writes that part's output.

The parts need no knowledge of each other: SLURM arrays, indexed Jobs of Kubernetes and GNU parallel run
them anywhere. Each writes an output file, and beside it a record of its input, model and flags.
"""

import os
import re
import sys
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from absl import flags

from engine import log, settings
from engine.disk import parts
from engine.disk.artifact import WHOLE, Artifact, State
from engine.disk.provenance import Source
from engine.errors import UserError

HELP_TOPIC = "Parts of the input"  # of the flags defined here
# What does not change the output; of a model and of an input, the hashes count.
_WITHOUT_EFFECT = frozenset((
    "input_file", "output_dir", "output_file", "num_gpus", "n_gpus", "num_cpu_replicas", "replicas_per_gpu",
    "store_dir", "shard", "check_shards", "num_processes",
    "skip_bad_lines"))  # of a finished part: without the flag, one with a bad line fails


class Shard(NamedTuple):
    """The part number `index`, from 0, of `count`."""
    index: int
    count: int

    def output(self, path: str) -> str:
        """The path of this part's output: NAME-00017-of-00200.EXTENSION."""
        name, extension = os.path.splitext(path)
        return f"{name}-{self.index:05}-of-{self.count:05}{extension}"

    def parts_of(self, paths: Sequence[str]) -> List[parts.Part]:
        """This part of some files, which may be empty."""
        return parts.parts_of(paths, self.index, self.count)

    def part_of(self, path: str) -> parts.Part:
        """This part of a file, which may hold nothing."""
        if path.endswith(".gz"):
            raise UserError(f"--shard={self.index}/{self.count}: {path} is compressed, and only text can be "
                            "cut into parts; unpack it")
        size = os.path.getsize(path)
        return next(iter(self.parts_of([path])), parts.Part(path, size, size))


def define_flags(values: flags.FlagValues) -> None:
    """Defines the flags of this module."""
    flags.DEFINE_string("shard", None, "Takes part I of N parts of the input, with I from 0, as in 17/200: "
                        "its output is <name>-00017-of-00200. Parts can run at the same time, on any machine "
                        "that has the same files.", flag_values=values)
    flags.DEFINE_integer("check_shards", None, "Instead of working, lists which of N parts are missing or "
                         "were made from something else; the exit status is 1 if there are any.",
                         lower_bound=1, flag_values=values)


def define_skip_flag(values: flags.FlagValues) -> None:
    """Defines --skip_bad_lines, for a command that has an output line for each line of its input."""
    flags.DEFINE_bool("skip_bad_lines", False, "A line that is not UTF-8 gets {\"error\": why} in the "
                      "output, and does not end the command. Not for CSV, whose rows may have several "
                      "lines.", flag_values=values)


def from_flags(values: flags.FlagValues, inputs: Optional[str] = "input_file") -> Optional[Shard]:
    """The part that --shard names; None without the flag.

    Args:
        inputs: the flag of the input, if it is optional.
    """
    if not (values.shard or values.check_shards):
        return None
    flag = f"--shard={values.shard}" if values.shard else f"--check_shards={values.check_shards}"
    for name in filter(None, (inputs, "output_file" if "output_file" in values else None)):
        if not values[name].value:
            raise UserError(f"{flag} needs --{name}: parts are cut from a file and written to files")
    if not values.shard:
        return Shard(0, values.check_shards)
    match = re.fullmatch(r"(\d+)/(\d+)", values.shard)
    if not match or not int(match.group(1)) < int(match.group(2)):
        raise UserError(f"{flag}: must be I/N with I from 0 to N - 1, for example 0/8 for the first of 8 "
                        "parts")
    return Shard(*map(int, match.groups()))


def facts_of(values: flags.FlagValues, shard: Optional[Shard]) -> Dict[str, Any]:
    """What an output depends on, but for the model: flags, and --input_file or the part of it."""
    return {**settings.as_facts(values, _WITHOUT_EFFECT),
            "input": [Source(shard.part_of(values.input_file))] if shard else Source(values.input_file)}


def sources(paths: Sequence[str], shard: Optional[Shard], whole: str) -> List[Source]:
    """The files, or of each the part that is taken, perhaps nothing. `whole`: see `Source`."""
    taken = {part.path: part for part in shard.parts_of(paths)} if shard else dict(zip(paths, paths))
    return [Source(taken.get(path, parts.Part(path, *2 * [os.path.getsize(path)])), whole)
            for path in paths]


def check(values: flags.FlagValues, outputs: Sequence[str],
          facts: Callable[[Shard], Mapping[str, Any]]) -> None:
    """If --check_shards is set, lists the parts to be made (again) on standard output, and exits.

    Args:
        outputs: the command's without --shard; beside each part is its record, NAME.json.
        facts: (part) → the facts that its record must have.
    """
    count = values.check_shards
    if not count:
        return

    def state_of(part: Shard) -> State:
        its_facts = facts(part)
        states = [Artifact(part.output(path), its_facts).state() for path in outputs]
        return next((state for state in states if state.name != WHOLE), State(WHOLE))

    states = {index: state_of(Shard(index, count)) for index in range(count)}
    odd = {index: state for index, state in states.items() if state.name != WHOLE}
    for index, state in odd.items():
        print(f"{index}/{count}\t{state}")
    if odd:
        log.warn(f"{len(odd):,} of {count:,} parts are missing or were made from something else; "
                 "--shard=I/N makes each of them")
        sys.exit(1)
    log.info(f"all {count:,} parts are there")
    sys.exit()
