"""What must hold in every world at every moment, whoever lies and whatever fails.

A world tells a Watch what it sees: statements that leave a node, certificates, final blocks,
restarts. The first thing that does not hold raises Broken and ends the run. `sometimes` counts
situations that a sweep must have been in: a world that never gets into trouble cannot pass for a
good one.

Balances conserve, too, once there is a ledger; until then there is nothing to check.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from daa_consensus.bft.evidence import conflict
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    ResultPayload,
    SetPayload,
)
from daa_consensus.committee import Committee
from daa_consensus.membership import Membership
from daa_consensus.operations import Stake
from daa_consensus.roll import NOBODY, Roll
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlockId, VertexId
from simnet.checks.membership_audit import MembershipAudit
from simnet.checks.outcome import Invariant
from simnet.checks.roll_audit import RollAudit

ONE_VERTEX = "one certified vertex at each height"
ONE_CHAIN = "final chains are prefixes of one, each block on the one below"
ONE_ENDING = "a finalized view is never nullified, and a view has one notarized block"
QUORUMS = "every certificate carries a quorum of its epoch's committee, and nobody else's statement"
MEMBERS = "every committee follows from requests in final sets, within the limits of a boundary"
ENROLLED = "who trains was let in by final sets, in time, within a quota, and is drawn by the lot"
HELD_OFF = (
    "of what is merged no more may be bad than its rule is told, trainers of the bad included"
)
ONE_ROLL = "honest nodes know the same committee, and the same requests, above the same block"
NO_STRANGER = "no honest node votes where it is no member"
ONE_STATEMENT = "no honest key signs two values for a slot"
JUSTIFIED = "honest votes are for the leader's block, on a notarized one, over nullified views"
LISTED_ONCE = "final sets list nothing twice, and no evidence again"
ACCEPTED = "no honest node refuses what an honest leader's set carries beside contributions"
ADMITTED = "what honest members ask for and approve of takes effect within so many epochs"
NO_SLANDER = "nobody convicts an honest node, or holds what it says against it"
NOTHING_LOST = "no honest node loses what was certified to it"
RULES_AGREE = "the signer refuses nothing that the rules allow"
NO_NEED = "no quarantine without a disk that lost something"
LATE_ENOUGH = "who forgot its statements votes from two views above a new Rejoin"
BOUNDED = "memory and queues are bounded"
ASSERTIONS = "the code's own assertions hold"
READ = "honest nodes read what honest nodes say"
FRUITFUL = "blocks that decide nothing follow each other ever more slowly"
PROGRESS = "blocks become final once every fault healed"
SAME_ROOTS = "honest nodes end with the same roots"
CONVICTED = "who gives an honest member two statements for a slot is convicted, cycles later"
TAKEN = "once all has healed, what honest leaders propose is not refused again and again"
DURABLE = "what is acknowledged is there after a crash, until its round is closed"
REMEMBERED = "what an honest node has said is in its log, whatever crash comes"
NO_BANS = "no honest node bans another"
SEEN_THROUGH = "who trains otherwise than it shows is drawn and seen as often as the lot predicts"
FRAMERS_FALL = "who accuses honest work falsely, and in time, is convicted"
IN_TIME = "nothing is judged, opened or kept once its dispute is over its time"
LEARNS = "poisoners within f leave the held-out loss near that of the run without them"
WATCHED = "there was something to check: somebody honest is up when all has healed"
ALL: tuple[str, ...] = tuple(
    text for name, text in list(vars().items()) if name.isupper() and isinstance(text, str)
)
# Judged elsewhere, and not in every run.
NO_CRASH = "a run ends without an exception"
VOLUNTEERS = "no honest volunteer is found wrong, or fault with, and no lone liar right"
PASSAGES = "who is behind a router reaches the validators as well as routers allow"
NO_TIME_LOST = "no time is lost"  # of a node that trains: its stages add up to the whole run

REJOIN_VIEWS = 2  # above the block that carries the Rejoin (docs/protocol.md, section 7)
# In a row: each takes twice as long as the one before, so that six outlast what is drawn here.
EMPTY_BLOCKS_MAX = 12
_SLOTTED = (Kind.PROPOSAL, Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE, Kind.EXEC)
_CLOSINGS = (ResultPayload, AbortPayload)

Slot = tuple[int, int]  # (epoch, view)


class Broken(Exception):
    """An invariant does not hold: its name, and what was seen."""

    def __init__(self, name: str, detail: str) -> None:
        assert name in ALL
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail


@dataclass(slots=True)
class Watch:
    """The eyes of one run over a chain that starts from `genesis`."""

    genesis: Block
    committee: Committee
    epoch_rounds: int
    roll: Roll = NOBODY
    sometimes: Counter[str] = field(default_factory=Counter)
    bad_among: Callable[[int], int] | None = None  # of so many members, in a merge
    audit: MembershipAudit = field(init=False)
    trainers: RollAudit = field(init=False)
    chain: list[Block] = field(default_factory=list)  # the longest that is final anywhere
    _place: dict[BlockId, int] = field(default_factory=dict)  # places in `chain`
    _newest: dict[int, Slot] = field(default_factory=dict)  # finalization each has kept
    _said: dict[tuple[int, str, int, int], dict[Kind, Signed]] = field(default_factory=dict)
    _newest_word: dict[int, Slot] = field(default_factory=dict)  # of each honest node's votes
    _may_vote: dict[int, Slot | None] = field(default_factory=dict)  # from where on; None: not yet
    _lives: Counter[int] = field(default_factory=Counter)  # of each honest node
    _asked: dict[tuple[int, bytes], int] = field(default_factory=dict)  # in which life, by nonce
    _born: dict[int, int] = field(default_factory=dict)  # length of `chain` when its life began
    _notarized: dict[Slot, BlockId] = field(default_factory=dict)
    _nullified: set[Slot] = field(default_factory=set)
    _final: set[Slot] = field(default_factory=set)
    _tails: set[BlockId] = field(default_factory=set)  # final, above what ended their epoch
    _vertices: dict[int, VertexId] = field(default_factory=dict)
    _evidence: set[bytes] = field(default_factory=set)  # of all sets of `chain`
    _empty: int = 0  # blocks at its end that decide nothing
    _open: bool = False  # whether the newest round of `chain` has neither result nor abort

    def __post_init__(self) -> None:
        self.audit = MembershipAudit(self.committee, self.epoch_rounds, self.roll)
        self.trainers = RollAudit(self.roll, self.bad_among)
        self.chain.append(self.genesis)
        self._place[self.genesis.id] = 0

    def word(self, node: int, signed: Signed) -> bool:
        """An honest node's own statement leaves it; whether it is news."""
        statement = signed.statement
        if statement.kind is Kind.REJOIN:
            self._rejoin(node, statement)
        if statement.kind not in _SLOTTED:
            return True
        epoch = statement.domain.epoch
        if signed.signer not in self._committee(epoch).stake_of:
            raise Broken(NO_STRANGER, f"node {node}: {statement.kind} in epoch {epoch}")
        if statement.kind is Kind.EXEC:
            key = (node, "round", epoch, statement.height)
        else:
            key = (node, "view", epoch, statement.view)
        said = self._said.setdefault(key, {})
        before = said.get(statement.kind)
        if before is not None and (before is signed or before.statement == statement):
            return False
        for other in said.values():
            offence = conflict(signed, other)
            if offence is not None:
                raise Broken(ONE_STATEMENT, f"node {node}, {key[1]} {key[2:]}: {offence.offence}")
        if statement.kind is not Kind.EXEC:
            slot, first = (epoch, statement.view), self._may_vote.get(node, (0, 0))
            if first is None or slot < first:
                raise Broken(LATE_ENOUGH, f"node {node} votes in {slot}, it may from {first}")
            self._newest_word[node] = max(slot, self._newest_word.get(node, slot))
        said[statement.kind] = signed
        if signed.signer in self.audit.newcomers:
            self.sometimes[self.audit.newcomers[signed.signer]] += 1
        return True

    def _rejoin(self, node: int, statement: Statement) -> None:
        """One that an earlier life asked for would end the quarantine of this one unheard."""
        assert isinstance(statement.value, bytes)
        life = self._asked.setdefault((node, statement.value), self._lives[node])
        if life != self._lives[node]:
            raise Broken(LATE_ENOUGH, f"node {node} asks with the nonce of an earlier life")

    def notarizes(self, node: int, block: Block, by_leader: bool) -> None:
        """An honest node votes for a block; `by_leader`: whom the view's leader proposed."""
        at = f"node {node} notarizes in {(block.epoch, block.view)}"
        if not by_leader:
            raise Broken(JUSTIFIED, f"{at} what its leader has not proposed")
        known = self._notarized.get((block.epoch, block.parent_view))
        if known != block.parent_id and block.parent_id not in self._place:
            raise Broken(JUSTIFIED, f"{at} on what is not notarized in {block.parent_view}")
        for view in range(block.parent_view + 1, block.view):
            if (block.epoch, view) not in self._nullified:
                raise Broken(JUSTIFIED, f"{at} past {view}, which is not nullified")

    def relies(self, node: int, voted: Slot, certified: Slot) -> None:
        """A node whose disk is sound begins a life: what its newest vote stood on is still known.

        `certified` is the newest view that is over by what lies on the disk; an epoch's first view
        stands on what ended the epoch before.
        """
        epoch, before = voted[0], voted[1] - 1
        if certified < (epoch, before) and not (epoch - 1, before) <= certified < (epoch, 0):
            raise Broken(
                NOTHING_LOST, f"node {node} voted in {voted}, of which {certified} is left"
            )

    def remembers(self, node: int, newest: Slot) -> None:
        """An honest node begins a life; its log goes as far as the slot `newest`.

        That is of the newest vote in it, or from where on it remembers all of them.
        """
        self._lives[node] += 1
        self._born[node] = len(self.chain)
        said = self._newest_word.get(node, (0, 0))
        # Who has rejoined and not voted yet has nothing in its log but from where on it may.
        if newest < said and (self._may_vote.get(node) or (0, 0)) <= said:
            self._may_vote[node] = None

    def rejoined(self, node: int, block: Block) -> None:
        """An honest node takes its quarantine for ended by the Rejoin in this final block."""
        place = self._place[block.id]
        if place < self._born[node]:
            raise Broken(LATE_ENOUGH, f"node {node}: block {place} was final before it asked")
        self._may_vote[node] = (block.epoch, block.view + REJOIN_VIEWS)

    def certificate(self, certificate: Certificate) -> None:
        """A quorum's statement on a view, wherever it turned up."""
        statement = certificate.statement
        slot = (statement.domain.epoch, statement.view)
        self.counted(certificate)
        if statement.kind is Kind.NULLIFY:
            self._nullified.add(slot)
            if slot in self._final:
                raise Broken(ONE_ENDING, f"the finalized view {slot} was nullified")
            return
        assert isinstance(statement.value, bytes)
        block_id = BlockId(statement.value)
        if self._notarized.setdefault(slot, block_id) != block_id:
            raise Broken(ONE_ENDING, f"two blocks of view {slot} were notarized")
        if statement.kind is Kind.FINALIZE:
            # An ancestor of a final block is final, too, and its view may well be nullified.
            self._final.add(slot)
            if slot in self._nullified:
                raise Broken(ONE_ENDING, f"the nullified view {slot} was finalized")

    def counted(self, certificate: Certificate) -> None:
        """A quorum of the epoch's committee said it, and nobody else's statement is in it."""
        statement = certificate.statement
        committee = self._committee(statement.domain.epoch)
        signers = {signer for signer, _ in certificate.signatures}
        weight, strangers = committee.weight(signers), signers - committee.stake_of.keys()
        if weight < committee.quorum or strangers or len(signers) < len(certificate.signatures):
            at = (statement.domain.epoch, statement.view or statement.height)
            detail = f"{statement.kind} at {at}: {weight} of {committee.quorum}"
            raise Broken(QUORUMS, f"{detail}, {len(strangers)} strangers")

    def _committee(self, epoch: int) -> Committee:
        """Of an epoch that somebody honest is in: its blocks are final here by then."""
        committee = self.audit.committee(epoch)
        if committee is None:
            raise Broken(MEMBERS, f"epoch {epoch} began before the closing below it was final")
        return committee

    def execution(self, certificate: Certificate) -> None:
        """An honest node holds an execution certificate."""
        self.counted(certificate)

    def follows(self, node: int, tip: BlockId, known: Membership) -> None:
        """What an honest node knows of members and requests, above the final block `tip`."""
        place = self._place.get(tip)
        if place is not None and known != self.audit.after[place]:
            detail = f"epoch {known.epoch}, {len(known.waiting)} waiting"
            raise Broken(
                ONE_ROLL, f"node {node} knows something else above block {place}: {detail}"
            )

    def executed(self, round_: int, vertex_id: VertexId) -> None:
        """An execution certificate, or a final result, names the vertex of a round."""
        if self._vertices.setdefault(round_, vertex_id) != vertex_id:
            raise Broken(ONE_VERTEX, f"two vertices were certified for round {round_}")

    def started(self, node: int, tip: Block, newest: Slot, whole: bool) -> None:
        """A node begins a life on `tip`, with a finalization of slot `newest` on its disk.

        `whole`: the disk has lost nothing so far. Blocks below `newest` it may have to ask for.
        """
        if tip.id not in self._place:
            raise Broken(
                ONE_CHAIN, f"node {node} starts from block {tip.id.hex()[:8]}, final nowhere"
            )
        before = self._newest.get(node, (0, 0))
        if whole and newest < before:
            raise Broken(NOTHING_LOST, f"node {node} knew that {before} is final, and now {newest}")

    def final(self, block: Block) -> None:
        """Somebody honest says so, of each in its turn."""
        below = self.chain[-1]
        if block.id in self._place or block.id in self._tails:
            return
        place = self._place.get(block.parent_id)
        closed = place is not None and _closes(self.chain[place], block.epoch, self.epoch_rounds)
        if isinstance(block.payload, EmptyPayload) and (closed or block.parent_id in self._tails):
            self._tails.add(block.id)  # final, of no chain: the next epoch stands on what closed
            return
        if (block.parent_id, block.parent_view) != (below.id, below.view):
            place = len(self.chain)
            raise Broken(ONE_CHAIN, f"block {place} does not stand on the one below that is final")
        self._extend(block)

    def kept(self, node: int, certificate: Certificate) -> None:
        """The node has stored a finalization: no crash may make it forget."""
        statement = certificate.statement
        self._newest[node] = (statement.domain.epoch, statement.view)

    def _extend(self, block: Block) -> None:
        height, payload = self.chain[-1].height, block.payload
        self._empty = self._empty if isinstance(payload, EmptyPayload) else 0
        closed_before = height - 1 if self._open else height
        match payload:
            case SetPayload():
                if self._open or payload.round != height + 1:
                    raise Broken(ONE_CHAIN, f"a set of round {payload.round} after {height}")
                self._open, height = True, payload.round
                again = _said_again(payload, self._evidence)
                if again is not None:
                    raise Broken(LISTED_ONCE, again)
                self._evidence.update(payload.evidence)
            case ResultPayload() | AbortPayload():
                if not self._open or payload.round != height:
                    raise Broken(ONE_CHAIN, f"a closing of round {payload.round} at {height}")
                self._open = False
                if isinstance(payload, ResultPayload):
                    self.executed(payload.round, payload.vertex_id)
            case EmptyPayload():
                self._empty += 1
                if self._empty > EMPTY_BLOCKS_MAX:
                    raise Broken(FRUITFUL, f"{self._empty} empty blocks up to {block.view}")
            case _:
                raise Broken(ONE_CHAIN, "a second genesis")
        if block.height != height or block.epoch != closed_before // self.epoch_rounds:
            raise Broken(ONE_CHAIN, f"height {block.height} in epoch {block.epoch} at {height}")
        if block.epoch != self.chain[-1].epoch:
            self.sometimes["epoch changed"] += 1
        if isinstance(payload, AbortPayload):
            self.sometimes["abort final"] += 1
        self._place[block.id] = len(self.chain)
        self.chain.append(block)
        before = self.audit.now
        wrong = self.audit.extend(block)
        if wrong is not None:
            raise Broken(MEMBERS, wrong)
        self._judge_trainers(block, before)
        if block.epoch < self.audit.now.epoch and any(
            isinstance(request.action, Stake) for request in self.audit.now.applied
        ):
            self.sometimes["stake changed"] += 1

    def _judge_trainers(self, block: Block, before: Membership) -> None:
        unbounded = isinstance(block.payload, SetPayload) and self.trainers.unbounded(
            block.payload, before
        )
        wrong = self.trainers.wrong(block, before, self.audit.now)
        if wrong is not None:
            raise Broken(ENROLLED, wrong)
        if unbounded:
            raise Broken(HELD_OFF, unbounded)
        if self.trainers.trained:
            self.sometimes["newcomer trained"] = len(self.trainers.trained)


def _said_again(decided: SetPayload, before: set[bytes]) -> str | None:
    """What takes room in a set a second time; `before`: evidence of the sets below."""
    for name in ("offers", "evidence", "operations"):
        items = getattr(decided, name)
        if len(set(items)) < len(items):
            return f"{name} of round {decided.round}: one twice"
    again = before & set(decided.evidence)
    return f"round {decided.round}: evidence that was final before" if again else None


def _closes(block: Block, epoch: int, epoch_rounds: int) -> bool:
    """Whether it is the last block of the epoch."""
    closes = isinstance(block.payload, _CLOSINGS) and not block.height % epoch_rounds
    return closes and block.epoch == epoch


def verdicts(broken: Broken | None) -> tuple[Invariant, ...]:
    """All invariants as an outcome lists them; a run ends with the first that is broken."""
    return tuple(
        Invariant(name, False, broken.detail)
        if broken is not None and broken.name == name
        else Invariant(name, True)
        for name in ALL
    )
