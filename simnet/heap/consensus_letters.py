"""What letters are made of here: keys whose signatures are constant, and their one opening.

Nobody can forge a signature in this world, and no machine looks at one: it says whose it is and no
more, so that two runs send the same bytes. What the daemon checks of a letter is checked all the
same, once for all receivers.
"""

from collections import OrderedDict
from dataclasses import dataclass

from daa_consensus.bft.messages import Block, Limits
from daa_consensus.committee import Committee, Domain
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import ChainId, NodeId
from daa_node.agreement.letters import Certified, Letter, Proposed, Said, decode_letter
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators, fixed_validators

OPENED_KEPT = 4096  # letters whose decoded form is remembered


class Keys:
    """Stands in for a node's keys. No machine looks at a signature, and none can be forged here."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id

    def sign(self, payload: bytes, context: bytes) -> bytes:
        return signature_of(self.node_id)


def signature_of(node_id: NodeId) -> bytes:
    """Every signature of a node: says no more than whose it is, so the trace is the same."""
    return b"by " + node_id[:8]


@dataclass(frozen=True, slots=True)
class Network:
    """What all hosts of a world have in common."""

    chain_id: ChainId
    genesis: Block
    committee: Committee
    limits: Limits
    epoch_rounds: int
    delta_ns: int
    doublings_max: int

    def domain(self, epoch: int) -> Domain:
        return Domain(self.chain_id, epoch, self.committee.root)

    def validators(self) -> Validators:
        """The history that a host begins with: nobody comes or goes here."""
        return fixed_validators(self.chain_id, self.committee, {}, self.epoch_rounds)

    def epoch_of(self, round_number: int) -> int:
        return (round_number - 1) // self.epoch_rounds


class Opened:
    """Stands in for agreement/inbound.py: every letter is decoded and checked once for all."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.limits = network.limits
        self._letters: OrderedDict[bytes, Letter] = OrderedDict()

    def open(self, payload: bytes) -> Letter:
        """Raises PeerFault."""
        letter = self._letters.get(payload)
        if letter is None:
            letter = self._letters[payload] = self._checked(decode_letter(payload, self.limits))
            if len(self._letters) > OPENED_KEPT:
                self._letters.popitem(last=False)
        return letter

    def _checked(self, letter: Letter) -> Letter:
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
        if signed.signer not in self._network.committee.stake_of:
            raise PeerFault("unknown-signer", signed.signer.hex())
        if signed.signature != signature_of(signed.signer):
            raise PeerFault("bad-signature", signed.signer.hex())
        if signed.statement.domain != self._network.domain(signed.statement.domain.epoch):
            raise PeerFault("foreign-domain", signed.signer.hex())

    def verify_certificate(self, certificate: Certificate) -> None:
        committee = self._network.committee
        for signer, signature in certificate.signatures:
            if signer not in committee.stake_of or signature != signature_of(signer):
                raise PeerFault("bad-signature", signer.hex())
        if committee.weight({signer for signer, _ in certificate.signatures}) < committee.quorum:
            raise PeerFault("no-quorum", str(certificate.statement.kind))
