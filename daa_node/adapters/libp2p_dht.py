"""Kademlia for records and providers, with every store bounded and every stream timed.

A record is stored only under this chain's namespace and only if the judge ranks it; of two the one
ranked higher stays. Tables are refreshed as soon as peers come and every REFRESH_S after: the
library's stay nearly empty for ten minutes.
"""

import trio
from libp2p.abc import IHost, INetStream
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.kad_dht.provider_store import ProviderStore
from libp2p.peer.peerinfo import PeerInfo
from libp2p.records.validator import NamespacedValidator, Validator

from daa_node.seams import RecordJudge
from daa_node.wire.limits import RECORD_BYTES_MAX

REFRESH_S = 60.0
REFRESH_SOON_S = 1.0  # after the first of several arrivals
STREAM_S_MAX = 30.0  # the library serves twelve streams at once, and one may stay for ever
PROVIDED_KEYS_MAX = 4096
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


class BoundedProviders(ProviderStore):
    """At most PROVIDED_KEYS_MAX keys; the oldest gives way."""

    def add_provider(self, key: bytes, provider: PeerInfo) -> None:
        super().add_provider(key, provider)
        if len(self.providers) > PROVIDED_KEYS_MAX:
            del self.providers[next(iter(self.providers))]


class BoundedDht(KadDHT):
    """`welcome` is told of admitted peers."""

    def __init__(self, host: IHost, namespace: str) -> None:
        self.prefix = f"/{namespace}/"
        self.records = RecordValidator(self.prefix)
        super().__init__(
            host,
            DHTMode.SERVER,
            validator=NamespacedValidator({namespace: self.records}, strict_validation=True),
            validator_changed=True,  # else the library adds namespaces of its own
            strict_validation=True,
        )
        self.provider_store = BoundedProviders(host=host, peer_routing=self.peer_routing)
        self._arrived = trio.Event()

    def welcome(self) -> None:
        self._arrived.set()

    async def put(self, key: str, payload: bytes) -> None:
        """Here and at the peers closest to the key. Raises ValueError when the judge refuses."""
        await self.put_value(self._name_of(key), payload)

    async def get(self, key: str) -> bytes | None:
        """The best record of the network and of our own store."""
        name = self._name_of(key)
        held = self.value_store.store.pop(name.encode(), None)
        try:
            # the library answers from its own store alone when it holds anything at all
            found = await self.get_value(name)
        finally:
            if held is not None:
                self.value_store.store.setdefault(name.encode(), held)
        candidates = [value for value in (held[0].value if held else None, found) if value]
        candidates = [value for value in candidates if self.records.rank(name, value) is not None]
        return candidates[self.records.select(name, candidates)] if candidates else None

    def _name_of(self, key: str) -> str:
        name = self.prefix + key
        assert len(name) <= KEY_BYTES_MAX, f"{name} would be stored and never found"
        return name

    async def handle_stream(self, stream: INetStream) -> None:
        with trio.move_on_after(STREAM_S_MAX):
            await super().handle_stream(stream)
            return
        await stream.reset()

    async def _run_main_loop(self) -> None:
        while True:
            with trio.move_on_after(REFRESH_S):
                await self._arrived.wait()
                await trio.sleep(REFRESH_SOON_S)
            self._arrived = trio.Event()
            try:
                await self.refresh_routing_table()
                await self.value_store._republish_records(self.peer_routing)
                self.value_store.cleanup_expired()
                self.provider_store.cleanup_expired()
            except Exception:
                # answers of peers, parsed by the library: the next round starts anew
                continue
