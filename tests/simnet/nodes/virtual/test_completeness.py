"""What must come about is demanded: convictions in time, and what was acknowledged on the disk."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from daa_consensus.bft.evidence import Evidence
from daa_consensus.bft.messages import Block, OfferBody, ResultPayload, SetPayload
from daa_consensus.membership import Membership
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag.ids import BlobRoot, Digest, NodeId, VertexId
from daa_node.agreement.facts import Facts
from daa_node.checkpoints.page_server import Pages
from daa_node.errors import PeerFault
from daa_node.network import reputation
from daa_node.network.reputation import BAN_SCORE
from daa_node.rounds.gather import Gather
from daa_node.rounds.holding import Holding
from simnet.checks.invariants import (
    ASSERTIONS,
    BOUNDED,
    CONVICTED,
    DURABLE,
    NO_BANS,
    NO_SLANDER,
    TAKEN,
    Broken,
    Watch,
)
from simnet.checks.outcome import Outcome
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.completeness import CYCLES, REFUSED_SETS_MAX, Completeness
from simnet.nodes.virtual.scheduling import NODE
from simnet.nodes.virtual.shelves import UPDATES_A_MEMBER_MAX
from simnet.nodes.virtual.world import run_script
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario
from tests.simnet.checks.test_invariants import (
    DOMAIN,
    GENESIS,
    NODES,
    block,
    finalize,
    set_of,
    watch,
)

NUMBERS = {name.hex(): number for number, name in enumerate(NODES)}
OFFER = OfferBody(
    2, NODES[3], VertexId(bytes(32)), BlobRoot(b"b" * 32), 1, "int8", 1, 1, 1, 1, 1, ()
)


def word(kind: Kind, value: Any, signer: int = 3) -> Signed:
    return Signed(Statement(DOMAIN, kind, 0, 2, value), NODES[signer], b"s")


def closed(to: Watch, rounds: int) -> None:
    """So many more rounds, each of a set and its result."""
    below: Block = to.chain[-1] if to.chain else GENESIS
    for round_ in range(below.height + 1, below.height + rounds + 1):
        decided = block(below, set_of(round_), round_)
        below = block(
            decided,
            ResultPayload(round_, VertexId(bytes([round_]) * 32), Digest(bytes(32))),
            round_,
        )
        finalize(to, decided, below)


def test_what_a_node_acknowledged_is_wanted_of_it_until_the_round_is_closed() -> None:
    to = watch()
    seen = Completeness(to, NUMBERS)
    seen.offered(word(Kind.OFFER, OFFER.as_value()))
    seen.said(1, word(Kind.ACK, [OFFER.root], signer=1))
    closed(to, 1)
    seen.holds(1, lambda root: root == OFFER.blob_root)
    with pytest.raises(Broken, match=DURABLE):
        seen.holds(1, lambda root: False)
    seen.holds(0, lambda root: False)
    closed(to, 1)
    seen.holds(1, lambda root: False)


def test_an_offender_is_to_be_convicted_within_two_cycles_of_who_could_tell() -> None:
    to = watch()
    seen = Completeness(to, NUMBERS)
    closed(to, 1)
    seen.charged(0, NODES[3].hex())
    closed(to, CYCLES * len(NODES) - 1)
    everybody = range(len(NODES))
    seen.convicted(everybody)
    closed(to, 1)
    with pytest.raises(Broken, match=CONVICTED):
        seen.convicted(everybody)
    seen.convicted([1, 2])  # nobody hears who can tell
    seen.forgets(1)
    with pytest.raises(Broken, match=CONVICTED):
        seen.convicted(everybody)
    seen.forgets(0)
    seen.convicted(everybody)


def played(script: Callable[[Cluster], Awaitable[None]], **changes: Any) -> Outcome:
    fields = {
        "name": "daemons",
        "fidelity": "light",
        "work": {"kind": "training", "rounds": 20, "inner_steps_max": 20, "window_s": 8},
    }
    return run_script(Scenario.model_validate({**fields, **changes}), Trace(), script)


def broken(outcome: Outcome) -> list[str]:
    return [each.name for each in outcome.invariants if not each.ok]


def test_a_disk_that_loses_what_its_node_acknowledged_is_found_at_the_crash() -> None:
    def script_for(kept: bool) -> Callable[[Cluster], Awaitable[None]]:
        async def script(cluster: Cluster) -> None:
            cluster.start()
            disk, updates = cluster.machines[1].disk, "work/updates/"
            held = list[str]()
            while len(held) < 3:  # of four
                await trio.sleep(0.01)
                held = [path for path in disk.files if path.startswith(updates)]
            await trio.sleep(0.02)  # to acknowledge them
            cluster.kill(0, 2, 3)  # so that the round stays open
            for path in [path for path in disk.files if path.startswith(updates) and not kept]:
                disk.remove(path)
            disk.sync_names("work/updates")
            cluster.kill(1)

        return script

    assert broken(played(script_for(kept=True))) == []
    assert broken(played(script_for(kept=False))) == [DURABLE]


@pytest.mark.parametrize(
    ("reason", "ban_score", "found_by"),
    [("chunk-mismatch", BAN_SCORE, NO_SLANDER), ("late_offer", -2.0, NO_BANS)],
    ids=["as a lie", "as lateness, with bans for little of it"],
)
def test_a_daemon_that_holds_honest_updates_against_their_authors_is_found(
    reason: str, ban_score: float, found_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Holding._store_durably

    async def blame(self: Holding, offer: OfferBody, sources: Callable[[], list[NodeId]]) -> None:
        if NODE.get() == 1 and offer.author != self._context.me:
            raise PeerFault(reason, "made up")
        await store(self, offer, sources)

    async def script(cluster: Cluster) -> None:
        cluster.start()
        await trio.sleep(60)

    monkeypatch.setattr(Holding, "_store_durably", blame)
    monkeypatch.setattr(reputation, "BAN_SCORE", ban_score)
    assert broken(played(script)) == [found_by]


def test_a_mistake_of_ours_in_an_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: Pages, _body: bytes) -> bytes:
        raise ValueError("ours")

    async def script(cluster: Cluster) -> None:
        cluster.start(0, 1, 2)
        await cluster.until_height(2, timeout_s=60)
        cluster.start(3)  # and asks for a page
        await trio.sleep(30)

    monkeypatch.setattr(Pages, "answer", fail)
    assert broken(played(script)) == [ASSERTIONS]


@pytest.mark.long
def test_daemons_that_put_no_evidence_into_their_sets_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    liar = {"adversaries": [{"kind": "double_offerer", "nodes": [3]}]}
    note = Facts.note_evidence

    async def script(cluster: Cluster) -> None:
        cluster.start()
        await cluster.until_done(60)

    def forget(self: Facts, evidence: Evidence, now: Membership) -> bool:
        is_news = note(self, evidence, now)
        self.evidence.clear()
        return is_news

    assert broken(played(script, **liar)) == []
    monkeypatch.setattr(Facts, "note_evidence", forget)
    assert broken(played(script, **liar)) == [CONVICTED]


@pytest.mark.long
def test_a_disk_that_grows_without_end_is_found() -> None:
    def script_for(more: int) -> Callable[[Cluster], Awaitable[None]]:
        async def script(cluster: Cluster) -> None:
            cluster.start()
            assert await cluster.until_height(1, 60)
            cluster.kill(2)  # alive, it would prune them
            for number in range(more):
                cluster.machines[2].disk.put(f"work/updates/{number}", b"", sync=True)

        return script

    assert broken(played(script_for(0))) == []
    assert broken(played(script_for(2 * UPDATES_A_MEMBER_MAX * 5))) == [BOUNDED]


@pytest.mark.long
def test_honest_members_that_refuse_every_set_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Gather._fault_of

    async def stubborn(self: Gather, proposed: SetPayload) -> str | None:
        # Three: where two refuse, a set of either of them has a quorum with its own vote.
        return "leaves out somebody" if NODE.get() else await judged(self, proposed)

    async def script(cluster: Cluster) -> None:
        cluster.start()
        cluster.sightings.healed = cluster.wanted
        await trio.sleep(60)

    monkeypatch.setattr(Gather, "_fault_of", stubborn)
    assert broken(played(script)) == [TAKEN]


def test_only_sets_of_leaders_that_others_hear_count_and_only_refusals() -> None:
    seen, proposed = Completeness(watch(), NUMBERS), GENESIS
    for _ in range(1, REFUSED_SETS_MAX + 2):
        proposed = block(proposed, set_of(1), 1)  # in the next view
        seen.proposed(3, proposed)
    for view in range(1, REFUSED_SETS_MAX + 1):
        seen.given_up(0, view, "no valid proposal within the leader timer", range(4))
        seen.given_up(0, view, "leaves out", range(3))
        seen.given_up(0, view, "leaves out", range(4))
        seen.given_up(1, view, "leaves out", range(4))
    last = REFUSED_SETS_MAX + 1
    seen.given_up(1, last, "no valid proposal within the leader timer", range(4))
    seen.given_up(1, last, "leaves out", range(3))
    with pytest.raises(Broken, match=TAKEN):
        seen.given_up(1, last, "leaves out", range(4))
