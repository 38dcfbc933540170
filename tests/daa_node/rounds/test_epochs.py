"""Old epochs by one certificate each: what a newcomer believes of them, and what it keeps."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import Block
from daa_consensus.committee import Committee, Validator
from daa_consensus.votes import SIGNATURE_BYTES_MAX
from daa_dag.checkpoint import Vertex
from daa_dag.ids import BlobRoot, NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints import epochs
from daa_node.checkpoints.layout import exec_name
from daa_node.checkpoints.page_server import Pages, page_after
from daa_node.checkpoints.pages import check_page
from daa_node.checkpoints.publish import Page, copy_blob
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.checkpoints.verify_report import Report
from daa_node.errors import PeerFault
from daa_node.identity.epoch_runs import Epoch, EpochRuns
from daa_node.identity.validators import Validators
from daa_node.rounds.counted_writer import OnBytes
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    KEYS,
    STRANGERS,
    ChainMaker,
    make_chain,
)
from tests.daa_node.rounds.test_asking_holders import (
    MEMBER,
    STRANGER,
    Around,
    runner_among,
)

ROUNDS = 4 * EPOCH_ROUNDS + 1  # four epochs are over; the fifth aborts its second round


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    """Whose chain has four epochs that are over, in the second an abort, and one that is open."""
    directory = tmp_path_factory.mktemp("network") / "others"
    return make_chain(directory, ROUNDS, aborted=[EPOCH_ROUNDS + 2])


async def shown(maker: ChainMaker, tip: Block | None = None) -> list[Page]:
    """What it answers, over the wire."""
    answer = await Pages(maker.chain).epochs_after((tip or maker.genesis).id)
    return epochs.decode_epochs(answer, FACTS.limits)


def follow(maker: ChainMaker, pages: Sequence[Page]) -> tuple[Block, Vertex, Validators]:
    """Where they lead from the genesis block. Raises PeerFault."""
    tip, newest, validators = maker.genesis, maker.first, FACTS.validators()
    for page in pages:
        check_page(page, tip, newest, validators)
        closing = epochs.closing_of(page)
        assert closing is not None
        tip = closing
        newest = page.vertices[-1][0] if page.vertices else newest
    return tip, newest, validators


async def test_all_epochs_that_are_over_come_at_once_by_one_certificate_each(
    others: ChainMaker,
) -> None:
    pages = await shown(others)
    assert len(pages) == ROUNDS // EPOCH_ROUNDS
    assert all(proof is None for page in pages for _, proof in page.vertices)
    tip, newest, _ = follow(others, pages)
    assert tip.height == 4 * EPOCH_ROUNDS
    assert newest.height == 4 * EPOCH_ROUNDS - 1
    assert await shown(others, tip) == []  # the open one comes as pages do, with its executions
    page = await page_after(others.chain, tip.id)
    assert page is not None
    assert [proof is None for _, proof in page.vertices] == [False]


async def test_an_answer_has_a_limit_and_more_than_that_is_no_answer(others: ChainMaker) -> None:
    pages = await shown(others)
    many = pages * epochs.EPOCHS_MAX
    with pytest.raises(PeerFault, match="at most 16 epochs"):
        epochs.decode_epochs(epochs.encode_epochs(many[: epochs.EPOCHS_MAX + 1]), FACTS.limits)
    with pytest.raises(PeerFault, match="malformed"):
        epochs.decode_epochs(b"\x00", FACTS.limits)
    with pytest.raises(PeerFault, match="a part of one by two"):
        await Pages(others.chain).epochs_after(bytes(96))


async def test_no_more_epochs_are_read_than_fill_an_answer(
    others: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member pays for what is read, and is told to wait for that."""
    monkeypatch.setattr(epochs, "FILLED_BYTES", 1)
    before = others.chain.blocks_read
    (page,) = await shown(others)
    assert others.chain.blocks_read - before < 2 * len(page.blocks)


async def test_committees_that_have_grown_out_of_our_limits_are_no_lie(others: ChainMaker) -> None:
    """Their epochs are asked for again by who has followed the committee up to there."""
    first, second, *_ = await shown(others)
    signatures = tuple((NodeId(bytes([n]) * 32), b"s" * SIGNATURE_BYTES_MAX) for n in range(9))
    grown = replace(second, certificate=replace(second.certificate, signatures=signatures))
    limits = FACTS.validators().limits
    assert epochs.decode_epochs(epochs.encode_epochs([first, grown, second]), limits) == [first]
    with pytest.raises(PeerFault, match="malformed"):
        epochs.decode_epochs(epochs.encode_epochs([grown, first]), limits)


async def test_a_proved_set_is_no_page_with_a_vertex(tmp_path: Path) -> None:
    maker = ChainMaker(tmp_path)
    await maker.open()
    made = await maker.make_round()
    assert made.certified is not None
    opened = made.headers.blocks[:1]
    page = Page(opened, maker.finalize(opened[0]), ((made.certified[0], None),))
    with pytest.raises(PeerFault, match="executions are missing"):
        check_page(page, maker.genesis, maker.first, FACTS.validators())


async def other_past(directory: Path) -> ChainMaker:
    """Signed by the same keys; its third round has another outcome."""
    maker = ChainMaker(directory)
    await maker.open()
    for number in range(1, ROUNDS + 1):
        await maker.publish(await maker.make_round(abort=number == 3))
    return maker


async def test_another_past_is_refused_where_it_departs(others: ChainMaker, tmp_path: Path) -> None:
    forked = await shown(await other_past(tmp_path / "forked"))
    ours = await shown(others)
    with pytest.raises(PeerFault, match="does not stand on the one before"):
        follow(others, [ours[0], *forked[1:]])


async def test_a_gap_is_refused(others: ChainMaker) -> None:
    first, _, third, *_ = await shown(others)
    with pytest.raises(PeerFault, match="does not stand on the one before"):
        follow(others, [first, third])
    with pytest.raises(PeerFault, match="does not stand on the one before"):
        follow(others, [first, replace(third, blocks=third.blocks[1:])])


async def test_an_end_that_no_quorum_signed_is_refused(others: ChainMaker) -> None:
    first, second, *_ = await shown(others)
    signatures = second.certificate.signatures
    for certificate in (
        replace(second.certificate, signatures=signatures[:2]),
        replace(second.certificate, signatures=((signatures[0][0], bytes(3309)), *signatures[1:])),
        first.certificate,
    ):
        with pytest.raises(PeerFault):
            follow(others, [first, replace(second, certificate=certificate)])


async def test_keys_that_were_rotated_away_end_no_later_epoch(others: ChainMaker) -> None:
    """Whoever has leaked keys of a former committee signs what it likes, of its own epochs only."""
    first, second, *_ = await shown(others)
    tip, newest, validators = follow(others, [first])
    check_page(second, tip, newest, validators.copy())
    successors = sorted((*KEYS[:2], *STRANGERS[:2]), key=lambda keys: keys.node_id)
    committee = Committee(tuple(Validator(keys.node_id, 1) for keys in successors))
    names = tuple(sorted(committee.stake_of))
    validators.public_keys |= {keys.node_id: keys.ml_dsa_public_key for keys in successors}
    validators.now = replace(validators.now, committee=committee)
    before = [(validators._epochs.at(epoch), 1) for epoch in range(validators.now.epoch)]
    validators._epochs = EpochRuns([*before, (Epoch(committee, names), 1)])
    with pytest.raises(PeerFault):
        check_page(second, tip, newest, validators)


async def test_a_vertex_that_its_final_result_does_not_name_is_refused(others: ChainMaker) -> None:
    first, *_ = await shown(others)
    (vertex, _), *rest = first.vertices
    forged = replace(vertex, model_root=BlobRoot(b"?" * 32))
    with pytest.raises(PeerFault, match="does not follow from its set"):
        follow(others, [replace(first, vertices=((forged, None), *rest))])
    with pytest.raises(PeerFault, match="results and"):
        follow(others, [replace(first, vertices=tuple(rest))])


async def test_executions_are_left_out_up_to_an_epochs_end_or_not_at_all(
    others: ChainMaker,
) -> None:
    pages = await shown(others)
    tip, newest, validators = follow(others, pages)
    opened = await page_after(others.chain, tip.id)
    assert opened is not None
    bare = replace(opened, vertices=tuple((vertex, None) for vertex, _ in opened.vertices))
    with pytest.raises(PeerFault, match="no epoch's end"):
        check_page(bare, tip, newest, validators.copy())
    whole = await page_after(others.chain, others.genesis.id)
    assert whole is not None
    (vertex, _), *rest = whole.vertices
    with pytest.raises(PeerFault, match="no epoch's end"):
        follow(others, [replace(whole, vertices=((vertex, None), *rest))])


def without(maker: ChainMaker, directory: Path, heights: Sequence[int]) -> Report:
    """A verdict on a copy of the chain that lacks these executions."""
    shutil.copytree(maker.chain_directory, directory)

    async def names() -> list[str]:
        ids = [await maker.chain.heights.at(height) for height in heights]
        return [exec_name(vertex_id) for vertex_id in ids if vertex_id is not None]

    for name in trio.run(names):
        (directory / "certificates" / name).unlink()
    return verify_chain(directory, FACTS)


@pytest.mark.parametrize(
    ("heights", "is_well"),
    [
        ((1, 2, 3), True),
        ((2, 3), True),  # it came in the middle of that epoch
        ((4, 5), True),  # the one with an abort
        ((2,), False),  # lost: the next one of its epoch is here
        ((1, 2), False),
        ((ROUNDS - 1,), False),  # of an epoch that is open
    ],
)
def test_a_verifier_misses_no_execution_that_an_epochs_end_stands_for(
    others: ChainMaker, tmp_path: Path, heights: Sequence[int], is_well: bool
) -> None:
    report = without(others, tmp_path / "copy", heights)
    assert report.ok == is_well, report.problems
    assert report.heights == ROUNDS - 1 or not is_well
    if not is_well:
        assert {p.what.partition(":")[0] for p in report.problems} == {"is missing"}


class FarBehind(Around):
    """Two members with old epochs; who is asked first may lie of all but the first one."""

    def __init__(self, others: ChainMaker, laggard: ChainMaker, lies: bool = False) -> None:
        super().__init__(others, laggard, [])
        self.epochs_asked = 0
        self._lies = lies

    def reachable(self) -> set[NodeId]:
        return {MEMBER, STRANGER}

    async def ask_page(
        self, node: NodeId, tip: Block, validators: Validators | None = None
    ) -> Page | None:
        self.asked.append(node)
        return await page_after(self._others.chain, tip.id)

    async def ask_epochs(self, node: NodeId, tip: Block, validators: Validators) -> list[Page]:
        self.epochs_asked += 1
        pages = await shown(self._others, tip)
        if self._lies and node == MEMBER and len(pages) > 1:
            return [pages[0], replace(pages[1], certificate=pages[0].certificate), *pages[2:]]
        return pages

    async def fetch_state(
        self, root: BlobRoot, size_bytes: int, node: NodeId, on_bytes: OnBytes
    ) -> None:
        manifest = await self._others.work.blob_manifest("states", root)
        assert manifest is not None
        await copy_blob(self._others.work, "states", self._laggard.work, "states", manifest)


@pytest.mark.parametrize("lies", [False, True])
def test_a_newcomer_takes_old_epochs_bare_and_its_chain_is_whole(
    others: ChainMaker, tmp_path: Path, lies: bool
) -> None:
    laggard = ChainMaker(tmp_path / "laggard")

    async def run() -> None:
        around = FarBehind(others, laggard, lies)
        runner, catch_up = await runner_among(around, laggard, lambda vertex: vertex.height < 9)
        await catch_up.follow_on()
        assert runner.newest == others.newest
        assert around.epochs_asked == 2 or lies  # once at the end: nobody has a page any more
        assert set(around.blamed) == ({MEMBER} if lies else set())
        lacking = [h for h in range(1, ROUNDS) if await lacks(laggard, h)]
        assert lacking
        assert max(lacking) < ROUNDS - 1
        # and the next one can follow this node
        tip, newest, _ = follow(others, await shown(laggard))
        assert newest.height >= 9
        assert await laggard.chain.resume_point() == others.tip

    trio.run(run, clock=trio.testing.MockClock())  # nobody is late
    report = verify_chain(laggard.chain_directory, FACTS)
    assert report.ok, report.problems
    assert report.heights == others.newest.height


async def lacks(maker: ChainMaker, height: int) -> bool:
    vertex_id = await maker.chain.heights.at(height)
    assert vertex_id is not None
    return await maker.chain.exec_certificate(vertex_id) is None


def test_who_keeps_few_states_serves_who_is_in_the_middle_of_an_old_epoch(
    others: ChainMaker, tmp_path: Path
) -> None:
    """It has no executions there: all of what is left of that epoch comes without."""
    bare = ChainMaker(tmp_path / "bare")

    async def run() -> None:
        around = FarBehind(others, bare)
        _, catch_up = await runner_among(around, bare, lambda vertex: vertex.height < 9)
        await catch_up.follow_on()
        await prune(bare.chain, Retention(vertices_restorable=1))
        first = (await shown(others))[1]
        middle = next(b for b in first.blocks if b.height == EPOCH_ROUNDS + 1)
        assert await page_after(bare.chain, middle.id) is not None

    trio.run(run, clock=trio.testing.MockClock())  # nobody is late
