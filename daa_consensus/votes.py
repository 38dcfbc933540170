"""What validators sign: one statement type for every kind of statement a node can give.

Sign bytes are the canonical msgpack of
`[chain_id, epoch, validator_set_root, type, view, height, value]`, signed with ML-DSA-65 under the
context `daa/v1/<type>`. A statement's id covers the sign bytes and the signer, never the signature.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from blake3 import blake3

from daa_consensus.committee import Committee, Domain
from daa_consensus.errors import NoQuorum
from daa_dag import canonical
from daa_dag.ids import Digest, NodeId

SIGNATURE_BYTES_MAX = 3_309  # one ML-DSA-65 signature


class Kind(StrEnum):
    PROPOSAL = "proposal"
    NOTARIZE = "notarize"
    NULLIFY = "nullify"
    FINALIZE = "finalize"
    OFFER = "offer"  # view 0, height = round
    ACK = "ack"  # view 0, height = round; cumulative, not slotted
    EXEC = "exec"  # view 0, height = round
    REJOIN = "rejoin"  # view 0, height 0; value = nonce
    MEMBERSHIP = "membership"  # view 0, height 0; travels as an operation (see operations)
    # Disputes over what a contribution's author says it trained; view 0, height = round, no slots.
    OPENING = "opening"
    ACCUSATION = "accusation"
    VERDICT = "verdict"


@dataclass(frozen=True)
class Statement:
    """One statement of one node: `value` is canonical (a block id, or a list)."""

    domain: Domain
    kind: Kind
    view: int
    height: int
    value: canonical.Value

    @cached_property
    def _sign_bytes(self) -> bytes:
        d = self.domain
        words: list[canonical.Value] = [d.chain_id, d.epoch, d.validator_set_root, str(self.kind)]
        return canonical.encode([*words, self.view, self.height, self.value])

    def sign_bytes(self) -> bytes:
        # Encoded once: a certificate's statement is checked against each of its signatures.
        return self._sign_bytes

    @property
    def context(self) -> bytes:
        """The ML-DSA context string."""
        return b"daa/v1/" + self.kind.encode()


@dataclass(frozen=True)
class Signed:
    """A statement with its signer and signature, which whoever holds this has checked."""

    statement: Statement
    signer: NodeId
    signature: bytes

    @cached_property
    def id(self) -> Digest:
        """blake3 of signer and sign bytes; the same for every signature over the same words."""
        return Digest(blake3(self.signer + self.statement.sign_bytes()).digest())


@dataclass(frozen=True, slots=True)
class Certificate:
    """A quorum that said the same thing: (signer, signature) pairs sorted by signer."""

    statement: Statement
    signatures: tuple[tuple[NodeId, bytes], ...]

    def check_weight(self, committee: Committee) -> None:
        """Raise NoQuorum unless the distinct signers weigh a quorum.

        The signatures themselves are the host's to check.
        """
        weight = committee.weight({signer for signer, _ in self.signatures})
        if weight < committee.quorum:
            raise NoQuorum(weight, committee.quorum)
