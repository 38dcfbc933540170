"""What a set carries beside contributions: evidence, Rejoins, and changes of the validator set."""

from dataclasses import replace

from daa_consensus.bft.evidence import decode_evidence
from daa_consensus.bft.messages import SetPayload, decode_signed
from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership
from daa_consensus.operations import encode_operation, membership_operations
from daa_consensus.votes import Certificate, Kind
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.errors import PeerFault


def loaded(chosen: SetPayload, facts: Facts, now: Membership) -> SetPayload:
    """The chosen set with all that the facts want to be in the next one."""
    operations = (*facts.rejoins.values(), *facts.operations_for(now))
    return replace(chosen, evidence=tuple(facts.evidence), operations=operations)


def why_unproven(proposed: SetPayload, inbound: Inbound) -> str | None:
    """Why the set's evidence or operations prove nothing; None if they are all in order."""
    try:
        for encoded in proposed.evidence:
            evidence = decode_evidence(encoded, inbound.limits)
            inbound.verify(evidence.first)
            if isinstance(evidence.second, Certificate):
                inbound.verify_certificate(evidence.second)
            else:
                inbound.verify(evidence.second)
        changes = membership_operations(proposed.operations)
        for operation in changes:
            inbound.validators.check_operation(operation)
        known = {encode_operation(operation) for operation in changes}
        for encoded in (e for e in proposed.operations if e not in known):
            signed = decode_signed(encoded, inbound.limits)
            if signed.statement.kind is not Kind.REJOIN:
                return f"{signed.statement.kind} is no membership operation"
            inbound.verify(signed)
    except (BadMessage, PeerFault) as fault:
        return str(fault)
    return None
