"""One node's part in disputes over work that was said to have been done."""

from collections import deque

import trio

from daa_consensus.bft.messages import Block, OfferBody
from daa_dag.ids import BlobRoot, Digest, NodeId
from daa_node.disputes import court, openings, second_looks
from daa_node.disputes.accuser import Accuser
from daa_node.disputes.bench import Bench
from daa_node.disputes.court import Court
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS, DecidedSets
from daa_node.disputes.exhibits import Exhibits
from daa_node.disputes.openings import Openings
from daa_node.disputes.parts import DisputeParts
from daa_node.disputes.replayer import Replayer
from daa_node.disputes.second_looks import SecondLooks
from daa_node.errors import NodeError, StorageFailed
from daa_node.network.requests import Requests
from daa_node.observability.events import STORAGE_FAILED
from daa_node.seams import StateRef
from daa_node.spot_checks.checks import Basis

SEEN_EACH_S = 0.5  # between two looks for bases


class Disputes:
    """`run` must be running while rounds walk."""

    def __init__(self, parts: DisputeParts) -> None:
        self._events = parts.events
        self._see_base = parts.see_base
        self._unseen = deque[StateRef](maxlen=DISPUTE_ROUNDS)  # bases
        self._is_on = parts.rules.segment_steps > 0
        self._sets = DecidedSets(parts.rules)
        self._bench = Bench()
        self._exhibits = Exhibits(parts.store, parts.fetch, parts.events)
        self._openings = Openings(parts, self._sets, self._bench)
        replayer = Replayer(parts.trainer, self._bench, self._exhibits)
        self._court = Court(parts, self._sets, replayer)
        self._looks = SecondLooks(parts, self._sets, self._bench, self._exhibits)
        self._accuser = Accuser(
            parts, self._sets, replayer, self._exhibits, self._court, self._looks.complain
        )
        self.shunned = self._looks.shunned  # whose contributions are not to be acknowledged
        self.shunned_until = self._looks.shunned_until  # of one author; None if it is not
        self._looks.on_doubt = self._accuser.doubt
        self.knows = self._sets.knows  # whether it has seen the round's set
        self.doubt = self._accuser.doubt  # what we have checked differs from what was offered
        self.kept = self._openings.kept  # of our own boundaries: not to be deleted
        self.turn = self._bench.do  # at our worker, for what is not our training
        self.work_off = self._bench.work_off  # before we train, for so many seconds at most

    def serve(self, requests: Requests) -> None:
        """Answer the others from now on."""
        requests.register(openings.REQUEST, self._openings.answer)
        requests.register(court.REQUEST, self._court.hear)
        requests.register(second_looks.REQUEST, self._looks.hear)

    def is_drawn(self, author: NodeId, root: BlobRoot) -> bool:
        """Whether others have to see that state of the author's, for what the lot has drawn."""
        return any(Digest(root) in drawn.states for drawn in self._sets.of(author))

    def unshown(self, offer: OfferBody) -> None:
        """We were to check it, and its author has not shown it."""
        drawn = self._sets.find(offer.round, offer.root)
        if drawn is not None:
            self._looks.complain(drawn)

    def decided(self, basis: Basis, set_block: Block) -> None:
        """A set is final: the lot is drawn of it."""
        if self._is_on and self._sets.note(basis, set_block):
            self._unseen.append(basis.state)

    def recalled(self, basis: Basis, set_block: Block) -> None:
        """It was final before we started, or while others went on: its base may be gone."""
        if self._is_on:
            self._sets.note(basis, set_block, is_recalled=True)

    def updates(self) -> set[BlobRoot]:
        """Contributions that doubts or complaints of ours are about: not to be deleted."""
        return {*self._accuser.updates(), *self._looks.updates()}

    def states(self) -> set[BlobRoot]:
        """Models that are to be looked at: not to be deleted."""
        return {base.model_root for base in self._unseen}

    async def run(self) -> None:
        """Until cancelled."""
        if not self._is_on:
            return
        try:
            await self._exhibits.clear()
        except StorageFailed as failure:
            self._events.emit(STORAGE_FAILED, detail=str(failure))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._see_bases)
            nursery.start_soon(self._openings.run)
            nursery.start_soon(self._court.run)
            nursery.start_soon(self._looks.run)
            nursery.start_soon(self._accuser.run)

    async def _see_bases(self) -> None:
        """Before they go: whoever is accused in some rounds may have begun elsewhere."""
        while True:
            await trio.sleep(SEEN_EACH_S)
            while self._unseen:
                try:
                    await self._see_base(self._unseen[0])
                except NodeError as failure:
                    self._events.emit(STORAGE_FAILED, detail=str(failure))
                self._unseen.popleft()
