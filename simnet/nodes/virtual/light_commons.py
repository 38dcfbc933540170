"""Gossip and the DHT of light transports: what everybody hears, and what everybody keeps.

An announcement goes to everybody admitted; who hears it for the first time, and accepts it, passes
it on to as many as a mesh of gossipsub has. A record goes to everybody admitted and stays with all
who take it, of two that of the higher rank; so does the word that somebody holds a thing. Whoever
asks, asks everybody.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import (
    Announcement,
    GossipFilter,
    GossipJudge,
    OnFault,
    PeerId,
    RecordJudge,
)
from simnet.nodes.virtual.light_connection import Connection, Word
from simnet.nodes.virtual.scheduling import now_ns

# As the libp2p transport has them.
DHT_TIMEOUT_S = 30.0
SEARCH_TIMEOUT_S = 5.0
SEEN_MAX = 4096  # announcements that are known already: an hour of nine nodes'
PASSED_ON_TO = 8  # gossipsub's degree; its author alone tells everybody (v1.1, flood publishing)
KEPT_MAX = 1024  # records that one node keeps, and as many names of what others hold

Peers = Callable[[], list[Connection]]


class Rumours:
    """One node's gossip; `peers` are those that it is passed on to."""

    def __init__(self, peer_id: PeerId, peers: Peers) -> None:
        self._peer_id = peer_id
        self._peers = peers
        self.on_fault: OnFault = _nobody_is_told
        self._topics: dict[str, tuple[GossipFilter, GossipJudge]] = {}
        self._seen: dict[tuple[str, int], None] = {}
        self._sequence = 0
        self._chance = random.Random(peer_id)

    def join(self, topic: str, may_be_news: GossipFilter, judge: GossipJudge) -> None:
        assert topic not in self._topics
        self._topics[topic] = (may_be_news, judge)

    def publish(self, topic: str, payload: bytes) -> None:
        # counts on from the time: after a restart nobody takes a new one for one of before
        self._sequence = max(self._sequence + 1, now_ns())
        for peer in self._peers():
            peer.say(Word.TELL, topic, self._peer_id, self._sequence, payload)

    def heard(
        self, forwarder: Connection, topic: str, source: PeerId, sequence: int, payload: bytes
    ) -> None:
        """Judge it, unless it is known; tell it on."""
        if topic not in self._topics:
            self.on_fault(forwarder.peer_id, PeerFault("gossip-malformed", "no topic of ours"))
            return
        if source == self._peer_id or (source, sequence) in self._seen:
            return
        _keep(self._seen, (source, sequence), None, SEEN_MAX)
        may_be_news, judge = self._topics[topic]
        announcement = Announcement(source, payload, forwarder.peer_id)
        try:
            accepted = may_be_news(announcement) and judge(announcement)
        except PeerFault as fault:
            self.on_fault(forwarder.peer_id, fault)
            return
        if accepted:
            others = [p for p in self._peers() if p is not forwarder and p.peer_id != source]
            for peer in self._chance.sample(others, min(PASSED_ON_TO, len(others))):
                peer.say(Word.TELL, topic, source, sequence, payload)


def _nobody_is_told(_peer_id: PeerId, _fault: PeerFault) -> None:
    """Nobody has asked."""


class Records:
    """One node's share of the DHT; `peers` are those that it asks."""

    def __init__(self, peer_id: PeerId, peers: Peers) -> None:
        self.judge: RecordJudge | None = None
        self._peer_id = peer_id
        self._peers = peers
        self._records: dict[str, bytes] = {}
        self._holders: dict[str, dict[PeerId, None]] = {}

    async def put(self, key: str, payload: bytes) -> None:
        """Raises Unavailable."""
        if not self._peers():
            raise Unavailable("no peer to store a record at")
        if not self._take(key, payload):
            raise Unavailable(f"record {key} was not stored: it is refused")
        await self._ask_all(DHT_TIMEOUT_S, "put", key, payload)

    async def get(self, key: str) -> bytes | None:
        found = [self._records.get(key), *await self._ask_all(DHT_TIMEOUT_S, "get", key)]
        ranked = [(self._rank(key, payload), payload) for payload in found if payload is not None]
        return max((pair for pair in ranked if pair[0] >= 0), default=(0, None))[1]

    async def provide(self, key: str) -> None:
        """Raises Unavailable."""
        if not await self._ask_all(DHT_TIMEOUT_S, "provide", key):
            raise Unavailable(f"nobody has noted that we provide {key}")

    async def find_providers(self, key: str, count_max: int) -> list[PeerId]:
        told = await self._ask_all(SEARCH_TIMEOUT_S, "providers", key)
        names = dict.fromkeys([*self._holders.get(key, ()), *(n for names in told for n in names)])
        names.pop(self._peer_id, None)
        return list(names)[:count_max]

    def asked(self, peer_id: PeerId, verb: str, key: str, payload: bytes = b"") -> Any:
        """What we answer a peer."""
        match verb:
            case "put":
                return self._take(key, payload)
            case "get":
                return self._records.get(key)
            case "provide":
                holders = {**self._holders.get(key, {}), peer_id: None}
                _keep(self._holders, key, holders, KEPT_MAX)
                return None
            case _:
                return list(self._holders.get(key, ()))

    def answered(self, waiting: trio.MemorySendChannel[Any], answer: Any) -> None:
        """`waiting` is where we wait for it, if we still do."""
        with suppress(trio.BrokenResourceError):
            waiting.send_nowait(answer)

    async def _ask_all(self, timeout_s: float, *question: Any) -> list[Any]:
        """The answers that came in time."""
        peers, answers = self._peers(), list[Any]()
        waiting, receive = trio.open_memory_channel[Any](len(peers))
        with receive, trio.move_on_after(timeout_s):
            for peer in peers:
                peer.say(Word.ASK, *question, thing=waiting)
            while len(answers) < len(peers):
                answers.append(await receive.receive())
        return answers

    def _rank(self, key: str, payload: bytes) -> int:
        rank = None if self.judge is None else self.judge(key, payload)
        return -1 if rank is None else rank

    def _take(self, key: str, payload: bytes) -> bool:
        """Whether the record is fit to be kept, and newer than what is."""
        rank, before = self._rank(key, payload), self._records.get(key)
        if rank < 0:
            return False
        if before is None or rank > self._rank(key, before):
            _keep(self._records, key, payload, KEPT_MAX)
        return True


def _keep(held: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Of all, the newest."""
    held[key] = value
    if len(held) > most:
        del held[next(iter(held))]
