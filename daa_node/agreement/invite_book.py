"""The invites of one validator: of each token the digest, for how many, until when, and who came.

    issued --a node comes--> coming --on the roll--> in, once a node ... --all uses--> used up
       `--its time ends--> expired      `--its maker says so--> revoked

Pure. A token itself is never kept: who reads the book joins nobody. Who has come once may come
again until it is in, which costs no second use: a joiner is killed now and then.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, Digest, NodeId, digest_of

INVITES_MAX = 256  # what is over goes first, the oldest before others
USES_MAX = 256
BOOK_BYTES_MAX = INVITES_MAX * (2 * USES_MAX * (DIGEST_BYTES + 3) + 128)
BOOK_VERSION = 1
NAME_CHARACTERS = 8  # of a digest, for people
TIME_NS_MAX = 2**63 - 1


class Refusal(StrEnum):
    """Why a joiner is sent away; its own host has words for each."""

    UNKNOWN = "unknown"
    EXPIRED = "expired"
    USED_UP = "used-up"
    REVOKED = "revoked"
    CLOSED = "closed"  # the network takes no trainers
    OVER_QUOTA = "over-quota"  # the inviter vouches for as many as it may
    FULL = "full"  # the roll of the network has no place
    NO_MEMBER = "no-member"  # the inviter votes no more: its word brings in nobody
    MEMBER = "member"  # who comes votes already
    GOING = "going"  # it is about to leave the roll
    GONE = "gone"  # it was in by this invite, and is in no more
    NOT_NOW = "not-now"  # the inviter cannot pass it on at present: come again


@dataclass(frozen=True, slots=True)
class Issued:
    """One invite. `expires_ns` is wall time."""

    digest: Digest
    uses: int
    expires_ns: int
    used_by: tuple[NodeId, ...] = ()
    coming: tuple[NodeId, ...] = ()  # of these, who was not on the roll yet
    revoked: bool = False

    @property
    def name(self) -> str:
        return self.digest.hex()[:NAME_CHARACTERS]

    def refusal(self, subject: NodeId | None, now_ns: int) -> Refusal | None:
        """Why it lets this node, None: a fresh one, in no more; None if it does, or has done so."""
        if self.revoked:
            return Refusal.REVOKED
        if subject in self.used_by:
            return None  # whether it has gone since, the roll says
        if now_ns >= self.expires_ns:
            return Refusal.EXPIRED
        return Refusal.USED_UP if len(self.used_by) >= self.uses else None


def digest_of_token(token: bytes) -> Digest:
    return digest_of(b"daa/v1/invite" + token)


@dataclass(frozen=True, slots=True)
class InviteBook:
    """All that are remembered, the oldest first."""

    issued: tuple[Issued, ...] = ()

    def find(self, token: bytes) -> Issued | None:
        digest = digest_of_token(token)
        return next((one for one in self.issued if one.digest == digest), None)

    def named(self, name: str) -> list[Issued]:
        """All whose digest begins with these digits."""
        return [one for one in self.issued if one.digest.hex().startswith(name)]

    def with_new(self, new: Issued, now_ns: int) -> "InviteBook | None":
        """None if as many are open already as may be."""
        kept = list(self.issued)
        while len(kept) >= INVITES_MAX:
            over = next((one for one in kept if _is_over(one, now_ns)), None)
            if over is None:
                return None
            kept.remove(over)
        return InviteBook((*kept, new))

    def with_use(self, used: Issued, subject: NodeId) -> "InviteBook":
        if subject in used.used_by:
            return self
        coming = (*used.coming, subject)
        return self._with(replace(used, used_by=(*used.used_by, subject), coming=coming))

    def with_in(self, names: Collection[NodeId]) -> "InviteBook":
        """These are on the roll: a word for one of them was said, and is not said again."""
        return InviteBook(
            tuple(
                replace(one, coming=tuple(name for name in one.coming if name not in names))
                for one in self.issued
            )
        )

    @property
    def coming(self) -> list[NodeId]:
        """Who came with an invite that holds, and was not on the roll yet."""
        return [name for one in self.issued if not one.revoked for name in one.coming]

    def without(self, gone: Issued) -> "InviteBook":
        """Revoked: it lets nobody in again; who has come stays."""
        return self._with(replace(gone, revoked=True))

    def _with(self, changed: Issued) -> "InviteBook":
        return InviteBook(
            tuple(changed if one.digest == changed.digest else one for one in self.issued)
        )


def _is_over(one: Issued, now_ns: int) -> bool:
    return one.revoked or now_ns >= one.expires_ns or len(one.used_by) >= one.uses


def encode_book(book: InviteBook) -> bytes:
    rows: list[canonical.Value] = [
        [
            *(one.digest, one.uses, one.expires_ns),
            *(list(one.used_by), list(one.coming), int(one.revoked)),
        ]
        for one in book.issued
    ]
    return canonical.encode([BOOK_VERSION, rows])


def decode_book(payload: bytes) -> InviteBook:
    """Raises NotCanonical."""
    match canonical.decode(payload, BOOK_BYTES_MAX):
        case [int(version), list(rows)] if version == BOOK_VERSION and len(rows) <= INVITES_MAX:
            return InviteBook(tuple(_issued_from(row) for row in rows))
        case _:
            raise NotCanonical(f"no book of invites of version {BOOK_VERSION}")


def _issued_from(row: object) -> Issued:
    match row:
        case [
            bytes(digest),
            int(uses),
            int(expires_ns),
            list(used_by),
            list(coming),
            0 | 1 as over,
        ]:
            came, waits = _names(used_by), _names(coming)
            if (
                len(digest) == DIGEST_BYTES
                and len(came) <= uses <= USES_MAX
                and {*waits} <= {*came}
            ):
                return Issued(Digest(digest), uses, expires_ns, came, waits, bool(over))
    raise NotCanonical("an invite in the book has another form")


def _names(values: list[object]) -> tuple[NodeId, ...]:
    names = [NodeId(name) for name in values if isinstance(name, bytes)]
    if len(names) != len(values) or any(len(name) != DIGEST_BYTES for name in names):
        raise NotCanonical("who came is a list of names")
    return tuple(names)
