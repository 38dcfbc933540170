"""A gateway without a network behind it: a daemon's own door, desk and transport, on loopback."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import trio

from daa_dag.ids import ChainId
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.http_door import HttpDoor
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.adapters.offload import ThreadOffload
from daa_node.adapters.site_directory import SITE, read_site
from daa_node.adapters.system_clock import SystemClock, SystemEntropy
from daa_node.cli.free_ports import free_ports
from daa_node.errors import Unavailable
from daa_node.gateway.config import GatewayConfig
from daa_node.gateway.front_desk import Facts, FrontDesk
from daa_node.gateway.task_desk import Evidence
from daa_node.gateway.task_giver import Source
from daa_node.gateway.volunteers import Surroundings, Volunteers, door_for_both
from daa_node.identity.keys import NodeKeys
from daa_node.network.config import NetworkConfig
from daa_node.observability.events import EventLog
from daa_node.seams import BlobStore, PeerId
from daa_node.wire import protocols
from daa_node.wire.page_files import Site

CHAIN = ChainId(b"c" * 32)
STARTED_S = 60.0


async def _says_no_hello(peer_id: PeerId) -> bool:
    raise Unavailable(f"{peer_id} is no node")


@asynccontextmanager
async def gateway_alone(
    store: BlobStore,
    sources: Iterable[Source],
    events: EventLog,
    on_evidence: Callable[[Evidence], None],
    site: Path = SITE,
) -> AsyncIterator[str]:
    """The address of its page, while it is open."""
    keys, clock = NodeKeys.from_seed(b"gateway"), SystemClock()
    config = GatewayConfig(enabled=True, listen="127.0.0.1:0")
    network = NetworkConfig(listen=(f"/ip4/127.0.0.1/tcp/{free_ports(1)[0]}",), bootstrap=())
    transport = Libp2pTransport(keys.ed25519_seed, "alone", network)
    around = Surroundings(
        *(CHAIN, keys.node_id, transport, clock, SystemEntropy(), ThreadOffload(), store, events)
    )
    volunteers = Volunteers(config, around, sources, on_evidence)
    transport.set_handler(protocols.VOLUNTEER, volunteers.serve)
    transport.guard(
        door_for_both(_says_no_hello),
        frozenset({protocols.VOLUNTEER}),
        lambda peer_id, fault: None,
        lambda peer_id: False,
    )
    door = HttpDoor(config, None, events, Shortage(), Random(1))
    facts = Facts(
        *(CHAIN, keys.node_id, transport.peer_id, transport.addresses, lambda: 1),
        *(volunteers.wanted, volunteers.places),
    )
    door.set_desk(FrontDesk(config, Site(read_site(site)), facts).answer)
    async with trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        nursery.start_soon(volunteers.run)
        nursery.start_soon(door.run)
        with trio.fail_after(STARTED_S):
            while door.standing()["url"] is None:
                await trio.sleep(0.05)
        yield str(door.standing()["url"])
        nursery.cancel_scope.cancel()
