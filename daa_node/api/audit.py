"""What was asked of a node that may change it: who, when, what, and what came of it.

Logs have a bound, so whoever fills them pushes out what stood there. All that the admin token does
is told; of the one that reads, which is in more hands and can do nothing, a few a day.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from daa_node.api.tokens import Right
from daa_node.network.pace import Pace
from daa_node.wire.http_messages import Reply, Visit

PATH_CHARACTERS_MAX = 120
OUTCOME_CHARACTERS_MAX = 300
# Of the token that reads, which the door would answer 64 times a second: they fill a quarter of a
# megabyte in a week.
READ_DEEDS_AT_ONCE, READ_DEED_EVERY_S = 20, 600.0
_NAMES = {Right.NOTHING: "nobody", Right.READ: "read", Right.ADMIN: "admin"}


@dataclass(frozen=True, slots=True)
class Deed:
    """One request of somebody who has a token; others change nothing, and could fill a disk."""

    token: str  # which one: `read`, whose deeds are refused, or `admin`
    visitor: str  # the address that it came from
    method: str
    path: str
    asked: Any  # the body, as JSON; None: it was refused before it was read
    status: int
    outcome: str  # why it was refused; "" if it was not

    def line(self, ts: float) -> str:
        """Of the audit log. `ts`: unix seconds."""
        return json.dumps(
            {
                "ts": ts,
                "token": self.token,
                "visitor": self.visitor,
                "asked": f"{self.method} {self.path}",
                "body": self.asked,
                "status": self.status,
                "outcome": self.outcome,
            },
            separators=(",", ":"),
        )


def deed_of(right: Right, visit: Visit, asked: Any, reply: Reply) -> Deed:
    """What came of that visit."""
    words = reply.body.decode(errors="replace").strip() if reply.status >= 400 else ""
    return Deed(
        token=_NAMES[right],
        visitor=visit.visitor[:PATH_CHARACTERS_MAX],
        method=visit.method[:PATH_CHARACTERS_MAX],
        path=visit.target[:PATH_CHARACTERS_MAX],
        asked=asked,
        status=reply.status,
        outcome=words[:OUTCOME_CHARACTERS_MAX],
    )


class Audit:
    """Hands on what is to be told; the others are counted, and the next one says how many."""

    def __init__(self, write: Callable[[Deed], None]) -> None:
        self._write = write
        self._pace: Pace | None = None  # of the token that reads
        self._left_out = 0

    def note(self, right: Right, deed: Deed) -> None:
        """That who has this right did this."""
        if right is Right.ADMIN:
            self._write(deed)
            return
        self._pace = self._pace or Pace(1 / READ_DEED_EVERY_S, READ_DEEDS_AT_ONCE)
        if not self._pace.take_at_once():
            self._left_out += 1
            return
        if self._left_out:
            words = f"{deed.outcome}; {self._left_out} before it are not told"
            deed = replace(deed, outcome=words)
            self._left_out = 0
        self._write(deed)
