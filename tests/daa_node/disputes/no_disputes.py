"""Disputes of a network that checks nobody, for tests of what goes on around them."""

from typing import Any, cast

from daa_dag.ids import NodeId
from daa_node.disputes.disputes import Disputes
from daa_node.disputes.parts import DisputeParts
from daa_node.observability.events import EventLog
from daa_node.spot_checks.checks import CheckRules
from daa_node.spot_checks.lot import Lot

NOTHING = cast(Any, None)


def no_disputes() -> Disputes:
    return Disputes(
        DisputeParts(
            me=NodeId(bytes(32)),
            rules=CheckRules(Lot((0, 1), 1), 0, (1, 1000), ()),
            trainer=NOTHING,
            store=NOTHING,
            fetch=NOTHING,
            named_fault=NOTHING,
            last_boundary=NOTHING,
            see_base=NOTHING,
            tolerance_of=NOTHING,
            reach=NOTHING,
            voice=NOTHING,
            events=EventLog(lambda: 0),
        )
    )
