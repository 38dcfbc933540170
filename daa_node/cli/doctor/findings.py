"""What a check says: how bad it is, the exact cause, and what to do about it.

The cause is the sentence that `run` or `join` would end with, where there is one: whoever searches
for what he was told finds it here.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from daa_node.advice.table import advice_of
from daa_node.cli.doctor.scene import Scene


class Level(StrEnum):
    """ERROR: the node cannot run, or does no work. WARNING: it does, and something is amiss."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNMEASURED = "unmeasured"  # nothing was found out, and `cause` says why


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    level: Level
    cause: str
    advice: str = ""  # of what is well: none


Find = Callable[[Scene], Awaitable[list[Finding]]]


@dataclass(frozen=True, slots=True)
class Check:
    """Looks at one thing; `find` may look at what its flags name."""

    name: str
    find: Find
    needs_config: bool = False
    needs_genesis: bool = False


def well(check: str, cause: str) -> Finding:
    return Finding(check, Level.OK, cause)


def unmeasured(check: str, why: str) -> Finding:
    return Finding(check, Level.UNMEASURED, why)


def wrong(check: str, cause: str, advice: str = "") -> Finding:
    """With the advice of the table, unless it is given."""
    return Finding(check, Level.ERROR, cause, advice or advice_of(cause))


def amiss(check: str, cause: str, advice: str = "") -> Finding:
    """As `wrong`, of what the node can run with."""
    return Finding(check, Level.WARNING, cause, advice or advice_of(cause))
