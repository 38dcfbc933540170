"""Who votes in each epoch as the final chain has it, and an audit of how each committee came about.

    sets' requests and approvals --boundary--> applied one by one --> the next epoch's committee

The fold itself is the daemon's (daa_consensus/membership.py), over boundaries that are found here
by counting closed rounds. What it comes to is held against books of our own: every change was asked
for in a final set and is applied once, in time, with the approvals that it needs; stakes add up,
request by request; less than a third of the weight goes and less than a third comes; nobody is
expelled but whom evidence in a set convicts, and somebody of those is while one alone could go.
"""

from collections.abc import Sequence

from daa_consensus.bft.chain import follow, offences
from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload, SetPayload
from daa_consensus.committee import FAULT_TOLERANT_MIN, Committee
from daa_consensus.membership import Membership, Rule
from daa_consensus.operations import (
    Action,
    Approve,
    Join,
    Leave,
    Request,
    Rotate,
    Speak,
    Stake,
    Withdraw,
    membership_operations,
)
from daa_consensus.roll import NOBODY, Roll
from daa_dag.ids import Digest, NodeId
from simnet.checks.version_audit import VersionAudit
from simnet.world.scenario import ChangeConfig

Stakes = dict[NodeId, int]


def names_on(roll: Roll) -> frozenset[NodeId]:
    """All that have a place there, those that idle among them."""
    return frozenset(entry.name for entry in roll.entries)


class MembershipAudit:
    """`epochs` holds each epoch's membership as it began, `after` what holds above each block."""

    def __init__(self, committee: Committee, epoch_rounds: int, roll: Roll = NOBODY) -> None:
        self._epoch_rounds = epoch_rounds
        self.epochs = [Membership(committee, roll=roll)]
        self.after = [self.epochs[0]]
        self._asked: dict[Digest, int] = {}  # in which epoch first
        self._withdrawn: set[Digest] = set()
        self._versions = VersionAudit()
        self._approvers: dict[Digest, set[NodeId]] = {}
        self.applied: set[Digest] = set()
        self.dropped: set[Digest] = set()
        self._answers: dict[NodeId, tuple[NodeId, int]] = {}  # for a key: who, from which epoch on
        self._answers.update((v.node_id, (v.node_id, 0)) for v in committee.validators)
        self._answers.update((name, (name, 0)) for name in names_on(roll))
        self.convicted: set[NodeId] = set()
        self.newcomers: dict[NodeId, str] = {}  # and what to call it when one of them votes

    @property
    def now(self) -> Membership:
        return self.after[-1]

    def committee(self, epoch: int) -> Committee | None:
        """None before the epoch has begun anywhere."""
        return self.epochs[epoch].committee if epoch < len(self.epochs) else None

    def extend(self, block: Block) -> str | None:
        """The next final block of the chain; what is wrong with the committee that it makes."""
        now, wrong = follow(self.now, block, self._epoch_rounds), None
        match block.payload:
            case SetPayload(evidence=proofs, operations=encoded) if proofs or encoded:
                self._convict(proofs)
                self._note(encoded)
                for name in names_on(now.roll):
                    self._answers.setdefault(name, (name, 0))
            case ResultPayload() | AbortPayload() if not block.height % self._epoch_rounds:
                wrong = self.fault(self.now.committee, now)
                wrong = wrong or self._versions.fault(self.now.committee, now, self.convicted)
                self.applied |= {request.id for request in now.applied}
                self.dropped |= {request.id for request, _ in now.dropped}
                self.epochs.append(now)
                self._seat(now)
            case _:
                pass
        self.after.append(now)
        return wrong

    def _note(self, encoded: Sequence[bytes]) -> None:
        for request in (o.request for o in membership_operations(encoded)):
            if isinstance(request.action, Approve):
                approvers = self._approvers.setdefault(request.action.request_id, set())
                approvers.add(request.action.subject)
            elif isinstance(request.action, Withdraw):
                self._withdrawn.add(request.action.request_id)
            elif isinstance(request.action, Speak):
                self._versions.hear(request.action, request.expires_epoch, self.now)
            else:
                self._asked.setdefault(request.id, self.now.epoch)

    def _convict(self, proofs: Sequence[bytes]) -> None:
        for name, epoch in offences(proofs):
            holder, since = self._answers.get(name, (None, 0))
            if holder is not None and epoch >= since:
                self.convicted.add(holder)

    def _seat(self, now: Membership) -> None:
        """Once this epoch begins: who answers for which key, who is new, and who is convicted."""
        for action in (request.action for request in now.applied):
            match action:
                case Join(subject):
                    self._answers[subject] = (subject, now.epoch)
                    self.newcomers[subject] = "joiner voted"
                case Rotate(subject, successor):
                    for name, (holder, since) in list(self._answers.items()):
                        if holder == subject:
                            self._answers[name] = (successor, since)
                    self._answers[successor] = (successor, now.epoch)
                    self.newcomers[successor] = "rotated key voted"
                case _:
                    pass
        members = now.committee.stake_of
        here = members.keys() | names_on(now.roll)
        self._answers = {n: held for n, held in self._answers.items() if held[0] in here}
        self.convicted &= members.keys() if len(members) > 1 else set()

    def fault(self, old: Committee, new: Membership) -> str | None:
        """Why `new` may not follow `old`."""
        stakes: Stakes = dict(old.stake_of)
        trained = names_on(self.now.roll)
        if names_on(new.roll) != trained - self.convicted - new.committee.stake_of.keys():
            return f"epoch {new.epoch} has trainers that stand convicted, or lacks some"
        training = {name for name in new.expelled if name not in stakes}
        for name in training:
            if name not in self.convicted:
                return f"trainer {name.hex()[:8]} was expelled, and no evidence convicts it"
        expelled = [name for name in new.expelled if name not in training]
        for name in expelled:
            if name not in self.convicted or stakes.pop(name, None) is None:
                return f"{name.hex()[:8]} was expelled, and no evidence convicts it"
        if not expelled and any(_could_go(old, name) for name in self.convicted):
            return f"nobody is expelled at the start of epoch {new.epoch}, somebody should be"
        for request in new.applied:
            if request.action.subject in self.convicted and not isinstance(request.action, Leave):
                return f"{request.action} was applied, and its subject is convicted"
            if request.id not in self._asked or request.id in self.applied:
                return f"{request.action} was asked for by no set, or twice applied"
            if request.expires_epoch < new.epoch:
                return f"{request.action} had expired by epoch {new.epoch}"
            rotates = isinstance(request.action, Rotate)
            if rotates and new.epoch - self._asked[request.id] < 2:
                return f"{request.action} was applied before a whole epoch had gone by"
            if request.id in self._withdrawn and not isinstance(request.action, Leave):
                return f"{request.action} was applied, and was withdrawn"
            brings = brought_in(request, stakes)
            approvers = self._approvers.get(request.id, set()) - self.convicted
            if brings > 0 and old.weight(approvers) < old.quorum:
                return f"{request.action} was applied without a quorum's approval"
            enter(stakes, request)
        if stakes != new.committee.stake_of or min(stakes.values(), default=0) <= 0:
            return f"epoch {new.epoch} has {new.committee.stake_of}, its requests make {stakes}"
        gone, came = moved(old.stake_of, stakes)
        if len(old.validators) >= FAULT_TOLERANT_MIN and 3 * max(gone, came) >= old.total:
            return f"{gone} went and {came} came of {old.total} at the start of epoch {new.epoch}"
        return None


def _could_go(old: Committee, name: NodeId) -> bool:
    """Whether this member could be expelled if it were the only one."""
    rest = [stake for other, stake in old.stake_of.items() if other != name]
    if name not in old.stake_of or not rest:
        return False
    if len(old.validators) < FAULT_TOLERANT_MIN:
        return True
    stake = old.stake_of[name]
    spare = old.total - old.quorum - stake  # that may be faulty besides
    return 3 * stake < old.total and (len(rest) >= FAULT_TOLERANT_MIN or spare < min(rest))


def is_hopeless(change: ChangeConfig, names: Sequence[NodeId], now: Membership) -> bool:
    """Whether a desk refuses the change, as it would be dropped whoever approved of it.

    `names`: of the change's `nodes`, in their order.
    """
    me, stake = names[0], change.stake or 1
    action: Action
    match change.kind:
        case "join":
            action = Join(me, stake, b"keys")
        case "leave":
            action = Leave(me)
        case "stake":
            action = Stake(me, stake)
        case _:
            action = Rotate(me, names[1], b"keys")
    return now.why_dropped(action) in (Rule.TOO_HEAVY, Rule.LAST_MEMBER, Rule.NO_CHANGE)


def brought_in(request: Request, stakes: Stakes) -> int:
    """The weight that the others must agree to; less than none if it goes."""
    match request.action:
        case Join(stake=stake):
            return stake
        case Stake(subject, stake):
            return stake - stakes.get(subject, 0)
        case Rotate(subject):
            return stakes.get(subject, 0)
        case _:
            return 0


def enter(stakes: Stakes, request: Request) -> None:
    """What one request makes of the stakes."""
    match request.action:
        case Join(subject, stake) | Stake(subject, stake):
            stakes[subject] = stake
        case Leave(subject):
            stakes.pop(subject, None)
        case Rotate(subject, successor):
            stakes[successor] = stakes.pop(subject, 0)
        case Approve() | Withdraw() | Speak():
            pass


def moved(old: Stakes, new: Stakes) -> tuple[int, int]:
    """The weight that goes and the weight that comes."""
    names = old.keys() | new.keys()
    gone = sum(max(0, old.get(name, 0) - new.get(name, 0)) for name in names)
    came = sum(max(0, new.get(name, 0) - old.get(name, 0)) for name in names)
    return gone, came
