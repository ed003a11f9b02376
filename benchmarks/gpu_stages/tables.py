"""The results of `benchmarks.gpu` as Markdown tables, a question each."""

import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

Results = Mapping[str, Optional[Dict[str, Any]]]  # by stage; None: not measured yet

SPEED = "sequences_per_second"
_ABOUT = ("cards", "machine", "tensorflow", "commit", "date", "stage_seconds")
_COLUMNS = {"batch": "batch a card", SPEED: "sequences/s", "step_ms": "step, ms",
            "tflops": "TFLOP/s", "memory_gb": "memory, GB", "first_step_seconds": "first step, s"}


def text(results: Results) -> str:
    """All tables, for a file."""
    right, traces = ([[name, _verdict(found), _facts(found)] for name, found in _found(results, kinds)]
                     for kinds in ("fine-tuning-mini|right|command", "trace"))
    trainings = [[name, *_speed(found),  # and how often the figure without what the name ends with
                  _ratio(results, name, re.sub(r"-xla$|-\d+-cards$", "", name))]
                 for name, found in _found(results, "fine-tuning|pretraining")]
    tables = (
        ("Does a step run, and is it right?", ["", "", "what was found"], right),
        ("How fast is it?", ["", *_COLUMNS.values(), "without XLA, or on one card"], trainings),
        ("How fast is Hugging Face's model on PyTorch?",
         ["", "sequences/s", "ours beside it", "with XLA"], _peers(results)),
        ("Where does the time go?", ["", "", "what was found"], traces))
    return "\n".join(["# On cards\n", *_about(results),
                      *(_table(*table) for table in tables if table[-1])])


def _found(results: Results, kinds: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    return ((name, found) for name, found in results.items()
            if found and re.match(f"({kinds})", name))


def _about(results: Results) -> List[str]:
    """The machines and commits of the results."""
    seen = dict.fromkeys(
        f"{found['cards'] or 'no card'}; {found['machine']}; TensorFlow {found['tensorflow']}; "
        f"commit {found['commit']}; {found['date']}" for found in results.values() if found)
    return [f"`python -m benchmarks.gpu` on {line}\n" for line in seen]


def _verdict(found: Dict[str, Any]) -> str:
    if "failed" in found:
        return "FAILED"
    return "holds" if found.get("ok", True) else "DOES NOT HOLD"


def _ratio(results: Results, name: str, other: str, of_other: str = SPEED) -> str:
    mine, others = ((results.get(each) or {}).get(key)
                    for each, key in ((name, SPEED), (other, of_other)))
    return f"{mine / others:.2f} ×" if mine and others and name != other else "–"


def _peers(results: Results) -> List[List[str]]:
    key = "peers_" + SPEED
    return [[name, _value(found[key]) if key in found else _facts(found),
             *(_ratio(results, name.replace("peer-", "") + aid, name, key) for aid in ("", "-xla"))]
            for name, found in _found(results, "peer")]


def _speed(found: Dict[str, Any]) -> List[str]:
    if SPEED not in found:
        return [_facts(found), *[""] * (len(_COLUMNS) - 1)]
    return [_value(found.get(column)) for column in _COLUMNS]


def _facts(found: Dict[str, Any]) -> str:
    return "; ".join(f"{name}: {_value(value)}" for name, value in found.items()
                     if name not in (*_ABOUT, "ok"))


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
    if isinstance(value, list):
        return ", ".join(map(str, value[:5])) + (" …" if len(value) > 5 else "") or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items())
    return str(value).replace("|", "\\|")


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return f"## {title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)
