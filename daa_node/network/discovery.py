"""Keep in touch: dial every member and bootstrap address for ever, and be found by others.

A target is dialled again soon after it is lost, later and later while it stays away. Addresses come
from the operator, the genesis, the directory (hello, gossip) and the DHT, newest record first; but
where the internet finds us, too, come last.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

import trio

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.keys import NodeKeys
from daa_node.identity.record import (
    ADDRESSES_MAX,
    RECORD_LIFETIME_NS,
    NodeRecord,
    Role,
    SignedRecord,
    check_dates,
    decode_record,
    encode_record,
    sign_record,
)
from daa_node.network.addresses import host_in, is_circuit, is_numeric, peer_id_in
from daa_node.network.directory import Directory
from daa_node.network.gossip import Gossip
from daa_node.network.topics import record_key
from daa_node.network.turns import share_of
from daa_node.observability.events import DIAL_FAILED, PEER_LEFT, EventLog
from daa_node.seams import Address, Clock, PeerId, Transport
from daa_node.wire.hosts import is_host

REDIAL_S_FIRST = 0.25
REDIAL_S_MAX = 5.0  # whoever restarts dials us itself: this is for those that do not know us
REDIAL_GROWTH = 1.6
# Of two members the one with the smaller peer id dials, and the other one waits so long for it:
# else both dial at once and hold two connections. Two handshakes across the world.
HEAD_START_S = 1.0
CHECK_S = 0.5  # how soon a lost connection is noticed: the one look for all who go by that
STEADY_S = 3.0  # a connection this old has passed the door
MEET_EVERY_S = 5.0  # and no longer for one of them: its addresses are its own invention
OTHERS_WANTED = 8  # connections beyond the members, for the sake of gossip and the DHT
ADDRESSES_TRIED_MAX = 8
RENEW_NS = RECORD_LIFETIME_NS // 12  # two hours
PUBLISH_S = 600.0
NEWCOMERS_SPREAD_S = 60.0  # many that start at once tell everybody of themselves one after another
LOOK_UP_AFTER_S = 10.0  # a member that cannot be reached so long may have moved
DIAL_REPORT_FAILURES = (1, 10, 100, 1000)  # which failures in a row are worth an event


class OwnRecord:
    """Our signed record: made anew when addresses change and before it grows old."""

    def __init__(
        self,
        keys: NodeKeys,
        addresses: Callable[[], list[Address]],
        role: Role,
        capabilities: tuple[str, ...],
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._addresses = addresses
        self._role = role
        self._capabilities = capabilities
        self._clock = clock
        self._signed: SignedRecord | None = None

    def current(self) -> SignedRecord:
        now_ns = self._clock.wall_ns()
        addresses = tuple(self._addresses())[:ADDRESSES_MAX]  # a host may have more
        signed = self._signed
        if (
            signed is None
            or signed.record.addresses != addresses
            or not 0 <= now_ns - signed.record.issued_ns < RENEW_NS
        ):
            signed = self._signed = sign_record(self._record(addresses, now_ns), self._keys)
        return signed

    def current_bytes(self) -> bytes:
        return encode_record(self.current())

    def _record(self, addresses: tuple[Address, ...], now_ns: int) -> NodeRecord:
        before = self._signed.record.sequence if self._signed is not None else 0
        return NodeRecord(
            self._keys.ml_dsa_public_key,
            self._keys.ml_kem_public_key,
            self._keys.peer_id,
            addresses,
            self._role,
            self._capabilities,
            # the wall clock counts on over restarts without a file
            max(before + 1, now_ns),
            now_ns,
            now_ns + RECORD_LIFETIME_NS,
        )


class Discovery:
    """`run` keeps the connections that `members` and `bootstrap` ask for."""

    def __init__(
        self,
        transport: Transport,
        directory: Directory,
        gossip: Gossip,
        own: OwnRecord,
        clock: Clock,
        events: EventLog,
        bootstrap: tuple[Address, ...],
    ) -> None:
        self._transport = transport
        self._directory = directory
        self._gossip = gossip
        self._own = own
        self._clock = clock
        self._events = events
        self._bootstrap = bootstrap
        self._hints: dict[PeerId, list[Address]] = {}
        self._kept: set[NodeId] = set()  # members that a task keeps in touch with
        self._connected: set[PeerId] = set()  # when we last looked
        self._content: dict[trio.Event, Callable[[], bool]] = {}  # tasks, while this is so
        self._seen: tuple[list[PeerId], int] | None = None  # None: to be looked at again

    async def run(self, hints: Mapping[PeerId, tuple[Address, ...]]) -> None:
        """`hints`: addresses of members as the genesis has them. Until cancelled."""
        unnamed = [address for address in self._bootstrap if not peer_id_in(address)]
        for address in self._bootstrap:
            if address not in unnamed:
                self._hints.setdefault(peer_id_in(address), []).append(address)
        for peer_id, addresses in hints.items():
            self._hints.setdefault(peer_id, []).extend(addresses)
        targets = dict.fromkeys(self._hints)
        own_id = self._transport.peer_id
        async with trio.open_nursery() as nursery:
            for peer_id in targets:
                if peer_id != own_id and self._directory.node_of(peer_id) is None:
                    nursery.start_soon(self._keep, lambda peer=peer_id: peer, None)
            for address in unnamed:
                nursery.start_soon(self._keep_whoever_is_at, address)
            nursery.start_soon(self._meet_others)
            nursery.start_soon(self._look_around, nursery)
            nursery.start_soon(self._publish)

    def judge_record(self, key: str, payload: bytes) -> int | None:
        """The DHT's rule: a current record, under its own node's name, ranked by its sequence."""
        try:
            signed = decode_record(payload)
            check_dates(signed.record, self._clock.wall_ns())
        except PeerFault:
            return None
        return signed.record.sequence if key == record_key(signed.record.node_id) else None

    def _keep_members(self, nursery: trio.Nursery) -> None:
        """As many as the chain has made members, as long as they are."""
        for node_id in [node for node in self._directory.members() if node not in self._kept]:
            self._kept.add(node_id)
            peer_of = partial(self._directory.peer_of, node_id)
            nursery.start_soon(self._keep, peer_of, node_id)

    def _is_member(self, peer_id: PeerId) -> bool:
        return self._directory.node_of(peer_id) in set(self._directory.members())

    async def _keep(self, peer_of: Callable[[], PeerId | None], node_id: NodeId | None) -> None:
        wait_s, failures, lost_at_s = REDIAL_S_FIRST, 0, trio.current_time()
        since_s: float | None = None  # when the connection that we have was first seen
        waited = False  # for the other side to dial
        while True:
            peer_id = peer_of()
            if peer_id == self._transport.peer_id:
                return
            if node_id is not None and node_id not in self._directory.members():
                self._kept.discard(node_id)
                return
            if node_id is None and peer_id is not None and self._is_member(peer_id):
                # a bootstrap peer that is a member: dialled as one
                await self._while(partial(self._is_member, peer_id))
                continue
            now_s = trio.current_time()
            if peer_id is not None and peer_id in self._transport.connected():
                since_s, waited = now_s if since_s is None else since_s, False
                await self._while(partial(self._is_held, peer_of, peer_id, node_id))
                continue
            if since_s is not None:
                if now_s - since_s > STEADY_S:  # one that is refused at the door never gets here
                    wait_s, failures = REDIAL_S_FIRST, 0
                since_s, lost_at_s = None, now_s
                self._events.emit(
                    PEER_LEFT, node_id=node_id, peer_id=peer_id, reason="connection ended"
                )
            if not waited and peer_id is not None and self._is_theirs_to_dial(peer_id):
                waited = True
                await trio.sleep(HEAD_START_S)
                continue
            if peer_id is not None and not self._directory.banned_for_s(peer_id):
                error = await self._dial(peer_id)
                failures += 1
                if error is not None and failures in DIAL_REPORT_FAILURES:
                    self._events.emit(DIAL_FAILED, address=peer_id, error=error, failures=failures)
            if node_id is not None and trio.current_time() - lost_at_s > LOOK_UP_AFTER_S:
                lost_at_s = trio.current_time()
                await self._look_up(node_id)
            await trio.sleep(wait_s)
            wait_s = min(wait_s * REDIAL_GROWTH, REDIAL_S_MAX)

    async def _keep_whoever_is_at(self, address: Address) -> None:
        """The operator named a place and no peer: whoever answers there is our way in."""

        def is_in_touch(peer_id: PeerId) -> bool:
            return peer_id in self._connected

        wait_s, failures = REDIAL_S_FIRST, 0
        while True:
            dialled_s = trio.current_time()
            try:
                peer_id = await self._transport.dial(address)
            except Unavailable as error:
                failures += 1
                if failures in DIAL_REPORT_FAILURES:
                    fields = {"address": address, "error": str(error), "failures": failures}
                    self._events.emit(DIAL_FAILED, **fields)
            else:
                if peer_id == self._transport.peer_id:
                    return  # one list for all hosts names each of them
                await self._while(partial(is_in_touch, peer_id))
                if trio.current_time() - dialled_s > STEADY_S:
                    wait_s, failures = REDIAL_S_FIRST, 0
            await trio.sleep(wait_s)
            wait_s = min(wait_s * REDIAL_GROWTH, REDIAL_S_MAX)

    def _is_theirs_to_dial(self, peer_id: PeerId) -> bool:
        own_id = self._transport.peer_id
        members = set(self._directory.members())
        known = {self._directory.node_of(peer) for peer in (own_id, peer_id)}
        return own_id > peer_id and known <= members

    async def _dial(self, peer_id: PeerId) -> str | None:
        """None once connected, else why not."""
        failure: str | None = "no address is known"
        tried = set[Address]()

        async def dial(address: Address) -> None:
            nonlocal failure
            failure = "a newer record does not have that address"
            try:
                await self._transport.dial(address)
                failure = None
            except Unavailable as error:
                failure = str(error)

        def is_told(address: Address) -> bool:
            """Who finds that nobody can dial it tells so while others wait for its answer."""
            return address in self._addresses_of(peer_id)

        ways_out = _ways_out(self._transport.addresses())
        while failure is not None and len(tried) < ADDRESSES_TRIED_MAX:
            # asked anew: a newer record may have come meanwhile
            left = (address for address in self._addresses_of(peer_id) if address not in tried)
            address = min(left, key=lambda each: host_in(each) in ways_out, default=None)
            if address is None:
                break
            tried.add(address)
            await _as_long_as(partial(is_told, address), partial(dial, address))
        return failure

    def _addresses_of(self, peer_id: PeerId) -> list[Address]:
        standing = self._directory.standing(peer_id)
        signed = standing.signed if standing is not None else None
        newest = signed.record.addresses if signed is not None else ()
        hints = self._hints.get(peer_id, [])
        if signed is not None and all(map(is_circuit, newest)):
            hints = list(self._bootstrap)  # nobody dials it; our operator may know better
        if not self._is_member(peer_id):
            newest = tuple(filter(is_numeric, newest))
        addresses = dict.fromkeys([*newest, *hints])
        return [address for address in addresses if peer_id_in(address) == peer_id]

    async def _look_up(self, node_id: NodeId) -> None:
        """In the DHT, unless the node tells us itself meanwhile where it is."""
        known = self._directory.record_of(node_id)

        async def ask() -> None:
            try:
                payload = await self._transport.get_record(record_key(node_id))
                if payload is not None:
                    signed = decode_record(payload)
                    check_dates(signed.record, self._clock.wall_ns())
                    if signed.record.node_id == node_id:
                        self._directory.learn(signed)
            except (Unavailable, PeerFault):
                return  # asked again as long as the node is away

        await _as_long_as(lambda: self._directory.record_of(node_id) is known, ask)

    async def _meet_others(self) -> None:
        """Some peers that are not members: else members alone would carry all gossip."""
        tried: dict[PeerId, None] = {}  # longest ago first: an address that is dead stays so
        while True:
            await trio.sleep(MEET_EVERY_S)
            connected = set(self._transport.connected())
            members = {self._directory.peer_of(node_id) for node_id in self._directory.members()}
            if len(connected - members) >= OTHERS_WANTED:
                continue
            others = {
                standing.peer_id: None
                for standing in self._directory.standings()
                if standing.signed is not None
                and standing.peer_id not in connected | members
                and not self._directory.banned_for_s(standing.peer_id)
            }
            tried = {peer_id: None for peer_id in tried if peer_id in others}
            for peer_id in [*(peer for peer in others if peer not in tried), *tried][:1]:
                tried.pop(peer_id, None)
                tried[peer_id] = None
                with trio.move_on_after(MEET_EVERY_S):
                    await self._dial(peer_id)

    async def _look_around(self, keepers: trio.Nursery) -> None:
        """One look for all: part with the banned, wake whoever was content and is not any more.

        And keep in touch with whoever has become a member.
        """
        banned: list[PeerId] = []
        parting: set[PeerId] = set()

        async def part_with(peer_id: PeerId) -> None:
            await self._transport.hang_up(peer_id)
            parting.discard(peer_id)

        async with trio.open_nursery() as goodbyes:  # whoever draws one out delays nobody
            while True:
                seen = (self._transport.connected(), self._directory.changes)
                if seen != self._seen:
                    self._seen = seen
                    self._notice(keepers)
                    banned = [peer for peer in seen[0] if self._directory.banned_for_s(peer)]
                for peer_id in banned:
                    if self._directory.banned_for_s(peer_id) and peer_id not in parting:
                        parting.add(peer_id)
                        goodbyes.start_soon(part_with, peer_id)
                await trio.sleep(CHECK_S)

    def _notice(self, nursery: trio.Nursery) -> None:
        """Something that others go by is not as it was."""
        self._connected = set(self._transport.connected())
        self._keep_members(nursery)
        for changed in [event for event, holds in self._content.items() if not holds()]:
            changed.set()
        self._directory.crowd_changed.unpark_all()

    async def _while(self, holds: Callable[[], bool]) -> None:
        """Return soon after this has ended, as far as a look shows it."""
        ended = trio.Event()
        self._content[ended] = holds
        self._seen = None  # it may have ended since the last look
        try:
            await ended.wait()
        finally:
            del self._content[ended]

    def _is_held(
        self, peer_of: Callable[[], PeerId | None], peer_id: PeerId, node_id: NodeId | None
    ) -> bool:
        """Whether the target is this peer still, wanted and connected."""
        is_wanted = node_id is None or node_id in self._directory.members()
        return is_wanted and peer_id in self._connected and peer_of() == peer_id

    async def _publish(self) -> None:
        """Our record to everybody when it has changed, and to the DHT now and then."""
        known, put_at_s = b"", -PUBLISH_S
        share = share_of(self._transport.peer_id)
        if self._directory.node_of(self._transport.peer_id) not in set(self._directory.members()):
            # The members that we dial have our record from our own mouth; nobody else waits for it.
            await trio.sleep(NEWCOMERS_SPREAD_S * share)
        elif set(self._transport.addresses()) == set(self._hints.get(self._transport.peer_id, ())):
            # Who knows the genesis, or has met us, knows all that there is to tell. Those who are
            # asked to keep it for others need not be asked by everybody at once.
            known = self._own.current_bytes()
            put_at_s = trio.current_time() - PUBLISH_S * share
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._announce, known)
            # beside it: to put a record takes half a minute where holders do not answer
            nursery.start_soon(self._keep_in_dht, known, put_at_s)

    async def _announce(self, announced: bytes) -> None:
        while True:
            await self._be_in_company()
            record_bytes = self._own.current_bytes()
            if record_bytes != announced:
                with suppress(Unavailable):
                    await self._gossip.announce_record(record_bytes)
                    announced = record_bytes
            await trio.sleep(10 * CHECK_S)

    async def _keep_in_dht(self, put: bytes, put_at_s: float) -> None:
        while True:
            await self._be_in_company()
            record_bytes = self._own.current_bytes()
            if record_bytes != put or trio.current_time() - put_at_s >= PUBLISH_S:
                key = record_key(self._own.current().record.node_id)
                with suppress(Unavailable):
                    await self._transport.put_record(key, record_bytes)
                    put, put_at_s = record_bytes, trio.current_time()
            await trio.sleep(10 * CHECK_S)

    async def _be_in_company(self) -> None:
        """Past the door of somebody, and the first gossip stream."""
        while True:
            while not self._transport.connected():
                await trio.sleep(CHECK_S)
            await trio.sleep(CHECK_S)
            if self._transport.connected():
                return


def _ways_out(own: Iterable[Address]) -> set[str]:
    """Where the internet finds us. Who tells the same is behind our router, or on our host.

    Such are found within first: many routers let nobody back in from there, and say nothing.
    """
    hosts = set(map(host_in, own))
    return {host for host in hosts if is_host(host) and ipaddress.ip_address(host).is_global}


async def _as_long_as(holds: Callable[[], bool], do: Callable[[], Awaitable[None]]) -> None:
    """What takes long is given up when it has lost its sense."""

    async def watch(scope: trio.CancelScope) -> None:
        while holds():
            await trio.sleep(CHECK_S)
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, nursery.cancel_scope)
        await do()
        nursery.cancel_scope.cancel()
