"""The record of a run in its output directory (run.json), which keeps two runs apart."""

import contextlib
import fnmatch
import glob
import os
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from absl import flags

from engine import log
from engine.checkpoints import checkpoint_files, checkpoints
from engine.data import plan
from engine.disk import files, provenance, scratch
from engine.errors import UserError
from engine.settings import recorded
from engine.training import settings as run_settings
from engine.training.course import Course
from engine.version import VERSION
from engine.workers import worker_dirs
from engine.workers.coordination import Peers

FILE = worker_dirs.RUN_RECORD

# The name of the global batch size in the settings; it determines the order of the examples.
GLOBAL_BATCH_SIZE = "global batch size"

# The batches of a window of the plan, which determine the order, too.
WINDOW_BATCHES = "batches of a window"
TRIES, TRY = "tries", "lr-*_seed-*"  # the folder of the tries of a search, and of each of them, which has a record

# Flags that say the same thing: if one is given, no recorded value of another is kept.
_ALTERNATIVES = ({"precision", "fp16"}, {"eval_every_steps", "eval_each_epoch"})


class Record(NamedTuple):
    """A run, as JSON values under names for people ("task", "vocabulary")."""
    facts: Mapping[str, Any]  # identify the run; a resumed run must have the same
    settings: Mapping[str, Any]  # a resumed run may have others
    warning: Optional[str] = None  # set if the training does not learn
    # The first step and the size of each global batch, if it has changed; the last is that of the settings.
    batches: Optional[Sequence[Tuple[int, int]]] = None
    # The lengths of batches for which XLA compiles, none where it is off; None: not decided.
    compiled_lengths: Optional[List[int]] = None
    output_layer: Optional[Mapping[str, Any]] = None  # how good it was before the first step, if it was fitted
    dev_set: Optional[str] = None  # the hash of the set that judges it; versions before have none

    @property
    def all_settings(self) -> Dict[str, Any]:
        """With those among the facts; lists and objects there are of the model, whose description has them."""
        return {**{name: value for name, value in self.facts.items()
                   if name.startswith("--") and not isinstance(value, (list, dict))}, **self.settings}


def load(output_dir: str) -> Optional[Record]:
    """The record in a directory; None if there is none. Settings that it lacks have their defaults."""
    path = os.path.join(output_dir, FILE)
    if not os.path.exists(path):
        return None
    read = files.read_record(path, "the run's record", {"facts": dict, "settings": dict}, Record._field_defaults)
    record = Record(*(read[name] for name in Record._fields))._replace(settings={
        WINDOW_BATCHES: plan.WINDOW_BATCHES,  # as in version 1.0
        **recorded(run_settings.TrainingSettings(), run_settings.EvaluationSettings()),
        "--fit_output_layer": False,  # as in version 1.0
        **read["settings"]})
    window, lengths = record.settings[WINDOW_BATCHES], record.compiled_lengths
    sizes = record.batches or [[0, record.settings.get(GLOBAL_BATCH_SIZE, 1)]]
    for name, value, is_right in (
            (WINDOW_BATCHES, window, window in range(1, plan.WINDOW_BATCHES + 1)),
            ("global batches", sizes, _are_batches(sizes)),
            ("compiled_lengths", lengths, lengths is None or isinstance(lengths, list) and all(
                type(length) is int and length > 0 for length in lengths))):
        if not is_right:
            raise UserError(f"{path} is damaged: its {name} are {log.brief(repr(value))}")
    return record


def _are_batches(sizes: Any) -> bool:
    """Whether these are first steps, from 0 on, and sizes."""
    return isinstance(sizes, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(
            isinstance(number, int) and 0 <= number <= run_settings.MAX_STEPS for number in pair)
        and pair[1] for pair in sizes) and sizes[0][0] == 0 and sorted(sizes) == sizes


def keep_settings(values: flags.FlagValues, peers: Peers) -> None:
    """Sets the flags of a resumed training that are not given to the values that its record has.

    So a run that another version started keeps that version's defaults.
    """
    if not values.do_train:
        return
    record, facts = peers.from_chief("recorded settings", lambda: _resumed_settings(values.output_dir))
    given = {name for name in values if values[name].present}
    given.update(*(names for names in _ALTERNATIVES if names & given))
    if not values.do_eval:  # a training alone evaluates nothing on the way
        given.update(name for name in values if f"--{name}" in recorded(
            run_settings.EvaluationSettings()))
    kept = []
    for name in sorted({*values} - given - {"init_checkpoint"}):
        flag = values[name]
        value = record.get(f"--{name}", flag.value)
        if value == flag.value:
            continue
        if flag.value is not None or f"--{name}" not in facts:  # else the command would choose what the run is
            kept.append(f"--{name}={value}")
        try:
            flag.value = flag.parser.parse(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"{os.path.join(values.output_dir, FILE)}: {value!r} is no value of "
                            f"--{name} ({error}); give that flag") from error
    if kept:
        log.info(f"{values.output_dir} is resumed with its recorded {', '.join(kept)}")


def _resumed_settings(output_dir: Optional[str]) -> Tuple[Dict[str, Any], List[str]]:
    """The recorded settings of the run that a training in this directory resumes, or else none; its facts' names.

    None is no value: the run had no use for the setting, and its flag keeps its default.
    """
    record = _resumed(output_dir) if output_dir else None
    if not record:
        return {}, []
    of_each_try = () if checkpoints.latest(output_dir) else ("--seed", "--learning_rate")
    return {name: value for name, value in record.all_settings.items() if name.startswith("--")
            and name not in of_each_try and value is not None}, [*record.facts]


def _resumed(output_dir: str) -> Optional[Record]:
    """The record of the run, or of a search that it belongs to, if one is resumed in this directory."""
    if checkpoints.latest(output_dir):
        return load(output_dir)
    parent, name = os.path.split(output_dir)
    is_try = os.path.basename(parent) == TRIES and fnmatch.fnmatch(name, TRY)
    tries = parent if is_try else os.path.join(output_dir, TRIES)
    records = sorted(glob.glob(os.path.join(glob.escape(tries), TRY, FILE)))
    return load(os.path.dirname(records[0])) if records else None


def window_batches(output_dir: str, num_train_steps: int) -> int:
    """The batches of a window of the plan: those of the run or search that is resumed, or else `plan`'s."""
    record = _resumed(output_dir)
    return record.settings[WINDOW_BATCHES] if record else plan.window_batches(num_train_steps)


def check(output_dir: str, facts: Mapping[str, Any]) -> None:
    """Refuses an output directory that belongs to a run with other facts.

    Args:
        facts: compared with the record. Facts may be missing: an evaluation, for example, need
            not know the training data.
    """
    record = load(output_dir)
    if not record or not checkpoints.latest(output_dir):
        return
    # Until version 2.0, distillation recorded some of today's facts among the settings alone.
    for name, change in changed({**record.settings, **record.facts}, facts).items():
        raise UserError(f"--output_dir={output_dir} belongs to a run with another {name}: "
                        f"{change}; use another --output_dir")


def check_dev_set(output_dir: str, dev_set: Optional[str]) -> None:
    """Raises a UserError if another dev set has judged a training, whose scores the new ones would be compared with."""
    record = load(output_dir)
    if record and record.dev_set not in (None, dev_set):
        raise UserError(f"{output_dir} is a training that another dev set has judged; use that set again, or another "
                        "--output_dir; to evaluate a trained model on this set, leave out --do_train and the tries")


def check_model(folder: str, flag: str, facts: Mapping[str, Any]) -> None:
    """Raises a UserError if a model's facts differ from the run.json of its folder. `flag`: names the model."""
    known = (load(folder) or Record({}, {})).facts
    facts = {name: facts[name] for name in facts.keys() & known.keys() - {"task"}}  # which only its training names
    for name, change in changed(known, facts).items():
        line = f"{flag}: its {name} is not that of its training, as {FILE} says: {change}"
        if not isinstance(known[name], list) or set(facts[name]) == set(known[name]):
            raise UserError(f"{line}; a file in {folder} was changed, or is another model's: put the model's own there")
        log.warn(line)  # labels may get better names, but not each other's


def batches(output_dir: str, global_batch_size: int) -> List[Tuple[int, int]]:
    """The first step and the size of each global batch up to the newest checkpoint, as recorded.

    Args:
        global_batch_size: of a run without a record, which is new or another program's.
    """
    checkpoint, record = checkpoints.latest(output_dir), load(output_dir)
    if not (checkpoint and record):
        return [(0, global_batch_size)]
    sizes = record.batches or [(0, record.settings.get(GLOBAL_BATCH_SIZE, global_batch_size))]
    return [(first_step, size) for first_step, size in sizes if first_step <= checkpoint.global_step]


def resume(output_dir: str, record: Record, course: Course, allow_batch_change: bool) -> List[Tuple[int, int]]:
    """Checks the settings of a run that has steps left, and warns of those that have changed.

    Another global batch size, which also changes the number and the order of the steps that are left, is
    refused without `allow_batch_change`.

    Args:
        course: with the global batches that the run has had.

    Returns:
        The run's global batches.
    """
    checkpoint, earlier = checkpoints.latest(output_dir), load(output_dir)
    size, sizes = record.settings[GLOBAL_BATCH_SIZE], list(course.batches)
    if not checkpoint:
        return sizes
    changes, step = changed((earlier or record).settings, record.settings), checkpoint.global_step
    if GLOBAL_BATCH_SIZE in changes and not allow_batch_change:
        done = course.share_after(step)
        raise UserError(f"--output_dir={output_dir} belongs to a run with another {GLOBAL_BATCH_SIZE}: "
                        f"{changes[GLOBAL_BATCH_SIZE]}; {done:.1%} of its examples are trained: keep the size, or "
                        f"set --allow_batch_change to train the other {1 - done:.1%} in steps of another size")
    for name, change in changes.items():
        log.warn(f"the run in {output_dir} is resumed with another {name}: {change}")
    if not earlier:
        log.warn(f"{output_dir} has a checkpoint at step {step} of another "
                 "program, such as Google's; this run resumes from it")
    while sizes and sizes[-1][0] == step:  # no step was done with it
        sizes.pop()
    return sizes if sizes and sizes[-1][1] == size else [*sizes, (step, size)]


@contextlib.contextmanager
def recording(output_dir: str, record: Record, is_chief: bool) -> Iterator[None]:
    """A context for a training: writes its record. If no checkpoint was saved, the earlier one, or none, is left.

    Only the chief writes it, since only the chief saves checkpoints.
    """
    if not is_chief:
        yield
        return
    path = os.path.join(output_dir, FILE)
    earlier = files.read_text(path, "the run's record") if os.path.exists(path) else ""
    before = checkpoint_files.list_checkpoints(output_dir)
    try:  # a signal may arrive once the file exists
        write(output_dir, record)
        yield
    finally:
        left = checkpoint_files.list_checkpoints(output_dir)
        if not scratch.lost() and os.path.exists(path):
            if not left:
                os.remove(path)
            elif earlier and left[-1:] == before[-1:]:
                files.write_text(path, earlier)


def update(output_dir: str, **changes: Any) -> None:
    """Changes entries of the record of a training, or removes them (None)."""
    record = load(output_dir)
    if record and record._replace(**changes) != record:
        write(output_dir, record._replace(**changes))


def write(output_dir: str, record: Record) -> None:
    """Writes the record of a training."""
    entries = {name: value for name, value in record._asdict().items() if value is not None}
    files.write_json(os.path.join(output_dir, FILE), {"version": VERSION, **entries})


def difference(output_dir: str, record: Record) -> str:
    """Describes how a directory's run differs from `record`, in what that has; empty if it does not."""
    earlier = load(output_dir) or Record({}, {})
    found = {**changed(earlier.facts, record.facts), **changed(earlier.settings, record.settings)}
    return next((f"{name}: {change}" for name, change in found.items()), "")


def changed(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Dict[str, str]:
    """The values of `now` that were others, by their names, and how."""
    changes = {name: provenance.change(earlier.get(name), value) for name, value in now.items()}
    return {name: change for name, change in changes.items() if change}
