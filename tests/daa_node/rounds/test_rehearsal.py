"""A set is executed while it is being decided, and only what was decided is ever signed."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import trio
import trio.testing

from daa_consensus.bft.effects import Finalized
from daa_consensus.bft.messages import Block, OfferBody, Payload, ResultPayload, SetPayload
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.chunking import Manifest, manifest_of
from daa_dag.ids import (
    BlobRoot,
    BlockId,
    ChainId,
    ContributionRoot,
    Digest,
    NodeId,
    ValidatorSetRoot,
    VertexId,
    digest_of,
)
from daa_node.agreement.outcomes import Outcomes
from daa_node.agreement.parts import OpenRound
from daa_node.errors import TrainerFailed
from daa_node.observability.events import EventLog
from daa_node.rounds.collect import Collection
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.context import RoundContext
from daa_node.rounds.gather import Gather
from daa_node.rounds.peers import Peers
from daa_node.rounds.plan import Plan, RoundRules, Share
from daa_node.rounds.synchronous import SynchronousRound
from daa_node.seams import AggregateOrder, StateRef, SteppedState, TrainOrder
from tests.daa_node.contributors.nobody_known import nobody_known
from tests.daa_node.disputes.no_disputes import no_disputes
from tests.daa_node.inline import Inline
from tests.daa_node.spot_checks.no_checks import no_checks, nothing_alike, nothing_measured

NODES = [NodeId(bytes([65 + k]) * 32) for k in range(4)]
SHARES = tuple(Share(node, 20, 5_120) for node in NODES)
BASE = VertexId(b"v" * 32)
COMMITTEE = Committee(tuple(Validator(node, 1) for node in NODES))
DOMAIN = Domain(ChainId(b"c" * 32), 0, ValidatorSetRoot(COMMITTEE.root))
STATE = StateRef(BlobRoot(b"m" * 32), BlobRoot(b"o" * 32))
MANIFESTS = {manifest.root: manifest for node in NODES if (manifest := manifest_of(node, [32]))}
ROUND = 3
AGGREGATION_S = 2.0


def offer_of(author: NodeId) -> OfferBody:
    return OfferBody(
        round=ROUND,
        author=author,
        base_vertex_id=BASE,
        blob_root=manifest_of(author, [32]).root,
        size_bytes=1_000,
        codec="int8",
        steps=20,
        tokens=5_120,
        us_per_step=10_000,
        upload_bytes_per_s=0,
        base_loss_micronats=0,
        snapshot_roots=(),
    )


def set_of(count: int) -> SetPayload:
    offers = tuple(offer_of(node) for node in NODES[:count])
    return SetPayload(ROUND, offers, (5_120,) * count, "trimmed_mean", 1, (), (), ())


def said(signer: NodeId, kind: Kind, value: canonical.Value) -> Signed:
    return Signed(Statement(DOMAIN, kind, 0, ROUND, value), signer, b"")


@dataclass
class Agreement:
    """What the walk says, and what is final."""

    outcomes: Outcomes = field(default_factory=lambda: Outcomes(ROUND - 1, None))
    words: list[tuple[Kind, canonical.Value]] = field(default_factory=list)
    delta_s: float = 0.5
    round_began_s: float = 0.0
    listener: OpenRound | None = None

    def open_round(self, round_number: int, listener: OpenRound) -> None:
        self.listener = listener

    def missed(self, round_number: int, roots: Sequence[ContributionRoot]) -> None: ...

    def round_ready(self, round_number: int) -> None: ...

    def own_statement(self, kind: Kind, round_number: int) -> Signed | None:
        return None

    async def sign_and_send(self, kind: Kind, round_number: int, value: canonical.Value) -> bool:
        self.words.append((kind, value))
        return True

    def decide(self, payload: Payload) -> None:
        block = Block(DOMAIN.chain_id, 0, 7, ROUND, BlockId(bytes(32)), 6, payload)
        proof = Certificate(Statement(DOMAIN, Kind.FINALIZE, 7, ROUND, block.id), ())
        self.outcomes.note(Finalized((block,), proof, ()))

    def acks(self) -> list[canonical.Value]:
        return [value for kind, value in self.words if kind is Kind.ACK]

    def execs(self) -> list[canonical.Value]:
        return [value for kind, value in self.words if kind is Kind.EXEC]


@dataclass
class Trainer:
    """Aggregates in virtual time; the result depends on the set alone."""

    orders: list[AggregateOrder] = field(default_factory=list)
    failures: int = 0
    takes_s: float = AGGREGATION_S

    async def train_and_seal(self, order: TrainOrder) -> None:
        await trio.sleep_forever()

    async def aggregate_and_step(self, order: AggregateOrder) -> SteppedState:
        self.orders.append(order)
        await trio.sleep(self.takes_s)
        if self.failures:
            self.failures -= 1
            raise TrainerFailed("killed")
        return result_of(len(order.updates))


def result_of(count: int) -> SteppedState:
    model, delta = (BlobRoot(digest_of(f"{word} {count}".encode())) for word in ("model", "delta"))
    return SteppedState(StateRef(model, STATE.outer_root), delta)


@dataclass
class VertexOf:
    vertex_id: VertexId


class Store:
    sync_s = 0.0

    async def blob_manifest(self, kind: str, root: BlobRoot) -> Manifest | None:
        return MANIFESTS.get(root, manifest_of(b"update", [6]))

    async def make_durable(self, kind: str, root: BlobRoot) -> None:
        await trio.sleep(self.sync_s)

    async def view_blob(self, kind: str, root: BlobRoot) -> memoryview:
        return memoryview(next((n for n in NODES if manifest_of(n, [32]).root == root), b"update"))


async def fetched(offer: OfferBody, nodes: Callable[[], list[NodeId]]) -> None: ...


def asking(fetch: Callable[[OfferBody, Callable[[], list[NodeId]]], Awaitable[None]]) -> Peers:
    """Whom a round asks for updates, and what it has to do with the link."""
    link = {"sent_bytes": lambda _root: 0, "note_own": lambda _root: None}
    asked = SimpleNamespace(fetch_update=fetch, reachable=set, **link)
    asked.who_never_train = lambda _nodes: set()
    return cast(Peers, asked)


def all_are_here(collection: Collection, elapsed_s: float, since_s: float | None) -> str | None:
    return "all are here" if len(collection.eligible()) == len(NODES) else None


class Scene:
    def __init__(self) -> None:
        self.agreement, self.trainer, self.store = Agreement(), Trainer(), Store()
        self.events = EventLog(lambda: 0)
        rules = RoundRules(
            RoundsConfig(window_ms=60_000, exec_ms=60_000),
            256,
            "trimmed_mean",
            lambda count: 1,
            "int8",
            {"int8": 1_000},
            lambda blob, codec: None,
            nothing_alike,
            nothing_measured,
        )
        self.context = RoundContext(
            me=NODES[0],
            committee=COMMITTEE,
            plan=Plan(ROUND, BASE, Digest(BASE), SHARES, 256, 7_000_000),
            state=STATE,
            rules=rules,
            agreement=self.agreement,  # type: ignore[arg-type]
            trainer=self.trainer,  # type: ignore[arg-type]
            store=self.store,  # type: ignore[arg-type]
            offload=Inline(),
            events=self.events,
            peers=asking(fetched),
            spot_checks=no_checks(),
            disputes=no_disputes(),
            health=nobody_known(),
            merged_vertex=lambda node: None,
            fault=lambda node, fault: None,
            vertex_of=lambda block, stepped: VertexOf(  # type: ignore[arg-type,return-value]
                VertexId(digest_of(block.id + stepped.delta_root))
            ),
            first_step=0,
            merged_round=-1,
            upload_bytes_per_s=0,
            base_loss_micronats=0,
        )
        self.walk = SynchronousRound(self.context, None, all_are_here)

    def hear_all(self) -> None:
        listener = self.agreement.listener
        assert listener is not None
        offers = [offer_of(node) for node in NODES]
        for offer in offers:
            listener.hear(said(offer.author, Kind.OFFER, offer.as_value()))
        for node in NODES[1:]:
            listener.hear(said(node, Kind.ACK, sorted(offer.root for offer in offers)))

    async def judged(self, payload: SetPayload) -> str | None:
        assert self.agreement.listener is not None
        return await self.agreement.listener.judge(payload)


@asynccontextmanager
async def walking(sync_s: float = 0.0) -> AsyncIterator[Scene]:
    scene = Scene()
    scene.store.sync_s = sync_s
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.walk.run)
        await trio.testing.wait_all_tasks_blocked()
        scene.hear_all()
        await trio.testing.wait_all_tasks_blocked()
        yield scene
        nursery.cancel_scope.cancel()


async def test_what_we_voted_for_is_executed_before_it_is_final_and_signed_after(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking() as scene:
        assert await scene.judged(set_of(4)) is None
        await trio.sleep(AGGREGATION_S + 1)
        assert len(scene.trainer.orders) == 1
        assert scene.agreement.execs() == []
        decided_s = trio.current_time()
        # evidence and Acks may differ: they are not executed
        scene.agreement.decide(replace(set_of(4), ack_ids=(Digest(b"a" * 32),)))
        await trio.testing.wait_all_tasks_blocked()
        assert len(scene.agreement.execs()) == 1
        assert trio.current_time() == decided_s
        assert len(scene.trainer.orders) == 1


async def test_a_decision_in_the_middle_of_the_rehearsal_waits_for_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking() as scene:
        started_s = trio.current_time()
        await scene.judged(set_of(4))
        await trio.sleep(AGGREGATION_S / 2)
        scene.agreement.decide(set_of(4))
        await trio.sleep(AGGREGATION_S / 2 + 0.01)
        assert len(scene.agreement.execs()) == len(scene.trainer.orders) == 1
        assert trio.current_time() - started_s < 2 * AGGREGATION_S


async def test_another_set_than_the_rehearsed_one_is_executed_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking() as scene:
        await scene.judged(set_of(4))
        await trio.sleep(AGGREGATION_S / 2)
        scene.agreement.decide(set_of(3))
        await trio.sleep(AGGREGATION_S + 0.01)
        assert [len(order.updates) for order in scene.trainer.orders] == [4, 3]
        assert len(scene.agreement.execs()) == 1
        assert scene.walk.happened.stepped == result_of(3)


async def test_who_begins_late_has_as_long_as_the_others_took_to_execute(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Else it would fetch what it has, and of a large model that takes longer than to merge it."""
    for others_s, comes_in_time in ((6.0, True), (4.0, False)):
        async with walking() as scene:
            scene.trainer.takes_s = 10.0
            scene.agreement.decide(set_of(4))
            await trio.sleep(others_s)
            vertex, root = VertexId(b"v" * 32), Digest(b"r" * 32)
            scene.agreement.decide(ResultPayload(ROUND, vertex, root))
            await trio.sleep(10.0)
            assert (scene.walk.happened.stepped is not None) == comes_in_time


async def test_a_rehearsal_that_failed_is_followed_by_the_performance(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking() as scene:
        scene.trainer.failures = 2
        await scene.judged(set_of(4))
        await trio.sleep(AGGREGATION_S + 0.01)
        scene.agreement.decide(set_of(4))
        await trio.sleep(2 * AGGREGATION_S + 0.01)
        assert len(scene.trainer.orders) == 3
        assert len(scene.agreement.execs()) == 1


async def test_a_set_that_we_object_to_is_not_rehearsed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking() as scene:
        await trio.sleep(1)  # longer than a message may take: leaving one out is a fault now
        assert await scene.judged(set_of(3)) is not None
        wrong_rule = replace(set_of(4), rule="mean", f_agg=0)
        assert await scene.judged(wrong_rule) is not None
        await trio.sleep(AGGREGATION_S)
        assert scene.trainer.orders == []


async def test_what_the_disk_has_not_got_durably_is_not_acknowledged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with walking(sync_s=3.0) as scene:
        await trio.sleep(2.9)
        assert scene.agreement.acks() == []
        await trio.sleep(0.2)
        assert scene.agreement.acks()[-1] == sorted(offer_of(node).root for node in NODES)


async def test_what_became_eligible_after_we_closed_is_demanded_of_no_set(
    autojump_clock: trio.testing.MockClock,
) -> None:
    scene = Scene()
    gather = Gather(scene.context, lambda c, *_: "three" if len(c.eligible()) == 3 else None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather.run)
        everything = sorted(offer_of(node).root for node in NODES)
        for node in NODES[:3]:
            gather.hear(said(node, Kind.OFFER, offer_of(node).as_value()))
        for node in NODES[1:]:
            gather.hear(said(node, Kind.ACK, everything))
        await trio.sleep(1)
        assert gather.closing.why
        last = offer_of(NODES[3])
        gather.hear(said(last.author, Kind.OFFER, last.as_value()))
        await trio.sleep(60)
        assert [offer.author for offer in gather.collection.eligible()] == NODES
        assert await gather.judge(set_of(3)) is None
        assert await gather.judge(set_of(2)) is not None
        assert await gather.judge(set_of(4)) is None
        nursery.cancel_scope.cancel()


async def test_who_never_trains_has_as_long_for_disputes_as_the_others_train(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for contributes in (True, False):
        scene, given_s = Scene(), list[float]()

        async def work_off(seconds: float, given_s: list[float] = given_s) -> None:
            given_s.append(seconds)
            await trio.sleep_forever()

        scene.context.disputes.work_off = work_off
        context = replace(scene.context, contributes=contributes)
        walk = SynchronousRound(context, None, all_are_here)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(walk.run)
            await trio.testing.wait_all_tasks_blocked()
            assert given_s == ([] if contributes else [context.plan.train_us / 1e6])
            scene.agreement.decide(set_of(4))  # no judgement holds up the merging
            await trio.sleep(AGGREGATION_S + 1)
            assert len(scene.agreement.execs()) == 1
            nursery.cancel_scope.cancel()


async def test_only_who_said_so_before_the_round_misses_no_contribution_of_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    last = NODES[3]
    for is_said_before, missed in ((True, 0), (False, 1)):
        scene, says = Scene(), {last} if is_said_before else set[NodeId]()
        peers = cast(SimpleNamespace, scene.context.peers)
        peers.reachable = lambda: set(NODES)
        peers.who_never_train = lambda nodes, says=says: nodes & says
        walk = SynchronousRound(scene.context, None, all_are_here)
        says.symmetric_difference_update({last})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(walk.run)
            await trio.testing.wait_all_tasks_blocked()
            scene.agreement.decide(set_of(3))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        told = scene.context.health.told_of(last)
        assert told is not None
        measured = told["components"]["compute"]["measures"]["contributed"]
        assert len(measured["history"]) == missed
