"""Reached through relays where nobody can dial us: reservations, and addresses that follow.

    unreachable --a relay grants one--> relayed --none is left--> unreachable
                                        relayed --a hole to some peer (see hole_punching)--> punched

Whoever does not know for long does both: it tells its own addresses and those through relays. It
may be behind a router, and know too few members that could tell it so.

A relay is a connected peer whose record says that it relays and that it can itself be dialled: by
number, or by a name if it is a member (see addresses). Members first, and as many as RELAYS_WANTED,
so that one that goes takes nobody with it. Each reservation is asked for again at half of its time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trio

from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.record import ADDRESS_CHARACTERS_MAX, ADDRESSES_MAX, NodeRecord
from daa_node.network.addresses import CIRCUIT, is_circuit, is_numeric, peer_id_in
from daa_node.network.contacts import Contacts
from daa_node.network.directory import Directory
from daa_node.network.hole_punching import HolePunching
from daa_node.network.port_mapping import PortMapping
from daa_node.network.reachability import Reach, Reachability
from daa_node.observability.events import RELAY_LOST, RELAY_RESERVED, EventLog
from daa_node.seams import Address, Circuits, PeerId, Transport
from daa_node.wire.framing import TRUNCATED

RELAYED, PUNCHED = "relayed", "punched"  # beside the words of Reach
CAPABILITY = "relay"  # in the record of a node that offers it
RELAYS_WANTED = 2
CHECK_S = 1.0
UNSURE_S = 30.0  # a second measurement has been made by then, too
ASK_TIMEOUT_S = 15.0
REFUSED_FOR_S = 30.0  # then it is asked again
REFUSED_KEPT_MAX = 64
RESERVED_S_MIN = 60.0  # a promise of less helps nobody, and keeps us busy
TOLD_MAX = 3  # peers of whom `status` says why they are no relays of ours
ID_SHOWN = 16  # digits, as `peers` shows them


@dataclass(slots=True)
class Reservation:
    """At one relay."""

    address: Address  # of ours, through it
    renew_at_s: float
    ends_at_s: float


@dataclass(frozen=True, slots=True)
class Aids:
    """What may make relays needless; None where a world has it not."""

    punching: HolePunching | None = None
    mapping: PortMapping | None = None


class Relaying:
    """`run` keeps reservations while we need them; `told` is where others may dial us."""

    def __init__(
        self,
        reachability: Reachability,
        circuits: Circuits | None,
        transport: Transport,
        contacts: Contacts,
        directory: Directory,
        events: EventLog,
        aids: Aids | None = None,
    ) -> None:
        """`circuits` None: a world where everybody can be dialled."""
        aids = aids or Aids()
        self._punching, self._mapping = aids.punching, aids.mapping
        self._reachability = reachability
        self._circuits = circuits
        self._transport = transport
        self._contacts = contacts
        self._directory = directory
        self._events = events
        self._held: dict[PeerId, Reservation] = {}
        self._refused: dict[PeerId, tuple[float, str]] = {}  # until when, and why
        self._unsure_from_s = float("inf")

    def told(self) -> list[Address]:
        through = [held.address for held in self._held.values()]
        return [*self._reachability.told()[: ADDRESSES_MAX - len(through)], *through]

    def standing(self) -> Mapping[str, Any]:
        """For `status`."""
        found = dict(self._reachability.standing())
        found["relays"] = list(self._held)
        found["router"] = None if self._mapping is None else self._mapping.standing()
        none: Mapping[str, Any] = {"punched": [], "not_punched": {}}
        found |= none if self._punching is None else self._punching.standing()
        if found["reach"] == Reach.UNREACHABLE and (self._held or found["punched"]):
            found["reach"] = PUNCHED if found["punched"] else RELAYED
        if self._circuits is not None and self._is_wanted() and not self._held:
            found["why"] = f"{found['why']}; no relay: {self._why_none()}"
        return found

    def is_relayed(self, peer_id: PeerId) -> bool:
        """Whether our connection with this peer goes through a relay."""
        return self._circuits is not None and self._circuits.is_relayed(peer_id)

    def is_punched(self, peer_id: PeerId) -> bool:
        """Whether it leads through a hole that both ends have punched."""
        return self._punching is not None and self._punching.is_punched(peer_id)

    def why_relayed(self, peer_id: PeerId) -> str:
        """Why no hole leads to this peer, with whom a relay joins us."""
        if self._punching is None:
            return "this node punches no holes"
        return self._punching.why_none(peer_id)

    async def run(self) -> None:
        """Until cancelled; measures whether we can be dialled as well."""
        self._unsure_from_s = trio.current_time() + UNSURE_S
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._reachability.run)
            if self._punching is not None:
                nursery.start_soon(self._punching.run)
            if self._mapping is not None:
                nursery.start_soon(self._mapping.run)
            if self._circuits is not None:
                nursery.start_soon(self._keep_reserved, self._circuits)

    async def _keep_reserved(self, circuits: Circuits) -> None:
        while True:
            await trio.sleep(CHECK_S)
            self._let_go(circuits)
            if not self._is_wanted():
                continue
            now_s = trio.current_time()
            due = [peer for peer, held in self._held.items() if held.renew_at_s <= now_s]
            for relay in (*due, *self._others()):  # who draws out its own keeps us from no other
                await self._reserve(circuits, relay)

    def _is_wanted(self) -> bool:
        """Whether somebody may be able to reach us through a relay alone."""
        if not self._reachability.is_dialable:
            return True
        return self._reachability.is_unsure and trio.current_time() >= self._unsure_from_s

    def _let_go(self, circuits: Circuits) -> None:
        """Of what does not help any more."""
        now_s, is_wanted = trio.current_time(), self._is_wanted()
        for relay, held in list(self._held.items()):
            if not is_wanted:
                self._lose(relay, "this node can be dialled")
            elif not circuits.is_promised(relay):
                self._lose(relay, "the connection with the relay has ended")
            elif held.ends_at_s <= now_s:
                self._lose(relay, "it was not renewed in time")

    def _lose(self, relay: PeerId, why: str) -> None:
        del self._held[relay]
        self._events.emit(RELAY_LOST, relay=relay, why=why)

    def _others(self) -> list[PeerId]:
        """The next relay to ask, if one more is wanted."""
        if len(self._held) >= RELAYS_WANTED:
            return []
        now_s = trio.current_time()
        self._refused = {peer: kept for peer, kept in self._refused.items() if kept[0] > now_s}
        found = [
            peer_id
            for peer_id in self._transport.connected()
            if peer_id not in self._held
            and self._offers(peer_id)
            and self._why_not(peer_id) is None
        ]
        return sorted(found, key=lambda peer: (not self._directory.is_member(peer), peer))[:1]

    def _why_none(self) -> str:
        """What every peer lacks that we are connected with. The words of `status`."""
        offering = [peer for peer in self._transport.connected() if self._offers(peer)]
        if not offering:
            return "no peer that is connected relays for others (`network.relay: true`)"
        told = []
        for peer_id in offering[:TOLD_MAX]:
            node_id = self._directory.node_of(peer_id)
            name = peer_id if node_id is None else node_id.hex()[:ID_SHOWN]
            told.append(f"{name}: {self._why_not(peer_id) or 'is asked now'}")
        more = len(offering) - TOLD_MAX
        return "; ".join(told) + (f" and {more} more" if more > 0 else "")

    def _record_of(self, peer_id: PeerId) -> NodeRecord | None:
        standing = self._directory.standing(peer_id)
        return None if standing is None or standing.signed is None else standing.signed.record

    def _offers(self, peer_id: PeerId) -> bool:
        """Whether it says that it relays."""
        record = self._record_of(peer_id)
        return record is not None and CAPABILITY in record.capabilities

    def _why_not(self, relay: PeerId) -> str | None:
        """Why it is of no use to us, if it is not, though it says that it relays."""
        if self._directory.banned_for_s(relay):
            return "is banned here"
        if self.is_relayed(relay):
            return "is behind a relay itself"
        if self._address_of(relay) is None:
            return "tells no address that others would dial"
        return self._refused[relay][1] if relay in self._refused else None

    def _address_of(self, relay: PeerId) -> Address | None:
        """Where others would dial it; by number if they can, as that asks no resolver."""
        record, is_member = self._record_of(relay), self._directory.is_member(relay)
        direct = [
            each
            for each in (() if record is None else record.addresses)
            if (is_numeric(each) or is_member)
            and not is_circuit(each)
            and peer_id_in(each) == relay
            and len(self._through(each)) <= ADDRESS_CHARACTERS_MAX
        ]
        return min(direct, key=lambda each: not is_numeric(each), default=None)

    def _through(self, relay: Address) -> Address:
        return Address(f"{relay}/{CIRCUIT}/p2p/{self._transport.peer_id}")

    async def _reserve(self, circuits: Circuits, relay: PeerId) -> None:
        address, seconds, why = self._address_of(relay), 0.0, "does not answer"
        try:
            with trio.move_on_after(ASK_TIMEOUT_S):
                seconds = await circuits.reserve(relay)
                why = f"promises {seconds:.0f} s, which is too little"
        except Unavailable as reason:
            why = str(reason)
        except PeerFault as fault:
            why = str(fault)
            if fault.reason != TRUNCATED:  # it went away; that is no lie
                self._contacts.blame(relay, fault)
        now_s = trio.current_time()
        if address is None or seconds < RESERVED_S_MIN:
            if relay in self._held:
                self._held[relay].renew_at_s = now_s + REFUSED_FOR_S
            if len(self._refused) < REFUSED_KEPT_MAX:
                self._refused[relay] = now_s + REFUSED_FOR_S, why
            return
        if relay not in self._held:
            self._events.emit(RELAY_RESERVED, relay=relay, seconds=round(seconds))
        self._held[relay] = Reservation(
            self._through(address), now_s + seconds / 2, now_s + seconds
        )


def told_reach(record: NodeRecord) -> str:
    """How a node can be reached, by what it tells of itself: for sure, where it tells two ways."""
    if not record.addresses:
        return str(Reach.UNREACHABLE)
    return RELAYED if any(map(is_circuit, record.addresses)) else str(Reach.DIRECT)
