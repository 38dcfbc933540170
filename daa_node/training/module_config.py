"""What a job says of a model that somebody brings: where its code is, and what that once built.

A person writes `path` and `arguments`. `genesis create` builds the module once and adds the rest,
so that every node knows the tensors, and how they start, without the module and without torch.
"""

import json
from math import isfinite
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from daa_node.errors import UserError
from daa_node.tensors import TensorSpec
from daa_node.updates.grid import GRID_MAX
from daa_node.updates.initial_weights import STD_MAX, TensorInit

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
PACKAGE = rf"^{_NAME}(\.{_NAME})*$"
BUILDER = rf"^{_NAME}(\.{_NAME})*:{_NAME}$"
PATH_CHARS_MAX = 256
ARGUMENTS_BYTES_MAX = 64 * 1024  # settings, not data
ARGUMENTS_DEPTH_MAX = 16
INTEGER_MAX = 2**63 - 1  # what canonical bytes hold
TENSORS_MAX = 16_384  # a model of 72 billion parameters has 963
DIMENSIONS_MAX = 8
NOISE_DEVIATIONS = 4  # the sum of four uniform numbers is at most 3.5 deviations off


def _checked(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _check_value("arguments", arguments, ARGUMENTS_DEPTH_MAX)
    if len(json.dumps(arguments)) > ARGUMENTS_BYTES_MAX:
        raise ValueError(f"more than {ARGUMENTS_BYTES_MAX} bytes: these are settings, not data")
    return {name: _in_order(arguments[name]) for name in sorted(arguments)}


def _in_order(value: JsonValue) -> JsonValue:
    """Sections by name: the chain id does not tell in which order they were written."""
    match value:
        case dict():
            return {name: _in_order(value[name]) for name in sorted(value)}
        case list():
            return [_in_order(item) for item in value]
        case _:
            return value


def _check_value(name: str, value: Any, depth_max: int) -> None:
    """The chain id covers arguments with fractions as text, so no text may look like one."""
    if depth_max == 0:
        raise ValueError(f"more than {ARGUMENTS_DEPTH_MAX} sections lie in each other")
    match value:
        case dict():
            for key, item in value.items():
                _check_value(f"{name}.{key}", item, depth_max - 1)
        case list():
            for index, item in enumerate(value):
                _check_value(f"{name}.{index}", item, depth_max - 1)
        case bool() | None:
            pass
        case float() if not isfinite(value):
            raise ValueError(f"{name}: {value} is no finite number")
        case int() if abs(value) > INTEGER_MAX:
            raise ValueError(f"{name}: {value} has more than 64 bits")
        case str() if not _is_utf8(value):
            raise ValueError(f"{name}: {value!r} is no text that UTF-8 can hold")
        case str() if _is_fraction(value):
            raise ValueError(f"{name}: {value!r} is a number in quotes: write it without them")
        case _:
            pass


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_fraction(text: str) -> bool:
    try:
        return repr(float(text)) == text
    except ValueError:
        return False


Arguments = Annotated[dict[str, JsonValue], AfterValidator(_checked)]


class ModuleTensor(BaseModel):
    """A trainable parameter: near-normal around `fill`, of deviation `std`; both count 2^-24."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern="^[!-~]{1,256}$")
    shape: tuple[Annotated[int, Field(ge=1, le=2**31)], ...] = Field(max_length=DIMENSIONS_MAX)
    std: int = Field(0, ge=0, le=STD_MAX)
    fill: int = Field(0, ge=-GRID_MAX, le=GRID_MAX)

    @model_validator(mode="after")
    def _stays_on_the_grid(self) -> Self:
        if abs(self.fill) + NOISE_DEVIATIONS * self.std > GRID_MAX:
            raise ValueError(f"{self.name} would start beyond the range of weights")
        return self

    @property
    def init(self) -> TensorInit:
        return TensorInit(TensorSpec(self.name, self.shape), self.std, self.fill)


class BuiltModule(BaseModel):
    """What `genesis create` found when it built the module."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_digest: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="blake3 of the file that has the function"
    )
    release: str | None = Field(
        None, pattern="^[!-~]{1,64}$", description="of transformers, where it has the model's code"
    )
    base_root: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="of first weights that are the base's own"
    )
    frozen: int | None = Field(
        None, ge=0, le=INTEGER_MAX, description="numbers that are computed with and not trained"
    )
    tensors: tuple[ModuleTensor, ...] = Field(min_length=1, max_length=TENSORS_MAX)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            raise ValueError("two tensors have one name")
        return self

    @model_serializer(mode="wrap")
    def _what_there_is(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


def module_of(path: str) -> str:
    """The dotted name of the module in `package.module:build`."""
    return path.partition(":")[0]


def check_allowed(path: str, allowed: tuple[str, ...], what: str = "model") -> None:
    """Raises UserError unless this host's settings let it run that code."""
    module = module_of(path)
    if any(module == name or module.startswith(f"{name}.") for name in allowed):
        return
    top = module.partition(".")[0]
    raise UserError(
        f"the {what} of this job is code that this host does not run: {path}. Read that code "
        f"first. Then, to allow it, set trainer.allow_modules: [{top}] in config.yaml"
        + (f" (it is [{', '.join(allowed)}] now)" if allowed else "")
    )
