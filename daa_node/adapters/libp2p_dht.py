"""Kademlia for records and providers, with every store bounded and every stream timed.

The library serves twelve streams at once, whoever's, for as long as they last. Here each connection
has STREAMS_SERVED places of its own, and waits for them itself; a whole request is answered without
waiting for anybody, and all requests together keep a pace.

A record is stored only under this chain's namespace and only if the judge ranks it; of two the one
ranked higher stays. That somebody provides something is noted from its own mouth only and without
addresses; what a peer tells of others is an answer to us and never kept. Who is admitted enters the
table. Only while that is young do arrivals make us ask around: the library asks for nothing in the
first ten minutes, and a hundred nodes that all ask whenever somebody comes are a flood.
"""

import math
from collections.abc import Callable
from itertools import zip_longest
from typing import cast
from weakref import WeakKeyDictionary

import trio
from google.protobuf.message import DecodeError
from libp2p.abc import IHost, IMuxedConn, INetStream
from libp2p.exceptions import BaseLibp2pError
from libp2p.io.exceptions import IncompleteReadError, IOException
from libp2p.kad_dht.common import BUCKET_SIZE
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.kad_dht.pb.kademlia_pb2 import Message, Record
from libp2p.kad_dht.provider_store import ProviderStore
from libp2p.kad_dht.routing_table import KBucket
from libp2p.kad_dht.value_store import ValueStore
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.peer.peerstore import PeerStoreError
from libp2p.records.validator import NamespacedValidator, Validator
from libp2p.utils import encode_varint_prefixed
from libp2p.utils.varint import read_varint_prefixed_bytes_limited
from multiaddr import Multiaddr

from daa_dag.ids import DIGEST_BYTES, digest_of
from daa_node.adapters.libp2p_dht_messages import sane_request
from daa_node.adapters.libp2p_host import GatedHost
from daa_node.adapters.libp2p_peer_store import PEERS_KNOWN_MAX
from daa_node.adapters.libp2p_yamux import YamuxSession
from daa_node.adapters.mishaps import Mishaps
from daa_node.network.pace import Pace
from daa_node.seams import PeerId, RecordJudge
from daa_node.wire.limits import KIB, RECORD_BYTES_MAX

YOUNG_S = 60.0  # a table of less than one bucket is filled at least so often
YOUNG_SOON_S = 1.0  # and after the first of several arrivals
REFRESH_S = 600.0  # as the library does
STREAM_S_MAX = 30.0  # with the wait for its turn; ours ask once and close
STREAMS_SERVED = 4  # a look-up, a record, a search and one more, at once
REQUEST_BYTES_MAX = 32 * KIB  # one record in its envelope, twice over
# Half a millisecond each, so a tenth of a core for all that everybody asks.
REQUESTS_PER_S_MAX = 200.0
REQUESTS_BURST = 400.0
REQUEST_UNITS = 50  # as much, see budgets
DHT_RECORDS_MAX = 2048  # 32 MiB at most; the library's 50,000 of 1 MiB are 50 GB
PROVIDED_KEYS_MAX = 4096
KEYS_PER_PROVIDER_MAX = 64  # as many checkpoints back whoever lags may stand
PROVIDERS_PER_ANSWER_MAX = 20  # the library notes no more for one key
WITNESSES = 3  # peers that name providers, before a search ends: one alone may name only liars
REPROVIDE_S = 3600.0  # well within the 48 hours that a note lasts: peers close to a key come and go
REPROVIDED_AT_ONCE = 4  # a peer notes ten keys of ours in ten seconds
KEY_BYTES_MAX = 128  # the library answers no question about a longer one


class RecordValidator(Validator):
    """Our namespace's rule, as the library asks for it."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.judge: RecordJudge | None = None

    def rank(self, key: str, value: bytes) -> int | None:
        if len(value) > RECORD_BYTES_MAX or not key.startswith(self._prefix):
            return None
        return None if self.judge is None else self.judge(key[len(self._prefix) :], value)

    def validate(self, key: str, value: bytes) -> None:
        if self.rank(key, value) is None:
            raise ValueError(f"record under {key[:80]} is refused")

    def select(self, key: str, values: list[bytes]) -> int:
        """Index of the highest rank; the first of equals, so that nothing is replaced in vain."""
        ranks = [self.rank(key, value) for value in values]
        best = max(range(len(values)), key=lambda i: (ranks[i] is not None, ranks[i] or 0, -i))
        if ranks[best] is None:
            raise ValueError("no valid record among them")
        return best


class _Request:
    """One whole request in place of a stream; what is answered is held back in `answer`."""

    metric_send_channel = None

    def __init__(self, muxed_conn: IMuxedConn, payload: bytes) -> None:
        self.muxed_conn = muxed_conn
        self.answer = b""
        self.refused = False
        self._left = encode_varint_prefixed(payload)

    async def read(self, n: int | None = None) -> bytes:
        taken, self._left = self._left[:n], self._left[len(self._left[:n]) :]
        return taken

    async def write(self, data: bytes) -> None:
        self.answer += data

    async def close(self) -> None:
        """The stream goes on: another request may follow."""

    async def reset(self) -> None:
        self.refused = True


class ConnectedBucket(KBucket):
    """A full bucket keeps whom we are connected with.

    The library asks its oldest peer by a ping, which nobody here answers: so each newcomer cost a
    stream, took a place, and made whoever was asked do the same.
    """

    async def _ping_peer(self, peer_id: ID) -> bool:
        return peer_id in self.host.get_connected_peers()


class BoundedProviders(ProviderStore):
    """At most PROVIDED_KEYS_MAX keys of ours, KEYS_PER_PROVIDER_MAX each; the oldest gives way.

    What guests say gives way before what members do. Whose words these are the library has checked:
    a peer speaks for itself only.
    """

    def __init__(
        self,
        host: IHost,
        peer_routing: object,
        prefix: bytes,
        is_member: Callable[[PeerId], bool],
    ) -> None:
        super().__init__(host, peer_routing)
        self._prefix = prefix
        self._is_member = is_member
        self._of_guests: dict[bytes, None] = {}  # keys that no member has named, oldest first

    def add_provider(self, key: bytes, provider: PeerInfo) -> None:
        if not key.startswith(self._prefix) or len(key) != len(self._prefix) + DIGEST_BYTES:
            return
        name = str(provider.peer_id)
        if not self._make_place(key, name):
            return
        held = self.get_provided_keys(provider.peer_id)
        if key not in held and len(held) >= KEYS_PER_PROVIDER_MAX:
            del self.providers[held[0]][name]
            if not self.providers[held[0]]:
                del self.providers[held[0]]
        if self._is_member(PeerId(name)):
            self._of_guests.pop(key, None)
        elif key not in self.providers:
            self._of_guests.pop(key, None)
            self._of_guests[key] = None
        # Addresses come from signed node records, never from here.
        super().add_provider(key, PeerInfo(provider.peer_id, []))
        if len(self.providers) > PROVIDED_KEYS_MAX:
            self._let_go_of_one()

    def _make_place(self, key: bytes, name: str) -> bool:
        """Whether the key has one: a member takes that of a guest."""
        named = self.providers.get(key, {})
        if name in named or len(named) < PROVIDERS_PER_ANSWER_MAX:
            return True
        guest = next((other for other in named if not self._is_member(PeerId(other))), None)
        if guest is None or not self._is_member(PeerId(name)):
            return False
        del named[guest]
        return True

    def _let_go_of_one(self) -> None:
        while self._of_guests:
            oldest = next(iter(self._of_guests))
            del self._of_guests[oldest]
            if self.providers.pop(oldest, None) is not None:  # else it has expired since
                return
        del self.providers[next(iter(self.providers))]


class BoundedRecords(ValueStore):
    """At most DHT_RECORDS_MAX records: what guests brought gives way before what members did.

    The library looks through all dates for the oldest one, which takes 15 ms a record.
    """

    def __init__(self, host: IHost, local_peer_id: ID) -> None:
        super().__init__(host, local_peer_id)
        self._of_guests: dict[bytes, None] = {}  # oldest first

    def put_record(self, key: bytes, record: Record) -> None:
        self.store.pop(key, None)  # the newest is the last one
        super().put_record(key, record)

    def brought(self, key: bytes, by_member: bool, was_news: bool) -> None:
        """Somebody put this record; a member makes it a member's also by bringing it again."""
        if by_member:
            self._of_guests.pop(key, None)
        elif was_news:
            self._of_guests.pop(key, None)
            self._of_guests[key] = None
            if len(self._of_guests) > DHT_RECORDS_MAX:  # of those that have expired since
                del self._of_guests[next(iter(self._of_guests))]

    def _evict_if_full(self) -> None:
        if len(self.store) < DHT_RECORDS_MAX:
            return
        while self._of_guests:
            oldest = next(iter(self._of_guests))
            del self._of_guests[oldest]
            if self.store.pop(oldest, None) is not None:
                return
        del self.store[next(key for key in self.store if key not in self.local_keys)]


class ProviderSearch(ProviderStore):
    """One search, apart from what we tell others: who named whom."""

    def __init__(self, host: IHost, peer_routing: object) -> None:
        super().__init__(host, peer_routing)
        self._answers: list[list[ID]] = []

    async def _get_providers_from_peer_with_closers(
        self, peer_id: ID, key: bytes
    ) -> tuple[list[PeerInfo], list[ID]]:
        named, closer = await super()._get_providers_from_peer_with_closers(peer_id, key)
        self.heard(named)
        # The search ends with the first providers that it sees.
        return (named if len(self._answers) >= WITNESSES else []), closer

    def heard(self, named: list[PeerInfo]) -> None:
        if named:
            self._answers.append([info.peer_id for info in named[:PROVIDERS_PER_ANSWER_MAX]])

    def found(self, count_max: int) -> list[ID]:
        """Members first, and else in turns from each answer: a liar fills only its own share."""
        turns = (peer_id for turn in zip_longest(*self._answers) for peer_id in turn)
        found = dict.fromkeys(peer_id for peer_id in turns if peer_id is not None)
        found.pop(self.local_peer_id, None)
        is_member = cast(GatedHost, self.host).swarm.is_member
        return sorted(found, key=lambda peer_id: not is_member(PeerId(str(peer_id))))[:count_max]


class BoundedDht(KadDHT):
    """`welcome` is told of admitted peers."""

    def __init__(self, host: IHost, namespace: str, mishaps: Mishaps) -> None:
        self._mishaps = mishaps
        self.prefix = f"/{namespace}/"
        self.records = RecordValidator(self.prefix)
        super().__init__(
            host,
            DHTMode.SERVER,
            validator=NamespacedValidator({namespace: self.records}, strict_validation=True),
            validator_changed=True,  # else the library adds namespaces of its own
            strict_validation=True,
        )
        self._own_prefix = self.prefix.encode()
        self.provider_store = BoundedProviders(
            host, self.peer_routing, self._own_prefix, self._is_member
        )
        self.kept_records = BoundedRecords(host, self.local_peer_id)
        self.value_store = self.kept_records
        self._told_s: dict[bytes, float] = {}  # what we provide, and when others noted it last
        self._newcomers: list[ID] = []
        self._arrived = trio.Event()
        self._refreshed_s = 0.0
        self._places: WeakKeyDictionary[IMuxedConn, trio.Semaphore] = WeakKeyDictionary()
        self._requests: Pace | None = None

    def welcome(self, peer_id: ID) -> None:
        if len(self._newcomers) < PEERS_KNOWN_MAX:
            self._newcomers.append(peer_id)
        self._arrived.set()

    async def put(self, key: str, payload: bytes) -> None:
        """Here and at the peers closest to the key. Raises ValueError when the judge refuses."""
        await self.put_value(self._name_of(key), payload)

    async def get(self, key: str) -> bytes | None:
        """The best record of the network and of our own store."""
        name = self._name_of(key)
        held = self.value_store.store.pop(name.encode(), None)
        found: bytes | None = None
        try:
            # the library answers from its own store alone when it holds anything at all
            found = await self.get_value(name)
        except ValueError:
            pass  # what was valid when it came has run out since
        finally:
            if held is not None:
                self.value_store.store.setdefault(name.encode(), held)
        candidates = [value for value in (held[0].value if held else None, found) if value]
        ranked = [(self.records.rank(name, value), value) for value in candidates]
        valid = [(rank, value) for rank, value in ranked if rank is not None]
        return max(valid, key=lambda pair: pair[0])[1] if valid else None

    async def provide_key(self, key: str) -> bool:
        """Whether a peer has noted that we hold it; told again every REPROVIDE_S."""
        hashed = self._hashed(key)
        self._told_s.pop(hashed, None)
        self._told_s[hashed] = -math.inf
        while len(self._told_s) > KEYS_PER_PROVIDER_MAX:
            del self._told_s[next(iter(self._told_s))]
        return await self._tell(hashed)

    async def search_providers(self, key: str, count_max: int, timeout_s: float) -> list[ID]:
        """What was heard within the time, first what was said to us."""
        hashed = self._hashed(key)
        search = ProviderSearch(self.host, self.peer_routing)
        search.heard(self.provider_store.get_providers(hashed))
        with trio.move_on_after(timeout_s):
            await search.find_providers(hashed, 1)
        return search.found(count_max)

    async def _tell(self, hashed: bytes) -> bool:
        noted = await self.provider_store.provide(hashed)
        self.provider_store.providing_keys.discard(hashed)  # the library's list has no end
        if noted and hashed in self._told_s:
            self._told_s[hashed] = trio.current_time()
        return noted

    async def _tell_again(self) -> None:
        due_s = trio.current_time() - REPROVIDE_S
        due = [hashed for hashed, told_s in self._told_s.items() if told_s <= due_s]
        for hashed in due[:REPROVIDED_AT_ONCE]:
            await self._tell(hashed)

    def _hashed(self, key: str) -> bytes:
        return self._own_prefix + digest_of(key.encode())  # the library takes 80 bytes at most

    def _name_of(self, key: str) -> str:
        name = self.prefix + key
        assert len(name) <= KEY_BYTES_MAX, f"{name} would be stored and never found"
        return name

    async def handle_stream(self, stream: INetStream) -> None:
        served = False
        with trio.move_on_after(STREAM_S_MAX):
            places = trio.Semaphore(STREAMS_SERVED)
            async with self._places.setdefault(stream.muxed_conn, places):
                served = await self._serve(stream)
        await (stream.close() if served else stream.reset())

    async def _serve(self, stream: INetStream) -> bool:
        """Answer one request after another; False when the peer asks what we refuse."""
        if self._requests is None:
            self._requests = Pace(REQUESTS_PER_S_MAX, REQUESTS_BURST)
        while True:
            try:
                payload = await read_varint_prefixed_bytes_limited(stream, REQUEST_BYTES_MAX)
            except (IncompleteReadError, StreamEOF):
                return True
            except (IOException, BaseLibp2pError):
                return False
            cast(YamuxSession, stream.muxed_conn).bill.units += REQUEST_UNITS
            await self._requests.take()
            try:
                asked = sane_request(payload, stream.muxed_conn.peer_id)
            except DecodeError:
                return False
            request = _Request(stream.muxed_conn, asked)
            await self._do_handle_stream(cast(INetStream, request))
            self._note_who_brought(asked, stream.muxed_conn.peer_id, not request.refused)
            if request.refused:
                return False
            if request.answer:
                await stream.write(request.answer)

    def _note_who_brought(self, asked: bytes, sender: ID, was_news: bool) -> None:
        message = Message.FromString(asked)
        if message.type == Message.MessageType.PUT_VALUE:
            by_member = self._is_member(PeerId(str(sender)))
            self.kept_records.brought(message.key, by_member, was_news)

    def _is_member(self, peer_id: PeerId) -> bool:
        return cast(GatedHost, self.host).swarm.is_member(peer_id)

    async def _fill_table(self) -> None:
        newcomers, self._newcomers, self._arrived = self._newcomers, [], trio.Event()
        for peer_id in newcomers:
            await self.routing_table.add_peer(
                PeerInfo(peer_id, self._addresses_of(peer_id)), skip_server_mode_check=True
            )
        if self.routing_table.size() < BUCKET_SIZE:
            # whom it meets on the way enters the table
            await self.peer_routing.find_closest_peers_network(self.local_peer_id.to_bytes())
        elif trio.current_time() - self._refreshed_s >= REFRESH_S:
            self._refreshed_s = trio.current_time()
            await self.refresh_routing_table()

    def _addresses_of(self, peer_id: ID) -> list[Multiaddr]:
        """Those that we dialled; of who came to us none is known."""
        try:
            return self.host.get_peerstore().addrs(peer_id)
        except PeerStoreError:
            return []

    async def _run_main_loop(self) -> None:
        self._refreshed_s = trio.current_time()
        while True:
            with trio.move_on_after(YOUNG_S):
                await self._arrived.wait()
                await trio.sleep(YOUNG_SOON_S)
            try:
                await self._fill_table()
                await self.value_store._republish_records(self.peer_routing)
                self.value_store.cleanup_expired()
                self.provider_store.cleanup_expired()
                await self._tell_again()
            except Exception as fault:
                # answers of peers, parsed by the library: the next round starts anew
                self._mishaps.note("upkeep of the DHT", fault)
