"""Settings, each defined once, as a field of a dataclass.

The field's name is the flag's name, its annotation the flag's type, and `setting` gives the
default, the range, the help text and whether a resumed run may change the value. The flags and their
checks, the run's record, the report, the model card and docs/flags.md are made from the fields.
"""

import dataclasses
import functools
import math
from typing import (
    Any, Callable, Container, Dict, List, Optional, Sequence, Tuple, Type, TypeVar, Union,
    get_type_hints)

from absl import flags

from engine.errors import UserError

# A frozen dataclass whose fields are all made by `setting`. Its attribute `topic` is the heading of
# its flags in --help.
Settings = TypeVar("Settings")

MAX_SEED = 2**31 - 1
AUTO = "auto"  # the third value of a switch

# What becomes of a resumed run whose record (run.json) has another value: it logs the change or is refused. A value
# that does not affect the trained model is not recorded.
LOGGED, REFUSED, UNRECORDED = "logged", "refused", "unrecorded"


def setting(default: Any, help_text: str, *, positive: bool = False,
            between: Optional[Tuple[float, float]] = None, choices: Sequence[str] = (),
            change: str = LOGGED) -> Any:
    """A field of a settings class.

    Args:
        positive: the value must be greater than 0.
        between: the lowest and the highest value allowed.
        choices: the allowed values of a text.
        change: of a setting of a training: LOGGED, REFUSED or UNRECORDED.
    """
    return dataclasses.field(default=default, metadata=dict(
        help=help_text, positive=positive, between=between, choices=choices, change=change))


def define_flags(values: flags.FlagValues, cls: Type[Settings], *names: str,
                 topic: Optional[str] = None) -> None:
    """Defines the flags of the named settings of a class, by default of all.

    Args:
        topic: replaces the topic of the class.
    """
    types = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if not names or field.name in names:
            _definition(types[field.name], field.metadata["choices"])(
                field.name, field.default, help=field.metadata["help"], flag_values=values,
                module_name=topic or cls.topic)


def from_flags(values: flags.FlagValues, cls: Type[Settings]) -> Settings:
    """Settings from flags; a setting without a flag in this command has its default."""
    return cls(**{field.name: _checked(values, field) for field in dataclasses.fields(cls)
                  if field.name in values})


def recorded(*settings: Any, change: str = LOGGED) -> Dict[str, Any]:
    """The values that run.json records and whose change is LOGGED or REFUSED, by flag: {"--seed": 42, ...}."""
    return {f"--{field.name}": getattr(each, field.name) for each in settings
            for field in dataclasses.fields(each) if field.metadata["change"] == change}


def positive(values: flags.FlagValues, name: str) -> Any:
    """The value of a flag. Raises a UserError if it is not greater than 0."""
    value = values[name].value
    if not 0 < value < math.inf:  # also refuses NaN
        raise UserError(f"--{name}={value}: must be a number greater than 0")
    return value


def in_range(values: flags.FlagValues, name: str, low: float, high: float) -> Any:
    """The value of a flag. Raises a UserError if it is not from `low` to `high`, inclusive."""
    value = values[name].value
    if not low <= value <= high:
        raise UserError(f"--{name}={value}: must be between {low} and {high}")
    return value


def as_facts(values: flags.FlagValues, without_effect: Container[str]) -> Dict[str, Any]:
    """The flags that determine an output, by their names with --."""
    return {f"--{name}": values[name].value for name in values
            if name not in without_effect and "help" not in name}


def required(values: flags.FlagValues, name: str) -> str:
    """The value of a flag. Raises a UserError if it is not given or empty."""
    value = values[name].value
    if not value:
        raise UserError(f"--{name} is required")
    return value


def _checked(values: flags.FlagValues, field: dataclasses.Field) -> Any:
    value = values[field.name].value
    if value is None and field.default is None:
        return None
    if field.metadata["positive"]:
        return positive(values, field.name)
    if field.metadata["between"]:
        return in_range(values, field.name, *field.metadata["between"])
    return value


def _definition(annotation: Any, choices: Sequence[str]) -> Callable:
    """absl's function that defines a flag of this type; Optional[int] counts as int."""
    if choices:
        return functools.partial(flags.DEFINE_enum, enum_values=list(choices))
    alternatives: List[Any] = list(getattr(annotation, "__args__", None) or [annotation])
    if alternatives == [bool, str]:
        return functools.partial(
            flags.DEFINE, _SwitchParser(), serializer=flags.ArgumentSerializer(), boolean=True)
    return {int: flags.DEFINE_integer, float: flags.DEFINE_float, bool: flags.DEFINE_bool,
            str: flags.DEFINE_string}[alternatives[0]]


class _SwitchParser(flags.BooleanParser):
    """A boolean, by --name and --noname too, or auto."""

    def parse(self, argument: Union[bool, str]) -> Union[bool, str]:
        return argument if argument == AUTO else super().parse(argument)
