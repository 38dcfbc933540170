"""A record of contributors that nobody has come to yet, for tests of what goes on around it."""

from daa_dag.ids import NodeId
from daa_node.contributors.records import HealthRecords
from daa_node.observability.events import EventLog


def nobody_known() -> HealthRecords:
    return HealthRecords(NodeId(bytes(32)), lambda _node: None, EventLog(lambda: 0))
