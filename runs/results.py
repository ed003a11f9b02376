"""The files of an evaluation and of predictions, and tables in the log."""

import math
import os
from typing import Any, Collection, Dict, Iterable, Mapping, Sequence

from engine import log
from engine.disk import files
from engine.training import summaries

FILES = ("eval_results.txt", "eval_results.json")
# The results that Google's run_classifier and run_pretraining write, in their order.
_ORIGINAL_KEYS = ("eval_accuracy", "eval_loss", "global_step", "loss")


def write(output_dir: str, results: Mapping[str, float], details: Mapping[str, Any],
          global_step: int, in_tables: Collection[str] = ()) -> Dict[str, float]:
    """Writes and logs the metrics of a model, as lines `name = value` and as JSON.

    Args:
        results: metric → value.
        details: JSON values for eval_results.json alone.
        global_step: of the model; 0 if it has none, as an export.
        in_tables: names of results that are not logged here.

    Returns:
        The results in the order of eval_results.txt.
    """
    results = _in_order({**results, **({"global_step": global_step} if global_step else {})})
    write_lines(os.path.join(output_dir, FILES[0]),
                (f"{name} = {value}" for name, value in results.items()))
    # A correlation can be NaN, which JSON does not have.
    figures = {name: value if math.isfinite(value) else None for name, value in results.items()}
    files.write_json(os.path.join(output_dir, FILES[1]), {**figures, **details})
    summaries.write_evaluation(output_dir, results, global_step)
    log.results({name: value for name, value in distinct(results).items() if name not in in_tables})
    return results


def distinct(results: Mapping[str, float]) -> Dict[str, float]:
    """The results without "loss" where Google's run_classifier writes "eval_loss" a second time."""
    return {name: value for name, value in results.items() if name != "loss" or "eval_loss" not in results}


def read(output_dir: str) -> Dict[str, float]:
    """The metrics that `write` has written; NaN for one that is not a number."""
    lines = files.read_text(os.path.join(output_dir, FILES[0]), "the results").splitlines()
    return {name: float(value) for name, value in (line.split(" = ") for line in lines)}


def _in_order(results: Dict[str, float]) -> Dict[str, float]:
    """Google's keys first, then the others by name. Without a loss, as in run_squad.py, none is moved."""
    if "eval_loss" in results:
        results["loss"] = results["eval_loss"]
    if "loss" not in results:
        return results
    names = [name for name in _ORIGINAL_KEYS if name in results]
    return {name: results[name] for name in names + sorted(set(results) - set(names))}


def write_lines(path: str, lines: Iterable[str]) -> None:
    """Writes a text file line by line."""
    with files.atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def log_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Logs a line for each row, below the names of the columns."""
    shown = [list(rows[0])] + [
        [f"{value:.4f}" if isinstance(value, float) else str(value) or "(none)"
         for value in row.values()] for row in rows] if rows else []
    widths = [max(map(len, column)) for column in zip(*shown)]
    for cells in shown:
        log.info("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())
