"""Gossip and the DHT of light transports: what everybody hears, and what everybody keeps.

An announcement goes to everybody admitted; who hears it for the first time, and accepts it, passes
it on to as many as a mesh of gossipsub has. A record goes to everybody admitted and stays with all
who take it, of two that of the higher rank; so does the word that somebody holds a thing. Whoever
asks, asks everybody.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from itertools import count
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
from simnet.nodes.virtual.light_connection import Connection
from simnet.nodes.virtual.scheduling import now_ns

TELL, ASK, ANSWER = "tell", "ask", "answer"
PUT, GET, PROVIDE, PROVIDERS = "put", "get", "provide", "providers"
# As the libp2p transport has them.
DHT_TIMEOUT_S = 30.0
SEARCH_TIMEOUT_S = 5.0
SEEN_MAX = 4096  # announcements that are known already: an hour of nine nodes'
PASSED_ON_TO = 8  # gossipsub's degree; its author alone tells everybody (v1.1, flood publishing)
KEPT_MAX = 1024  # records that one node keeps, and as many names of what others hold

Peers = Callable[[], list[Connection]]
IsAdmitted = Callable[[Connection], bool]


class Rumours:
    """One node's gossip; `peers` are those that it is passed on to."""

    def __init__(self, peer_id: PeerId, peers: Peers, is_admitted: IsAdmitted) -> None:
        self._peer_id = peer_id
        self._peers = peers
        self._is_admitted = is_admitted
        self.on_fault: OnFault = _nobody_is_told
        self._topics: dict[str, tuple[GossipFilter, GossipJudge]] = {}
        self._seen: dict[tuple[str, int], None] = {}
        self._sequence = 0
        self._chance = random.Random(peer_id)

    def join(self, topic: str, may_be_news: GossipFilter, judge: GossipJudge) -> None:
        assert topic not in self._topics
        self._topics[topic] = (may_be_news, judge)

    async def publish(self, topic: str, payload: bytes) -> None:
        # counts on from the time: after a restart nobody takes a new one for one of before
        self._sequence = max(self._sequence + 1, now_ns())
        await self._tell(self._peers(), [topic, self._peer_id, self._sequence, payload])

    async def heard(self, forwarder: Connection, rumour: list[Any]) -> None:
        """Judge it, unless it is known; tell it on."""
        name, source, sequence, payload = rumour
        topic = self._topics.get(name)
        if not self._is_admitted(forwarder):
            return
        if topic is None:
            self.on_fault(forwarder.peer_id, PeerFault("gossip-malformed", "no topic of ours"))
            return
        if source == self._peer_id or (source, sequence) in self._seen:
            return
        self._seen[source, sequence] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        may_be_news, judge = topic
        announcement = Announcement(PeerId(source), payload, forwarder.peer_id)
        try:
            accepted = may_be_news(announcement) and judge(announcement)
        except PeerFault as fault:
            self.on_fault(forwarder.peer_id, fault)
            return
        if accepted:
            others = [p for p in self._peers() if p is not forwarder and p.peer_id != source]
            some = self._chance.sample(others, min(PASSED_ON_TO, len(others)))
            await self._tell(some, rumour)

    async def _tell(self, peers: list[Connection], rumour: list[Any]) -> None:
        for peer in peers:
            with suppress(trio.BrokenResourceError):
                await peer.say(TELL, *rumour)


def _nobody_is_told(_peer_id: PeerId, _fault: PeerFault) -> None:
    """Nobody has asked."""


class Records:
    """One node's share of the DHT; `peers` are those that it asks."""

    def __init__(self, peer_id: PeerId, peers: Peers, is_admitted: IsAdmitted) -> None:
        self.judge: RecordJudge | None = None
        self._peer_id = peer_id
        self._peers = peers
        self._is_admitted = is_admitted
        self._records: dict[str, bytes] = {}
        self._holders: dict[str, dict[str, None]] = {}
        self._numbers = count()
        self._answers: dict[int, trio.MemorySendChannel[Any]] = {}

    async def put(self, key: str, payload: bytes) -> None:
        """Raises Unavailable."""
        if not self._peers():
            raise Unavailable("no peer to store a record at")
        if not self._take(key, payload):
            raise Unavailable(f"record {key} was not stored: it is refused")
        await self._ask_all([PUT, key, payload], DHT_TIMEOUT_S)

    async def get(self, key: str) -> bytes | None:
        found = [self._records.get(key), *await self._ask_all([GET, key], DHT_TIMEOUT_S)]
        ranked = [(self._rank(key, payload), payload) for payload in found if payload is not None]
        return max((pair for pair in ranked if pair[0] >= 0), default=(0, None))[1]

    async def provide(self, key: str) -> None:
        """Raises Unavailable."""
        if not await self._ask_all([PROVIDE, key], DHT_TIMEOUT_S):
            raise Unavailable(f"nobody has noted that we provide {key}")

    async def find_providers(self, key: str, count_max: int) -> list[PeerId]:
        told = await self._ask_all([PROVIDERS, key], SEARCH_TIMEOUT_S)
        names = dict.fromkeys([*self._holders.get(key, ()), *(n for names in told for n in names)])
        names.pop(self._peer_id, None)
        return [PeerId(name) for name in names][:count_max]

    async def asked(self, peer: Connection, question: list[Any]) -> None:
        """Answer it, if the peer is admitted. Raises trio.BrokenResourceError."""
        if not self._is_admitted(peer):
            return
        number, verb, key, *rest = question
        answer: Any = None
        if verb == PUT:
            answer = self._take(key, rest[0])
        elif verb == GET:
            answer = self._records.get(key)
        elif verb == PROVIDE:
            _kept(self._holders, key, {**self._holders.get(key, {}), peer.peer_id: None})
        else:
            answer = list(self._holders.get(key, ()))
        await peer.say(ANSWER, number, answer)

    def answered(self, number: int, answer: Any) -> None:
        channel = self._answers.pop(number, None)
        if channel is not None:
            channel.send_nowait(answer)

    async def _ask_all(self, question: list[Any], timeout_s: float) -> list[Any]:
        """The answers that came in time."""
        peers = self._peers()
        send, receive = trio.open_memory_channel[Any](len(peers))
        numbers = [next(self._numbers) for _ in peers]
        answers: list[Any] = []
        self._answers.update(dict.fromkeys(numbers, send))
        try:
            with trio.move_on_after(timeout_s):
                for peer, number in zip(peers, numbers, strict=True):
                    with suppress(trio.BrokenResourceError):
                        await peer.say(ASK, number, *question)
                while len(answers) < len(peers):
                    answers.append(await receive.receive())
        finally:
            for number in numbers:
                self._answers.pop(number, None)
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
            _kept(self._records, key, payload)
        return True


def _kept(held: dict[str, Any], key: str, value: Any) -> None:
    held[key] = value
    if len(held) > KEPT_MAX:
        del held[next(iter(held))]
