"""What honest daemons know, looked at from inside: members, certificates, what a vote stands on.

For what neither messages nor events nor disks tell. The way in is the command interface that each
daemon has for its operator; all that is read is what the daemon holds at that moment, so that
nothing is decoded again. Each look follows an event of that daemon, in between two steps of its
machine.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from daa_consensus.bft.messages import Block, EmptyPayload, SetPayload
from daa_consensus.bft.state import Simplex
from daa_consensus.votes import Certificate, Kind
from daa_dag.ids import BlockId
from daa_node.agreement.carried import why_unproven
from daa_node.agreement.wan_bft import WanBft
from daa_node.api.handlers import Handler, Handlers
from daa_node.identity.validators import Validators
from daa_node.observability import events as names
from simnet.checks.invariants import ACCEPTED, NOTHING_LOST, Broken, Watch

Desks = Callable[[int], Mapping[str, Handler]]  # of each node, as its Control seam was given them


@dataclass(frozen=True, slots=True)
class Inside:
    """The parts of one running daemon that are looked at."""

    agreement: WanBft
    machine: Simplex
    validators: Validators

    @classmethod
    def of(cls, handlers: Mapping[str, Handler]) -> "Inside | None":
        """None while the daemon is not up."""
        desk = getattr(handlers.get("status"), "__self__", None)
        if not isinstance(desk, Handlers):
            return None
        agreement = desk._membership_requests._agreement
        return cls(agreement, agreement._machine, agreement.validators)

    @property
    def newest_proof(self) -> Certificate | None:
        """What made its newest final block final; None above a genesis."""
        newest = self.machine.known._proofs.newest
        return None if newest is None else newest[0]

    @property
    def owes_its_disk(self) -> bool:
        """Whether the disk has refused something final that is still to be kept."""
        return bool(self.agreement._host._vouching._unkept_finals)


class Insides:
    """Of one run. Raises Broken.

    `lossy` are nodes whose disk has failed them; `is_honest` says who is, by node id; `keeps`
    whether a node has a block on its disk.
    """

    def __init__(
        self,
        watch: Watch,
        desks: Desks,
        lossy: Collection[int],
        is_honest: Callable[[bytes], bool],
        keeps: Callable[[int, Block], bool],
    ) -> None:
        self._watch = watch
        self._keeps = keeps
        self._is_honest = is_honest
        self._desks = desks
        self._lossy = lossy
        self._lives: Counter[int] = Counter()
        self._newest: dict[int, BlockId] = {}  # final blocks that each has told of and not followed
        self._voted: dict[int, BlockId] = {}  # the newest block that each has notarized
        self._was_away: set[int] = set()  # while members changed, and has not followed yet

    def final(self, node: int, event: Mapping[str, Any]) -> None:
        """An honest node tells of a final block, whatever its disk has done to it."""
        inside, block_id = Inside.of(self._desks(node)), BlockId(bytes.fromhex(event["block_id"]))
        assert inside is not None, "the agreement runs once all doors are open"
        block = inside.agreement._host._blocks[block_id]
        if not isinstance(block.payload, EmptyPayload):  # which may be of no chain
            self._newest[node] = block_id
        if self._voted.get(node) == block_id:
            self._vouches(node, block)
        self._watch.final(block)

    def _vouches(self, node: int, block: Block) -> None:
        """Who votes for a block has it, until a checkpoint does."""
        if node not in self._lossy and not self._keeps(node, block):
            slot = (block.epoch, block.view)
            raise Broken(NOTHING_LOST, f"node {node} voted in {slot} for what it does not keep")

    def look(self, node: int, event: Mapping[str, Any]) -> None:
        """After an event of an honest node that knows what it has forgotten."""
        inside = Inside.of(self._desks(node))
        if inside is None:
            return
        match event["name"]:
            case names.NODE_STARTED:
                self._begins(node, inside)
            case names.VIEW_ENTERED:
                self._follows(node, inside)
            case names.STATEMENT_SENT if event["kind"] == Kind.NOTARIZE:
                self._notarizes(node, inside, event["view"])
            case names.VIEW_GIVEN_UP if not event["reason"].endswith(" timer"):
                self._refuses(node, inside, event["view"])
            case names.EXEC_CERTIFIED:
                self._executed(inside, event["round"])
            case names.REJOINED:
                self._rejoined(node, event["view"], event["round"])
            case names.EPOCH_BEGAN:
                self._epoch_began(node, inside, event)
            case _:
                pass

    def _begins(self, node: int, inside: Inside) -> None:
        """A life starts from what the disk and the log say."""
        watch, restored, now = self._watch, inside.machine._restored, inside.validators.now
        assert restored is not None, "the agreement runs once all doors are open"
        self._lives[node] += 1
        self._newest.pop(node, None)
        log = inside.agreement._parts.signer.restored()
        votes = [word.statement for word in log.statements if word.statement.view]
        watch.remembers(node, max([log.floor, *((v.domain.epoch, v.view) for v in votes)]))
        tip, known = restored.tip, inside.machine.known
        kept = [certificate.statement for certificate, _ in restored.kept]
        if inside.newest_proof is not None:
            kept.append(inside.newest_proof.statement)
        finals = [(s.domain.epoch, s.view) for s in kept if s.kind is Kind.FINALIZE]
        is_whole = node not in self._lossy
        watch.started(node, tip, max([*finals, (tip.epoch, tip.view)]), is_whole)
        if is_whole:
            slots = [(s.domain.epoch, s.view) for s in kept]
            here = (known.domain.epoch, known.ballots.highest_certified())
            watch.relies(node, restored.record.slot, max([*slots, here]))
        if restored.record.slot != (0, 0) and restored.record.view > tip.view:
            watch.sometimes["restart mid-vote"] += 1
        if self._lives[node] > 1:
            newest = watch.audit.now
            if now.committee != watch.committee:
                watch.sometimes["restarted after a change of members"] += 1
            if now.waiting:
                watch.sometimes["restarted while a change waited"] += 1
            if now.epoch < newest.epoch and now.committee != newest.committee:
                self._was_away.add(node)

    def _follows(self, node: int, inside: Inside) -> None:
        """What it has told to be final, it has drawn every conclusion from, and has kept."""
        tip = self._newest.pop(node, None)
        if tip is None:
            return
        known, proof = inside.machine.known, inside.newest_proof
        self._watch.follows(node, tip, inside.validators.now)
        if tip != known.chain.tip.id:
            return  # the machine has more that is final, to be told next
        self._watch.follows(node, tip, known.membership)
        if proof is not None:
            self._watch.certificate(proof)
            if not inside.owes_its_disk and node not in self._lossy:
                self._watch.kept(node, proof)

    def _notarizes(self, node: int, inside: Inside, view: int) -> None:
        """The machine stands where it stood when it wanted this signed."""
        known, record = inside.machine.known, inside.machine._voter.record
        epoch, proposal = known.domain.epoch, known.ballots.proposal(view)
        block = None if record.notarized is None else known.block(record.notarized)
        if record.slot != (epoch, view) or block is None or view <= known.chain.tip.view:
            return  # it could sign only now, and has gone on meanwhile, or found the view final
        self._voted[node] = block.id
        self._vouches(node, block)
        for certificate in known.ballots.certificates(block.parent_view, view - 1):
            self._watch.certificate(certificate)
        leader = known.committee.leader(known.domain, view)
        told = None if proposal is None else (proposal.signer, proposal.statement.value)
        self._watch.notarizes(node, block, by_leader=told == (leader, block.id))

    def _refuses(self, node: int, inside: Inside, view: int) -> None:
        """It judges what a set carries by the chain below, which is its leader's, too."""
        known = inside.machine.known
        proposal = known.ballots.proposal(view)
        value = None if proposal is None else proposal.statement.value
        block = known.block(BlockId(value)) if isinstance(value, bytes) else None
        if proposal is None or block is None or not isinstance(block.payload, SetPayload):
            return
        reason = why_unproven(block.payload, inside.agreement._parts.inbound)
        if reason is not None:
            if self._is_honest(proposal.signer):
                raise Broken(ACCEPTED, f"node {node} refuses a set of view {view}: {reason}")
            self._watch.sometimes["set refused"] += 1

    def _executed(self, inside: Inside, round_number: int) -> None:
        certificate = inside.agreement.exec_certificate(round_number)
        if certificate is not None:
            self._watch.execution(certificate)

    def _rejoined(self, node: int, view: int, height: int) -> None:
        for block in reversed(self._watch.chain):
            if (block.view, block.height) == (view, height):
                self._watch.rejoined(node, block)
                return

    def _epoch_began(self, node: int, inside: Inside, event: Mapping[str, Any]) -> None:
        validators, marks = inside.validators, self._watch.sometimes
        now, me = validators.now, inside.agreement.me
        before = validators.committee(now.epoch - 1)
        if me in before.stake_of and me not in now.committee.stake_of:
            marks["leaver stopped"] += 1
        if event["expelled"]:
            marks["convicted member expelled"] += 1
        if node in self._was_away and now.epoch == self._watch.audit.now.epoch:
            self._was_away.discard(node)
            marks["change of members followed by who was away"] += 1
