"""Open messages: decode, check every signature, and say what the machine may believe.

Whose statement it is and in which domain is asked each time; that a signature is good is remembered
(see identity/keys), so that what is sent again costs a lookup and no verification.
"""

from collections import OrderedDict
from dataclasses import replace

from daa_consensus.bft.chain import ANY_COMMITTEE
from daa_consensus.enrolment import Enrolment
from daa_consensus.operations import Operation
from daa_consensus.votes import Certificate, Kind, Signed
from daa_node.agreement.messages import (
    Asked,
    AskedOfRoll,
    Certified,
    Greeting,
    Message,
    Proposed,
    Shown,
    Stated,
    decode_message,
)
from daa_node.errors import PeerFault
from daa_node.identity.enrolling import check_enrolled_name, check_enrolment
from daa_node.identity.validators import LATER_EPOCH, TAKEN, Validators

# What binds who contributes, with or without a vote: its updates, what it shows of them and finds
# in those of others, and that it has lost its memory. A verdict of a trainer brings its
# accusation, and weighs nothing.
TRAINERS_SAY = frozenset({Kind.OFFER, Kind.OPENING, Kind.ACCUSATION, Kind.VERDICT, Kind.REJOIN})
OPERATIONS_KEPT = 256  # changes of members, told again with each new stream; 10 kB each at most


class Inbound:
    """Checks what members write. Stateless but for the memory of what was asked for already."""

    def __init__(self, validators: Validators) -> None:
        self.validators = validators
        self.limits = validators.limits
        self._operations: OrderedDict[Operation, None] = OrderedDict()
        self._enrolments: OrderedDict[Enrolment, None] = OrderedDict()

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
            case AskedOfRoll(enrolment):
                self.verify_enrolment(enrolment)
            case _:
                pass

    def verify(self, signed: Signed) -> None:
        """Raises PeerFault unless the signer said this in the domain of its epoch."""
        # Asked each time: whose statement it is may be another question once its epoch has begun.
        committee = self.validators.committee_behind(signed.statement)
        if signed.signer not in committee.stake_of and not self._is_of_trainer(signed):
            said = signed.statement
            if said.kind in TRAINERS_SAY and self.validators.now.roll.lacks_round(said.height):
                raise PeerFault(LATER_EPOCH, f"a trainer of round {said.height}, for all we know")
            raise PeerFault(
                "unknown-signer", f"{signed.statement.kind} of {signed.signer.hex()[:8]}"
            )
        self.validators.verify_statement(signed)

    def _is_of_trainer(self, signed: Signed) -> bool:
        """Whether who contributes without a vote may say this."""
        epoch = signed.statement.domain.epoch
        is_theirs = signed.statement.kind in TRAINERS_SAY
        return is_theirs and self.validators.may_contribute(signed.signer, epoch)

    def verify_enrolment(self, enrolment: Enrolment) -> None:
        """Raises PeerFault unless it is signed by whom it binds, and its names are free."""
        if enrolment in self._enrolments:
            check_enrolled_name(enrolment, self.validators)  # as below
            self._enrolments.move_to_end(enrolment)
            return
        check_enrolment(enrolment, self.validators)
        self._enrolments[enrolment] = None
        while len(self._enrolments) > OPERATIONS_KEPT:
            self._enrolments.popitem(last=False)

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
