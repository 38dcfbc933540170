"""What is kept for a restart comes back as it was, and goes when a checkpoint has it."""

from pathlib import Path

import pytest

from daa_consensus.bft.ballots import VIEWS_BEHIND_MAX
from daa_consensus.bft.effects import Finalized
from daa_consensus.bft.messages import Block, ResultPayload, SetPayload
from daa_consensus.votes import Certificate, Kind, Statement
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.agreement.outcomes import RESOLUTIONS_KEPT, Outcomes
from daa_node.agreement.recovery import BLOCKS, CERTIFICATES, RecoveryStore, restored
from daa_node.errors import StorageFailed
from daa_node.identity import envelope
from tests.daa_node.checkpoints.filling_disk import FillingDisk
from tests.daa_node.checkpoints.little_chain import FACTS, KEYS, ChainMaker, Round, certificate_of


def kept_in(directory: Path) -> RecoveryStore:
    return RecoveryStore(DiskBlobStore(directory / "kept"), FACTS.limits)


def nullification(view: int) -> Certificate:
    return certificate_of(Statement(FACTS.domain(0), Kind.NULLIFY, view, 0, None), KEYS[:3])


async def a_round(directory: Path) -> tuple[ChainMaker, Round]:
    maker = ChainMaker(directory)
    await maker.open()
    return maker, await maker.make_round()


async def test_what_was_kept_comes_back_by_slot_and_what_was_published_does_not(
    tmp_path: Path,
) -> None:
    _, made = await a_round(tmp_path)
    set_block, empty, result = made.headers.blocks
    assert made.certified is not None
    execution = made.certified[1]
    kept = kept_in(tmp_path)
    await kept.keep_blocks([result, set_block])
    await kept.keep(made.headers.certificate, result)
    await kept.keep(execution, result)
    await kept.keep(nullification(empty.view), None)
    await kept.keep(nullification(empty.view), None)  # twice is once

    certificates, blocks = await kept_in(tmp_path).load()
    assert blocks == [set_block, result]
    assert [(k.slot[1], k.certificate.statement.kind, k.block) for k in certificates] == [
        (empty.view, Kind.NULLIFY, None),
        (result.view, Kind.EXEC, result),
        (result.view, Kind.FINALIZE, result),
    ]
    assert certificates[1].certificate == execution

    again = kept_in(tmp_path)
    await again.load()
    await again.forget((0, empty.view))
    certificates, blocks = await kept_in(tmp_path).load()
    assert (len(certificates), blocks) == (2, [result])
    await again.forget((0, result.view))
    assert await kept_in(tmp_path).load() == ([], [])


async def test_what_the_disk_has_refused_is_not_taken_for_kept(tmp_path: Path) -> None:
    _, made = await a_round(tmp_path)
    room = [0]
    full = RecoveryStore(FillingDisk(DiskBlobStore(tmp_path / "kept"), room), FACTS.limits)

    async def keep() -> None:
        await full.keep(nullification(2), None)
        await full.keep_blocks(made.headers.blocks[:1])

    for room[0] in (0, 1):
        with pytest.raises(StorageFailed):
            await keep()
    room[0] = 2
    await keep()
    certificates, blocks = await kept_in(tmp_path).load()
    assert [kept.slot[1] for kept in certificates] == [2]
    assert blocks == [made.headers.blocks[0]]


@pytest.mark.parametrize("kind", [CERTIFICATES, BLOCKS])
async def test_a_damaged_record_is_named(tmp_path: Path, kind: str) -> None:
    _, made = await a_round(tmp_path)
    kept = kept_in(tmp_path)
    await kept.keep_blocks(made.headers.blocks[:1])
    await kept.keep(nullification(3), None)
    (record,) = (tmp_path / "kept" / kind).iterdir()
    record.write_bytes(record.read_bytes()[:-7])
    with pytest.raises(StorageFailed, match=f"{kind}/{record.name} is damaged"):
        await kept_in(tmp_path).load()


async def test_a_proposal_of_ours_is_made_again_with_its_block(tmp_path: Path) -> None:
    maker, made = await a_round(tmp_path)
    set_block, _, result = made.headers.blocks
    statement = Statement(FACTS.domain(0), Kind.PROPOSAL, result.view, result.height, result.id)
    word = envelope.sign(statement, KEYS[0])
    state, _ = await restored(
        maker.chain.path_down(maker.genesis.id), None, 3, [], [set_block, result], [word]
    )
    assert (state.own_messages, state.own_block) == ((word,), result)


async def test_a_round_that_is_long_over_is_told_as_such_and_not_waited_for(
    tmp_path: Path,
) -> None:
    maker, made = await a_round(tmp_path)
    outcomes = Outcomes(0, None)
    rounds = [made, *[await maker.make_round() for _ in range(RESOLUTIONS_KEPT + 1)]]
    # A node that was suspended learns of all of them in one breath.
    blocks = tuple(block for each in rounds for block in each.headers.blocks)
    newest = rounds[-1].headers
    outcomes.note(Finalized(blocks, newest.certificate, newest.trailing))
    assert await outcomes.resolved(1) is None
    newest_resolution = await outcomes.resolved(len(rounds))
    assert newest_resolution is not None
    assert isinstance(newest_resolution.result, ResultPayload)
    assert isinstance(newest_resolution.set_block.payload, SetPayload)


async def test_a_block_is_found_again_beside_a_certificate_or_alone_until_it_is_let_go(
    tmp_path: Path,
) -> None:
    maker, made = await a_round(tmp_path)
    decided, _, result = made.headers.blocks
    kept = kept_in(tmp_path)
    await kept.keep(made.headers.certificate, result)
    await kept.keep_blocks([decided])
    again = kept_in(tmp_path)
    await again.load()
    for each in (kept, again):
        assert [await each.block(b.id) for b in (decided, result)] == [decided, result]
        assert await each.block(maker.genesis.id) is None
    await again.forget((result.epoch, result.view))
    assert await again.block(result.id) is None


async def test_certificates_well_below_a_notarized_block_go_and_their_blocks_stay(
    tmp_path: Path,
) -> None:
    maker, made = await a_round(tmp_path)
    decided, _, result = made.headers.blocks

    def notarization(block: Block) -> Certificate:
        words = Statement(FACTS.domain(0), Kind.NOTARIZE, block.view, block.height, block.id)
        return certificate_of(words, KEYS[:3])

    maker.empty_blocks = 3 * VIEWS_BEHIND_MAX
    tower = [result, *maker.empties_on(result)]
    kept = kept_in(tmp_path)
    await kept.keep_blocks([decided])
    await kept.keep(notarization(decided), decided)
    await kept.keep(made.headers.certificate, result)  # finalizes: of use until a checkpoint is
    for block in tower:
        await kept.keep(nullification(block.view - 1), None)
        await kept.keep(notarization(block), block)
    for each in (kept, again := kept_in(tmp_path)):
        certificates, _ = await again.load()
        slots = [c.slot[1] for c in certificates if c.certificate.statement.kind != Kind.FINALIZE]
        assert min(slots) >= tower[-1].view - VIEWS_BEHIND_MAX
        assert [await each.block(b.id) for b in (decided, *tower)] == [decided, *tower]
    assert sum(c.certificate.statement.kind == Kind.FINALIZE for c in certificates) == 1
