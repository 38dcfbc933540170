"""The people behind the nodes: they ask for the scenario's changes, approve of each other's, and
ask again as long as nothing has come of it.

    wanted --propose at the node's own desk--> heard, approved of --> in a final set --> applied
      ^                                                                                    dropped
      +---- a while later, as long as no set carries it: who knew of it may have crashed

Requests are made, signed and told on by the daemon's own code (daa_node/agreement/petitions.py).
"""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from daa_consensus.operations import Approve, Operation, Request
from daa_dag.ids import Digest
from daa_node.agreement.petitions import Petitions
from daa_node.errors import Refused, StorageFailed, UserError
from simnet.heap.consensus_life import at_once
from simnet.invariants import ADMITTED, Broken
from simnet.links import NS
from simnet.rolls import brought_in, is_hopeless
from simnet.scenario import ChangeConfig

if TYPE_CHECKING:
    from simnet.heap.consensus import Consensus
    from simnet.heap.consensus_host import Host

AGAIN_DELTAS = 8  # between attempts
APPROVAL_DELTAS = 2  # after each of them: what was asked for has been heard of by then
EPOCHS_MAX = 8  # until what was asked for and approved of is settled; three at most without liars
TRIES_MAX = 60  # of one change: two minutes of 250 ms


@dataclass(slots=True)
class Wish:
    """One change, and the requests that were made for it.

    `is_hopeless`: who wants it was told that it would be dropped.
    """

    change: ChangeConfig
    is_hopeless: bool = False
    requests: dict[Digest, Request] = field(default_factory=dict)
    tries: int = 0
    since_epoch: int | None = None  # in which people asked and approved in a whole world


class Operators:
    """All of one world's."""

    def __init__(self, world: "Consensus") -> None:
        self._world = world
        self._wishes = [Wish(change) for change in world.scenario.changes]
        self._delta_ns = world.network.delta_ns

    def begin(self) -> None:
        for wish in self._wishes:
            self._world.at(int(wish.change.at_s * NS), partial(self._pursue, wish))

    @property
    def unsettled(self) -> list[str]:
        """Changes of honest, living nodes that are possible, and neither applied nor dropped."""
        stakes = self._world.watch.rolls.now.committee.stake_of
        members = {self._world.network.number_of.get(name, -1) for name in stakes}
        return [
            str(wish.change)
            for wish in self._wishes
            if not self._settled(wish)
            and wish.change.is_possible(members)
            and all(map(self._is_able, wish.change.nodes))
        ]

    def check_patience(self) -> None:
        """The world is whole: nothing may be in the way of a change for long. Raises Broken.

        Epochs count from the first word of its people on: they may be as short as a round, and one
        attempt is as far from the next as five of these.
        """
        epoch, waiting = self._world.watch.rolls.now.epoch, self.unsettled
        for wish in self._wishes:
            if str(wish.change) not in waiting or wish.since_epoch is None:
                continue
            if epoch - wish.since_epoch > EPOCHS_MAX:
                raise Broken(ADMITTED, f"nothing came of {wish.change} in {EPOCHS_MAX} epochs")

    def _is_able(self, node: int) -> bool:
        (host, *_) = self._world.hosts_of[node]
        is_wanted = self._world.is_honest(node) and self._world.is_in_core(node)
        return is_wanted and host.is_wanted_up

    def _settled(self, wish: Wish) -> bool:
        rolls = self._world.watch.rolls
        carried = rolls.applied | rolls.dropped
        return wish.is_hopeless or any(name in carried for name in wish.requests)

    def _pursue(self, wish: Wish) -> None:
        if self._settled(wish) or wish.tries >= TRIES_MAX:
            return
        wish.tries += 1
        world = self._world
        world.at(world.now_ns + AGAIN_DELTAS * self._delta_ns, partial(self._pursue, wish))
        world.at(world.now_ns + APPROVAL_DELTAS * self._delta_ns, partial(self._approve, wish))
        if any(w.request.id in wish.requests for w in world.watch.rolls.now.waiting):
            return
        for host in world.hosts_of[wish.change.node]:
            desk = self._desk(host)
            if desk is None:
                continue
            operation = self._made(self._propose(desk, host, wish.change))
            if operation is not None:
                wish.requests[operation.request.id] = operation.request
            else:
                names = [self._world.hosts_of[node][0].me for node in wish.change.nodes]
                wish.is_hopeless = is_hopeless(wish.change, names, world.watch.rolls.now)

    async def _propose(self, desk: Petitions, host: "Host", change: ChangeConfig) -> Operation:
        """Raises UserError, Refused or StorageFailed."""
        wanted: dict[str, Any] = {"action": change.kind}
        if change.stake is not None:
            wanted["stake"] = change.stake
        if change.successor is not None:
            (heir, *_) = self._world.hosts_of[change.successor]
            other_desk = self._desk(heir)
            if other_desk is None:
                raise UserError("nobody is there who would consent")
            wanted["consent"] = await other_desk.consent(host.me)
        return await desk.propose(wanted)

    def _approve(self, wish: Wish) -> None:
        """Every member that has not done so, where that is needed."""
        stakes = self._world.watch.rolls.now.committee.stake_of
        for request in wish.requests.values():
            for host in self._world.hosts if brought_in(request, stakes) > 0 else []:
                desk = self._desk(host)
                if desk is not None and not self._has_approved(desk, host, request):
                    self._made(desk.approve(request.id))
        if self._world.is_whole and wish.since_epoch is None:
            wish.since_epoch = self._world.watch.rolls.now.epoch

    def _has_approved(self, desk: Petitions, host: "Host", request: Request) -> bool:
        """Whether it has said so, or need not as it is no member."""
        now = desk.validators.now
        approval = Request(Approve(host.me, request.id), request.expires_epoch)
        said = any(host.me in w.approvers for w in now.waiting if w.request == request)
        asked = host.life is not None and approval.id in host.life.facts.operations
        return said or asked or host.me not in now.committee.stake_of

    def _desk(self, host: "Host") -> Petitions | None:
        """Where its operator is answered now."""
        return None if host.office is None or host.is_paused else host.office.petitions

    def _made(self, command: Coroutine[Any, Any, Operation]) -> Operation | None:
        """What a command at a desk comes to; None if it is refused."""
        try:
            return at_once(command)
        except (UserError, Refused, StorageFailed):
            return None  # it is no member yet or any more, or has asked already
