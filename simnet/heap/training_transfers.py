"""Updates and deltas on their way: who holds what, what has a quorum of Acks, who catches up."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from simnet.heap.training_agenda import grid_ns
from simnet.heap.training_member import Member
from simnet.heap.training_round import OpenRound
from simnet.heap.training_world import TrainingWorld
from simnet.training.tally import Stage

FETCH_HOPS = 4  # the offer, the search for the blob and its answer, the ask: then bytes flow
ACK_HOPS = 2  # the last bytes' way, and that of the Acks
CATCH_UP_HOPS = 6  # dial, greeting and positions; page and its answer; the ask for the delta


class Transfers:
    """Everything on the access links, and what its arrival means."""

    def __init__(self, world: TrainingWorld) -> None:
        self._world = world
        self._turn = 0  # of what was asked of the links: only the newest answer counts
        self._grid_ns = grid_ns(len(world.members))

    @property
    def greeting_ns(self) -> int:
        """From a process that is up to one that knows where the others stand."""
        return CATCH_UP_HOPS * self._world.votes.hop_ns

    def offered(self, member: Member, size_bytes: int) -> None:
        """An update is there for everybody to fetch."""
        start = partial(self._start, self._world.open, member, size_bytes)
        starts_ns = self._world.now_ns + FETCH_HOPS * self._world.votes.hop_ns
        self._world.agenda.at(self._on_grid(starts_ns), start)

    def settle(self) -> None:
        """Bring the transfers up to now, before anything about them changes."""
        world = self._world
        progress = world.links.advance(world.now_ns)
        for held in progress.held:
            size_bytes = world.links.size_of(held.author)
            source = world.members[held.source]
            source.account.sent_bytes += size_bytes * len(held.nodes)
            source.sent(size_bytes * len(held.nodes), world.now_ns)
            self._hold(held.author, held.nodes)
        voted_on = progress.held if world.open.proposal is not None else []
        for held in voted_on:
            for node in held.nodes.tolist():
                world.parts.execution.try_execute(world.members[node])
        for node in progress.pulled:
            self._pulled(world.members[node])

    def changed(self) -> None:
        """Rates are others now: look again when the next transfer ends."""
        self._turn += 1
        next_ns = self._world.links.next_ns()
        if next_ns is not None:
            self._world.agenda.at(self._on_grid(next_ns), partial(self._ring, self._turn))

    def catch_up(self, member: Member) -> None:
        """Fetch the deltas of the rounds that a node lacks; a whole state onto an empty disk."""
        world = self._world
        if not world.reach.is_told(member.node):
            member.go_astray()
            return
        world.books.hit("a node caught up")
        member.life += 1
        member.attempt = None
        member.is_astray = False
        member.idle(Stage.CATCHING_UP, world.now_ns)
        world.agenda.after(self.greeting_ns, partial(self._pull, member, member.life))

    def _on_grid(self, at_ns: int) -> int:
        return -(-at_ns // self._grid_ns) * self._grid_ns

    def _start(self, opened: OpenRound, member: Member, size_bytes: int) -> None:
        if opened is not self._world.open:
            return
        self.settle()
        self._world.links.offer(member.node, size_bytes)
        member.upload_begins(self._world.now_ns)
        self._hold(member.node, np.array([member.node]))
        self._changed_soon()

    def _changed_soon(self) -> None:
        """Once for everything that begins at this moment."""
        self._turn += 1
        self._world.agenda.after(0, partial(self._ring, self._turn))

    def _ring(self, turn: int) -> None:
        if turn == self._turn:
            self.settle()
            self.changed()

    def _hold(self, author: int, nodes: NDArray[np.int64]) -> None:
        """These nodes hold the update now, and say so."""
        world, opened = self._world, self._world.open
        before = opened.acked_weight.get(author, 0)
        if not world.reach.is_simple:
            decide = np.array([world.reach.decides(node) for node in nodes.tolist()], np.bool_)
            opened.unheard.append((author, nodes[~decide]))
            nodes = nodes[decide]
        after = before + int(world.stakes[nodes].sum())
        opened.acked_weight[author] = after
        if before < world.votes.committee.quorum <= after:
            wait_ns = ACK_HOPS * world.votes.hop_ns
            world.agenda.after(wait_ns, partial(world.parts.closing.eligible, opened, author))

    def say_again(self) -> None:
        """Acks that those who decide have not heard of: from whoever is one of them now."""
        opened = self._world.open
        unheard, opened.unheard = opened.unheard, []
        for author, nodes in unheard:
            self._hold(author, nodes)

    def _pull(self, member: Member, life: int) -> None:
        world, sizes = self._world, self._world.payload.sizes
        if member.life != life or not member.is_able:
            return
        member.pulling_to = world.newest.height
        missed = member.pulling_to - member.height
        member.pulling_bytes = sizes.state_bytes if member.disk_lost else missed * sizes.delta_bytes
        self.settle()
        world.links.pull(member.node, member.pulling_bytes)
        self.changed()

    def _pulled(self, member: Member) -> None:
        """Everybody whom it reached gave an equal part; the first what the division left."""
        world = self._world
        member.account.received_bytes += member.pulling_bytes
        givers = [
            other
            for other in world.members
            if other.is_able and other is not member and world.reach.linked(other.node, member.node)
        ]
        each, rest = divmod(member.pulling_bytes, max(1, len(givers)))
        for place, giver in enumerate(givers):
            giver.account.sent_bytes += each + (rest if place == 0 else 0)
        replays = 1 if member.disk_lost else member.pulling_to - member.height
        caught_up = partial(self._caught_up, member)
        world.begin(member, Stage.CATCHING_UP, replays * world.work_ns, caught_up)

    def _caught_up(self, member: Member) -> None:
        world = self._world
        member.height, member.disk_lost = member.pulling_to, False
        world.trace.note(world.now_ns, "caught_up", node=member.node, height=member.height)
        world.parts.authors.enter(member, 0)
