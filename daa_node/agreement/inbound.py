"""Open letters: decode, check every signature, and say what the machine may believe.

A statement counts as seen only after it verified, and is then recognised by its id, so that resent
letters cost a lookup and not a verification.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping

from daa_consensus.bft.messages import Limits
from daa_consensus.committee import Committee, Domain
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import Digest, NodeId
from daa_node.agreement.letters import Certified, Letter, Proposed, Said, decode_letter
from daa_node.errors import PeerFault
from daa_node.identity.envelope import verify_certificate, verify_signed

# Votes, offers, acks and execs of a few rounds of a hundred members.
VERIFIED_KEPT = 4096


class Inbound:
    """Checks what members write. Stateless but for the memory of what verified already."""

    def __init__(
        self,
        committee: Committee,
        domain_of: Callable[[int], Domain],
        public_keys: Mapping[NodeId, bytes],
        limits: Limits,
    ) -> None:
        self._committee = committee
        self._domain_of = domain_of
        self._public_keys = public_keys
        self.limits = limits
        self._verified: OrderedDict[Digest, bytes] = OrderedDict()

    def open(self, payload: bytes) -> Letter:
        """The letter, every signature in it verified. Raises PeerFault."""
        letter = decode_letter(payload, self.limits)
        match letter.body:
            case Said(signed):
                self.verify(signed)
            case Proposed(signed, _, certificate):
                self.verify(signed)
                if certificate is not None:
                    self.verify_certificate(certificate)
            case Certified(certificate, _):
                self.verify_certificate(certificate)
            case _:
                pass
        return letter

    def verify(self, signed: Signed) -> None:
        """Raises PeerFault unless the signer said this in the domain of its epoch."""
        known = self._verified.get(signed.id)
        if known == signed.signature:
            self._verified.move_to_end(signed.id)
            return
        statement = signed.statement
        if statement.kind in _VALIDATORS_ONLY and signed.signer not in self._committee.stake_of:
            raise PeerFault("unknown-signer", f"{statement.kind} of {signed.signer.hex()[:8]}")
        verify_signed(signed, self._public_keys, self._domain_of(statement.domain.epoch))
        self._verified[signed.id] = signed.signature
        while len(self._verified) > VERIFIED_KEPT:
            self._verified.popitem(last=False)

    def verify_certificate(self, certificate: Certificate) -> None:
        """Raises PeerFault unless a quorum said it and every signature is good."""
        domain = self._domain_of(certificate.statement.domain.epoch)
        verify_certificate(certificate, self._committee, self._public_keys, domain)


# Contributors that do not vote still offer; everything else is a validator's word.
_VALIDATORS_ONLY = frozenset(Kind) - {Kind.OFFER}
