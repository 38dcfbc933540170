"""A long list of digests in little memory: 32 bytes each, and some ten to find where it stands.

A list and a dictionary of the same take 200. The table is one of places, found by the first bytes
of a digest and looked for in the slots behind (open addressing). What stands at a place tells
whether it is the one, so what was cut off needs no slot to be cleared.
"""

from array import array

from daa_dag.ids import DIGEST_BYTES

SLOTS_MIN = 64


class Digests:
    """In their order; each at most once."""

    def __init__(self) -> None:
        self._ids = bytearray()
        self._slots = array("I", bytes(4 * SLOTS_MIN))  # a place and one more; 0: free
        self._taken = 0  # slots

    def __len__(self) -> int:
        return len(self._ids) // DIGEST_BYTES

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, bytes) and self.place_of(digest) is not None

    def __getitem__(self, place: int) -> bytes:
        at = place * DIGEST_BYTES
        return bytes(self._ids[at : at + DIGEST_BYTES])

    def place_of(self, digest: bytes) -> int | None:
        """Where it stands; None if it is none of these."""
        slot = self._first_slot(digest)
        while held := self._slots[slot]:
            if self[held - 1] == digest:
                return held - 1
            slot = (slot + 1) % len(self._slots)
        return None

    def add(self, digest: bytes) -> None:
        """At the end, unless it is there already."""
        assert len(digest) == DIGEST_BYTES
        if self.place_of(digest) is not None:
            return
        self._ids += digest
        self._enter(len(self) - 1)
        if 3 * self._taken > 2 * len(self._slots):
            self._grow()

    @property
    def joined(self) -> bytes:
        """One behind the other, in their order."""
        return bytes(self._ids)

    def take(self, joined: bytes) -> None:
        """Add these, joined."""
        for at in range(0, len(joined), DIGEST_BYTES):
            self.add(joined[at : at + DIGEST_BYTES])

    def cut(self, length: int) -> None:
        """Keep the first so many."""
        del self._ids[length * DIGEST_BYTES :]

    def _enter(self, place: int) -> None:
        slot = self._first_slot(self[place])
        while self._slots[slot]:
            slot = (slot + 1) % len(self._slots)
        self._slots[slot] = place + 1
        self._taken += 1

    def _grow(self) -> None:
        size = SLOTS_MIN
        while size < 2 * len(self):
            size *= 2
        self._slots, self._taken = array("I", bytes(4 * size)), 0
        for place in range(len(self)):
            self._enter(place)

    def _first_slot(self, digest: bytes) -> int:
        return int.from_bytes(digest[:8]) % len(self._slots)
