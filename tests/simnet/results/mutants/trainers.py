"""Mistakes in who trains without a vote, each planted in all daemons of a cluster.

What follows from the chain is folded by one piece of code, in daemons as in the judge's eyes; so a
mistake there makes nobody disagree. It is found by books that are kept beside it, of what final
sets ask for and who is in them.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from daa_consensus import roll as rolls
from daa_consensus.enrolment import Enrolment
from daa_consensus.membership import Membership
from daa_consensus.roll import Entry, Roll
from daa_dag.ids import Digest, NodeId
from daa_node.agreement import roll_requests
from daa_node.agreement.roll_requests import RollRequests
from daa_node.errors import UserError
from daa_node.rounds.plan import Plan, RoundRules, Terms
from simnet.checks.invariants import ENROLLED, HELD_OFF
from simnet.nodes.virtual.cluster import Cluster
from tests.simnet.results.mutants.daemons import Plant
from tests.simnet.results.mutants.scenes import Scene, goes_on, until_height

MEMBERS = (0, 1, 2, 3)
LEAVER = 3
FIRST = len(MEMBERS)  # the first newcomer
TRIES = 200  # who is vouched for must have been heard of: a trainer says it again in 10 s
ROUNDS = 4

# Who is let in


def quota_not_enforced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roll, "vouched_by", lambda _roll, _voucher: 0)


def in_force_a_round_early(patch: pytest.MonkeyPatch) -> None:
    """A round is planned by the roll as it stands for the next one."""
    patch.setattr(Roll, "ready", lambda roll, at: [e for e in roll.entries if e.is_ready(at + 1)])
    patch.setattr(Entry, "is_drawn", lambda entry, at: entry.planned == at)


def leavers_vouch(patch: pytest.MonkeyPatch) -> None:
    """A word is carried an epoch late, and nobody asks whether who gave it still votes."""
    why_no_word, note = Roll._why_no_word, RollRequests.note
    follow, groups = RollRequests.follow, RollRequests.groups
    ever: set[NodeId] = set()
    heard: dict[tuple[int, Digest], int] = {}  # in which epoch
    epochs: dict[int, int] = {}

    def why(roll: Roll, voucher: NodeId, request: Digest, members: Collection[NodeId]) -> Any:
        ever.update(members)
        return why_no_word(roll, voucher, request, ever)

    def note_when(self: RollRequests, asked: Enrolment, now: Membership, source: NodeId) -> bool:
        ever.update(now.committee.stake_of)
        heard.setdefault((id(self), asked.request.id), now.epoch)
        return note(self, asked, now, source)

    def follow_to(self: RollRequests, now: Membership) -> None:
        epochs[id(self)] = now.epoch
        follow(self, now)

    def late(self: RollRequests) -> Iterator[Sequence[Enrolment]]:
        for group in groups(self):
            if heard[id(self), group[-1].request.id] < epochs.get(id(self), 0):
                yield group

    patch.setattr(Roll, "_why_no_word", why)
    patch.setattr(Roll, "begun", only_who_retires_goes)
    patch.setattr(RollRequests, "note", note_when)
    patch.setattr(RollRequests, "follow", follow_to)
    patch.setattr(RollRequests, "groups", late)
    patch.setattr(
        roll_requests, "is_open", lambda asked, now: not roll_requests._is_over(asked, now)
    )


# Who goes


def only_who_retires_goes(
    roll: Roll, at: int, _convicted: Collection[NodeId], members: Collection[NodeId]
) -> Roll:
    kept = [e for e in roll.entries if e.name not in members and (e.until is None or e.until > at)]
    return replace(roll, entries=tuple(kept))


def outlives_its_voucher(patch: pytest.MonkeyPatch) -> None:
    """A trainer stays when the member that let it in has left."""
    patch.setattr(Roll, "begun", only_who_retires_goes)


def retired_is_drawn(patch: pytest.MonkeyPatch) -> None:
    def is_ready(entry: Entry, at: int) -> bool:
        return entry.since <= at and not entry.is_idle

    patch.setattr(Entry, "is_ready", is_ready)


# Who has its turn


def waiting_is_missing(patch: pytest.MonkeyPatch) -> None:
    """Who was not drawn has missed the round."""

    def after_set(entry: Entry, at: int, is_in: bool) -> Entry:
        is_here = entry.since <= at
        return replace(entry, missed=0 if is_in else entry.missed + is_here)

    patch.setattr(Entry, "after_set", after_set)


def lot_without_weights(patch: pytest.MonkeyPatch) -> None:
    """Who has waited for long has one lot, as everybody."""
    patch.setattr(rolls, "LOTS_MAX", 1)


def first_come(patch: pytest.MonkeyPatch) -> None:
    """The same trainers, whatever the seed."""

    def first(ready: Sequence[Entry], _at: int, _seed: Digest, room: int) -> list[Entry]:
        return list(ready[:room])

    patch.setattr(rolls, "draw", first)


# Who may be bad


def trainers_taken_for_honest(patch: pytest.MonkeyPatch) -> None:
    """f_agg is that of members alone, and all trainers are merged."""
    patch.setattr(Plan, "lying_trainers", lambda *_: 0)


def one_voucher_less(patch: pytest.MonkeyPatch) -> None:
    """Of f bad members only those but one have let in trainers that are as bad."""
    terms = RoundRules.terms

    def fewer(self: RoundRules, plan: Plan, authors: Collection[NodeId]) -> Terms:
        found = terms(self, plan, authors)
        return replace(found, f_agg=min(found.f_agg, self.f_agg(plan)))

    patch.setattr(RoundRules, "terms", fewer)


# Scenes


async def vouched(cluster: Cluster, voucher: int, newcomer: int, must: bool = True) -> None:
    """Asked as often as it takes; where it need not come, as often as that takes elsewhere."""
    words = {"trainer": cluster.machines[newcomer].node_id.hex()}
    for _ in range(TRIES if must else TRIES // 10):
        try:
            await cluster.ask(voucher, "vouch", **words)
        except UserError:
            await trio.sleep(0.2)
        else:
            return
    assert not must, "nobody has heard of the newcomer"


async def let_in(cluster: Cluster, vouchers: Sequence[int]) -> None:
    """One newcomer after the other, by these, and some rounds with all of them."""
    cluster.start()
    await until_height(cluster, 1)
    for newcomer, voucher in enumerate(vouchers, FIRST):
        await vouched(cluster, voucher, newcomer)
    await goes_on(cluster, ROUNDS)


async def over_quota(cluster: Cluster) -> None:
    """One member has a word for each of two, and its quota is one."""
    await let_in(cluster, [0])
    await vouched(cluster, 0, FIRST + 1, must=False)
    await goes_on(cluster, ROUNDS)


async def leaves(cluster: Cluster) -> None:
    """A voucher leaves, and gives its word for another one before it has left."""
    await let_in(cluster, [LEAVER])
    await cluster.ask(LEAVER, "propose", action="leave")
    await vouched(cluster, LEAVER, FIRST + 1, must=False)
    gone = cluster.machines[LEAVER].node_id
    while gone in cluster.sightings.watch.audit.now.committee.stake_of:
        await goes_on(cluster, 1)
    await goes_on(cluster, ROUNDS)


async def retires(cluster: Cluster) -> None:
    await let_in(cluster, [0])
    await cluster.ask(0, "retire", trainer=cluster.machines[FIRST].node_id.hex())
    await goes_on(cluster, 2 * ROUNDS)


async def turns(cluster: Cluster) -> None:
    """Three are ready, and a round has a place for one."""
    await let_in(cluster, [0, 1, 2])
    await goes_on(cluster, 4 * ROUNDS)


def scene(script: Any, newcomers: int, **trainers: Any) -> Scene:
    rules = {"admission": "vouched", **trainers}
    return Scene(
        script,
        stakes=(1,) * len(MEMBERS),
        work={"epoch_rounds": 4, "trainers": rules},
        newcomers=newcomers,
    )


TRAINING: dict[str, Scene] = {
    "two of one": scene(over_quota, 2),
    "comes": scene(partial(let_in, vouchers=[0]), 1),
    "voucher leaves": scene(leaves, 2, per_voucher=2),
    "retires": scene(retires, 1),
    "turns": scene(turns, 3, contributors_max=5),
    "friends of one": scene(partial(let_in, vouchers=[0, 0]), 2, per_voucher=2),
}
# Where each shows, and by which invariants.
MISTRAINED: dict[str, tuple[Plant, str, set[str]]] = {
    "a quota is not enforced": (quota_not_enforced, "two of one", {ENROLLED}),
    "a round is planned by the roll of the next": (in_force_a_round_early, "comes", {ENROLLED}),
    "who has left vouches": (leavers_vouch, "voucher leaves", {ENROLLED}),
    "a trainer stays when its voucher has left": (
        *(outlives_its_voucher, "voucher leaves", {ENROLLED}),
    ),
    "who has retired is drawn": (retired_is_drawn, "retires", {ENROLLED}),
    "who waits for its turn has missed the round": (waiting_is_missing, "turns", {ENROLLED}),
    "a lot has no weights": (lot_without_weights, "turns", {ENROLLED}),
    "the same are drawn again and again": (first_come, "turns", {ENROLLED}),
    "trainers are taken for honest": (trainers_taken_for_honest, "friends of one", {HELD_OFF}),
    "a voucher's trainers are not counted": (one_voucher_less, "friends of one", {HELD_OFF}),
}
