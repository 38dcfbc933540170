"""Who comes and goes in a world of machines, and the committees that must follow from it.

The committees are computed from the final chain here, apart from any machine: block by block, each
epoch's sets first and its boundary after them. `pool` is what hosts have heard of and may propose.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from daa_consensus.bft.chain import offences
from daa_consensus.bft.evidence import Evidence, encode_evidence
from daa_consensus.bft.messages import Block, SetPayload
from daa_consensus.committee import FAULT_TOLERANT_MIN, Committee
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Operation,
    Request,
    Rotate,
    Stake,
    encode_operation,
    membership_operations,
    signers_of,
)
from daa_consensus.votes import Certificate, Kind, Signed
from daa_dag.ids import Digest, NodeId


def signed_by_its_own(operation: Operation) -> bool:
    """What a host checks, where signatures are words."""
    return all(word == b"signature of " + name[:1] for name, word in operation.signatures)


def proofs_of(evidence: Sequence[Evidence], known: Membership) -> tuple[bytes, ...]:
    """Of each offender whom it convicts, and who is not convicted yet, one."""
    chosen: dict[NodeId, bytes] = {}
    for found in evidence:
        epoch = found.epoch
        if known.convicts(found.offender, epoch):
            chosen.setdefault(found.offender, encode_evidence(found))
    return tuple(chosen.values())


def operation_of(action: Action, expires_epoch: int) -> Operation:
    pairs = tuple((name, b"signature of " + name[:1]) for name in signers_of(action))
    return Operation(Request(action, expires_epoch), pairs)


@dataclass(frozen=True, slots=True)
class Churn:
    """How many stand outside at the start, and how likely somebody asks, every eight delta."""

    strangers: int = 0
    percent: int = 0


STEADY = Churn()


class Members:
    """`epochs` holds each epoch's membership as it began; the last also knows what waits."""

    def __init__(self, committee: Committee, epoch_rounds: int, steady: Collection[NodeId]) -> None:
        self._epoch_rounds = epoch_rounds
        self._steady = steady  # traitors: they neither gain weight nor change their key
        self.epochs = [Membership(committee)]
        self.now = self.epochs[0]
        self.pool: list[Operation] = []
        self.applied: list[Action] = []
        self.convicted: set[NodeId] = set()  # ever

    def note_final(self, blocks: Sequence[Block]) -> None:
        """The next blocks of the chain that all agree on."""
        for block in blocks:
            if isinstance(block.payload, SetPayload):
                assert block.epoch == self.now.epoch
                proofs = offences(block.payload.evidence)
                asked = membership_operations(block.payload.operations)
                self.now = self.now.decided(asked, proofs)
                self.convicted |= {*self.now.convicted}
                is_open = True
            else:
                is_open = False
            rounds_over = block.height - (1 if is_open else 0)
            if rounds_over == (self.now.epoch + 1) * self._epoch_rounds:
                self.now = self.now.next_epoch()
                self.epochs.append(self.now)
                self.applied += [request.action for request in self.now.applied]

    def check_final(self, certificate: Certificate, known: Membership) -> None:
        """A quorum of its own epoch's committee did it; the host stands where the chain says."""
        domain = certificate.statement.domain
        committee = self.epochs[domain.epoch].committee
        assert domain.validator_set_root == committee.root
        certificate.check_weight(committee)
        assert known.committee == self.epochs[known.epoch].committee

    def check_signed(self, signed: Signed) -> None:
        """Only who is a member of an epoch gives votes in it."""
        domain = signed.statement.domain
        assert signed.statement.kind != Kind.MEMBERSHIP
        committee = self.epochs[domain.epoch].committee
        assert signed.signer in committee.stake_of, "a vote of no member"
        assert domain.validator_set_root == committee.root

    def ask_something(self, rng: random.Random, strangers: Sequence[NodeId]) -> None:
        """Somebody wants in, out, another key or another stake; most of the others agree."""
        stake_of = self.now.committee.stake_of
        honest = [name for name in stake_of if name not in self._steady]
        outside = [name for name in strangers if name not in stake_of]
        leaving = sum(isinstance(o.request.action, Leave) for o in self._open())
        kinds = ["stake"]
        kinds += ["join", "join", "rotate"] if outside else []
        kinds += ["leave", "leave"] if len(honest) - leaving > FAULT_TOLERANT_MIN else []
        action: Action
        match rng.choice(kinds):
            case "join":
                action = Join(rng.choice(outside), rng.choice((1, 1, 2)), b"keys")
            case "leave":
                action = Leave(rng.choice(honest))
            case "rotate":
                action = Rotate(rng.choice(honest), rng.choice(outside), b"keys")
            case _:
                action = Stake(rng.choice(honest), rng.randint(1, 3))
        made = operation_of(action, self.now.epoch + rng.randint(1, 5))
        self.pool.append(made)
        for name in stake_of:
            if rng.randrange(10):
                approve = Approve(name, made.request.id)
                self.pool.append(operation_of(approve, made.request.expires_epoch))

    def _open(self) -> list[Operation]:
        return [o for o in self.pool if o.request.expires_epoch >= self.now.epoch]

    def load(
        self, bare: SetPayload, known: Membership, evidence: Sequence[Evidence], rng: random.Random
    ) -> SetPayload:
        """The set with what its leader knows."""
        wanted = self.choose(known, rng)
        return replace(bare, operations=wanted, evidence=proofs_of(evidence, known))

    def choose(self, known: Membership, rng: random.Random) -> tuple[bytes, ...]:
        """What a leader with this knowledge puts into its set, of what it happens to have heard."""
        chosen: list[Operation] = []
        waiting = {w.request.id: w.approvers for w in known.waiting}
        ids: set[Digest] = set(waiting)
        for operation in self._open():
            action = operation.request.action
            if isinstance(action, Approve):
                said = action.subject in waiting.get(action.request_id, frozenset())
                fits = action.request_id in ids and not said and known.admits(operation.request)
            else:
                fits = known.admits(operation.request)
            if fits and rng.randrange(10):
                chosen.append(operation)
                ids.add(operation.request.id)
        most = len(known.committee.validators) + 1
        return tuple(encode_operation(operation) for operation in chosen[:most])
