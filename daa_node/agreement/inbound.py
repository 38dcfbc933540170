"""Open messages: decode, check every signature, and say what the machine may believe.

A statement counts as seen only after it verified, and is then recognised by its id, so that resent
messages cost a lookup and not a verification.
"""

from collections import OrderedDict
from dataclasses import replace

from daa_consensus.bft.chain import ANY_COMMITTEE
from daa_consensus.operations import Operation
from daa_consensus.votes import Certificate, Signed
from daa_dag.ids import Digest, digest_of
from daa_node.agreement.messages import (
    Asked,
    Certified,
    Greeting,
    Message,
    Proposed,
    Shown,
    Stated,
    decode_message,
)
from daa_node.errors import PeerFault
from daa_node.identity.validators import LATER_EPOCH, TAKEN, Validators

# Votes, offers, acks and execs of a few rounds of a hundred members; two digests each.
VERIFIED_KEPT = 4096
OPERATIONS_KEPT = 256  # changes of members, told again with each new stream; 10 kB each at most


class Inbound:
    """Checks what members write. Stateless but for the memory of what verified already."""

    def __init__(self, validators: Validators) -> None:
        self.validators = validators
        self.limits = validators.limits
        # ids of statements, and signatures
        self._verified: OrderedDict[Digest, Digest] = OrderedDict()
        self._operations: OrderedDict[Operation, None] = OrderedDict()

    def open(self, payload: bytes) -> Message:
        """The message, every signature in it verified. Raises PeerFault."""
        return self.checked(self.decoded(payload))

    def decoded(self, payload: bytes) -> Message:
        """What the message says, whoever signed it. Raises PeerFault.

        Who is epochs ahead may be one of more members than we have room for: such a message tells
        where its sender stands, and is no fault.
        """
        try:
            return decode_message(payload, self.limits)
        except PeerFault:
            message = decode_message(payload, ANY_COMMITTEE)
            if message.position.epoch <= self.validators.now.epoch:
                raise
            return replace(message, body=Greeting())

    def checked(self, message: Message) -> Message:
        """The message, decoded, as far as it may be believed. Raises PeerFault."""
        try:
            self._check(message)
        except PeerFault as fault:
            if fault.reason not in (LATER_EPOCH, TAKEN):
                raise
            # One of us is behind: where it stands tells which.
            return replace(message, body=Greeting())
        return message

    def _check(self, message: Message) -> None:
        match message.body:
            case Stated(signed):
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
                self.verify_operation(operation)
            case _:
                pass

    def verify(self, signed: Signed) -> None:
        """Raises PeerFault unless the signer said this in the domain of its epoch."""
        statement = signed.statement
        # Asked each time: whose statement it is may be another question once its epoch has begun.
        committee = self.validators.committee_behind(statement)
        if signed.signer not in committee.stake_of:
            raise PeerFault("unknown-signer", f"{statement.kind} of {signed.signer.hex()[:8]}")
        signature = digest_of(signed.signature)
        if self._verified.get(signed.id) == signature:
            self.validators.check_domain(statement)
            self._verified.move_to_end(signed.id)
            return
        self.validators.verify_statement(signed)
        self._verified[signed.id] = signature
        while len(self._verified) > VERIFIED_KEPT:
            self._verified.popitem(last=False)

    def verify_operation(self, operation: Operation) -> None:
        """Raises PeerFault unless it is signed by whom it binds, and its names are free."""
        if operation in self._operations:
            self.validators.check_names(operation)  # which the chain may have given away since
            self._operations.move_to_end(operation)
            return
        self.validators.check_operation(operation)
        self._operations[operation] = None
        while len(self._operations) > OPERATIONS_KEPT:
            self._operations.popitem(last=False)

    def verify_certificate(self, certificate: Certificate) -> None:
        """Raises PeerFault unless a quorum said it and every signature is good."""
        self.validators.verify(certificate)
