"""Who votes in each epoch as the final chain has it, and an audit of how each committee came about.

    sets' requests and approvals --boundary--> applied one by one --> the next epoch's committee

The fold itself is the daemon's (daa_consensus/membership.py), over boundaries that are found here
by counting closed rounds. What it comes to is held against books of our own: every change was asked
for in a final set and is applied once, in time, with the approvals that it needs; stakes add up,
request by request; less than a third of the weight goes and less than a third comes.
"""

from collections.abc import Sequence

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload, SetPayload
from daa_consensus.committee import FAULT_TOLERANT_MIN, Committee
from daa_consensus.membership import Membership
from daa_consensus.operations import (
    Approve,
    Join,
    Leave,
    Request,
    Rotate,
    Stake,
    membership_operations,
)
from daa_dag.ids import Digest, NodeId

Stakes = dict[NodeId, int]


class Rolls:
    """`epochs` holds each epoch's membership as it began, `after` what holds above each block."""

    def __init__(self, committee: Committee, epoch_rounds: int) -> None:
        self._epoch_rounds = epoch_rounds
        self.epochs = [Membership(committee)]
        self.after = [self.epochs[0]]
        self._asked: set[Digest] = set()
        self._approvers: dict[Digest, set[NodeId]] = {}
        self.applied: set[Digest] = set()
        self.dropped: set[Digest] = set()
        self.newcomers: dict[NodeId, str] = {}  # and what to call it when one of them votes

    @property
    def now(self) -> Membership:
        return self.after[-1]

    def committee(self, epoch: int) -> Committee | None:
        """None before the epoch has begun anywhere."""
        return self.epochs[epoch].committee if epoch < len(self.epochs) else None

    def extend(self, block: Block) -> str | None:
        """The next final block of the chain; what is wrong with the committee that it makes."""
        now, wrong = self.now, None
        match block.payload:
            case SetPayload(operations=encoded) if encoded:
                now = now.decided(membership_operations(encoded))
                self._note(encoded)
            case ResultPayload() | AbortPayload() if not block.height % self._epoch_rounds:
                now = now.next_epoch()
                wrong = self.fault(self.now.committee, now)
                self.applied |= {request.id for request in now.applied}
                self.dropped |= {request.id for request, _ in now.dropped}
                self.epochs.append(now)
                self._welcome(now.applied)
            case _:
                pass
        self.after.append(now)
        return wrong

    def _note(self, encoded: Sequence[bytes]) -> None:
        for request in (o.request for o in membership_operations(encoded)):
            if isinstance(request.action, Approve):
                approvers = self._approvers.setdefault(request.action.request_id, set())
                approvers.add(request.action.subject)
            else:
                self._asked.add(request.id)

    def _welcome(self, applied: Sequence[Request]) -> None:
        for action in (request.action for request in applied):
            if isinstance(action, Join):
                self.newcomers[action.subject] = "joiner voted"
            elif isinstance(action, Rotate):
                self.newcomers[action.successor] = "rotated key voted"

    def fault(self, old: Committee, new: Membership) -> str | None:
        """Why `new` may not follow `old`."""
        stakes: Stakes = dict(old.stake_of)
        for request in new.applied:
            if request.id not in self._asked or request.id in self.applied:
                return f"{request.action} was asked for by no set, or twice applied"
            if request.expires_epoch < new.epoch:
                return f"{request.action} had expired by epoch {new.epoch}"
            brings = brought_in(request, stakes)
            approvers = self._approvers.get(request.id, set())
            if brings > 0 and old.weight(approvers) < old.quorum:
                return f"{request.action} was applied without a quorum's approval"
            enter(stakes, request)
        if stakes != new.committee.stake_of or min(stakes.values(), default=0) <= 0:
            return f"epoch {new.epoch} has {new.committee.stake_of}, its requests make {stakes}"
        gone, came = moved(old.stake_of, stakes)
        if len(old.validators) >= FAULT_TOLERANT_MIN and 3 * max(gone, came) >= old.total:
            return f"{gone} went and {came} came of {old.total} at the start of epoch {new.epoch}"
        return None


def brought_in(request: Request, stakes: Stakes) -> int:
    """The weight that the others must agree to; less than none if it goes."""
    match request.action:
        case Join(stake=stake):
            return stake
        case Stake(subject, stake):
            return stake - stakes.get(subject, 0)
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
        case Approve():
            pass


def moved(old: Stakes, new: Stakes) -> tuple[int, int]:
    """The weight that goes and the weight that comes."""
    names = old.keys() | new.keys()
    gone = sum(max(0, old.get(name, 0) - new.get(name, 0)) for name in names)
    came = sum(max(0, new.get(name, 0) - old.get(name, 0)) for name in names)
    return gone, came
