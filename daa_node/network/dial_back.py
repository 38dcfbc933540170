"""Dial others back that ask for it, so that they learn whether they can be dialled.

Request: canonical `[token, [port, ...]]`. Response: canonical `[host, seconds]`, where the asker is
seen and within which time it has had its turn, as soon as that is certain; then its ports there are
dialled, one after the other, and the token is said. Nothing tells the asker, or anybody, what
became of a dial: it hears the bell or does not.

It is no port scanner: only the address that the asker's own connection comes from is dialled, and
no result is told. It is no amplifier: each dial is paid for by a request, one dial goes on at a
time for members and one for all others, and each asker and all strangers have a budget.
"""

import math
from dataclasses import dataclass, field
from typing import TypeGuard

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.pace import Pace
from daa_node.seams import BELL_TOKEN_BYTES, Doorbell, IsMember, PeerId
from daa_node.wire.hosts import is_host

REQUEST = "dial-back"
PORTS_MAX = 2  # a node listens on one; another one may be forwarded to it
PORT_MAX = 65_535
REQUEST_BYTES_MAX = 128
HOST_CHARACTERS_MAX = 64
RING_TIMEOUT_S = 2.5  # a SYN is repeated after one second
WAITING_MAX = 2  # beside the one that is served; more are told to ask again
ASKER_EVERY_S, ASKER_BURST = 20.0, 3.0  # of one peer
STRANGERS_EVERY_S, STRANGERS_BURST = 5.0, 6.0  # of all that are no members together
ASKERS_KEPT_MAX = 1024
# Two ports of as many askers as there are.
SECONDS_MAX = math.ceil((1 + WAITING_MAX) * PORTS_MAX * RING_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class _Turn:
    host: str
    ports: tuple[int, ...]
    token: bytes


@dataclass(slots=True)
class _Lane:
    """Who is dialled now, and who comes next."""

    turns: list[_Turn] = field(default_factory=list)
    come: trio.Event = field(default_factory=trio.Event)


class DialBack:
    """The answering side. `run` dials."""

    def __init__(self, doorbell: Doorbell, is_member: IsMember) -> None:
        self._doorbell = doorbell
        self._is_member = is_member
        self._members, self._strangers = _Lane(), _Lane()
        self._of_strangers = Pace(1 / STRANGERS_EVERY_S, STRANGERS_BURST)
        self._of_askers: dict[PeerId, Pace] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_turns, self._members)
            nursery.start_soon(self._take_turns, self._strangers)

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
        if len(lane.turns) > WAITING_MAX:
            raise Unavailable("busy: others are dialled back, ask again later")
        lane.turns.append(_Turn(host, ports, token))
        lane.come.set()
        seconds = math.ceil(sum(len(turn.ports) for turn in lane.turns) * RING_TIMEOUT_S)
        return canonical.encode([host.partition("%")[0], seconds])  # our interface's name is ours

    async def _take_turns(self, lane: _Lane) -> None:
        while True:
            await lane.come.wait()
            for port in lane.turns[0].ports:
                with trio.move_on_after(RING_TIMEOUT_S):
                    await self._doorbell.ring(lane.turns[0].host, port, lane.turns[0].token)
            del lane.turns[0]
            if not lane.turns:
                lane.come = trio.Event()

    def _pace_of(self, peer_id: PeerId) -> Pace:
        pace = self._of_askers.get(peer_id)
        if pace is None:
            if len(self._of_askers) >= ASKERS_KEPT_MAX:
                self._of_askers = {
                    p: kept for p, kept in self._of_askers.items() if not kept.is_full
                }
            if len(self._of_askers) >= ASKERS_KEPT_MAX and not self._is_member(peer_id):
                raise Unavailable("too many ask to be dialled back: ask again later")
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


def decode_answer(payload: bytes) -> tuple[str, int]:
    """Where we are seen, and in how many seconds we know.

    Raises PeerFault("dial-back-malformed").
    """
    try:
        value = canonical.decode(payload, HOST_CHARACTERS_MAX + 8)
    except NotCanonical as fault:
        raise PeerFault("dial-back-malformed", str(fault)) from None
    match value:
        case [str(host), int(seconds)] if is_host(host) and 0 <= seconds <= SECONDS_MAX:
            return host, seconds
    raise PeerFault("dial-back-malformed", "an answer is an IP address and some seconds")


def _is_port(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= PORT_MAX
