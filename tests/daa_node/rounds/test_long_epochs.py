"""Epochs of many rounds by one certificate each, in parts: whoever brings them and lies."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import Block, ResultPayload
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag import canonical
from daa_dag.ids import DIGEST_BYTES, BlockId, NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints import epochs, long_epochs, thinning
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.epochs import closing_of, decode_epochs
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.long_epochs import LongEpochs
from daa_node.checkpoints.page_server import Pages, page_after
from daa_node.checkpoints.pages import (
    PAGE_BLOCKS_MAX,
    Ask,
    Part,
    check_page,
    decisions,
    decode_part,
    page_value,
    part_value,
)
from daa_node.checkpoints.publish import Page
from daa_node.checkpoints.scrub import Scrub
from daa_node.checkpoints.thinning import thin
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.validators import Validators
from daa_node.network.requests import ANSWER_TIMEOUT_S
from daa_node.observability.events import EventLog
from daa_node.rounds.peers import Peers, Sizes
from tests.daa_node.checkpoints.little_chain import FACTS, KEYS, ChainMaker
from tests.daa_node.checkpoints.verified import verify
from tests.daa_node.rounds.test_asking_holders import STRANGER, runner_among
from tests.daa_node.rounds.test_epochs import FarBehind

EPOCH_ROUNDS = 12
ROUNDS = 3 * EPOCH_ROUNDS + 1
LONG = replace(FACTS, epoch_rounds=EPOCH_ROUNDS)
LIMITS = LONG.limits


async def made(directory: Path, rounds: int = ROUNDS, signers: int = 3) -> ChainMaker:
    maker = ChainMaker(directory, KEYS[:signers], EPOCH_ROUNDS)
    await maker.open()
    for number in range(1, rounds + 1):
        await maker.publish(await maker.make_round(abort=number == EPOCH_ROUNDS + 2))
    return maker


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    """Of two long epochs it keeps one certificate each; of the third that is over, all."""

    async def run() -> ChainMaker:
        maker = await made(tmp_path_factory.mktemp("network") / "pruned")
        await maker.chain.pack(KINDS, 1)
        assert await thin(maker.chain, Retention(epochs_whole=1), 0) == 2
        return maker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thinning, "EPOCHS_AT_ONCE", 2)
        return trio.run(run)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that hold no more than they must: four rounds."""
    monkeypatch.setattr(epochs, "FILLED_BYTES", 1)


def asking(chain: ChainStore, asked: list[bytes]) -> Ask:
    """Over the wire, from whoever has this chain."""
    pages = Pages(chain)

    async def ask(body: bytes) -> bytes:
        asked.append(body)
        answer = await pages.epochs_after(body)
        assert len(answer) <= epochs.answer_bytes_max(LIMITS)
        return answer

    return ask


class Around(FarBehind):
    """Two members who keep one certificate of an epoch, and nobody with more."""

    def __init__(self, others: ChainMaker, laggard: ChainMaker) -> None:
        super().__init__(others, laggard)
        self._held = LongEpochs()
        self.deltas: list[bytes] = []

    async def ask_epochs(self, node: NodeId, tip: Block, validators: Validators) -> list[Page]:
        self.epochs_asked += 1
        return await self._held.shown(asking(self._others.chain, []), tip, validators)

    async def fetch_delta(self, root: bytes, node: NodeId) -> None:
        self.deltas.append(root)
        await super().fetch_delta(root, STRANGER)  # type: ignore[arg-type]


async def joined(served: ChainMaker, directory: Path, far_below: int) -> ChainMaker:
    newcomer = ChainMaker(directory, epoch_rounds=EPOCH_ROUNDS)
    around = Around(served, newcomer)

    def is_far(vertex: object) -> bool:
        return getattr(vertex, "height", 0) < far_below

    runner, catch_up = await runner_among(around, newcomer, is_far, facts=LONG)
    while runner.newest != served.newest:
        await catch_up.follow_on()
    newcomer.newest = runner.newest
    assert not around.blamed
    if await page_after(served.chain, served.genesis.id) is None:
        assert len(around.deltas) < EPOCH_ROUNDS, "of so many at once none is replayed"
    return newcomer


@pytest.mark.parametrize("far_below", [0, ROUNDS - 3], ids=["wants all deltas", "wants a state"])
def test_whoever_joins_by_a_pruned_node_with_long_epochs_arrives_and_serves_the_next(
    pruned: ChainMaker, tmp_path: Path, far_below: int
) -> None:
    async def run() -> None:
        assert await page_after(pruned.chain, pruned.genesis.id) is None  # it has no page to show
        newcomer = await joined(pruned, tmp_path / "newcomer", far_below)
        assert await page_after(newcomer.chain, newcomer.genesis.id) is None  # nor has this one
        third = await joined(newcomer, tmp_path / "third", far_below)
        assert third.newest == pruned.newest
        again = ChainMaker(tmp_path / "newcomer", epoch_rounds=EPOCH_ROUNDS)
        await again.open()  # a process that has just started
        assert await Scrub(again.chain, EventLog(lambda: 0)).once() == []

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    for name in ("newcomer", "third"):
        report = verify(tmp_path / name / "chain", LONG)
        assert report.ok, report.problems
        assert report.tip == pruned.newest.vertex_id
        assert report.light >= 2 * EPOCH_ROUNDS - 1


async def test_a_long_epoch_comes_in_bounded_parts_with_one_certificate(
    pruned: ChainMaker,
) -> None:
    asked = list[bytes]()
    page, *more = await LongEpochs().shown(
        asking(pruned.chain, asked), pruned.genesis, LONG.validators()
    )
    assert not more
    assert len(asked) == EPOCH_ROUNDS / 4
    check_page(page, pruned.genesis, pruned.first, LONG.validators())
    (top,) = decode_epochs(await Pages(pruned.chain).epochs_after(asked[0]), LIMITS)
    parts = [
        decode_part(await Pages(pruned.chain).epochs_after(body), LIMITS) for body in asked[1:]
    ]
    for part in (top, *parts):
        assert part is not None
        assert decisions(part.blocks) == PAGE_BLOCKS_MAX  # one more may be too large for others
    assert len(page.vertices) == EPOCH_ROUNDS
    assert all(proof is None for _, proof in page.vertices)


async def test_an_answer_holds_as_much_as_it_may(
    pruned: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "FILLED_BYTES", 100_000)
    asked = list[bytes]()
    pages = await LongEpochs().shown(asking(pruned.chain, asked), pruned.genesis, LONG.validators())
    assert len(asked) == 1
    assert [epochs.is_long(page) for page in pages] == [True] * 3


async def test_what_one_has_brought_is_asked_of_nobody_again(pruned: ChainMaker) -> None:
    asked, held, validators = list[bytes](), LongEpochs(), LONG.validators()
    honest = asking(pruned.chain, asked)

    async def goes_away(body: bytes) -> bytes:
        if len(asked) == 2:
            raise Unavailable("it has hung up")
        return await honest(body)

    with pytest.raises(Unavailable, match="hung up"):
        await held.shown(goes_away, pruned.genesis, validators)
    (page,) = await held.shown(honest, pruned.genesis, validators)
    check_page(page, pruned.genesis, pruned.first, validators)
    parts = [body for body in asked if len(body) > DIGEST_BYTES]
    assert len(parts) == len(set(parts)) == EPOCH_ROUNDS / 4 - 1


async def test_two_that_are_asked_at_once_bring_one_epoch(pruned: ChainMaker) -> None:
    held, brought = LongEpochs(), list[Page]()
    honest = asking(pruned.chain, [])

    async def late(body: bytes) -> bytes:
        answer = await honest(body)
        await trio.sleep(0.01 * (len(body) > DIGEST_BYTES))
        return answer

    async def bring(ask: Ask) -> None:
        brought.extend(await held.shown(ask, pruned.genesis, LONG.validators()))

    async with trio.open_nursery() as nursery:
        for ask in (late, honest, late):
            nursery.start_soon(bring, ask)
    assert len(brought) == 3
    for page in brought:
        check_page(page, pruned.genesis, pruned.first, LONG.validators())


SOME_CERTIFICATE = Certificate(
    Statement(LONG.domain(0), Kind.FINALIZE, 1, 1, BlockId(b"?" * DIGEST_BYTES)), ()
)
CHANGES: dict[str, Callable[[Part], Part]] = {
    "none of it": lambda part: replace(part, blocks=()),
    "the highest block is missing": lambda part: replace(part, blocks=part.blocks[:-1]),
    "a block at a time": lambda part: Part(part.blocks[-1:], part.vertices[-1:]),
    "a block is missing": lambda part: replace(part, blocks=(*part.blocks[:3], *part.blocks[4:])),
    "out of order": lambda part: replace(part, blocks=part.blocks[::-1]),
    "another block": lambda part: replace(
        part, blocks=(*part.blocks[:-1], replace(part.blocks[-1], height=9))
    ),
    "a vertex is missing": lambda part: replace(part, vertices=part.vertices[1:]),
    "another vertex": lambda part: replace(
        part, vertices=((replace(part.vertices[0][0], height=99), None), *part.vertices[1:])
    ),
    "executions": lambda part: replace(
        part, vertices=tuple((vertex, SOME_CERTIFICATE) for vertex, _ in part.vertices)
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_part_with_anything_changed_is_its_senders_fault_and_costs_nothing(
    pruned: ChainMaker, name: str
) -> None:
    asked, held, validators = list[bytes](), LongEpochs(), LONG.validators()
    honest = asking(pruned.chain, asked)

    async def lying(body: bytes) -> bytes:
        answer = await honest(body)
        if len(body) == DIGEST_BYTES:
            return answer
        part = decode_part(answer, LIMITS)
        assert part is not None
        return canonical.encode(part_value(CHANGES[name](part)))

    with pytest.raises(PeerFault, match="bad_page"):
        await held.shown(lying, pruned.genesis, validators)
    assert len(asked) == 2  # caught at once
    (page,) = await held.shown(honest, pruned.genesis, validators)
    check_page(page, pruned.genesis, pruned.first, validators)


@pytest.mark.parametrize("at", [0, 3, -2])
async def test_a_top_whose_blocks_do_not_hang_together_is_held_by_nobody(
    pruned: ChainMaker, at: int
) -> None:
    """Its end is final; of what was made up below it, nobody else has the next part."""
    held, validators, honest = LongEpochs(), LONG.validators(), asking(pruned.chain, [])

    async def lying(body: bytes) -> bytes:
        if len(body) > DIGEST_BYTES:
            return await honest(body)
        (top,) = decode_epochs(await honest(body), LIMITS)
        blocks = list(top.blocks)
        blocks[at] = replace(blocks[at], parent_id=BlockId(b"?" * DIGEST_BYTES))
        return canonical.encode([page_value(replace(top, blocks=tuple(blocks)))])

    with pytest.raises(PeerFault, match="bad_page"):
        await held.shown(lying, pruned.genesis, validators)
    (page,) = await held.shown(honest, pruned.genesis, validators)
    check_page(page, pruned.genesis, pruned.first, validators)


@pytest.mark.parametrize("name", ["nobody's certificate", "no end", "of an older epoch"])
async def test_of_an_end_that_proves_nothing_no_part_is_asked_for(
    pruned: ChainMaker, tmp_path: Path, name: str
) -> None:
    asked, served, tip = list[int](), pruned, pruned.genesis
    if name == "nobody's certificate":
        served = await made(tmp_path, EPOCH_ROUNDS + 1, signers=2)  # no quorum
    answer = await Pages(served.chain).epochs_after(served.genesis.id)
    (top,) = decode_epochs(answer, LIMITS)
    if name == "no end":
        opened = await page_after(pruned.chain, (await below(pruned, 2)).id)
        assert opened is not None
        top = replace(opened, blocks=opened.blocks[1:])
    elif name == "of an older epoch":
        tip = replace(tip, height=EPOCH_ROUNDS)

    async def lying(body: bytes) -> bytes:
        asked.append(len(body))
        return canonical.encode([page_value(top)])

    with pytest.raises(PeerFault, match="quorum" if served is not pruned else "no end"):
        await LongEpochs().shown(lying, tip, LONG.validators())
    assert asked == [DIGEST_BYTES]


async def test_one_end_stands_for_one_epoch(pruned: ChainMaker) -> None:
    """The same committee has signed the next one, too; but nobody could follow who took it so."""
    honest = asking(pruned.chain, [])
    (top,) = decode_epochs(await honest((await below(pruned, 1)).id), LIMITS)

    async def lying(body: bytes) -> bytes:
        return await honest(body) if len(body) > DIGEST_BYTES else epochs.encode_epochs([top])

    held = LongEpochs()
    with pytest.raises(PeerFault, match=f"no end of the epoch, at height {EPOCH_ROUNDS}$"):
        await held.shown(lying, pruned.genesis, LONG.validators())
    (page,) = await held.shown(honest, pruned.genesis, LONG.validators())
    assert len(page.vertices) == EPOCH_ROUNDS


async def below(maker: ChainMaker, epoch: int) -> Block:
    """The block that ends the epoch below this one."""
    blocks = await maker.chain.path.of_epoch(epoch)
    block = await maker.chain.block(blocks[0][0])
    assert block is not None
    ending = await maker.chain.block(block.parent_id)
    assert ending is not None
    return ending


async def test_an_epoch_that_is_too_long_to_be_held_is_not_held(
    pruned: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_epochs, "HELD_BYTES_MAX", 10_000)
    asked, held, ask = list[bytes](), LongEpochs(), asking(pruned.chain, [])
    closed = await closed_blocks(pruned)

    async def counted(body: bytes) -> bytes:
        asked.append(body)
        return await ask(body)

    # whoever is asked next, and whoever is once a page has led on
    for tip, parts in ((pruned.genesis, 1), (pruned.genesis, 0), (closed[1], 0)):
        asked.clear()
        with pytest.raises(Unavailable, match="come in pages"):
            await held.shown(counted, tip, LONG.validators())
        assert len(asked) == 1 + parts


async def test_an_epoch_of_which_the_last_part_is_too_much_is_nobodys_fault(
    pruned: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = asking(pruned.chain, [])
    (page,) = await LongEpochs().shown(ask, pruned.genesis, LONG.validators())
    monkeypatch.setattr(long_epochs, "HELD_BYTES_MAX", long_epochs.bytes_of(page))
    assert [page] == await LongEpochs().shown(ask, pruned.genesis, LONG.validators())
    monkeypatch.setattr(long_epochs, "HELD_BYTES_MAX", long_epochs.bytes_of(page) - 1)
    with pytest.raises(Unavailable, match="come in pages"):
        await LongEpochs().shown(ask, pruned.genesis, LONG.validators())


def test_an_epoch_that_nobody_would_hold_stays_whole_and_others_follow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_epochs, "HELD_BYTES_MAX", 10_000)
    monkeypatch.setattr(thinning, "EPOCHS_AT_ONCE", 1)

    async def run() -> None:
        served = await made(tmp_path / "served", 2 * EPOCH_ROUNDS + 1)
        await served.chain.pack(KINDS, 1)
        assert await thin(served.chain, Retention(epochs_whole=1), 0) == 1
        newcomer = await joined(served, tmp_path / "newcomer", 0)
        assert await page_after(newcomer.chain, newcomer.genesis.id) is not None

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def closed_blocks(maker: ChainMaker) -> list[Block]:
    """Those of its first rounds that end one: where somebody may stand."""
    blocks = await maker.chain.path_up(maker.genesis.id, 3 * EPOCH_ROUNDS)
    assert blocks is not None
    return [block for block in blocks if isinstance(block.payload, ResultPayload)]


@pytest.mark.parametrize("too_far", ["top", "part"])
async def test_blocks_below_where_we_stand_are_their_senders_fault_alone(
    pruned: ChainMaker, too_far: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were they held, all that others bring would seem to lead past us for ever."""
    tip = (await closed_blocks(pruned))[6 if too_far == "top" else 2]
    held, validators, honest = LongEpochs(), LONG.validators(), asking(pruned.chain, [])

    async def lying(body: bytes) -> bytes:
        return await honest(pruned.genesis.id + body[DIGEST_BYTES:])

    async def from_genesis(body: bytes) -> bytes:
        return await (honest if len(body) == DIGEST_BYTES and too_far == "part" else lying)(body)

    with pytest.raises(PeerFault, match="down past where we stand"):
        await held.shown(from_genesis, tip, validators)
    (page,) = await held.shown(honest, tip, validators)
    assert page.blocks[0].parent_id == tip.id


async def test_what_leads_to_where_we_stood_is_held_no_longer(pruned: ChainMaker) -> None:
    asked, held = list[bytes](), LongEpochs()
    honest, tip = asking(pruned.chain, asked), pruned.genesis

    async def goes_away(body: bytes) -> bytes:
        if len(asked) == 2:
            raise Unavailable("it has hung up")
        return await honest(body)

    for moved_to, asks in ((tip, 2), ((await closed_blocks(pruned))[0], 3)):
        asked.clear()
        with pytest.raises(Unavailable, match="hung up"):
            await held.shown(goes_away, tip, LONG.validators())
        held.stand_on(moved_to)  # a page came, from who had one
        asked.clear()
        await held.shown(honest, tip, LONG.validators())
        assert len(asked) == asks


@pytest.mark.parametrize("late_s", [0.0, ANSWER_TIMEOUT_S])
def test_whoever_is_out_of_breath_is_given_a_moment_and_who_is_silent_none(
    pruned: ChainMaker, late_s: float
) -> None:
    asked, honest = list[bytes](), asking(pruned.chain, [])

    async def ask(_peer: object, _name: str, body: bytes, _bytes_max: int) -> bytes:
        asked.append(body)
        if asked.count(body) == 1 and len(asked) > 1:
            await trio.sleep(late_s)
            raise Unavailable("busy: ask again in 0.3 s")
        return await honest(body)

    async def run() -> None:
        known = SimpleNamespace(members=set, me=STRANGER, peer_of=lambda _node: "a peer")
        parts = (cast(Any, None), cast(Any, SimpleNamespace(ask=ask)), cast(Any, known))
        peers = Peers(*parts, cast(Any, None), Sizes(LIMITS, 0, 0.0, ()))
        if late_s:
            with pytest.raises(Unavailable, match="busy"):
                await peers.ask_epochs(STRANGER, pruned.genesis, LONG.validators())
            assert len(asked) == 2
        else:
            (page,) = await peers.ask_epochs(STRANGER, pruned.genesis, LONG.validators())
            assert len(page.vertices) == EPOCH_ROUNDS

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_who_lacks_the_rest_of_an_epoch_is_no_liar(pruned: ChainMaker) -> None:
    honest = asking(pruned.chain, [])

    async def forgetful(body: bytes) -> bytes:
        return canonical.encode(None) if len(body) > DIGEST_BYTES else await honest(body)

    with pytest.raises(Unavailable, match="no more of that epoch"):
        await LongEpochs().shown(forgetful, pruned.genesis, LONG.validators())


async def test_anybody_may_ask_for_parts_of_anything(pruned: ChainMaker) -> None:
    pages, newest = Pages(pruned.chain), pruned.chain.final_tip[0].id
    nothing = canonical.encode(None)
    assert await pages.epochs_after(b"?" * 64) == nothing
    assert await pages.epochs_after(newest + pruned.genesis.id) == nothing
    part = decode_part(await pages.epochs_after(b"?" * 32 + newest), LIMITS)
    assert part is not None
    assert closing_of(Page(part.blocks, None, ())) is not None  # type: ignore[arg-type]
