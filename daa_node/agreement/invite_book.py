"""The invites of one validator: of each token the digest, for how many, until when, and who came.

    issued --a node comes--> used, once a node ... --all uses--> used up
       `--its time ends--> expired      `--its maker says so--> revoked

Pure. A token itself is never kept: who reads the book joins nobody. Who has come once may come
again, which costs no second use: a joiner is killed now and then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, Digest, NodeId, digest_of

INVITES_MAX = 256  # what is over goes first, the oldest before others
USES_MAX = 256
BOOK_BYTES_MAX = INVITES_MAX * (USES_MAX * (DIGEST_BYTES + 3) + 128)
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
    NOT_NOW = "not-now"  # the inviter cannot pass it on at present: come again


@dataclass(frozen=True, slots=True)
class Issued:
    """One invite. `expires_ns` is wall time."""

    digest: Digest
    uses: int
    expires_ns: int
    used_by: tuple[NodeId, ...] = ()
    revoked: bool = False

    @property
    def name(self) -> str:
        return self.digest.hex()[:NAME_CHARACTERS]

    def refusal(self, subject: NodeId | None, now_ns: int) -> Refusal | None:
        """Why it lets this node, None: a fresh one, in no more; None if it does, or has done so."""
        if self.revoked:
            return Refusal.REVOKED
        if subject in self.used_by:
            return None
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

    def named(self, name: str) -> Issued | None:
        """By the first digits of its digest, or all of them."""
        return next((one for one in self.issued if one.digest.hex().startswith(name)), None)

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
        return self._with(replace(used, used_by=(*used.used_by, subject)))

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
        [one.digest, one.uses, one.expires_ns, list(one.used_by), int(one.revoked)]
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
        case [bytes(digest), int(uses), int(expires_ns), list(used_by), 0 | 1 as revoked]:
            names = [name for name in used_by if isinstance(name, bytes)]
            sizes: Sequence[int] = [len(digest), *map(len, names)]
            if set(sizes) == {DIGEST_BYTES} and len(names) == len(used_by) <= uses <= USES_MAX:
                comers = tuple(NodeId(name) for name in names)
                return Issued(Digest(digest), uses, expires_ns, comers, bool(revoked))
    raise NotCanonical("an invite in the book has another form")
