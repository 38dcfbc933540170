"""Whether others can dial us, by what members of the committee show who dial us back.

    unknown --a blocking weight has rung----------------------> direct
        \\----a blocking weight has tried, and none rang here--> unreachable
    either one holds until such a weight shows the other

A blocking weight holds an honest member, so liars decide nothing; that they rang, we hear ourselves
(see doorbell). Each member has a token of its own, so that none can ring for another. Who cannot be
dialled tells others no address, and is not dialled in vain: it dials them.

Behind a router that forwards our port by hand, or a cloud's, this host knows no address that can be
dialled. Members that get through know it: where a blocking weight of them sees us, others are told.
"""

import ipaddress
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import trio

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.contacts import Contacts
from daa_node.network.dial_back import PORTS_MAX, REQUEST, DialBack, decode_answer, encode_request
from daa_node.network.requests import Requests
from daa_node.network.turns import in_turn_of, share_of
from daa_node.observability.events import REACHABILITY_CHANGED, EventLog
from daa_node.seams import BELL_TOKEN_BYTES, Address, Doorbell, Entropy, PeerId, Transport

ANSWER_BYTES_MAX = 128
ASK_TIMEOUT_S = 5.0
RING_LATE_S = 1.0  # after what the last one said: a token on its way, and a busy machine
FIRST_S = 1.0  # after the first members are there: others come, too
SPREAD_S = 6.0  # many that start at once ask one after another
CHECK_S = 1.0
ADDRESSES_CHECK_S = 5.0  # the system is asked for its interfaces
AGAIN_S = 900.0  # a router may have been told to let us through, or not to any more
AGAIN_SOON_S = 8.0  # those who came before us have had their turns
AGAIN_UNKNOWN_S = 25.0  # and after that; our budget with members allows it
ASKED_MAX = 64  # of a committee of a hundred a blocking weight is 34


class Reach(StrEnum):
    UNKNOWN = "unknown"
    DIRECT = "direct"
    UNREACHABLE = "unreachable"


@dataclass(slots=True)
class Findings:
    """What one measurement has shown."""

    rung: dict[NodeId, str] = field(default_factory=dict)  # and where each sees us
    silent: dict[NodeId, str] = field(default_factory=dict)  # took the request, and never rang
    refused: int = 0


class Reachability:
    """Of this node. `run` measures; `told` is what others are told."""

    def __init__(
        self,
        doorbell: Doorbell | None,
        transport: Transport,
        contacts: Contacts,
        requests: Requests,
        entropy: Entropy,
        events: EventLog,
        is_insisted: bool,
    ) -> None:
        """`doorbell` None: a world where everybody can be dialled.

        `is_insisted`: the operator says which addresses others are told, whatever we find.
        """
        self._doorbell = doorbell
        self._transport = transport
        self._contacts = contacts
        self._requests = requests
        self._entropy = entropy
        self._events = events
        self._is_insisted = is_insisted
        self._asked: list[Address] = []  # our addresses at the last measurement
        self._found = Findings()
        self._measured_at_s: float | None = None
        self._claimed: tuple[str, int] | None = None  # where our router says that it lets others in
        self.reach = Reach.UNKNOWN
        self.why = "not measured yet"

    def told(self) -> list[Address]:
        """Where others may dial us: nowhere, if nobody can."""
        return self._transport.addresses() if self.is_dialable else []

    def claim(self, host: str | None, port: int) -> None:
        """The router lets others in there, or nowhere any more: measure it soon, if it is news."""
        claimed = None if host is None else (host, port)
        if claimed != self._claimed:
            self._claimed, self._asked = claimed, []

    @property
    def is_dialable(self) -> bool:
        """Whether others are told our addresses."""
        return self.reach is not Reach.UNREACHABLE or self._is_insisted

    @property
    def is_unsure(self) -> bool:
        """Whether too few have looked to say, and the operator does not say it either."""
        return self.reach is Reach.UNKNOWN and not self._is_insisted

    def standing(self) -> Mapping[str, Any]:
        """For `status`."""
        at_s, found = self._measured_at_s, self._found
        return {
            "reach": str(self.reach),
            "why": self.why,
            "rung": sorted(node.hex() for node in found.rung),
            "silent": sorted(node.hex() for node in found.silent),
            "refused": found.refused,
            "seen_at": self.seen_at(),
            "measured_ago_s": None if at_s is None else round(trio.current_time() - at_s, 1),
        }

    async def run(self) -> None:
        """Measure, and dial others back. Until cancelled."""
        if self._doorbell is None:
            return
        dial_back = DialBack(self._doorbell, self._contacts.is_member)
        self._requests.register(REQUEST, dial_back.answer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dial_back.run)
            nursery.start_soon(self._keep_measuring, self._doorbell)

    async def _keep_measuring(self, doorbell: Doorbell) -> None:
        await trio.sleep(SPREAD_S * share_of(self._transport.peer_id))
        again_s = AGAIN_SOON_S
        while True:
            while not self._contacts.one_is_honest(self._contacts.members()):
                await trio.sleep(CHECK_S)
            await trio.sleep(FIRST_S)
            self._asked = self._transport.addresses()
            is_certain = await self._measure(doorbell)
            with trio.move_on_after(AGAIN_S if is_certain else again_s):
                while self._transport.addresses() == self._asked:
                    await trio.sleep(ADDRESSES_CHECK_S)
            again_s = AGAIN_SOON_S if is_certain else AGAIN_UNKNOWN_S

    async def _measure(self, doorbell: Doorbell) -> bool:
        """Whether it has come to a conclusion."""
        found, ports = Findings(), ports_of(self._transport.addresses())
        if self._claimed is not None:  # whoever rang at another one would prove nothing of it
            ports = (self._claimed[1],)
        if not ports:
            return self._conclude(found, Reach.UNREACHABLE, "this node listens on no TCP port")
        nodes = in_turn_of(self._contacts.me, self._contacts.members())[:ASKED_MAX]
        with ExitStack() as stack:
            rung: dict[NodeId, trio.Event] = {}
            seen: dict[NodeId, str] = {}
            waits_s = [0.0]

            async def ask(node: NodeId, peer_id: PeerId) -> None:
                token = self._entropy.bytes(BELL_TOKEN_BYTES)
                rung[node] = stack.enter_context(doorbell.awaiting(token))
                answer = await self._ask(peer_id, token, ports)
                if answer is None:
                    found.refused += 1
                else:
                    seen[node] = answer[0]
                    waits_s.append(answer[1] + RING_LATE_S)

            async with trio.open_nursery() as nursery:
                for node in nodes:
                    peer_id = self._contacts.peer_of(node)
                    if peer_id is not None:
                        nursery.start_soon(ask, node, peer_id)
            with trio.move_on_after(max(waits_s)):
                for node in seen:
                    await rung[node].wait()
            for node, host in seen.items():
                (found.rung if rung[node].is_set() else found.silent)[node] = host
        return self._judge(found, ports)

    async def _ask(
        self, peer_id: PeerId, token: bytes, ports: tuple[int, ...]
    ) -> tuple[str, int] | None:
        body = encode_request(token, ports)
        try:
            answer = await self._requests.ask(
                peer_id, REQUEST, body, ANSWER_BYTES_MAX, ASK_TIMEOUT_S
            )
            return decode_answer(answer)
        except Unavailable:
            return None
        except PeerFault as fault:
            self._contacts.blame(peer_id, fault)
            return None

    def _judge(self, found: Findings, ports: tuple[int, ...]) -> bool:
        rung, tried = len(found.rung), len(found.rung) + len(found.silent)
        if self._contacts.one_is_honest(found.rung.keys()):
            said = f"{rung} of {tried} members that dialled back got through"
            return self._conclude(found, Reach.DIRECT, said, ports)
        if self._contacts.one_is_honest(found.silent.keys()):
            said = f"{tried - rung} of {tried} members that dialled back did not get through"
            return self._conclude(found, Reach.UNREACHABLE, said)
        if self.reach is Reach.UNKNOWN:
            self._found = found
            self.why = f"{tried} members dialled back: too few to believe; {found.refused} did not"
        return False

    def _conclude(
        self, found: Findings, reach: Reach, why: str, ports: tuple[int, ...] = ()
    ) -> bool:
        before, self.reach, self.why, self._found = self.reach, reach, why, found
        self._measured_at_s = trio.current_time()
        if self._doorbell is not None:
            self._doorbell.is_dialable = self.is_dialable
            is_direct = reach is Reach.DIRECT
            self._doorbell.outside = self._proven(found, ports) if is_direct else None
        if reach is Reach.UNREACHABLE and self._is_insisted:
            self.why += "; the addresses under network.announce are told all the same"
        if reach is not before:
            self._events.emit(
                REACHABILITY_CHANGED,
                reach=str(reach),
                before=str(before),
                why=self.why,
                seen_at=self.seen_at(),
            )
        return True

    def _proven(self, found: Findings, ports: tuple[int, ...]) -> Address | None:
        """Where enough members see us and got through; None if they prove no one address.

        One alone may lie, and so would have whoever hears of us dial where it likes. Of two ports
        nobody tells which one rang.
        """
        if len(ports) != 1:
            return None
        hosts = self._hosts_unknown() if self._claimed is None else [self._claimed[0]]
        for host in hosts:
            if self._see_us_at(host, found.rung):
                return Address(f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{ports[0]}")
        return None

    def _hosts_unknown(self) -> list[str]:
        """Where members see us and we do not listen, as far as we know; the internet's first.

        Of two that are as good the one that is told: else one member would have others told of a
        change each time, where a host has two ways out.
        """
        assert self._doorbell is not None, "asked where it rings"
        proven = f"{self._doorbell.outside}/"  # has stood among our addresses since
        own = [each for each in self._transport.addresses() if not each.startswith(proven)]
        known, told = {each.split("/")[2] for each in own}, proven.split("/")
        seen = [ipaddress.ip_address(host) for host in self.seen_at() if host not in known]
        far = [each for each in seen if not (each.is_loopback or each.is_link_local)]
        far.sort(key=lambda each: (not each.is_global, str(each) not in told))
        return [str(each) for each in far]

    def seen_at(self) -> list[str]:
        """Where members see us, most of them first."""
        seen = Counter([*self._found.rung.values(), *self._found.silent.values()])
        return [host for host, _ in seen.most_common()]

    def surely_seen_at(self) -> set[str]:
        """Of these, where somebody honest sees us."""
        seen = self._found.rung | self._found.silent
        return {host for host in seen.values() if self._see_us_at(host, seen)}

    def _see_us_at(self, host: str, seen: Mapping[NodeId, str]) -> bool:
        """Whether enough of these do."""
        return self._contacts.one_is_honest({node for node, at in seen.items() if at == host})


def ports_of(addresses: list[Address]) -> tuple[int, ...]:
    """Those that we are dialled at, as far as others would dial them back."""
    found: dict[int, None] = {}
    for address in addresses:
        match address.split("/"):
            case ["", _, _, "tcp", port, *_] if port.isdecimal() and int(port):
                found[int(port)] = None
    return tuple(found)[:PORTS_MAX]
