"""The library's host, which serves a stream to whom its protocol is open, or who is admitted.

A visitor is served the one protocol that it is here for, and those that are nobody's of ours.

Nothing that a stream's handler raises leaves its stream.
"""

from typing import cast

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import StreamHandlerFn, TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.network.stream.net_stream import NetStream
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator

from daa_node.adapters.budgets import OPEN_SERVICE_UNITS
from daa_node.adapters.libp2p_admissions import cancel_after
from daa_node.adapters.libp2p_negotiation import BriefServer, PromptClient
from daa_node.adapters.libp2p_swarm import NEGOTIATE_TIMEOUT_S, BoundedSwarm
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.yamux_streams import YamuxStream


class GatedHost(BasicHost):
    """Serves a stream only when its protocol is open to strangers or its peer is admitted."""

    def __init__(self, network: BoundedSwarm) -> None:
        super().__init__(
            network,
            negotiate_timeout=NEGOTIATE_TIMEOUT_S,
            disable_identify_address_discovery=True,
        )
        self.multiselect_client = PromptClient()
        self.multiselect = BriefServer()  # libp2p_courtesy's ping and identify, not the library's
        network.notifees.clear()  # what peers claim about themselves is read in hello, signed
        self.swarm = network
        self.open_protocols: frozenset[str] = frozenset()
        self.courtesies: frozenset[str] = frozenset()  # open, and of any program
        self.admission_timeout_s = 0.0

    async def _swarm_stream_handler(self, net_stream: INetStream) -> None:
        try:
            await self._answer(net_stream)
        except* Exception:
            # one stream: the library's own handlers raise on a peer's bytes, and would end us all
            await net_stream.reset()
        finally:
            cast(YamuxStream, cast(NetStream, net_stream).muxed_stream).release()

    async def _answer(self, net_stream: INetStream) -> None:
        protocol, handler = await self.multiselect.negotiate(
            MultiselectCommunicator(net_stream), NEGOTIATE_TIMEOUT_S
        )
        is_open = protocol in self.open_protocols or protocol in self.courtesies
        if is_open:
            cast(YamuxSession, net_stream.muxed_conn).bill.units += OPEN_SERVICE_UNITS
        peer_id, admissions = net_stream.muxed_conn.peer_id, self.swarm.admissions
        visits = admissions.visits(peer_id)
        if visits is not None:
            welcome = protocol == visits or protocol in self.courtesies
        else:
            welcome = is_open or await admissions.wait(peer_id, self.admission_timeout_s)
        if welcome and protocol is not None and handler is not None:
            net_stream.set_protocol(protocol)
            await _serve_while_connected(net_stream, handler)
        else:
            await net_stream.reset()

    def set_stream_handler(self, protocol_id: TProtocol, stream_handler: StreamHandlerFn) -> None:
        self.multiselect.add_handler(protocol_id, stream_handler)


async def _serve_while_connected(stream: INetStream, handler: StreamHandlerFn) -> None:
    """The library lets a handler that does not read outlive its connection, for ever."""
    session = cast(YamuxSession, stream.muxed_conn)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_after, session.event_closed, nursery.cancel_scope)
        await handler(stream)
        nursery.cancel_scope.cancel()
