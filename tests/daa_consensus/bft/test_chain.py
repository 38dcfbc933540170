"""What may stand on what, what is remembered, and where an epoch ends."""

from dataclasses import replace
from typing import Any

import pytest

from daa_consensus.bft.chain import WALK_ROUNDS_MAX, Chain, Fit
from daa_consensus.bft.messages import AbortPayload, Block, EmptyPayload, GenesisPayload, Payload
from daa_dag.ids import BlockId, VertexId
from tests.daa_consensus.bft.simulation import CHAIN, GENESIS, empty_set, result_of

EMPTY = EmptyPayload()


def on(parent: Block, payload: Payload, view: int = 0, height: int | None = None) -> Block:
    above = parent.height if height is None else height
    at = view or parent.view + 1
    return Block(CHAIN, parent.epoch, at, above, parent.id, parent.view, payload)


def chain_of(*blocks: Block, epoch_rounds: int = 100, tip_open: bool = False) -> Chain:
    chain = Chain(GENESIS, tip_open, epoch_rounds)
    for block in blocks:
        chain.add(block)
    return chain


SET_1 = on(GENESIS, empty_set(1), height=1)
RESULT_1 = on(SET_1, result_of(SET_1))
SET_2 = on(RESULT_1, empty_set(2), height=2)


def test_sets_and_closings_alternate_with_empty_blocks_anywhere() -> None:
    chain = chain_of(SET_1, RESULT_1, empty := on(SET_1, EMPTY, view=5))
    assert chain.place(SET_1).fit == Fit.FITS
    assert chain.place(on(GENESIS, EMPTY)).fit == Fit.FITS
    assert chain.place(RESULT_1).fit == Fit.FITS
    assert chain.place(on(empty, result_of(SET_1))).fit == Fit.FITS
    assert chain.place(on(empty, AbortPayload(1))).fit == Fit.FITS


@pytest.mark.parametrize(
    "wrong",
    [
        on(GENESIS, empty_set(2), height=2),
        on(GENESIS, empty_set(1), height=2),
        on(GENESIS, empty_set(1)),
        on(GENESIS, AbortPayload(0)),
        on(SET_1, empty_set(2), height=2),
        on(SET_1, AbortPayload(2)),
        on(SET_1, AbortPayload(0)),
        replace(RESULT_1, height=2),
        on(RESULT_1, result_of(SET_1), view=7),
        on(RESULT_1, AbortPayload(1)),
        on(SET_1, EMPTY, height=2),
        on(SET_1, GenesisPayload(VertexId(b"v" * 32))),
        replace(SET_1, epoch=1),
        replace(RESULT_1, parent_view=0),
    ],
)
def test_a_block_out_of_place_is_refused_with_a_reason(wrong: Block) -> None:
    place = chain_of(SET_1, RESULT_1).place(wrong)
    assert place.fit == Fit.REFUSE
    assert place.reason


def test_a_set_waits_until_the_closing_below_it_is_final() -> None:
    chain = chain_of(SET_1, RESULT_1)
    assert chain.place(SET_2).fit == Fit.WAIT
    chain.finalize([SET_1])
    assert chain.place(SET_2).fit == Fit.WAIT
    chain.finalize([RESULT_1])
    assert chain.place(SET_2).fit == Fit.FITS


def test_an_unknown_ancestor_is_waited_for_and_named() -> None:
    chain = chain_of(RESULT_1)
    above = on(RESULT_1, EMPTY)
    assert chain.place(above).fit == Fit.WAIT
    assert chain.missing(above.parent_id) == SET_1.id
    assert chain.path(RESULT_1.id) is None


def test_what_conflicts_with_the_tip_is_refused_and_never_fetched() -> None:
    other = replace(SET_1, payload=empty_set(1, weight=9))
    chain = chain_of(SET_1)
    chain.finalize([SET_1])
    branch = on(other, EMPTY, view=4)
    chain.add(branch)
    assert chain.place(on(branch, EMPTY)).fit == Fit.REFUSE
    assert chain.missing(branch.id) is None
    assert chain.path(branch.id) is None
    stranger = replace(branch, parent_view=0)
    chain.add(stranger)
    assert chain.missing(stranger.id) is None


def test_finalizing_forgets_what_is_at_or_below_the_tip() -> None:
    rival = replace(SET_1, payload=empty_set(1, weight=9))
    chain = chain_of(SET_1, rival, RESULT_1)
    chain.finalize([SET_1])
    assert chain.get(rival.id) is None
    assert chain.get(RESULT_1.id) == RESULT_1
    chain.add(rival)
    assert chain.get(rival.id) is None


def test_exec_may_be_signed_between_a_final_set_and_its_final_closing() -> None:
    chain = chain_of(SET_1, RESULT_1)
    assert not chain.may_execute(1)
    chain.finalize([SET_1])
    assert chain.may_execute(1)
    assert not chain.may_execute(0)
    assert not chain.may_execute(2)
    chain.finalize([RESULT_1])
    assert not chain.may_execute(1)


def test_an_epoch_ends_with_the_closing_of_its_last_round() -> None:
    chain = chain_of(SET_1, RESULT_1, epoch_rounds=1)
    assert chain.epoch == 0
    chain.finalize([SET_1])
    assert chain.epoch == 0
    chain.finalize([RESULT_1])
    assert chain.epoch == 1
    assert chain.place(SET_2).fit == Fit.REFUSE
    assert chain.place(replace(SET_2, epoch=1)).fit == Fit.FITS


def test_empty_blocks_above_an_epochs_end_are_proof_and_not_chain() -> None:
    trailing = on(RESULT_1, EMPTY)
    next_set = replace(SET_2, epoch=1)
    short, long = chain_of(epoch_rounds=1), chain_of(epoch_rounds=2)
    assert short.split_trailing([SET_1, RESULT_1, trailing]) == ([SET_1, RESULT_1], [trailing])
    assert short.split_trailing([SET_1, RESULT_1]) == ([SET_1, RESULT_1], [])
    assert short.split_trailing([SET_1, RESULT_1, next_set])[1] == []
    assert long.split_trailing([SET_1, RESULT_1, trailing])[1] == []
    early = on(SET_1, EMPTY)  # before the closing: a block like any other
    assert short.split_trailing([SET_1, early])[1] == []


def test_any_number_of_blocks_is_remembered_and_looked_up_without_walking_to_the_tip() -> None:
    class Counting(dict[BlockId, Block]):
        looked_up = 0

        def __contains__(self, key: object) -> bool:
            Counting.looked_up += 1
            return super().__contains__(key)

        def __getitem__(self, key: BlockId) -> Block:
            Counting.looked_up += 1
            return super().__getitem__(key)

        def get(self, key: BlockId, default: Any = None) -> Any:
            Counting.looked_up += 1
            return super().get(key, default)

    count, chain, block = 10_000, chain_of(SET_1), SET_1
    chain._blocks = Counting(chain._blocks)
    for _ in range(count):
        block = on(block, EMPTY)
        chain.add(block)
        assert chain.decisions(block.id) == (SET_1,)
        assert chain.missing(block.id) is None
        assert chain.place(on(block, EMPTY)).fit == Fit.FITS
    assert Counting.looked_up < 10 * count
    path = chain.path(block.id)
    assert path is not None
    assert len(path) == count + 1
    chain.finalize(path)
    assert chain.tip == block
    assert len(chain._blocks) == 1


def test_a_walk_of_any_number_of_blocks_ends_with_so_many_rounds() -> None:
    chain = chain_of()
    assert chain.walk_allowed(WALK_ROUNDS_MAX)
    assert not chain.walk_allowed(WALK_ROUNDS_MAX + 1)


def test_a_proposal_is_forgotten_in_time_unless_something_notarized_stands_on_it() -> None:
    chain = chain_of()
    rival = on(GENESIS, empty_set(1, weight=9), height=1)
    for block in (SET_1, rival, RESULT_1):
        chain.propose(block)
    chain.forget_proposals(before_view=1, notarized=[])
    assert chain.get(rival.id) == rival
    chain.forget_proposals(before_view=9, notarized=[RESULT_1.id])
    assert (chain.get(rival.id), chain.get(SET_1.id)) == (None, SET_1)
    assert chain.decisions(RESULT_1.id) == (SET_1, RESULT_1)
    chain.propose(above := on(RESULT_1, EMPTY))
    assert chain.decisions(above.id) == (SET_1, RESULT_1)
    chain.add(above)  # certified
    chain.forget_proposals(before_view=99, notarized=[])
    assert chain.get(above.id) == above


def test_what_was_passed_on_the_way_down_is_looked_at_again_once_it_is_gone() -> None:
    chain = chain_of()
    middle, top = (one := on(SET_1, EMPTY)), on(one, EMPTY)
    chain.add(SET_1)
    chain.propose(middle)
    chain.propose(top)
    assert chain.decisions(top.id) == (SET_1,)
    chain.forget_proposals(before_view=middle.view + 1, notarized=[])
    assert chain.missing(top.id) == middle.id
    assert chain.decisions(top.id) is None
    chain.add(middle)
    assert chain.decisions(top.id) == (SET_1,)
