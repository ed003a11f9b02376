"""The results of `benchmarks.gpu` as Markdown tables."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

Results = Mapping[str, Optional[Dict[str, Any]]]  # by stage; None: not measured yet

# NVIDIA's published figures of BERT-large in TensorFlow 1 (DeepLearningExamples), sequences/s.
ANCHORS = [("pretraining, 128 tokens", "1 × A100", 357, 238),
           ("pretraining, 128 tokens", "8 × A100", 2872, 1890),
           ("SQuAD, 384 tokens", "1 × A100", 102, 61)]
CHECKS = ("first-step", "placement", "equivalence", "not-a-number", "interruption")
_AS_FLAGS = {"private_threads": "`TF_GPU_THREAD_MODE=gpu_private`"}  # in the environment
_ABOUT = ("cards", "machine", "tensorflow", "commit", "date", "stage_seconds")
_COLUMNS = {"batch": "batch a card", "sequences_per_second": "sequences/s", "tflops": "TFLOP/s",
            "memory_gb": "memory, GB", "first_step_seconds": "first step, s"}


def text(results: Results) -> str:
    """All tables, for a file."""
    return "\n".join(["# On cards\n", *_about(results), *_checks(results), *_trainings(results),
                      *_flags(results), *_scaling(results), *_others(results), *_anchors()])


def _about(results: Results) -> List[str]:
    """The machines and commits of the results."""
    seen = dict.fromkeys(
        f"{found['cards'] or 'no card'}; {found['machine']}; TensorFlow {found['tensorflow']}; "
        f"commit {found['commit']}; {found['date']}" for found in results.values() if found)
    return [f"`python -m benchmarks.gpu` on {line}\n" for line in seen]


def _checks(results: Results) -> List[str]:
    rows = []
    for name in CHECKS:
        found = results[name]
        if found:
            verdict = "" if "ok" not in found else "holds" if found["ok"] else "DOES NOT HOLD"
            rows.append([name, verdict, _facts(found)])
    return _table("Correctness", ["check", "", "what was found"], rows)


def _trainings(results: Results) -> List[str]:
    rows = [[name[len("pretraining-"):], *_speed(found),
             str((results.get(f"largest-batch-{name[len('pretraining-'):]}") or {}).get(
                 "largest_batch", "–"))]
            for name, found in results.items() if found and name.startswith("pretraining-")]
    return _table("Pretraining, all tokens full, one card",
                  ["model", *_COLUMNS.values(), "largest batch"], rows)


def _flags(results: Results) -> List[str]:
    """The flags that won, for each model and length."""
    best: Dict[str, Any] = {}
    for name, found in results.items():
        if name.startswith("pretraining-") and found and "sequences_per_second" in found:
            _, size, length, *flags = name.split("-")
            best.setdefault(f"{size}, {length} tokens", []).append(
                (found["sequences_per_second"], flags))
    rows = []
    for model, tried in best.items():
        speed, (precision, *aids) = max(tried, key=lambda one: one[0])
        rows.append([model, " ".join([f"`--precision={precision}`", *(
            _AS_FLAGS.get(aid, f"`--{aid}`") for aid in aids)]), f"{speed:,.1f}", str(len(tried))])
    return _table("The fastest way to train", ["", "flags", "sequences/s", "of so many tried"], rows)


def _scaling(results: Results) -> List[str]:
    rows = []
    for name, found in results.items():
        if not (found and name.startswith("scaling-")):
            continue
        cell, count, _ = name[len("scaling-"):].rsplit("-", 2)
        one = results[f"pretraining-{cell}"] or {}
        times = "–"
        if "sequences_per_second" in found and "sequences_per_second" in one:
            times = f"{found['sequences_per_second'] / one['sequences_per_second']:.2f} ×"
        rows.append([cell, count, *_speed(found), times])
    return _table("Several cards", ["model", "cards", *_COLUMNS.values(), "of one card's"], rows)


def _others(results: Results) -> List[str]:
    rows = [[name, _facts(found)] for name, found in results.items()
            if found and name not in CHECKS
            and not name.startswith(("pretraining-", "scaling-", "largest-batch-"))]
    return _table("Other work", ["", "what was found"], rows)


def _anchors() -> List[str]:
    rows = [[work, cards, f"{float16:,}", f"{tf32:,}"] for work, cards, float16, tf32 in ANCHORS]
    return _table("To compare with: BERT-large in TensorFlow 1 as NVIDIA published it, sequences/s",
                  ["", "cards", "float16", "TF32"], rows)


def _speed(found: Dict[str, Any]) -> List[str]:
    if "sequences_per_second" not in found:
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


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> List[str]:
    if not rows:
        return []
    lines = [f"## {title}\n", "| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    return [*lines, *["| " + " | ".join(row) + " |" for row in rows], ""]
