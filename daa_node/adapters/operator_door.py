"""The door of the operator's HTTP API: that of the page, with fewer places and its own rights."""

import re
from dataclasses import dataclass, replace
from random import Random

from daa_node.adapters.certificate import Certificate
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.http_door import HttpDoor, Manners
from daa_node.api.event_stream import ADMIN_STREAMS, STREAMS_MAX
from daa_node.api.replies import POLICY
from daa_node.observability.events import API_FAILED, API_OPENED, EventLog

_PORT = re.compile(r":[0-9]+$")
SOCKETS_MAX = 32  # a scraper, a dashboard's six, a few scripts, each a few times over
NEWCOMERS = 8  # sockets beyond it, while whoever gives way to them ends
ANTEROOM = 64  # that have connected and said nothing: a crowd of these keeps nobody out
FOLLOWERS_MAX = STREAMS_MAX + ADMIN_STREAMS
DESCRIPTORS_MAX = SOCKETS_MAX + NEWCOMERS + FOLLOWERS_MAX + ANTEROOM + 2  # and its listeners
MANNERS = Manners(
    "api",
    lambda events, url, listens: events.emit(API_OPENED, url=url, listens=listens),
    lambda events, error, retry_s: events.emit(API_FAILED, error=error, retry_s=retry_s),
    SOCKETS_MAX,
    NEWCOMERS,
    POLICY,
    FOLLOWERS_MAX,
    ANTEROOM,
    takes_bodies=True,
)
# Beside it, for anybody: what is told there is made once a second, and nothing can be done.
PUBLIC_SOCKETS_MAX = 32
PUBLIC_DESCRIPTORS_MAX = PUBLIC_SOCKETS_MAX + NEWCOMERS + ANTEROOM + 2
PUBLIC_MANNERS = replace(
    MANNERS,
    service="public status",
    sockets_max=PUBLIC_SOCKETS_MAX,
    streams_max=0,
    takes_bodies=False,
)


@dataclass(frozen=True, slots=True)
class ApiPlace:
    """Where it is, and what stands before it; with a certificate `hosts` have no port."""

    listen: str
    hosts: tuple[str, ...] = ()
    behind_proxy: bool = False
    is_secure: bool = False


def operator_door(
    listen: str,
    events: EventLog,
    shortage: Shortage,
    lots: Random,
    certificate: Certificate | None = None,
    hosts: tuple[str, ...] = (),
    behind_proxy: bool = False,
) -> HttpDoor:
    """With a certificate it speaks HTTPS, and nothing else. `hosts`: as clients send them."""
    if certificate is not None:
        hosts = tuple(_PORT.sub("", host) for host in hosts)
    place = ApiPlace(listen, hosts, behind_proxy, certificate is not None)
    return HttpDoor(place, certificate, events, shortage, lots, MANNERS)


def public_door(
    listen: str,
    events: EventLog,
    shortage: Shortage,
    lots: Random,
    certificate: Certificate | None = None,
    hosts: tuple[str, ...] = (),
) -> HttpDoor:
    """For the public status; HTTPS with a certificate."""
    hosts = tuple(_PORT.sub("", host) for host in hosts)
    place = ApiPlace(listen, hosts, is_secure=certificate is not None)
    return HttpDoor(place, certificate, events, shortage, lots, PUBLIC_MANNERS)
