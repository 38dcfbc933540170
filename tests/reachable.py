"""All that some objects hold, so that a test can count it."""

import gc
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType

CODE = (type, ModuleType, BuiltinFunctionType)


def reachable(
    roots: Iterable[object], apart: tuple[type, ...] = (), packages_apart: tuple[str, ...] = ()
) -> list[object]:
    """Each once, but code, and what is of the types or of the packages that stand apart."""
    found, waiting = dict[int, object](), [*roots]
    while waiting:
        each = waiting.pop()
        package = type(each).__module__.partition(".")[0]
        if id(each) in found or isinstance(each, CODE + apart) or package in packages_apart:
            continue
        found[id(each)] = each
        held = each.__closure__ if isinstance(each, FunctionType) else gc.get_referents(each)
        waiting += held or ()
    return [*found.values()]
