"""Dial others back that ask for it, so that they learn whether they can be dialled.

Request: canonical `[token, [port, ...]]`. Response: canonical `[host]`, where the asker is seen, as
soon as its turn is certain; then its ports there are dialled, one after the other, and the token is
said. Nothing tells the asker, or anybody, what became of a dial: it hears the bell or does not.

It is no port scanner: only the address that the asker's own connection comes from is dialled, and
no result is told. It is no amplifier: each dial is paid for by a request, one dial goes on at a
time for members and one for all others, and each asker and all strangers have a budget.
"""

import ipaddress
from dataclasses import dataclass
from typing import TypeGuard

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.pace import Pace
from daa_node.seams import BELL_TOKEN_BYTES, Doorbell, IsMember, PeerId

REQUEST = "dial-back"
PORTS_MAX = 2  # a node listens on one; another one may be forwarded to it
PORT_MAX = 65_535
REQUEST_BYTES_MAX = 128
HOST_CHARACTERS_MAX = 64
# Two ports of three askers take fifteen seconds at most: an asker waits a little longer.
WAITING_MAX = 2  # beside the one that is served; more are told to ask again
ASKER_EVERY_S, ASKER_BURST = 20.0, 3.0  # of one peer
STRANGERS_EVERY_S, STRANGERS_BURST = 5.0, 6.0  # of all that are no members together
ASKERS_KEPT_MAX = 1024


@dataclass(frozen=True, slots=True)
class _Turn:
    host: str
    ports: tuple[int, ...]
    token: bytes


class DialBack:
    """The answering side. `run` dials."""

    def __init__(self, doorbell: Doorbell, is_member: IsMember) -> None:
        self._doorbell = doorbell
        self._is_member = is_member
        self._members = trio.open_memory_channel[_Turn](WAITING_MAX)
        self._strangers = trio.open_memory_channel[_Turn](WAITING_MAX)
        self._of_strangers = Pace(1 / STRANGERS_EVERY_S, STRANGERS_BURST)
        self._of_askers: dict[PeerId, Pace] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_turns, self._members[1])
            nursery.start_soon(self._take_turns, self._strangers[1])

    async def answer(self, peer_id: PeerId, body: bytes) -> bytes:
        """Raises PeerFault for what is no such request, Unavailable beyond budgets and turns."""
        token, ports = decode_request(body)
        host = self._doorbell.host_of(peer_id)
        is_member = self._is_member(peer_id)
        if not self._pace_of(peer_id).take_at_once():
            raise Unavailable(f"asked too often: one dial back in {ASKER_EVERY_S:.0f} s")
        if not is_member and not self._of_strangers.take_at_once():
            raise Unavailable("too many strangers ask to be dialled back: ask again later")
        lane = self._members if is_member else self._strangers
        try:
            lane[0].send_nowait(_Turn(host, ports, token))
        except trio.WouldBlock:
            raise Unavailable("busy: others are dialled back, ask again later") from None
        return canonical.encode([host])

    async def _take_turns(self, turns: trio.MemoryReceiveChannel[_Turn]) -> None:
        async for turn in turns:
            for port in turn.ports:
                await self._doorbell.ring(turn.host, port, turn.token)

    def _pace_of(self, peer_id: PeerId) -> Pace:
        pace = self._of_askers.get(peer_id)
        if pace is None:
            if len(self._of_askers) >= ASKERS_KEPT_MAX:
                self._of_askers = {
                    p: kept for p, kept in self._of_askers.items() if not kept.is_full
                }
            pace = self._of_askers[peer_id] = Pace(1 / ASKER_EVERY_S, ASKER_BURST)
        return pace


def encode_request(token: bytes, ports: tuple[int, ...]) -> bytes:
    return canonical.encode([token, list(ports)])


def decode_request(body: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The token and the ports. Raises PeerFault("dial-back-malformed")."""
    try:
        value = canonical.decode(body, REQUEST_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("dial-back-malformed", str(fault)) from None
    match value:
        case [bytes(token), [*ports]] if len(token) == BELL_TOKEN_BYTES:
            numbers = tuple(port for port in ports if _is_port(port))
            if numbers and len(set(numbers)) == len(ports) <= PORTS_MAX:
                return token, numbers
    raise PeerFault(
        "dial-back-malformed",
        f"a token of {BELL_TOKEN_BYTES} bytes and 1 to {PORTS_MAX} ports",
    )


def decode_answer(payload: bytes) -> str:
    """Where we are seen. Raises PeerFault("dial-back-malformed")."""
    try:
        value = canonical.decode(payload, HOST_CHARACTERS_MAX + 8)
    except NotCanonical as fault:
        raise PeerFault("dial-back-malformed", str(fault)) from None
    match value:
        case [str(host)] if _is_host(host):
            return host
    raise PeerFault("dial-back-malformed", "an answer is one IP address")


def _is_port(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= PORT_MAX


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return len(text) <= HOST_CHARACTERS_MAX
