"""Whatever liars said to whom: the sets of honest leaders come to be accepted by all honest.

Five honest members of seven each have a real Gather. The two liars offer what they like to whom
they like, and acknowledge it to some, before and after the honest have closed.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Committee, Validator
from daa_consensus.votes import Kind, Signed
from daa_dag import canonical
from daa_dag.ids import BlobRoot, ContributionRoot, Digest, NodeId
from daa_node.agreement.wan_bft import WanBft
from daa_node.errors import PeerFault
from daa_node.rounds.collect import Collection
from daa_node.rounds.gather import Gather
from daa_node.rounds.plan import Plan, Share
from tests.daa_node.rounds.test_rehearsal import (
    BASE,
    ROUND,
    Agreement,
    Scene,
    offer_of,
    said,
    set_of,
)

NODES = [NodeId(bytes([65 + k]) * 32) for k in range(7)]
HONEST, LIARS = NODES[:5], NODES[5:]
COMMITTEE = Committee(tuple(Validator(node, 1) for node in NODES))
SHARES = tuple(Share(node, 20, 5_120) for node in NODES)
PLAN = Plan(ROUND, BASE, Digest(BASE), SHARES, 256, 7_000_000)


@dataclass
class Talking(Agreement):
    """What this member says goes to every honest one; what it missed is told, if they talk."""

    everybody: "list[Talking]" = field(default_factory=list)
    me: NodeId = NODES[0]
    gather: Gather | None = None
    missing: list[ContributionRoot] = field(default_factory=list)

    def missed(self, round_number: int, roots: Sequence[ContributionRoot]) -> None:
        self.missing += roots

    async def sign_and_send(self, kind: Kind, round_number: int, value: canonical.Value) -> bool:
        for each in self.everybody:
            each.hear(said(self.me, kind, value))
        return True

    def hear(self, signed: Signed) -> None:
        assert self.gather is not None
        try:
            self.gather.hear(signed)
        except PeerFault:
            assert signed.signer in LIARS


class Hall:
    """The honest members, their gathers running, and liars among them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.open = True
        self.members: list[Talking] = []
        for node in HONEST:
            member = Talking(me=node, everybody=self.members)
            scene = Scene()
            context = replace(
                scene.context,
                me=node,
                committee=COMMITTEE,
                plan=PLAN,
                agreement=cast(WanBft, member),
            )
            member.gather = Gather(context, self._may_close)
            self.members.append(member)

    def _may_close(self, _: Collection, elapsed_s: float, since_s: float | None) -> str | None:
        return None if self.open else "told to"

    def lie(self, times: int) -> None:
        """Liars say Offers and Acks of anything, each to some of the honest."""
        offers = [
            replace(offer_of(liar), blob_root=BlobRoot(bytes([name]) * 32))
            for liar in LIARS
            for name in range(3)
        ]
        roots = [offer.root for offer in offers]
        roots += [offer_of(node).root for node in HONEST]
        for _ in range(times):
            if self.chance.random() < 0.5:
                offer = self.chance.choice(offers)
                word = said(offer.author, Kind.OFFER, offer.as_value())
            else:
                named = self.chance.sample(roots, self.chance.randrange(1, 4))
                word = said(self.chance.choice(LIARS), Kind.ACK, sorted(named))
            for member in self.chance.sample(self.members, self.chance.randrange(1, 4)):
                member.hear(word)

    async def accepted(self, leader: Talking, talks: bool) -> bool:
        """Whether every honest member accepts what this one proposes, shown what it rests on."""
        assert leader.gather is not None
        proposed = await leader.gather.proposal()
        reasons: list[str | None] = []

        async def judge(gather: Gather) -> None:
            reasons.append(await gather.judge(proposed))

        others = [m.gather for m in self.members if m is not leader and m.gather is not None]
        async with trio.open_nursery() as nursery:
            for gather in others:
                nursery.start_soon(judge, gather)
            await trio.testing.wait_all_tasks_blocked()
            self.lie(5)
            for gather in others:
                self._show(leader.gather, gather, [offer.root for offer in proposed.offers])
        assert len(reasons) == len(others)
        for member in self.members if talks else []:
            for other in self.members:
                assert member.gather is not None
                assert other.gather is not None
                self._show(member.gather, other.gather, member.missing)
        return reasons == [None] * len(others)

    def _show(self, who: Gather, whom: Gather, roots: Sequence[ContributionRoot]) -> None:
        for _ in roots:  # one message may not hold it all
            offers, acks = who.show(whom.lacks(roots))
            whom.shown(offers, acks)
        assert not whom.lacks(roots)


def views_until_accepted(seed: int, talks: bool) -> int:
    async def hall() -> int:
        hall = Hall(seed)
        async with trio.open_nursery() as nursery:
            for member in hall.members:
                assert member.gather is not None
                nursery.start_soon(member.gather.run)
            hall.lie(40)
            for node, member in zip(HONEST, hall.members, strict=True):
                await member.sign_and_send(Kind.OFFER, ROUND, offer_of(node).as_value())
                hall.lie(10)
                await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(1)
            hall.lie(20)
            await trio.sleep(1)
            hall.open = False
            await trio.sleep(1)
            views = 1
            while not await hall.accepted(hall.members[views % len(HONEST)], talks):
                hall.lie(10)
                await trio.sleep(1)
                views += 1
            nursery.cancel_scope.cancel()
        return views

    return trio.run(hall, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(("talks", "views_max"), [(True, 2), (False, len(HONEST))])
def test_one_of_the_next_honest_sets_is_accepted_by_all_honest(talks: bool, views_max: int) -> None:
    views = [views_until_accepted(seed, talks) for seed in range(60)]
    assert max(views) <= views_max
    assert max(views) > 1  # some sets are refused: the liars do keep the honest apart


def new_collection() -> Collection:
    return Collection(PLAN, COMMITTEE, {"int8": 1_000}.get)


def test_what_a_quorum_is_shown_for_counts_although_its_author_offered_something_else() -> None:
    collection = new_collection()
    one, other = offer_of(NODES[6]), replace(offer_of(NODES[6]), blob_root=BlobRoot(b"x" * 32))
    collection.offer(one)
    acks = [said(node, Kind.ACK, [other.root]) for node in NODES[:5]]
    assert [c.contribution for c in collection.take_over([other], acks)] == [other]
    assert collection.eligible() == [other]
    for node in NODES[:5]:  # whatever they say after it, it can be shown on
        collection.ack(said(node, Kind.ACK, [offer_of(NODES[0]).root]))
    assert collection.show([other.root]) == ((other,), tuple(acks))


def refused(reason: str, offers: Sequence[OfferBody], acks: Sequence[Signed]) -> None:
    collection = new_collection()
    with pytest.raises(PeerFault) as fault:
        collection.take_over(offers, acks)
    assert fault.value.reason == reason
    assert collection.eligible() == []
    assert collection.authors() == set()


def test_what_is_shown_without_a_quorum_or_outside_the_plan_changes_nothing() -> None:
    offer, strange = offer_of(NODES[0]), offer_of(NodeId(b"z" * 32))
    four = [said(node, Kind.ACK, [offer.root]) for node in NODES[:4]]
    refused("no_quorum", [offer], four)
    refused("no_quorum", [offer], [*four, four[0]])
    refused("no_quorum", [offer], [])
    five = [said(node, Kind.ACK, sorted([offer.root, strange.root])) for node in NODES[:5]]
    refused("stranger_offer", [offer, strange], five)


def test_a_liars_acks_take_room_for_each_contribution_and_no_more() -> None:
    collection = new_collection()
    offers = [offer_of(node) for node in NODES]
    for offer in offers:
        collection.offer(offer)
    for number in range(500):
        chance = random.Random(number)
        named = [chance.choice(offers).root, ContributionRoot(chance.randbytes(32))]
        with suppress(PeerFault):
            collection.ack(said(LIARS[0], Kind.ACK, sorted(named)))
    assert len(collection.acks._said[LIARS[0]].kept) == len(NODES)
    everything = sorted(offer.root for offer in offers)
    collection.ack(said(LIARS[0], Kind.ACK, everything))
    for node in HONEST:  # of honest ones the largest alone is kept
        for count in range(1, 8):
            collection.ack(said(node, Kind.ACK, everything[:count]))
        assert len(collection.acks._said[node].kept) == 1
    assert [offer.root for offer in collection.show(everything)[0]] == everything


async def test_an_ack_that_is_blamed_counts_for_what_it_completes(autojump_clock: object) -> None:
    scene = Scene()
    gather = Gather(scene.context, lambda c, *_: "two" if len(c.eligible()) == 2 else None)
    offers = [offer_of(node) for node in NODES[:2]]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        for offer in offers:
            gather.hear(said(offer.author, Kind.OFFER, offer.as_value()))
        for node in NODES[:2]:
            gather.hear(said(node, Kind.ACK, sorted(offer.root for offer in offers)))
        unknown = [bytes([number]) * 32 for number in range(20)]
        with pytest.raises(PeerFault, match="too_many_acks"):
            gather.hear(said(NODES[2], Kind.ACK, sorted([*unknown, *(o.root for o in offers)])))
        await trio.sleep(1)
        assert gather.closing.why
        assert await gather.judge(set_of(1)) is not None
        assert await gather.judge(set_of(2)) is None
        nursery.cancel_scope.cancel()


async def test_what_is_eligible_by_shown_acks_alone_must_be_listed_like_the_rest(
    autojump_clock: object,
) -> None:
    gather = Gather(Scene().context, lambda c, *_: "all" if len(c.eligible()) == 3 else None)
    offers = [offer_of(node) for node in NODES[:3]]
    acks = [said(node, Kind.ACK, sorted(o.root for o in offers)) for node in NODES[:3]]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        for offer in offers:
            gather.hear(said(offer.author, Kind.OFFER, offer.as_value()))
        gather.shown(offers, acks)
        with trio.fail_after(5):
            assert (await gather.proposal()).offers == tuple(offers)
            await trio.sleep(1)  # two delta
            assert await gather.judge(set_of(2)) is not None
            assert await gather.judge(set_of(3)) is None
        nursery.cancel_scope.cancel()


async def test_no_set_is_judged_before_the_judge_has_closed_its_own_collection(
    autojump_clock: object,
) -> None:
    """Or the first leader in a hurry decides for all that the others come too late."""
    closing, judged = False, trio.Event()
    gather = Gather(Scene().context, lambda *_: "told to" if closing else None)

    async def judge() -> None:
        assert await gather.judge(set_of(2)) is None
        judged.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        for offer in (offer_of(node) for node in NODES[:2]):
            gather.hear(said(offer.author, Kind.OFFER, offer.as_value()))
            for node in NODES[:3]:
                gather.hear(said(node, Kind.ACK, [offer.root]))
        nursery.start_soon(judge)
        await trio.sleep(5)
        assert not judged.is_set()
        closing = True
        gather.closing.own_ready()  # something for the closing rule to go by
        await trio.sleep(1)
        assert judged.is_set()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["said", "shown"])
async def test_a_set_whose_acks_come_late_is_judged_once_they_are_here(
    how: str, autojump_clock: object
) -> None:
    gather, offer = Gather(Scene().context, lambda *_: "at once"), offer_of(NODES[0])
    acks = [said(node, Kind.ACK, [offer.root]) for node in NODES[:3]]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        gather.hear(said(offer.author, Kind.OFFER, offer.as_value()))
        nursery.start_soon(come_late, gather, offer, acks, how)
        with trio.fail_after(5):
            assert await gather.judge(set_of(1)) is None
        assert trio.current_time() == pytest.approx(2)
        nursery.cancel_scope.cancel()


async def come_late(gather: Gather, offer: OfferBody, acks: Sequence[Signed], how: str) -> None:
    await trio.sleep(2)
    if how == "shown":
        gather.shown([offer], acks)
    else:
        for ack in acks:
            gather.hear(ack)


@pytest.mark.parametrize("before_closing", [True, False])
async def test_a_set_must_list_what_was_eligible_before_the_judge_closed_and_nothing_later(
    before_closing: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Or who makes one more eligible, again and again, could have every set refused."""
    closing = False
    gather = Gather(Scene().context, lambda *_: "told to" if closing else None)

    def acknowledge(author: NodeId) -> None:
        offer = offer_of(author)
        gather.hear(said(author, Kind.OFFER, offer.as_value()))
        for node in NODES[1:4]:
            gather.hear(said(node, Kind.ACK, [offer.root]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        for author in NODES[:3] if not before_closing else NODES[:4]:
            acknowledge(author)
        closing = True
        await trio.sleep(1)
        if not before_closing:
            acknowledge(NODES[3])
        await trio.sleep(2)  # four delta
        assert gather.closing.why == "told to"
        assert (await gather.judge(set_of(3)) is not None) is before_closing
        nursery.cancel_scope.cancel()


async def test_what_became_eligible_right_before_closing_is_demanded_a_delta_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever leads, and closed at the same time, may not have heard the last Ack for it."""
    gather = Gather(Scene().context, lambda c, *_: "three" if len(c.eligible()) == 3 else None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        for offer in (offer_of(author) for author in NODES[:3]):
            gather.hear(said(offer.author, Kind.OFFER, offer.as_value()))
            for node in NODES[1:4]:
                gather.hear(said(node, Kind.ACK, [offer.root]))
        await trio.sleep(0.4)  # of 0.5
        assert gather.closing.why == "three"
        assert await gather.judge(set_of(2)) is None
        await trio.sleep(0.2)
        assert await gather.judge(set_of(2)) is not None
        nursery.cancel_scope.cancel()
