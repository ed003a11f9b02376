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
    right, traces = ([[name, _verdict(result), _facts(result)]
                      for name, result in _of_kind(results, kinds)]
                     for kinds in ("fine-tuning-mini|right|command", "trace"))
    trainings = [[name, *_speed(result),  # and how often the figure without what the name ends with
                  _ratio(results, name, re.sub(r"-xla$|-\d+-cards$", "", name))]
                 for name, result in _of_kind(results, "fine-tuning|pretraining")]
    tables = (
        ("Does a step run, and is it right?", ["", "", "figures"], right),
        ("How fast is it?", ["", *_COLUMNS.values(), "without XLA, or on one card"], trainings),
        ("How fast is Hugging Face's model on PyTorch?",
         ["", "sequences/s", "ours beside it", "with XLA"], _peers(results)),
        ("Where does the time go?", ["", "", "figures"], traces))
    return "\n".join(["# On cards\n", *_about(results),
                      *(_table(*table) for table in tables if table[-1])])


def _of_kind(results: Results, kinds: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    return ((name, result) for name, result in results.items()
            if result and re.match(f"({kinds})", name))


def _about(results: Results) -> List[str]:
    """The machines and commits of the results."""
    seen = dict.fromkeys(
        f"{result['cards'] or 'no card'}; {result['machine']}; TensorFlow {result['tensorflow']}; "
        f"commit {result['commit']}; {result['date']}" for result in results.values() if result)
    return [f"`python -m benchmarks.gpu` on {line}\n" for line in seen]


def _verdict(result: Dict[str, Any]) -> str:
    if "failed" in result:
        return "FAILED"
    return "holds" if result.get("ok", True) else "DOES NOT HOLD"


def _ratio(results: Results, name: str, other: str, of_other: str = SPEED) -> str:
    mine, others = ((results.get(each) or {}).get(key)
                    for each, key in ((name, SPEED), (other, of_other)))
    return f"{mine / others:.2f} ×" if mine and others and name != other else "–"


def _peers(results: Results) -> List[List[str]]:
    key = "peers_" + SPEED
    return [[name, _value(result[key]) if key in result else _facts(result),
             *(_ratio(results, name.replace("peer-", "") + aid, name, key) for aid in ("", "-xla"))]
            for name, result in _of_kind(results, "peer")]


def _speed(result: Dict[str, Any]) -> List[str]:
    if SPEED not in result:
        return [_facts(result), *[""] * (len(_COLUMNS) - 1)]
    return [_value(result.get(column)) for column in _COLUMNS]


def _facts(result: Dict[str, Any]) -> str:
    return "; ".join(f"{name}: {_value(value)}" for name, value in result.items()
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
