"""Who did not see sets decided draws the same of its chain as who did."""

from pathlib import Path
from typing import Any, cast

import trio

from daa_consensus.bft.messages import SetPayload
from daa_dag.ids import Digest, NodeId, VertexId
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS, DecidedSets
from daa_node.observability.events import EventLog
from daa_node.rounds.history import History
from daa_node.rounds.past_sets import past_sets
from daa_node.seams import StateRef, Trainer
from daa_node.spot_checks.checks import Basis, CheckRules
from daa_node.spot_checks.lot import Lot
from tests.daa_node.checkpoints.little_chain import KEYS, ChainMaker

NOBODY = cast(Any, None)
RULES = CheckRules(Lot((1, 1), 2), 4, (1, 1000), ())
STEPS = 8  # of a round at most
AUTHORS = [keys.node_id for keys in KEYS[:3]]  # of the little chain


class Walk:
    """Rounds of a little chain, each noted as a node does that is there."""

    def __init__(self, directory: Path) -> None:
        self.maker = ChainMaker(directory)
        self.maker.boundaries_of = lambda author: (Digest(author), Digest(author[::-1]))
        self.seen = DecidedSets(RULES)
        self.merged: dict[NodeId, VertexId] = {}

    async def run(self, rounds: int) -> None:
        await self.maker.open()
        for number in range(1, rounds + 1):
            self.maker.left_out = {AUTHORS[number % 3]}
            parent = self.maker.newest
            made = await self.maker.make_round()
            state = StateRef(parent.model_root, parent.outer_state_root)
            seed = Digest(bytes(parent.vertex_id))
            basis = Basis(seed, state, parent.height * STEPS, dict(self.merged).get)
            blocks = made.headers.blocks
            (decided,) = (b for b in blocks if isinstance(b.payload, SetPayload))
            self.seen.note(basis, decided)
            await self.maker.publish(made)
            for author in AUTHORS:
                if author not in self.maker.left_out:
                    self.merged[author] = self.maker.newest.vertex_id

    async def recalled(self, into: DecidedSets) -> None:
        chain, newest = self.maker.chain, self.maker.newest
        history = History(chain, cast(Trainer, NOBODY), EventLog(lambda: 0))
        await history.recall()
        for basis, block in await past_sets(chain, newest, STEPS, history.merged_below, into.knows):
            into.note(basis, block)


def drawn(sets: DecidedSets) -> list[tuple[object, ...]]:
    found = [one for author in AUTHORS for one in sets.of(author)]
    return [
        (one.draw, one.merged, one.basis.seed, one.basis.state, one.basis.first_step)
        for one in found
    ]


def test_who_restarts_draws_what_was_drawn_while_it_was_there(tmp_path: Path) -> None:
    walk = Walk(tmp_path)

    async def run() -> None:
        await walk.run(6)
        again = DecidedSets(RULES)
        await walk.recalled(again)
        assert len(drawn(again)) == 6 * 2
        assert drawn(again) == drawn(walk.seen)
        assert any(merged is not None for _, merged, *_ in drawn(again))
        assert again.newest_round == walk.seen.newest_round

    trio.run(run)


def test_what_is_known_is_read_no_more_and_nothing_that_is_over(tmp_path: Path) -> None:
    walk = Walk(tmp_path)

    async def run() -> None:
        await walk.run(DISPUTE_ROUNDS + 2)
        again = DecidedSets(RULES)
        await walk.recalled(again)
        assert [again.knows(number) for number in (1, 2, 3, DISPUTE_ROUNDS + 2)] == [
            *(False, False),
            *(True, True),
        ]
        before = walk.maker.chain.blocks_read
        await walk.recalled(again)
        assert walk.maker.chain.blocks_read <= before + 1

    trio.run(run)
