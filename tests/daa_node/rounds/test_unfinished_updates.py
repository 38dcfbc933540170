"""An update that never comes whole leaves nothing behind: its author may offer one every round."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import trio

from daa_consensus.bft.effects import Finalized
from daa_consensus.bft.messages import AbortPayload, Block, OfferBody
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import BlockId, NodeId
from daa_node.rounds.synchronous import SynchronousRound
from tests.daa_node.checkpoints.little_chain import ChainMaker, make_chain
from tests.daa_node.network.bulk_stage import MANIFEST, chunk
from tests.daa_node.rounds.test_asking_holders import STRANGER, Around, runner_among
from tests.daa_node.rounds.test_holding import Empty
from tests.daa_node.rounds.test_rehearsal import (
    DOMAIN,
    NODES,
    ROUND,
    Scene,
    all_are_here,
    asking,
    offer_of,
    said,
    set_of,
)


async def test_a_round_tells_what_was_offered_and_did_not_come(autojump_clock: object) -> None:
    scene, offer = Scene(), offer_of(NODES[1])

    async def never(offer: OfferBody, nodes: Callable[[], list[NodeId]]) -> None:
        await trio.sleep_forever()

    context = replace(scene.context, store=Empty(), peers=asking(never))  # type: ignore[arg-type]
    walk = SynchronousRound(context, None, all_are_here)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(walk.run)
        await trio.sleep(0.1)
        assert scene.agreement.listener is not None
        scene.agreement.listener.hear(said(NODES[1], Kind.OFFER, offer.as_value()))
        await trio.sleep(0.1)
        scene.agreement.decide(set_of(4))
        abort = Block(DOMAIN.chain_id, 0, 8, ROUND, BlockId(bytes(32)), 7, AbortPayload(ROUND))
        proof = Certificate(Statement(DOMAIN, Kind.FINALIZE, 8, ROUND, abort.id), ())
        scene.agreement.outcomes.note(Finalized((abort,), proof, ()))
    assert offer.blob_root in walk.happened.unfinished


def test_parts_of_updates_that_never_came_whole_are_let_go_with_the_next_vertex(
    tmp_path: Path,
) -> None:
    others = make_chain(tmp_path / "others", 1)
    shutil.copytree(others.directory, tmp_path / "laggard")
    laggard = ChainMaker(tmp_path / "laggard")

    async def run() -> None:
        await others.publish(await others.make_round())
        runner, catch_up = await runner_among(Around(others, laggard, [STRANGER]), laggard)
        writer = await laggard.work.begin_blob("updates", MANIFEST)
        await writer.write_chunk(0, chunk(0))  # the author keeps the rest to itself
        runner._unfinished.add(MANIFEST.root)
        await catch_up.follow_on()
        assert runner.newest == others.newest
        again = await laggard.work.begin_blob("updates", MANIFEST)
        assert 0 in again.missing()

    trio.run(run)
