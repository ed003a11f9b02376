"""The service without TensorFlow, which takes seconds to load and hundreds of megabytes.

Modules that build graphs have the readers of texts, too. `leave_out` makes them importable: what they take from
TensorFlow when they are imported stands for nothing.
"""

import importlib.abc
import os
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any, Iterator, NoReturn, Optional, Sequence, Tuple

_IS_NEEDED = "SERVING_WITH_TENSORFLOW"  # a variable of the environment


class _Nothing:
    """A type, a base class, a decorator, a value: whatever a module takes from TensorFlow when it is imported."""

    def __getattr__(self, name: str) -> "_Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *values: Any, **named: Any) -> "_Nothing":
        if not is_left_out():
            raise RuntimeError("a process without TensorFlow was to compute with it")
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Is not kept."""

    def __getitem__(self, key: Any) -> "_Nothing":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        """Is not kept."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __fspath__(self) -> str:
        return ""

    def __mro_entries__(self, bases: Sequence[Any]) -> Tuple[()]:
        return ()


class _Module(types.ModuleType):
    _nothing = _Nothing()

    def __getattr__(self, name: str) -> _Nothing:
        return getattr(self._nothing, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Optional[ModuleSpec]:
        is_ours = name.partition(".")[0] == "tensorflow"
        return ModuleSpec(name, self, is_package=True) if is_ours else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


_finder = _Finder()


def leave_out() -> None:
    """Has modules imported without TensorFlow from now on, unless it is loaded or needed."""
    if not ("tensorflow" in sys.modules or _IS_NEEDED in os.environ):
        sys.meta_path.insert(0, _finder)


def end() -> None:
    """Forgets what stood for TensorFlow: all that a service needs is loaded."""
    if is_left_out():
        sys.meta_path.remove(_finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _Module)]:
            del sys.modules[name]


def is_left_out() -> bool:
    """Whether modules are imported without TensorFlow."""
    return _finder in sys.meta_path


def start_again() -> NoReturn:
    """Starts the command again, in this process, with TensorFlow."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[_IS_NEEDED] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "serving.run", *sys.argv[1:]])
