"""Dial the endpoints that a peer names for a bulk session; one of them must prove to hold it.

first byte, token, proof  -->
                          <--  proof of its own
"""

import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import trio

from daa_node.adapters.bulk_door import FIRST_BYTE
from daa_node.adapters.bulk_sockets import read_up_to, tune
from daa_node.adapters.sealed_stream import close_quietly
from daa_node.adapters.simultaneous_open import is_in_reach
from daa_node.adapters.waiting_room import network_of
from daa_node.identity.session import PROOF_BYTES, WHERE_SEEN, Endpoint, SessionKeys
from daa_node.seams import PeerId
from daa_node.wire.hosts import is_host

DIAL_TIMEOUT_S = 2.0  # one round trip and a half; who cannot be dialled is relayed instead
DIAL_STAGGER_S = 0.05  # between endpoints: the first that works usually wins alone
# A peer that could not be dialled is not dialled again for a minute: each attempt costs 2 s.
UNDIALABLE_FOR_S = 60.0
UNDIALABLE_MAX = 1024
OTHER_PORT_LEAST = 1024  # at an address that we do not see the peer at: no host's own services


def near(endpoints: Iterable[Endpoint], seen_at: str | None) -> tuple[Endpoint, ...]:
    """Of those that a peer names, where it may have us dial: it could look for others' open ports.

    Where its connection with us comes from (`seen_at`, None through a relay), or at another address
    of that kind: a peer on the internet names nobody in our own network, nor on our host.
    """
    return tuple(
        each
        for each in _placed(endpoints, seen_at)
        if network_of(each.host) == network_of(seen_at)
        or (each.port >= OTHER_PORT_LEAST and is_in_reach(each.host, seen_at or ""))
    )


def at_its_own(endpoints: Iterable[Endpoint], seen_at: str | None) -> tuple[Endpoint, ...]:
    """Of those that a peer names, which are where its connection with us comes from."""
    placed = _placed(endpoints, seen_at)
    return tuple(each for each in placed if network_of(each.host) == network_of(seen_at))


def _placed(endpoints: Iterable[Endpoint], seen_at: str | None) -> list[Endpoint]:
    """By number: who announces a name alone leaves it to us to see where that has led."""
    if seen_at is None:
        return []
    placed = [replace(e, host=seen_at) if e.host == WHERE_SEEN else e for e in endpoints]
    return [each for each in placed if is_host(each.host)]


Connect = Callable[[str, int], Awaitable[trio.SocketStream]]  # raises OSError


class EndpointDialer:
    """Dials peers, and remembers for a while who cannot be dialled."""

    def __init__(self, connect: Connect = trio.open_tcp_stream) -> None:
        self._connect = connect
        self._undialable: OrderedDict[PeerId, float] = OrderedDict()  # until when

    async def dial(self, peer_id: PeerId, keys: SessionKeys) -> trio.SocketStream | None:
        """The first endpoint that proves to hold the session; None when none does in 2 s."""
        now_s = trio.current_time()
        if now_s < self._undialable.get(peer_id, 0.0):
            return None
        endpoints = [e for e in keys.endpoints if is_host(e.host)]
        won: list[trio.SocketStream] = []

        async def attempt(index: int, endpoint: Endpoint) -> None:
            await trio.sleep(index * DIAL_STAGGER_S)
            stream = await self._greet(endpoint, keys)
            if stream is not None:
                won.append(stream)  # only one can: the token is good once
                nursery.cancel_scope.cancel()

        with trio.move_on_after(DIAL_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                for index, endpoint in enumerate(endpoints):
                    nursery.start_soon(attempt, index, endpoint)
        if won:
            self._undialable.pop(peer_id, None)
            return won[0]
        if endpoints:
            self._undialable[peer_id] = now_s + UNDIALABLE_FOR_S
            if len(self._undialable) > UNDIALABLE_MAX:
                self._undialable.popitem(last=False)
        return None

    async def _greet(self, endpoint: Endpoint, keys: SessionKeys) -> trio.SocketStream | None:
        """Connect and exchange proofs; None when that fails for any reason."""
        try:
            stream = await self._connect(endpoint.host, endpoint.port)
        except OSError:
            return None
        proved = False
        try:
            tune(stream)
            await stream.send_all(FIRST_BYTE + keys.token + keys.dial_proof())
            proof = await read_up_to(stream, PROOF_BYTES)
            # a stranger may sit at an address that the peer has in its own network and we in ours
            proved = hmac.compare_digest(proof, keys.welcome_proof())
        except trio.BrokenResourceError:
            return None
        finally:
            if not proved:
                await close_quietly(stream)
        return stream if proved else None
