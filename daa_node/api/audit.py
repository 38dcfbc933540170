"""What was asked of a node that may change it: who, when, what, and what came of it."""

import json
from dataclasses import dataclass
from typing import Any

from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Reply, Visit

PATH_CHARACTERS_MAX = 120
OUTCOME_CHARACTERS_MAX = 300
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
