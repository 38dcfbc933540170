"""Whom one member shuns, since when and until when, kept over restarts.

It lasts some rounds, and twice as many each next time: so whoever restarts has to know the last
one, or an author that shows nothing would pay for the first time again and again.
"""

from collections import OrderedDict
from dataclasses import dataclass

from daa_consensus.committee import VALIDATORS_MAX
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, NodeId
from daa_node.errors import StorageFailed
from daa_node.observability.events import STORAGE_FAILED, EventLog
from daa_node.seams import BlobStore

SHUNNED_ROUNDS = 16
SHUNNED_ROUNDS_MAX = 1024
AUTHORS_MAX = 2 * VALIDATORS_MAX  # of this committee, and as many that have left it
KIND = NAME = "shunned"  # of the record
BYTES_MAX = 64 * AUTHORS_MAX
VERSION = 1  # of the record, a list of lists; a later one begins with its number


@dataclass(frozen=True, slots=True)
class Shunned:
    """The last time of one author."""

    since_round: int
    rounds: int

    @property
    def until_round(self) -> int:
        return self.since_round + self.rounds


class Shunning:
    """One member's. Who was shunned the longest ago makes room."""

    def __init__(self) -> None:
        self._last: OrderedDict[NodeId, Shunned] = OrderedDict()  # the newest last

    def shun(self, author: NodeId, newest_round: int) -> Shunned:
        """From the next round on: for twice as long as the last time."""
        last = self._last.pop(author, None)
        rounds = SHUNNED_ROUNDS if last is None else min(2 * last.rounds, SHUNNED_ROUNDS_MAX)
        self._last[author] = Shunned(newest_round, rounds)
        while len(self._last) > AUTHORS_MAX:
            self._last.popitem(last=False)
        return self._last[author]

    def until_of(self, author: NodeId, newest_round: int) -> int | None:
        """Until which round; None of whom we do not shun after that one."""
        last = self._last.get(author)
        # One of a round to come says nothing: our chain was another one then.
        if last is None or not last.since_round <= newest_round < last.until_round:
            return None
        return last.until_round

    def authors(self, newest_round: int) -> frozenset[NodeId]:
        """Whom we shun after that round."""
        return frozenset(
            node for node in self._last if self.until_of(node, newest_round) is not None
        )

    def is_counted(self, author: NodeId, round_number: int) -> bool:
        """Whether it was shunned since: one lost disk counts once."""
        last = self._last.get(author)
        return last is not None and round_number <= last.since_round

    def encode(self) -> bytes:
        return canonical.encode(
            [[node, last.since_round, last.rounds] for node, last in self._last.items()]
        )

    def restore(self, payload: bytes) -> None:
        """What `encode` made. Raises NotCanonical for anything else."""
        self._last = OrderedDict(decoded(payload))


def decoded(payload: bytes) -> list[tuple[NodeId, Shunned]]:
    """Raises NotCanonical."""
    match canonical.decode(payload, BYTES_MAX):
        case list(authors) if len(authors) <= AUTHORS_MAX:
            return [_author(each) for each in authors]
    raise NotCanonical("no list of authors")


def _author(value: canonical.Value) -> tuple[NodeId, Shunned]:
    match value:
        case [bytes(node), int(since_round), int(rounds)] if (
            len(node) == DIGEST_BYTES
            and since_round >= 0
            and SHUNNED_ROUNDS <= rounds <= SHUNNED_ROUNDS_MAX
        ):
            return NodeId(node), Shunned(since_round, rounds)
    raise NotCanonical("no author that was shunned")


class KeptShunning:
    """That of one node in one store. What cannot be read or written is told, and no more."""

    def __init__(self, shunning: Shunning, store: BlobStore, events: EventLog) -> None:
        self._shunning = shunning
        self._store = store
        self._events = events
        self._kept = shunning.encode()

    async def load(self) -> None:
        """Before anybody is shunned."""
        try:
            payload = await self._store.get_record(KIND, NAME)
            if payload is not None:
                self._shunning.restore(payload)
                self._kept = payload
        except (StorageFailed, NotCanonical) as failure:
            self._fail(f"whom we shun is forgotten: {failure}")

    async def save(self) -> None:
        """If it has changed."""
        state = self._shunning.encode()
        if state == self._kept:
            return
        self._kept = state
        try:
            await self._store.put_record(KIND, NAME, state)
        except StorageFailed as failure:
            self._fail(f"whom we shun is not saved: {failure}")

    def _fail(self, detail: str) -> None:
        self._events.emit(STORAGE_FAILED, detail=detail)
