"""The door of the operator's HTTP API: that of the page, with fewer places and its own rights."""

from dataclasses import dataclass
from random import Random

from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.http_door import HttpDoor, Manners
from daa_node.api.event_stream import STREAMS_MAX
from daa_node.api.replies import POLICY
from daa_node.observability.events import API_FAILED, API_OPENED, EventLog

SOCKETS_MAX = 32  # a scraper, a dashboard's six, a few scripts, each a few times over
NEWCOMERS = 8  # sockets beyond it, while whoever gives way to them ends
DESCRIPTORS_MAX = SOCKETS_MAX + NEWCOMERS + STREAMS_MAX + 2  # and its listeners
MANNERS = Manners(
    "api",
    lambda events, url, listens: events.emit(API_OPENED, url=url, listens=listens),
    lambda events, error, retry_s: events.emit(API_FAILED, error=error, retry_s=retry_s),
    SOCKETS_MAX,
    NEWCOMERS,
    POLICY,
    STREAMS_MAX,
    takes_bodies=True,
)


@dataclass(frozen=True, slots=True)
class OnLoopback:
    """Where it is: no proxy and no certificate come into it."""

    listen: str
    hosts: tuple[str, ...] = ()
    behind_proxy: bool = False
    is_secure: bool = False


def operator_door(listen: str, events: EventLog, shortage: Shortage, lots: Random) -> HttpDoor:
    return HttpDoor(OnLoopback(listen), None, events, shortage, lots, MANNERS)
