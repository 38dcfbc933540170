"""Gather a round's contributions: fetch and check what is offered, ack it, close, judge proposals.

The bookkeeping is `collect.Collection`; this shell fetches, stores and signs on its behalf and
answers what the agreement asks about the round: which set to propose, whether a proposed one leaves
out what it must not, and when a decided one is wholly here.
"""

from collections.abc import Sequence

import trio

from daa_consensus.bft.messages import OfferBody, SetPayload, offer_from_value
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Kind, Signed
from daa_dag import canonical
from daa_dag.ids import ContributionRoot
from daa_node.errors import PeerFault
from daa_node.rounds.closing import Closing, MayClose
from daa_node.rounds.collect import Candidate, Collection
from daa_node.rounds.context import RoundContext
from daa_node.rounds.holding import Holding
from daa_node.rounds.voiding import Voiding

# An Ack goes to everybody, and names again what the last one did: one for each contribution would
# be n^3 messages a round, and at n = 100 its author sends 0.7 MB of each. So what comes within a
# while is named by one. That of all that are planned waits for nothing.
ACK_MEMBERS_PER_DELTA = 50  # so many say one a delta, and more no fewer; ten say five

# Of a window: then whom we shun is acknowledged after all, where too few are left to merge.
RELENT_SHARE = 0.8

# What a leader may wait for what is eligible, out of the two delta that others wait for its set.
HOLDING_DELTAS = 0.5


class Gather:
    """The contributions of one round, from the first offer to the decided set."""

    def __init__(self, context: RoundContext, may_close: MayClose) -> None:
        self._context = context
        self._plan = context.plan
        sizes, shunned = context.rules.codec_sizes.get, context.disputes.shunned()
        self.collection = Collection(context.plan, context.committee, sizes, shunned)
        self.lacks, self.show = self.collection.lacks, self.collection.show
        self.closing = Closing(context, self.collection, may_close)
        # Who waits for what: a hundred members say a thousand statements a round, which concern
        # few.
        self._offered = trio.lowlevel.ParkingLot()  # there is something to fetch
        self._heard = trio.lowlevel.ParkingLot()  # more may have a quorum
        self._held = trio.lowlevel.ParkingLot()  # our next Ack may name more
        self._closed, self._chosen = trio.Event(), trio.Event()
        self.voiding = Voiding(context, self.collection)
        self._holding = Holding(context, self.collection, self._held.unpark_all)
        self._unfetched: list[Candidate] = []
        self._acked: frozenset[ContributionRoot] = frozenset()
        self._expected: SetPayload | None = None

    def hear(self, signed: Signed) -> None:
        """An Offer or Ack for this round, signature verified. Raises PeerFault."""
        try:
            if signed.statement.kind is Kind.OFFER:
                self._hear_offer(signed)
            else:
                self.collection.ack(signed)
        finally:  # what is blamed may count all the same
            self.closing.note_eligible()
            self._heard.unpark_all()

    async def run(self) -> None:
        """Fetch, ack and close until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._close)
            nursery.start_soon(self._keep_acking)
            nursery.start_soon(self._relent)
            while True:
                while self._unfetched:
                    nursery.start_soon(self._holding.hold, self._unfetched.pop())
                await self._offered.park()

    async def _close(self) -> None:
        await self.closing.run()
        self._closed.set()

    async def proposal(self) -> SetPayload:
        """Every contribution with an Ack quorum, once the collection closed."""
        await self._closed.wait()
        chosen = self.collection.eligible()
        terms = self._context.rules.terms(self._plan, [offer.author for offer in chosen])
        merged = [offer for offer in chosen if offer.author not in terms.idle]
        with trio.move_on_after(self._context.agreement.delta_s * HOLDING_DELTAS):
            await self.hold_all(chosen)  # to see which are copies
        copies = {merged[at].root for at in await self.voiding.of(merged)}
        proposed = SetPayload(
            round=self._context.plan.round,
            offers=tuple(chosen),
            weights=tuple(
                0
                if offer.author in terms.idle or offer.root in copies
                else self._plan.weight_of(offer.author, offer.tokens)
                for offer in chosen
            ),
            rule=self._context.rules.rule,
            f_agg=terms.f_agg,
            evidence=(),
            operations=(),
            ack_ids=tuple(self.collection.acks.ids()),
        )
        self._expect(proposed)
        return proposed

    async def judge(self, proposed: SetPayload) -> str | None:
        """None if the set may be notarized, else why not. Waits until our own collection closed."""
        reason = await self._fault_of(proposed)
        if reason is None:
            self._expect(proposed)
        return reason

    async def expected(self) -> SetPayload:
        """The first set that we proposed, or have nothing against: most likely the decided one."""
        await self._chosen.wait()
        assert self._expected is not None
        return self._expected

    def _expect(self, proposed: SetPayload) -> None:
        if self._expected is None:
            self._expected = proposed
            self._chosen.set()

    async def _fault_of(self, proposed: SetPayload) -> str | None:
        reason = self._context.rules.unplanned(self._plan, proposed)
        if reason is not None:
            return reason
        await self._closed.wait()
        # Only an Ack quorum proves that the author signed what a leader says of it, and that the
        # set can be executed. Acks that we miss are asked for meanwhile, and sent again anyway.
        while not all(self.collection.acks.has_quorum(c.root) for c in proposed.offers):
            await self._heard.park()
        for contribution in proposed.offers:  # known from now on, and in our own next set
            self._begin(self.collection.adopt(contribution))
        listed = {c.author for c in proposed.offers}
        eligible, owed = self.collection.eligible(), self.closing.owes
        missed = [c for c in eligible if c.author not in listed and owed(c)]
        if missed:
            self._context.agreement.missed(self._plan.round, [c.root for c in missed])
            return "leaves out " + ", ".join(c.author.hex()[:8] for c in missed)
        merged = self._context.rules.without_idle(self._plan, proposed)
        if all(merged.weights):
            return None
        await self.hold_all(merged.offers)  # whose leader held all, and nothing is final without
        return await self.voiding.fault_of(merged)

    def shown(self, offers: Sequence[OfferBody], acks: Sequence[Signed]) -> None:
        """What a member proves eligible, the Acks verified, is so here. Raises PeerFault."""
        for candidate in self.collection.take_over(offers, acks):
            self._begin(candidate)
        self.closing.note_eligible()
        self._heard.unpark_all()

    async def hold_intact(self, contributions: Sequence[OfferBody]) -> None:
        """As `hold_all`, and hashed again, since what we acknowledged may have been damaged since.

        Raises StorageFailed when what is damaged cannot even be deleted.
        """
        while True:
            await self.hold_all(contributions)
            damaged = [each for each in contributions if await self._holding.look_again(each)]
            if not damaged:
                return  # else the others lie here for seconds while those are fetched

    async def hold_all(self, contributions: Sequence[OfferBody]) -> None:
        """Return once every contribution is stored here and checked, fetched from whoever acked.

        The set that they are of was judged right, notarized or decided: they are what a quorum says
        they are, whatever we heard of their authors ourselves.
        """
        for contribution in contributions:
            self._begin(self.collection.adopt(contribution))
        while True:
            waiting = [
                candidate
                for contribution in contributions
                if (candidate := self.collection.candidate(contribution.root)) is not None
                and not candidate.held
            ]
            if not waiting:
                return
            with trio.move_on_after(1.0):
                await self._held.park()
                continue
            # Nothing came for a second: those that gave up are tried again, from all ackers.
            self._unfetched.extend(c for c in waiting if not c.fetching)
            self._offered.unpark_all()

    def _hear_offer(self, signed: Signed) -> None:
        try:
            contribution = offer_from_value(signed.statement.value)
        except BadMessage as fault:
            raise PeerFault("malformed_offer", str(fault)) from None
        if contribution.author != signed.signer:
            raise PeerFault("foreign_offer", f"names {contribution.author.hex()[:8]} as author")
        elapsed_s = self.closing.elapsed_s
        known = contribution.author in self.collection.authors()
        if elapsed_s > self._context.rules.rounds.window_s and not known:
            # It may still be acknowledged by others in time; its sender pays for being late. Whom
            # we closed early without, because we were impatient, owes nothing.
            self._context.fault(signed.signer, PeerFault("late_offer", f"{elapsed_s:.1f} s"))
        self._begin(self.collection.offer(contribution))
        self._held.unpark_all()  # shown before, it may be held; now we may ack it, too

    def _begin(self, candidate: Candidate | None) -> None:
        if candidate is None:
            return
        if self._context.merges or candidate.contribution.author == self._context.me:
            self._unfetched.append(candidate)
        self.closing.note_eligible()
        self._offered.unpark_all()

    async def _relent(self) -> None:
        """A round without those whom we shun is better than one with them, but none is worse."""
        context, window_s = self._context, self._context.rules.rounds.window_s
        due_s = context.agreement.round_began_s + RELENT_SHARE * window_s
        await trio.sleep(max(0.0, due_s - trio.current_time()))
        authors = [offer.author for offer in self.collection.eligible()]
        if not context.rules.are_enough(self._plan, authors):
            self.collection.relent()
            self._held.unpark_all()

    async def _keep_acking(self) -> None:
        """One cumulative Ack of what comes within a while, since the last one or else the first."""
        members, held_roots = len(self._plan.shares), self.collection.held_roots
        while_s = self._context.agreement.delta_s * min(1.0, members / ACK_MEMBERS_PER_DELTA)
        while True:
            while self._acked.issuperset(held_roots()):
                await self._held.park()
            with trio.move_on_after(while_s):
                while len(held_roots()) < members:
                    await self._held.park()
            # What was damaged since is fetched again: an Ack that names less than the last says
            # that we take our word back.
            self._acked = self._acked.union(held_roots())
            roots: list[canonical.Value] = [*sorted(self._acked)]
            await self._context.agreement.sign_and_send(Kind.ACK, self._plan.round, roots)
