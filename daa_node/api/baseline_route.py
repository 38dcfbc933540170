"""The run that the operator holds beside this one, over HTTP; or why there is none to be seen."""

from collections.abc import Callable
from typing import Any

import trio

from daa_node.api.drawn_answers import Beside
from daa_node.api.replies import told
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.chronicle.baseline import Baseline
from daa_node.errors import UserError
from daa_node.seams import Offload
from daa_node.wire.http_messages import Reply

SCHEMA_VERSION = 1
NONE_NAMED = "no other run is named: history.baseline in config.yaml may name a file"


def baseline_route(read: Callable[[], Baseline] | None, offload: Offload) -> Route:
    """It is read anew each time, so that another file in its place is seen; one reader at once."""
    turn = trio.Semaphore(1)

    def tell() -> dict[str, Any]:
        assert read is not None
        try:
            return {"baseline": read().as_told(), "why_not": None}
        except UserError as fault:
            return {"baseline": None, "why_not": str(fault)}

    async def answer(_: Asked) -> Reply:
        if read is None:
            found: dict[str, Any] = {"baseline": None, "why_not": NONE_NAMED}
        else:
            async with turn:
                found = await offload.run(tell)
        return told({"schema_version": SCHEMA_VERSION, **found})

    meaning = "Another run to hold beside this one, from the file that history.baseline names."
    return Route("GET", "/v1/baseline", Right.READ, answer, tells=Beside, meaning=meaning)
