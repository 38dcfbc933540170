"""What must come about, and not only never be broken: convictions, sets, what an Ack promises.

Like every judge of a run, it is told what happens, and raises Broken.

Who holds evidence puts it into each set that it proposes. Members lead in turn, and a set may be
lost to a fault: within two cycles of decided sets after a member found it, its offender stands
convicted in the chain, if that member has lived on. Whoever sends an Ack holds the blob until the
round is closed, whatever crash comes between; whoever votes, offers or executes has it in its log
before anybody hears of it. Honest members refuse few sets of honest leaders.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    ResultPayload,
    SetPayload,
    offer_from_value,
)
from daa_consensus.votes import Kind, Signed
from daa_dag.errors import NotCanonical
from daa_dag.ids import BlobRoot
from daa_node.agreement.slots import ROUND_KINDS, UNREADABLE, VIEW_KINDS
from daa_node.errors import NodeError
from simnet.checks.invariants import CONVICTED, DURABLE, REMEMBERED, TAKEN, Broken, Slot, Watch

CYCLES = 2  # of leaders, in decided sets
# Of one round, once all has healed. One refused set teaches everybody what its leader knows; the
# others are for messages that take longer than delta.
REFUSED_SETS_MAX = 4
SETS_KEPT = 256  # of a run, by their view
OFFERS_KEPT = 4096  # of a run: ten validators and four hundred rounds


@dataclass(slots=True)
class Completeness:
    """Of one run; `numbers` are nodes by node id in hex, `watch` knows the chain.

    Sets of honest leaders that honest members give up are counted from when all has healed.
    """

    watch: Watch
    numbers: Mapping[str, int]
    _offers: dict[bytes, tuple[int, BlobRoot]] = field(default_factory=dict)  # (round, blob)
    _acked: dict[int, set[bytes]] = field(default_factory=dict)  # roots of offers, by node
    _voiced: dict[int, dict[Kind, Slot]] = field(default_factory=dict)  # newest statements, by node
    # By the offender and who holds the evidence: sets decided by then, and the epoch.
    _charges: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    _sets: dict[int, tuple[int, int]] = field(default_factory=dict)  # (leader, round) by view
    _refused: dict[int, set[int]] = field(default_factory=dict)  # views by round

    def offered(self, signed: Signed) -> None:
        """Anybody's statement, a liar's as well: of an Offer, what Acks will name it by."""
        if signed.statement.kind is Kind.OFFER:
            offer = offer_from_value(signed.statement.value)
            self._offers[offer.root] = (offer.round, offer.blob_root)
            if len(self._offers) > OFFERS_KEPT:
                del self._offers[next(iter(self._offers))]

    def said(self, node: int, signed: Signed) -> None:
        """An honest node's own statement leaves it."""
        match signed.statement.kind, signed.statement.value:
            case Kind.ACK, [*roots]:
                self._acked.setdefault(node, set()).update(r for r in roots if isinstance(r, bytes))
            case kind, _ if kind in VIEW_KINDS or kind in ROUND_KINDS:
                newest = self._voiced.setdefault(node, {})
                newest[kind] = max(_slot_of(signed), newest.get(kind, (0, 0)))
            case _:
                pass

    def remembers(self, node: int, read: Callable[[], Mapping[str, Slot]]) -> None:
        """A node's log says what the node has said; `read` gives the newest of each kind."""
        try:
            logged = read()
        except (NodeError, NotCanonical, *UNREADABLE) as fault:
            raise Broken(REMEMBERED, f"node {node}: {fault}") from fault
        for kind, slot in self._voiced.get(node, {}).items():
            if slot > logged.get(kind, (0, 0)):
                detail = f"node {node} said {kind} at {slot}, its log ends at {logged.get(kind)}"
                raise Broken(REMEMBERED, detail)

    def holds(self, node: int, holds: Callable[[BlobRoot], bool]) -> None:
        """A node holds what it acknowledged of a round that is open."""
        closed = self._rounds_closed()
        for root in sorted(self._acked.get(node, ())):
            round_, blob_root = self._offers.get(root, (0, BlobRoot(b"")))
            if round_ > closed and not holds(blob_root):
                detail = f"node {node} acknowledged {blob_root.hex()[:8]} of round {round_}"
                raise Broken(DURABLE, detail)

    def charged(self, node: int, offender: str) -> None:
        """A node holds evidence against somebody from now on."""
        charge = self._sets_decided(), self.watch.audit.now.epoch
        self._charges.setdefault((offender, node), charge)

    def forgets(self, node: int) -> None:
        """A life of the node has ended, and what it knew of others' offences with it."""
        self._charges = {key: charge for key, charge in self._charges.items() if key[1] != node}

    def convicted(self, wanted: Collection[int]) -> None:
        """The chain has convicted everybody whom it should; `wanted`: who can propose sets.

        Who has left and come back answers for nothing that it said before.
        """
        now, decided = self.watch.audit.now, self._sets_decided()
        members = {name.hex(): name for name in now.committee.stake_of}
        voting = {self.numbers[name] for name in members}
        for (offender, node), (sets, epoch) in self._charges.items():
            name, since = members.get(offender), decided - sets
            is_due = node in voting and node in wanted and since >= CYCLES * len(members)
            if is_due and name is not None and now.convicts(name, max(0, epoch - 1)):
                detail = f"{offender[:8]}: {since} sets after node {node} could tell"
                raise Broken(CONVICTED, detail)

    def proposed(self, leader: int, block: Block) -> None:
        """An honest leader says so."""
        if isinstance(block.payload, SetPayload):
            self._sets[block.view] = (leader, block.payload.round)
            if len(self._sets) > SETS_KEPT:
                del self._sets[next(iter(self._sets))]

    def given_up(self, node: int, view: int, reason: str, wanted: Collection[int]) -> None:
        """An honest node gives up a view, and says why; not once too often."""
        leader, round_ = self._sets.get(view, (-1, 0))
        if reason.endswith(" timer") or not {node, leader} <= set(wanted):
            return  # it came too late, or from somebody that others cannot keep informed
        views = self._refused.setdefault(round_, set())
        views.add(view)
        if len(views) > REFUSED_SETS_MAX:
            at = f"round {round_}, {len(views)} sets, at last node {leader}'s by node {node}"
            raise Broken(TAKEN, f"{at}: {reason}")

    def _sets_decided(self) -> int:
        return sum(isinstance(block.payload, SetPayload) for block in self.watch.chain)

    def _rounds_closed(self) -> int:
        for block in reversed(self.watch.chain):
            match block.payload:
                case SetPayload(round=open_round):
                    return open_round - 1
                case ResultPayload(round=closed) | AbortPayload(round=closed):
                    return closed
                case _:
                    continue
        return 0


def _slot_of(signed: Signed) -> Slot:
    statement = signed.statement
    at = statement.height if statement.kind in ROUND_KINDS else statement.view
    return statement.domain.epoch, at
