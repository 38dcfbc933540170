"""The health records on disk, so that a restart forgets nobody: one file, replaced as a whole.

It is written every while, and when the node stops: a crash costs what was seen since. What cannot
be read is told of and let go of: it is an opinion, and another one forms within some rounds.
"""

import struct
from collections.abc import Sequence

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, NodeId
from daa_node.contributors.records import AUTHORS_MAX, HealthRecords, Record
from daa_node.contributors.score import PER_MILLE, ROUNDS_KEPT, Level, Measure, Observation
from daa_node.errors import StorageFailed
from daa_node.observability.events import STORAGE_FAILED, EventLog
from daa_node.seams import BlobStore

KIND, NAME = "health", "contributors"
VERSION = 1
SAVE_EVERY_S = 30.0  # what a crash may cost: some rounds of many
NUMBER_BYTES = 4
OBSERVATION_BYTES = 2 * NUMBER_BYTES
WORDS_BYTES = 200  # of an author: name, level, why it is excluded
BYTES_MAX = AUTHORS_MAX * (len(Measure) * ROUNDS_KEPT * OBSERVATION_BYTES + WORDS_BYTES)


class KeptHealth:
    """The records of one node in one store."""

    def __init__(self, records: HealthRecords, store: BlobStore, events: EventLog) -> None:
        self._records = records
        self._store = store
        self._events = events
        self._saved_round = 0

    async def load(self) -> None:
        """Before anything is noted."""
        try:
            payload = await self._store.get_record(KIND, NAME)
            if payload is None:
                return
            newest_round, authors = decoded(payload)
        except (StorageFailed, NotCanonical) as failure:
            self._fail(f"the health of contributors is forgotten: {failure}")
            return
        self._records.recall(newest_round, authors)
        self._saved_round = newest_round

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(SAVE_EVERY_S)
            await self.save()

    async def save(self) -> None:
        """If a round has ended since the last time."""
        records = self._records
        if records.newest_round == self._saved_round:
            return
        self._saved_round = records.newest_round
        try:
            await self._store.put_record(KIND, NAME, encoded(records))
        except StorageFailed as failure:
            self._fail(f"the health of contributors is not saved: {failure}")

    def _fail(self, detail: str) -> None:
        self._events.emit(STORAGE_FAILED, detail=detail)


def encoded(records: HealthRecords) -> bytes:
    """All that there is to recall."""
    authors = [
        [
            node,
            str(record.level),
            record.since_round,
            record.excluded_because,
            [_packed(record.history[measure]) for measure in Measure],
        ]
        for node, record in records.authors()
    ]
    return canonical.encode([VERSION, records.newest_round, authors])


def decoded(payload: bytes) -> tuple[int, list[tuple[NodeId, Record]]]:
    """The newest round and each author, the newest seen last. Raises NotCanonical."""
    match canonical.decode(payload, BYTES_MAX):
        case [int(version), int(newest_round), list(rows)] if version == VERSION:
            return newest_round, [_author(row, newest_round) for row in rows]
        case _:
            raise NotCanonical(f"no health records of version {VERSION}")


def _author(row: object, newest_round: int) -> tuple[NodeId, Record]:
    match row:
        case [bytes(node), str(level), int(since_round), None | str() as why, list(histories)]:
            known = level in list(Level) and len(node) == DIGEST_BYTES
            if known and len(histories) == len(Measure):
                record = Record(level=Level(level), since_round=since_round, excluded_because=why)
                for measure, packed in zip(Measure, histories, strict=True):
                    record.history[measure].extend(_unpacked(packed, newest_round))
                return NodeId(node), record
    raise NotCanonical("an author's record has another form")


def _packed(history: Sequence[Observation]) -> bytes:
    numbers = [number for observation in history for number in observation]
    return struct.pack(f"<{len(numbers)}I", *numbers)


def _unpacked(packed: object, newest_round: int) -> list[Observation]:
    if not isinstance(packed, bytes) or len(packed) % OBSERVATION_BYTES:
        raise NotCanonical("a history has another form")
    found = [Observation(*pair) for pair in struct.iter_unpack("<2I", packed)]
    if len(found) > ROUNDS_KEPT:
        raise NotCanonical("a history is too long")
    if any(o.per_mille > PER_MILLE or o.round > newest_round for o in found):
        raise NotCanonical("an observation is beyond 1, or of a round to come")
    return found
