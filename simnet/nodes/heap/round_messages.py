"""What nodes of whole rounds tell each other. Sizes are those of the signed messages of daemons.

A key stands for what is said: who says it is on the wire beside it.
"""

from dataclasses import dataclass, field

from daa_consensus.bft.messages import OfferBody
from daa_consensus.enrolment import TrainerRequest
from daa_consensus.votes import SIGNATURE_BYTES_MAX, Signed
from daa_dag.ids import DIGEST_BYTES, ContributionRoot
from simnet.nodes.heap import fetch_node
from simnet.nodes.heap.gossip_core import HEADER_BYTES, key_of

SIGNED_BYTES = HEADER_BYTES + SIGNATURE_BYTES_MAX + 128  # chain, epoch, kind, round, signer
OFFER_BYTES = SIGNED_BYTES + 256
KEYS_BYTES = 2_048  # an enrolment brings an ML-DSA key
KEY_MASK = (1 << 56) - 1


@dataclass(slots=True)
class Freight:
    """A word about chunks of one blob."""

    blob: int
    word: fetch_node.Message
    chunk_bytes: int
    size_bytes: int = field(init=False)
    key: int = field(init=False)

    def __post_init__(self) -> None:
        brings = isinstance(self.word, fetch_node.Answer) and self.word.payload is not None
        self.size_bytes = HEADER_BYTES + self.chunk_bytes if brings else self.word.size_bytes
        self.key = (self.word.key + self.blob) & KEY_MASK


@dataclass(slots=True)
class Offered:
    """A contribution is there, at its author."""

    body: OfferBody
    blob: int
    size_bytes: int = OFFER_BYTES
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = key_of(b"offer", self.body.root)


@dataclass(slots=True)
class Acked:
    """A validator holds these contributions."""

    round: int
    signed: Signed
    count: int
    size_bytes: int = field(init=False)
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = SIGNED_BYTES + DIGEST_BYTES * self.count
        self.key = key_of(b"ack", self.signed.id)


@dataclass(slots=True)
class Proposed:
    """A leader's set. Nothing in it: the round is to be aborted."""

    round: int
    view: int
    roots: frozenset[ContributionRoot]
    requests: tuple[TrainerRequest, ...]
    size_bytes: int = field(init=False)
    what: int = field(init=False)  # equal for what decides the same, in whatever view
    key: int = field(init=False)

    def __post_init__(self) -> None:
        asked = len(self.requests) * (KEYS_BYTES + SIGNED_BYTES)
        self.size_bytes = SIGNED_BYTES + len(self.roots) * 256 + asked
        told = b"".join(sorted(self.roots)) + b"".join(each.id for each in self.requests)
        self.what = key_of(b"set %d" % self.round, told)
        self.key = (self.what + self.view) & KEY_MASK


@dataclass(slots=True)
class Voted:
    """For the set of a view, or against the view; `phase` is one of the seats'."""

    round: int
    view: int
    phase: int
    proposal: int  # its key
    size_bytes: int = SIGNED_BYTES
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = key_of(b"vote %d" % self.phase, b"%d %d" % (self.view, self.proposal))


@dataclass(slots=True)
class Executed:
    """A validator has merged the round's set."""

    round: int
    size_bytes: int = SIGNED_BYTES
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = key_of(b"executed", b"%d" % self.round)


@dataclass(slots=True)
class Asked:
    """Requests for the roll, from whoever brings them to a validator, and among validators."""

    requests: tuple[TrainerRequest, ...]
    is_first_hand: bool  # of a trainer: its voucher is yet to add a word, and to tell the others
    size_bytes: int = field(init=False)
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = len(self.requests) * (KEYS_BYTES + SIGNED_BYTES)
        self.key = key_of(b"asked", b"".join(each.id for each in self.requests))


@dataclass(slots=True)
class Hello:
    """Back again: what is the newest, and what has been said of the round?"""

    round: int  # the newest whose delta the sender has
    size_bytes: int = HEADER_BYTES
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = key_of(b"hello", b"%d" % self.round)


Message = Freight | Offered | Acked | Proposed | Voted | Executed | Asked | Hello
