"""Own boundaries stay as long as somebody may ask for them, and no longer."""

import time
from collections.abc import Sequence, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import trio

from daa_consensus.bft.messages import OfferBody
from daa_dag.chunking import Manifest, cut, manifest_of
from daa_dag.ids import BlobRoot, Digest, NodeId, VertexId
from daa_node.agreement.wan_bft import WanBft
from daa_node.errors import TrainerFailed
from daa_node.observability.events import EventLog
from daa_node.rounds.own_boundaries import ROUNDS_KEPT, OwnBoundaries
from daa_node.seams import Trainer
from daa_node.training.boundaries import BOUNDARIES
from tests.daa_node.checkpoints.little_chain import KEYS, ChainMaker, put_blob

ME = KEYS[1].node_id
ROUNDS = 6


def content(round_number: int, index: int) -> bytes:
    return f"boundary {index} of round {round_number}".encode()


def manifest(round_number: int, index: int) -> Manifest:
    payload = content(round_number, index)
    return manifest_of(payload, cut([len(payload)]))


def roots_of(*rounds: int) -> set[BlobRoot]:
    return {manifest(number, index).root for number in rounds for index in range(3)}


class Bench:
    """Our node on a chain of the little network, with boundaries of every round on its disk."""

    def __init__(self, directory: Path) -> None:
        self.maker = ChainMaker(directory)
        self.maker.boundaries_of = self._committed
        self.vertices: dict[int, VertexId] = {}
        self.said: dict[int, Any] = {}
        agreement = SimpleNamespace(
            me=ME, own_statement=lambda _kind, number: self.said.get(number)
        )
        self.tidier = OwnBoundaries(self.maker.chain, cast(WanBft, agreement))

    def _committed(self, author: NodeId) -> tuple[Digest, ...]:
        mine = [Digest(manifest(self.maker.round, index).root) for index in range(3)]
        return tuple(mine) if author == ME else ()

    async def run(self, left_out: int = 0) -> None:
        """Rounds 1 to ROUNDS, in one of which our contribution is left out."""
        await self.maker.open()
        for number in range(1, ROUNDS + 1):
            self.maker.left_out = {ME} if number == left_out else set()
            await self.maker.publish(await self.maker.make_round())
            self.vertices[number] = self.maker.newest.vertex_id
        for number in range(1, ROUNDS + 2):
            for index in range(3):
                payload = content(number, index)
                await put_blob(self.maker.work, BOUNDARIES, manifest(number, index), payload)

    async def kept(
        self, merged_round: int, resolved_round: int = ROUNDS, disputed: Set[BlobRoot] = frozenset()
    ) -> set[BlobRoot]:
        merged = self.vertices.get(merged_round)
        await self.tidier.tidy(self.maker.newest, resolved_round, merged, disputed)
        return set(await self.maker.work.blob_roots(BOUNDARIES))


def test_those_of_the_newest_rounds_are_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def run() -> None:
        await bench.run()
        newest = range(ROUNDS - ROUNDS_KEPT + 1, ROUNDS + 1)
        assert await bench.kept(merged_round=ROUNDS) == roots_of(*newest)

    trio.run(run)


def test_those_of_the_newest_merged_contribution_are_kept_however_old_it_is(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)

    async def run() -> None:
        await bench.run()
        later = ROUNDS + 20  # all of them aborted
        assert await bench.kept(merged_round=2, resolved_round=later) == roots_of(2)
        assert await bench.kept(merged_round=2, resolved_round=later + 1) == roots_of(2)

    trio.run(run)


def test_those_that_a_dispute_is_about_are_kept_as_long_as_it_lasts(tmp_path: Path) -> None:
    """Without them an accused member could not show that it did what it said."""
    bench = Bench(tmp_path)

    async def run() -> None:
        await bench.run()
        newest = range(ROUNDS - ROUNDS_KEPT + 1, ROUNDS + 1)
        disputed = {manifest(1, 0).root, manifest(1, 2).root}
        assert await bench.kept(ROUNDS, disputed=disputed) == disputed | roots_of(*newest)
        assert await bench.kept(ROUNDS) == roots_of(*newest)

    trio.run(run)


def test_those_of_a_contribution_that_was_left_out_go(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def run() -> None:
        await bench.run(left_out=ROUNDS - 1)
        assert await bench.kept(merged_round=ROUNDS) == roots_of(ROUNDS - 2, ROUNDS)

    trio.run(run)


def test_those_of_an_offer_in_the_open_round_are_kept(tmp_path: Path) -> None:
    """Also of one that was made before a restart, while pages of older rounds come in."""
    bench = Bench(tmp_path)

    async def run() -> None:
        await bench.run()
        bench.maker.round += 1
        (offer,) = [offer for offer in bench.maker.offers() if offer.author == ME]
        bench.said[ROUNDS + 1] = said(offer)
        newest = range(ROUNDS - ROUNDS_KEPT + 1, ROUNDS + 2)
        assert await bench.kept(merged_round=ROUNDS) == roots_of(*newest)

    trio.run(run)


def test_those_of_an_offer_that_was_out_before_a_restart_are_asked_of_the_trainer(
    tmp_path: Path,
) -> None:
    bench, told, asked = Bench(tmp_path), EventLog(time.time_ns), list[Sequence[Digest]]()

    class Restarted:
        async def keep_boundaries(self, roots: Sequence[Digest]) -> None:
            asked.append(roots)
            if len(asked) == 1:
                raise TrainerFailed("its worker has died as well")

    async def run() -> None:
        await bench.run()
        trainer = cast(Trainer, Restarted())
        await bench.tidier.recover(trainer, ROUNDS + 1, told)
        assert not asked  # nothing was offered
        bench.maker.round += 1
        (offer,) = [offer for offer in bench.maker.offers() if offer.author == ME]
        bench.said[ROUNDS + 1] = said(offer)
        await bench.tidier.recover(trainer, ROUNDS + 1, told)
        assert asked == [list(offer.snapshot_roots)] * 2
        (failure,) = told.tail()
        assert failure["why"] == "its worker has died as well"

    trio.run(run)


def said(offer: OfferBody) -> Any:
    return SimpleNamespace(statement=SimpleNamespace(value=offer.as_value()))
