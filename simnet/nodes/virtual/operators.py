"""The people behind the daemons: they ask for the scenario's changes of members, and approve.

    wanted --proposed to the node itself--> heard, approved of --> in a final set --> applied
      ^                                                                                    dropped
      +---- a while later, as long as no set carries it: who knew of it may have crashed

Everything is said to running daemons, as `daa-node propose`, `consent` and `approve` would. Some
think better of it and withdraw what waits; some only look, or ask for what cannot be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from daa_consensus.roll import Admission
from daa_dag.ids import Digest
from daa_node.errors import NodeError
from simnet.checks.invariants import ADMITTED
from simnet.checks.membership_audit import is_hopeless
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.scheduling import NODE
from simnet.world.node_classes import newcomers_of
from simnet.world.scenario import ChangeConfig

EPOCHS_MAX = 8  # until what was asked for and approved of is settled; three at most without liars
AGAIN_DELTAS = 8  # between attempts
WITHDRAWN_SHARE = 0.2  # of requests that wait while faults last: once each
VISITS_MAX = 8  # of people who look in, or ask for nonsense, in a run
LOOKS = ("status", "peers", "rounds", "validators")
NONSENSE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("propose", {"action": "dance"}),
    ("propose", {"action": "withdraw", "request": "00"}),
    ("propose", {"action": "rotate", "consent": {"seat": 1}}),
    ("approve", {"id": "zz"}),
    ("approve", {"id": "00" * 32}),
    ("consent", {"seat": "00" * 32}),
)
APPROVAL_DELTAS = 2  # after each of them: what was asked for has been heard of by then


@dataclass(slots=True)
class Wish:
    """One change, and the names of the requests that were made for it.

    `is_hopeless`: who wants it was told that it would be dropped.
    """

    change: ChangeConfig
    is_hopeless: bool = False
    is_firm: bool = False  # nobody thinks better of it
    epochs: int = 0  # that have gone by since people asked and approved in a whole world
    counted: tuple[int, list[int]] | None = None  # the newest: its number, how far the nodes were
    requests: dict[Digest, None] = field(default_factory=dict)


class Operators:
    """All of one cluster's; `run` ends when all that they want is settled."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._delta_s = cluster.scenario.work.delta_ms / 1e3
        self._chance = cluster.streams.random("operators")
        self._wishes = [
            Wish(change, is_firm=self._chance.random() >= WITHDRAWN_SHARE)
            for change in cluster.scenario.changes
        ]

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for wish in self._wishes:
                nursery.start_soon(self._pursue, wish)
            nursery.start_soon(self._vouch)
            nursery.start_soon(self._look_in)

    @property
    def unsettled(self) -> list[str]:
        """Changes of nodes that must go on, that are possible, and neither applied nor dropped."""
        cluster, stakes = self._cluster, self._cluster.sightings.watch.audit.now.committee.stake_of
        members = [n for n, m in enumerate(cluster.machines) if m.node_id in stakes]
        wanted = cluster.wanted
        return [
            str(wish.change)
            for wish in self._wishes
            if not self._is_settled(wish)
            and wish.change.is_possible(members)
            and all(node in wanted for node in wish.change.nodes)
        ]

    def _is_settled(self, wish: Wish) -> bool:
        audit = self._cluster.sightings.watch.audit
        if wish.is_hopeless:
            return True
        return any(name in audit.applied or name in audit.dropped for name in wish.requests)

    async def _pursue(self, wish: Wish) -> None:
        await trio.sleep_until(wish.change.at_s)
        while not self._is_settled(wish):
            waiting = self._cluster.sightings.watch.audit.now.waiting
            if not any(w.request.id in wish.requests for w in waiting):
                self._cluster.start_soon(self._propose, wish)
            elif not wish.is_firm and not self._cluster.sightings.healed:
                self._cluster.start_soon(self._withdraw, wish)
            await trio.sleep(APPROVAL_DELTAS * self._delta_s)
            for node in range(len(self._cluster.machines)):
                for request in self._not_approved_by(node, wish):
                    asked = {"id": request.hex()}
                    self._cluster.start_soon(self._say, node, "approve", asked)
            self._lose_patience(wish)
            await trio.sleep((AGAIN_DELTAS - APPROVAL_DELTAS) * self._delta_s)

    def _lose_patience(self, wish: Wish) -> None:
        """Once all has healed, nothing may be in the way of a change for long.

        Epochs count from the first word of its people on, once an attempt: they may be as short as
        a round, and one attempt is as far from the next as five of these. Nor does one count in
        which a node that it is about has not got further: a peer that answers nothing holds it up
        for longer than some last, and it asks in an epoch that is over.
        """
        sightings = self._cluster.sightings
        if not sightings.healed or str(wish.change) not in self.unsettled:
            return
        epoch = sightings.watch.audit.now.epoch
        heights = [sightings.height(node) for node in wish.change.nodes]
        if wish.counted is None:
            wish.counted = (epoch, heights)
        before, stood = wish.counted
        if epoch > before and all(new > old for new, old in zip(heights, stood, strict=True)):
            wish.epochs, wish.counted = wish.epochs + 1, (epoch, heights)
        if wish.epochs > EPOCHS_MAX:
            sightings.breaks(ADMITTED, f"nothing came of {wish.change} in {EPOCHS_MAX} epochs")

    async def _vouch(self) -> None:
        """A member for each newcomer, the same as long as it lasts, until all are on the roll."""
        cluster = self._cluster
        newcomers = sorted(newcomers_of(cluster.scenario.nodes))
        if cluster.scenario.work.trainers.admission is not Admission.VOUCHED:
            return
        while newcomers:
            now = cluster.sightings.watch.audit.now
            stakes, names = now.committee.stake_of, [m.node_id for m in cluster.machines]
            members = [node for node, name in enumerate(names) if name in stakes]
            newcomers = [n for n in newcomers if now.roll.entry_of(names[n]) is None]
            for at in newcomers:
                words = {"trainer": names[at].hex()}
                cluster.start_soon(self._say, members[at % len(members)], "vouch", words)
            await trio.sleep(APPROVAL_DELTAS * self._delta_s)

    async def _look_in(self) -> None:
        """People come by, at any time: whatever they ask for, the daemon goes on."""
        chance, cluster = self._chance, self._cluster
        for at_s in sorted(
            chance.uniform(0, cluster.scenario.duration_s)
            for _ in range(chance.randint(0, VISITS_MAX))
        ):
            await trio.sleep_until(at_s)
            node = chance.randrange(len(cluster.machines))
            command, words = chance.choice(NONSENSE)
            if chance.random() < len(LOOKS) / (len(LOOKS) + len(NONSENSE)):
                command, words = chance.choice(LOOKS), {}
            cluster.start_soon(self._visit, node, command, words)

    async def _visit(self, node: int, command: str, words: Mapping[str, Any]) -> None:
        answer = await self._say(node, command, words)
        if answer is not None and command not in LOOKS:
            self._cluster.sightings.breaks(ADMITTED, f"node {node} takes {command} {words}")

    async def _withdraw(self, wish: Wish) -> None:
        wish.is_firm = True
        waiting = self._cluster.sightings.watch.audit.now.waiting
        for request in (w.request.id for w in waiting if w.request.id in wish.requests):
            words = {"action": "withdraw", "request": request.hex()}
            if await self._say(wish.change.node, "propose", words) is not None:
                self._cluster.sightings.sometimes["request withdrawn"] += 1

    async def _propose(self, wish: Wish) -> None:
        change = wish.change
        wanted: dict[str, Any] = {"action": change.kind}
        if change.stake is not None:
            wanted["stake"] = change.stake
        if change.successor is not None:
            seat = self._cluster.machines[change.node].node_id.hex()
            consent = await self._say(change.successor, "consent", {"seat": seat})
            if consent is None:
                return
            wanted["consent"] = dict(consent)
        answer = await self._say(change.node, "propose", wanted)
        if answer is not None:
            wish.requests[Digest(bytes.fromhex(answer["id"]))] = None
        else:
            names = [self._cluster.machines[node].node_id for node in change.nodes]
            wish.is_hopeless = is_hopeless(change, names, self._cluster.sightings.watch.audit.now)

    def _not_approved_by(self, node: int, wish: Wish) -> list[Digest]:
        """Requests that take an approval, of which the chain has none by this member."""
        me, now = self._cluster.machines[node].node_id, self._cluster.sightings.watch.audit.now
        if wish.change.kind == "leave" or me not in now.committee.stake_of:
            return []
        approved = {w.request.id for w in now.waiting if me in w.approvers}
        return [name for name in wish.requests if name not in approved]

    async def _say(
        self, node: int, command: str, words: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """What the daemon answers; None if it refuses, or is not there."""
        machine = self._cluster.machines[node]
        if not machine.is_on or command not in machine.desk.handlers:
            return None
        NODE.set(node)  # it is the daemon's process that works, and may be stopped in the middle
        try:
            return await machine.ask(command, **words)
        except NodeError:
            return None
