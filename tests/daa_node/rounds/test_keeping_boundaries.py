"""Our boundaries are kept once our Offer is out, while the round goes on or right after its end."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import trio
import trio.testing

from daa_consensus.bft.effects import Finalized
from daa_consensus.bft.messages import AbortPayload, Block
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import BlockId, Digest
from daa_node.errors import StorageFailed, TrainerFailed
from daa_node.rounds.own_boundaries import KEEP_TRIES_MAX
from daa_node.rounds.synchronous import SynchronousRound, Work
from daa_node.seams import SealedUpdate, TrainOrder
from tests.daa_node.rounds.test_rehearsal import (
    DOMAIN,
    NODES,
    ROUND,
    Scene,
    all_are_here,
    offer_of,
    set_of,
)

TRAIN_S = 1.0
ROOTS = (Digest(b"0" * 32), Digest(b"1" * 32))


@dataclass
class Keeper:
    """Trains at once; takes its time to keep what came of that."""

    keep_s: float = 0.1
    fault: Exception | None = None
    roots: tuple[Digest, ...] = ROOTS
    asked_at_s: list[float] = field(default_factory=list)
    kept: list[Sequence[Digest]] = field(default_factory=list)

    async def train_and_seal(self, order: TrainOrder) -> SealedUpdate:
        await trio.sleep(TRAIN_S)
        offer = offer_of(NODES[0])
        return SealedUpdate(offer.blob_root, 1_000, "int8", 20, 5_120, 10_000, 1.0, self.roots, 0.0)

    async def keep_boundaries(self, roots: Sequence[Digest]) -> None:
        self.asked_at_s.append(trio.current_time())
        await trio.sleep(self.keep_s)
        if self.fault is not None:
            raise self.fault
        self.kept.append(roots)


def abort(scene: Scene) -> None:
    """The round is over: its set, and that nobody executes it, are final."""
    scene.agreement.decide(set_of(4))
    block = Block(DOMAIN.chain_id, 0, 8, ROUND, BlockId(bytes(32)), 7, AbortPayload(ROUND))
    proof = Certificate(Statement(DOMAIN, Kind.FINALIZE, 8, ROUND, block.id), ())
    scene.agreement.outcomes.note(Finalized((block,), proof, ()))


async def walked(keeper: Keeper, abort_at_s: float) -> Scene:
    """A round that ends at that time."""
    scene = Scene()
    context = replace(scene.context, trainer=keeper)  # type: ignore[arg-type]
    scene.walk = SynchronousRound(context, Work(20, "int8", 100.0), all_are_here)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.walk.run)
        await trio.sleep(abort_at_s)
        abort(scene)
    return scene


async def test_they_are_kept_while_the_round_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    keeper, started_s = Keeper(), trio.current_time()
    await walked(keeper, abort_at_s=10.0)
    assert [at_s - started_s for at_s in keeper.asked_at_s] == [TRAIN_S]
    assert len(keeper.kept) == 1


async def test_a_round_that_ends_meanwhile_waits_for_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    keeper, started_s = Keeper(keep_s=5.0), trio.current_time()
    await walked(keeper, abort_at_s=TRAIN_S + 1)
    assert [at_s - started_s for at_s in keeper.asked_at_s] == [TRAIN_S, TRAIN_S + 1]
    assert len(keeper.kept) == 1


async def test_what_was_never_offered_or_has_none_is_not_kept(
    autojump_clock: trio.testing.MockClock,
) -> None:
    late, none = Keeper(), Keeper(roots=())
    await walked(late, abort_at_s=TRAIN_S / 2)
    scene = await walked(none, abort_at_s=10.0)
    assert [kind for kind, _ in scene.agreement.words].count(Kind.OFFER) == 1
    assert not late.asked_at_s
    assert not none.asked_at_s


async def test_a_trainer_or_disk_that_lost_them_costs_no_round(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for fault, times in ((TrainerFailed("killed"), KEEP_TRIES_MAX), (StorageFailed("full"), 1)):
        scene = await walked(Keeper(fault=fault), abort_at_s=10.0)
        told = [event for event in scene.events.tail() if str(fault) in str(event)]
        assert len(told) == times
