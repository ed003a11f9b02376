"""How tests call the command: in a process of its own or, where many are needed, in this one."""

import contextlib
import json
import os
import resource
import subprocess
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import pytest

import processes
import run_classifier
from conftest import TinyModel, write_cola
from engine.cli import command
from runs import predict

Flags = Dict[str, object]


def arguments(flags: Flags) -> List[str]:
    """`--name=value` for each flag that is not None."""
    return [f"--{name}={value}" for name, value in flags.items() if value is not None]


def on_cola(model: TinyModel, folder, *, train: int = 48, dev: int = 0, test: int = 0, **flags: object) -> Flags:
    """The flags of an epoch on `write_cola`'s task, in steps of 8 examples; the folder gets its files and `out`.

    Args:
        train, dev, test: the number of examples of each set.
        flags: more flags, and those that shall have another value.
    """
    return {**model._asdict(), "task_name": "cola", "max_seq_length": 24, "do_train": True, "train_batch_size": 8,
            "data_dir": write_cola(folder / "cola", train=train, dev=dev, test=test), "num_train_epochs": 1,
            "num_cpu_replicas": 1, "output_dir": folder / "out", **flags}


def run_here(flags: Flags, module: ModuleType = run_classifier) -> None:
    """Runs a command in this process; raises SystemExit where it ends with an error."""
    command.run(module.main, module.define_flags(), usage="",
                argv=[f"{module.__name__}.py", *arguments(flags)])


def results_in(folder) -> Dict[str, float]:
    """The numbers of eval_results.txt, in its order."""
    with open(os.path.join(str(folder), "eval_results.txt")) as file:
        return {name: float(value) for name, value in (line.split(" = ") for line in file)}


def results_of(folder) -> Dict[str, Any]:
    """The content of eval_results.json."""
    with open(os.path.join(str(folder), "eval_results.json")) as file:
        return json.load(file)


def answers_of(model, texts: Iterable[Any], folder, **flags: object) -> List[Dict[str, Any]]:
    """What `runs.predict` answers with a model to texts, or to tuples of them; the folder gets its files."""
    lines = (text if isinstance(text, str) else "\t".join(text) for text in texts)
    (folder / "asked.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run_here({"output_dir": model, "input_file": folder / "asked.tsv", "header": False, "num_cpu_replicas": 1,
              "output_file": folder / "answers.jsonl", **flags}, predict)
    return list(map(json.loads, (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()))


def answers_one_by_one(module: str, lines: Iterable[str], **flags: object) -> Tuple[List[Dict[str, Any]], str]:
    """A command's answers to lines that are sent one by one, each after an answer; and its log."""
    process = processes.start(["-m", module, *arguments(dict(format="jsonl", num_gpus=0, **flags))], stdin=-1)
    answers = []
    for line in lines:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        answers.append(process.stdout.readline())
    process.stdin.close()
    process.stdin = None
    rest, errors = process.communicate(timeout=600)
    assert process.returncode == 0 and not rest, errors
    return [json.loads(answer) for answer in answers], errors


@contextlib.contextmanager
def ends_with_error(capsys, *parts: str) -> Iterator[List[str]]:
    """What runs in it ends with status 2 and one line, the last one, which has all the parts.

    The list that it gives has all lines afterwards.
    """
    capsys.readouterr()
    lines: List[str] = []
    with pytest.raises(SystemExit) as ended:
        yield lines
    lines += capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], lines
    assert "Traceback" not in "".join(lines) and len(lines[-1]) < 1000
    for part in parts:
        assert part in lines[-1]


def run_command(*args: str, cards: str = "", address_space: Optional[int] = None,
                **environment: str) -> subprocess.CompletedProcess:
    """Runs `python run_classifier.py` as people do.

    Args:
        cards: CUDA_VISIBLE_DEVICES.
        address_space: bytes that the process may have.
        environment: variables that are set for it.
    """
    limit = address_space and (
        lambda: resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space)))
    process = start_command(*args, cards=cards, before=limit, **environment)
    output, errors = process.communicate(timeout=600)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def start_command(*args: str, cards: str = "",
                  before: Optional[Callable[[], None]] = None, code: str = "",
                  **environment: str) -> subprocess.Popen:
    """Starts it and does not wait; `before` is called in the process, and `code` runs there, before the command."""
    program = ["-c", code + processes.RUN_MODULE, "run_classifier"] if code else ["run_classifier.py"]
    return processes.start([*program, *args], before=before,
                           env={**os.environ, "CUDA_VISIBLE_DEVICES": cards, **environment})
