"""Open letters: decode, check every signature, and say what the machine may believe.

A statement counts as seen only after it verified, and is then recognised by its id, so that resent
letters cost a lookup and not a verification.
"""

from collections import OrderedDict
from dataclasses import replace

from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import Digest
from daa_node.agreement.letters import (
    Asked,
    Certified,
    Greeting,
    Letter,
    Proposed,
    Said,
    Shown,
    decode_letter,
)
from daa_node.errors import PeerFault
from daa_node.identity.validators import LATER_EPOCH, Validators

# Votes, offers, acks and execs of a few rounds of a hundred members.
VERIFIED_KEPT = 4096


class Inbound:
    """Checks what members write. Stateless but for the memory of what verified already."""

    def __init__(self, validators: Validators) -> None:
        self.validators = validators
        self.limits = validators.limits
        self._verified: OrderedDict[Digest, bytes] = OrderedDict()

    def open(self, payload: bytes) -> Letter:
        """The letter, every signature in it verified. Raises PeerFault."""
        return self.checked(decode_letter(payload, self.limits))

    def checked(self, letter: Letter) -> Letter:
        """The letter, decoded, as far as it may be believed. Raises PeerFault."""
        try:
            self._check(letter)
        except PeerFault as fault:
            if fault.reason != LATER_EPOCH:
                raise
            return replace(letter, body=Greeting())  # we are behind: where it stands tells us so
        return letter

    def _check(self, letter: Letter) -> None:
        match letter.body:
            case Said(signed):
                self.verify(signed)
            case Proposed(signed, _, certificate):
                self.verify(signed)
                if certificate is not None:
                    self.verify_certificate(certificate)
            case Certified(certificate, _):
                self.verify_certificate(certificate)
            case Shown(acks=acks):
                for signed in acks:
                    self.verify(signed)
            case Asked(operation):
                self.validators.check_operation(operation)
            case _:
                pass

    def verify(self, signed: Signed) -> None:
        """Raises PeerFault unless the signer said this in the domain of its epoch."""
        known = self._verified.get(signed.id)
        if known == signed.signature:
            self._verified.move_to_end(signed.id)
            return
        statement = signed.statement
        committee = self.validators.committee_behind(statement)
        if statement.kind in _VALIDATORS_ONLY and signed.signer not in committee.stake_of:
            raise PeerFault("unknown-signer", f"{statement.kind} of {signed.signer.hex()[:8]}")
        self.validators.verify_word(signed)
        self._verified[signed.id] = signed.signature
        while len(self._verified) > VERIFIED_KEPT:
            self._verified.popitem(last=False)

    def verify_certificate(self, certificate: Certificate) -> None:
        """Raises PeerFault unless a quorum said it and every signature is good."""
        self.validators.verify(certificate)


# Contributors that do not vote still offer; everything else is a validator's word.
_VALIDATORS_ONLY = frozenset(Kind) - {Kind.OFFER}
