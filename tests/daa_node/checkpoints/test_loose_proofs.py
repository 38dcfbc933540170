"""A signature that rots in a file is shown to nobody, sealed by no pack, and soon a good one."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import Block, ResultPayload
from daa_consensus.votes import Certificate
from daa_dag import canonical
from daa_dag.ids import BlockId, NodeId
from daa_dag.retention import Retention
from daa_node.checkpoints import chain as chain_module
from daa_node.checkpoints import proof_mending
from daa_node.checkpoints.layout import KINDS, exec_name, final_name
from daa_node.checkpoints.page_server import Pages
from daa_node.checkpoints.proof_mending import ProofMending
from daa_node.checkpoints.records import Records
from daa_node.checkpoints.repair import Repair
from daa_node.checkpoints.thinning import thin
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import PeerFault, StorageFailed
from daa_node.identity.validators import LATER_EPOCH
from daa_node.observability.events import Event, EventLog
from tests.daa_node.checkpoints.lenders import lent_by
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    ChainMaker,
    make_chain,
    vertex_at,
)

ROUNDS = 4
WHICH = ["exec", "final"]


class Verifying:
    """As a node does it, and counted."""

    def __init__(self) -> None:
        self.validators = FACTS.validators()
        self.count = 0

    def __call__(self, certificate: Certificate) -> None:
        self.count += 1
        self.validators.verify(certificate)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    return make_chain(tmp_path_factory.mktemp("others"), ROUNDS)


@pytest.fixture
async def ours(others: ChainMaker, tmp_path: Path) -> ChainMaker:
    """Our chain, written by an earlier process; whoever signed it is known."""
    shutil.copytree(others.directory, tmp_path / "ours")
    await others.open()
    maker = ChainMaker(tmp_path / "ours")
    await maker.open()
    maker.chain.loose.verify = Verifying()
    return maker


async def named(maker: ChainMaker, which: str) -> tuple[str, Certificate]:
    """The file name of a certificate below the newest, and what it holds."""
    chain = maker.chain
    vertex = await vertex_at(maker, ROUNDS - 1)
    if which == "exec":
        certificate = await chain.exec_certificate(vertex.vertex_id)
        assert certificate is not None
        return exec_name(vertex.vertex_id), certificate
    for block in await chain.path_up(vertex.decided_block, 8) or ():
        certificate = await chain.final_certificate(block.id)
        if certificate is not None and isinstance(block.payload, ResultPayload):
            return final_name(block.id), certificate
    raise AssertionError("a result has been published with its proof")


def rot(maker: ChainMaker, name: str, certificate: Certificate) -> None:
    """A bit of a signature turns: names, digests and the decoder see nothing."""
    path = maker.chain_directory / "certificates" / name
    payload = bytearray(path.read_bytes())
    payload[payload.index(certificate.signatures[1][1]) + 100] ^= 1
    path.write_bytes(payload)


async def ask_for(maker: ChainMaker, name: str) -> bytes:
    return await Records(maker.chain).answer(canonical.encode(["certificates", name]))


async def page_above_genesis(maker: ChainMaker) -> bytes:
    ids = [block_id async for block_id in maker.chain.path.ids()]
    return await Pages(maker.chain).after(BlockId(ids[0]))


@pytest.mark.parametrize("which", WHICH)
async def test_who_shows_a_proof_has_looked_at_it(ours: ChainMaker, which: str) -> None:
    name, certificate = await named(ours, which)
    assert await ask_for(ours, name)
    rot(ours, name, certificate)
    for _ in range(2):
        with pytest.raises(StorageFailed, match="a signature in it is not good"):
            await ask_for(ours, name)
    again = ChainMaker(ours.directory)  # a start knows nothing of what lies there
    await again.open()
    again.chain.loose.verify = looks = Verifying()
    for _ in range(2):
        with pytest.raises(StorageFailed, match="a signature in it is not good"):
            await ask_for(again, name)
    assert looks.count == 1, "whoever asks often costs no signatures"


async def test_a_page_with_a_rotten_proof_is_shown_to_nobody(ours: ChainMaker) -> None:
    await ours.chain.look_up()
    assert await page_above_genesis(ours)
    vertex = await vertex_at(ours, 1)
    certificate = await ours.chain.exec_certificate(vertex.vertex_id)
    assert certificate is not None
    rot(ours, exec_name(vertex.vertex_id), certificate)
    with pytest.raises(StorageFailed, match="a signature in it is not good"):
        await page_above_genesis(ours)


@pytest.mark.parametrize("which", WHICH)
async def test_what_is_good_is_verified_once_and_what_we_wrote_never(
    ours: ChainMaker, tmp_path: Path, which: str
) -> None:
    name, _ = await named(ours, which)
    for _ in range(3):
        assert await ask_for(ours, name)
    assert isinstance(ours.chain.loose.verify, Verifying)
    assert ours.chain.loose.verify.count == 1
    writer = ChainMaker(tmp_path / "writer")
    await writer.open()
    writer.chain.loose.verify = looks = Verifying()
    for _ in range(ROUNDS):
        await writer.publish(await writer.make_round())
    name, certificate = await named(writer, which)
    assert await ask_for(writer, name)
    assert looks.count == 0
    rot(writer, name, certificate)
    with pytest.raises(StorageFailed, match="a signature in it is not good"):
        await ask_for(writer, name)


@pytest.mark.parametrize("which", WHICH)
async def test_a_good_one_comes_in_its_place(
    others: ChainMaker, ours: ChainMaker, which: str
) -> None:
    name, certificate = await named(ours, which)
    good = await ask_for(ours, name)
    rot(ours, name, certificate)
    with pytest.raises(StorageFailed):
        await ask_for(ours, name)
    told, faults = list[Event](), list[tuple[NodeId, str]]()
    async with lent_by({"liar": others, "others": others}, faults) as lenders:
        log = EventLog(lambda: 0, told.append)
        mending = ProofMending(ours.chain, Repair(ours.chain, lenders), log)
        await mending.once()
        await mending.once()  # there is nothing more to do
    assert [event["name"] for event in told] == ["record_damaged", "record_repaired"]
    assert await ask_for(ours, name) == good
    assert [reason for _, reason in faults] == ["bad_record"]
    assert verify_chain(ours.chain_directory, FACTS).problems == []


async def test_what_nobody_has_is_said_to_be_lost_once_and_asked_for_again(
    others: ChainMaker, ours: ChainMaker
) -> None:
    name, certificate = await named(ours, "exec")
    rot(ours, name, certificate)
    with pytest.raises(StorageFailed):
        await ask_for(ours, name)
    poor = ChainMaker(ours.directory.parent / "poor")
    shutil.copytree(others.directory, poor.directory)
    await poor.store.delete_record("certificates", name)
    told, members = list[Event](), {"away": others, "poor": poor}
    async with lent_by(members, []) as lenders:
        log = EventLog(lambda: 0, told.append)
        mending = ProofMending(ours.chain, Repair(ours.chain, lenders), log)
        await mending.once()
        await mending.once()
        assert [event["name"] for event in told] == ["record_damaged", "record_lost"]
        members["poor"] = others
        await mending.once()
    assert [event["name"] for event in told][2:] == ["record_repaired"]


@pytest.mark.parametrize("which", [*WHICH, "no certificate"])
async def test_no_pack_seals_what_has_rotted(
    others: ChainMaker, ours: ChainMaker, which: str
) -> None:
    """It stays a file until it is mended; all others move."""
    name, certificate = await named(ours, "final" if which == "final" else "exec")
    if which == "no certificate":
        (ours.chain_directory / "certificates" / name).write_bytes(b"\x90")
    else:
        rot(ours, name, certificate)
    strange = ours.chain_directory / "certificates" / "strange.exec"
    strange.write_bytes(b"of somebody else")
    before = len(await ours.store.record_names("certificates"))
    await ours.chain.pack(KINDS, 1)
    left = await ours.store.record_names("certificates", packed=False)
    assert left == [name, strange.name]
    assert len(await ours.store.record_names("certificates")) == before
    assert ours.chain.loose.rotten == {name}
    strange.unlink()
    again = ChainMaker(ours.directory)
    await again.open()
    again.chain.loose.verify = Verifying()
    with pytest.raises(StorageFailed):
        await ask_for(again, name)
    await ours.chain.pack(KINDS, 1)
    async with lent_by({"others": others}, []) as lenders:
        mending = ProofMending(ours.chain, Repair(ours.chain, lenders), EventLog(lambda: 0))
        await mending.once()
    await ours.chain.pack(KINDS, 1)
    assert await ours.store.record_names("certificates", packed=False) == []
    assert verify_chain(ours.chain_directory, FACTS).problems == []
    assert ours.chain.loose.names == frozenset()


async def test_one_of_an_epoch_that_we_have_yet_to_see_is_not_called_rotten(
    ours: ChainMaker,
) -> None:
    """A start that is behind its own files cannot tell."""

    def behind(_certificate: Certificate) -> None:
        raise PeerFault(LATER_EPOCH, "of an epoch that we do not know")

    ours.chain.loose.verify = behind
    name, certificate = await named(ours, "exec")
    good = await ask_for(ours, name)
    assert good
    assert not ours.chain.loose.rotten
    assert await ours.chain.pack(KINDS, 1) > 0
    assert name in await ours.store.record_names("certificates", packed=False), "not judged yet"
    ours.chain.loose.wrote(name, good)
    rot(ours, name, certificate)  # of what we have written ourselves we can tell
    with pytest.raises(StorageFailed):
        await ask_for(ours, name)


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("writer", ["we", "an earlier process"])
async def test_whatever_bit_turns_it_is_not_shown(
    ours: ChainMaker, which: str, writer: str
) -> None:
    """In its epoch, in its signers, in what it is about: not in signatures alone."""
    name, certificate = await named(ours, which)
    path = ours.chain_directory / "certificates" / name
    good = path.read_bytes()
    signed = {at for _, part in certificate.signatures for at in spans(good, part)}
    loose, looks = ours.chain.loose, Verifying()
    loose.verify = looks
    looks.validators.follow(await blocks_of(ours))
    for at in range(len(good)):
        if at in signed and at % 1000:
            continue
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        if writer == "we":
            loose.wrote(name, good)
        else:
            loose.lie_there([name])
        with pytest.raises(StorageFailed):
            await ask_for(ours, name)
        assert name in loose.rotten
    assert loose.take_found() == [name], "as often as it is found"
    path.write_bytes(good)
    assert await ask_for(ours, name) == good
    assert not loose.rotten, "a disk that has misread it once is no reason to keep it out of packs"


async def blocks_of(maker: ChainMaker) -> list[Block]:
    return await maker.chain.path_up(maker.genesis.id, 64) or []


def spans(payload: bytes, part: bytes) -> range:
    at = payload.index(part)
    return range(at, at + len(part))


def test_one_that_was_let_go_does_not_come_again(tmp_path: Path) -> None:
    """Alone of its epoch it would say that the others are lost."""
    others = make_chain(tmp_path / "others", 2 * EPOCH_ROUNDS + 1)
    shutil.copytree(others.directory, tmp_path / "ours")
    trio.run(_lose_what_goes, others, ChainMaker(tmp_path / "ours"))


async def _lose_what_goes(others: ChainMaker, ours: ChainMaker) -> None:
    await ours.open()
    name = exec_name((await vertex_at(ours, 1)).vertex_id)
    (ours.chain_directory / "certificates" / name).write_bytes(b"\x90")
    with pytest.raises(StorageFailed):
        await ask_for(ours, name)
    told = list[Event]()
    async with lent_by({"others": others}, []) as lenders:
        log = EventLog(lambda: 0, told.append)
        mending, asked = ProofMending(ours.chain, Repair(ours.chain, lenders), log), lenders.ask

        async def ask_slowly(node: NodeId, name: str, body: bytes, bytes_max: int) -> bytes:
            answer = await asked(node, name, body, bytes_max)
            assert await thin(ours.chain, Retention(epochs_whole=1), 0, at_once=1) == 1
            return answer

        slowly = replace(lenders, ask=ask_slowly)
        await ProofMending(ours.chain, Repair(ours.chain, slowly), log).once()
        ours.chain.loose.damaged(name)
        await mending.once()
    assert [event["name"] for event in told] == ["record_damaged", "record_lost"]
    assert name not in await ours.store.record_names("certificates")
    assert name not in ours.chain.loose.names
    assert verify_chain(ours.chain_directory, FACTS).problems == []


async def test_an_old_directory_is_verified_bit_by_bit(
    ours: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody who writes waits for it."""
    monkeypatch.setattr(chain_module, "LOOKED_AT_ONCE", 2)
    looks, free = Verifying(), list[bool]()

    def verify(certificate: Certificate) -> None:
        free.append(ours.chain.groups._writing.is_free)
        looks(certificate)

    ours.chain.loose.verify = verify
    there = await ours.store.record_names("certificates", packed=False)
    assert await ours.chain.pack(KINDS, 1) > 2
    assert len(await ours.store.record_names("certificates", packed=False)) == len(there) - 2
    assert looks.count == 2
    while await ours.chain.pack(KINDS, 1):
        pass
    assert await ours.store.record_names("certificates", packed=False) == []
    assert looks.count == len(there)
    assert all(free)
    assert ours.chain.loose.names == frozenset()


async def test_what_has_rotted_by_the_hundred_neither_packs_nor_asks_for_ever(
    others: ChainMaker, ours: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_mending, "FAILED_MAX", 2)
    there = await ours.store.record_names("certificates", packed=False)
    for name in there:
        (ours.chain_directory / "certificates" / name).write_bytes(b"\x90")
    while await ours.chain.pack(KINDS, 1):
        pass
    assert await ours.store.record_names("certificates", packed=False) == there
    poor, asked = ChainMaker(ours.directory.parent / "poor"), list[str]()
    await poor.open()
    members, told = {"poor": poor}, list[Event]()
    async with lent_by(members, []) as lenders:

        async def ask(node: NodeId, name: str, body: bytes, bytes_max: int) -> bytes:
            asked.append(name)
            return await lenders.ask(node, name, body, bytes_max)

        log = EventLog(lambda: 0, told.append)
        counted = Repair(ours.chain, replace(lenders, ask=ask))
        mending = ProofMending(ours.chain, counted, log)
        for turn in range(1, 6):
            await mending.once()
            assert len(asked) <= 2 * turn
        assert [event["name"] for event in told] == len(there) * ["record_damaged", "record_lost"]
        members["poor"] = others
        while ours.chain.loose.rotten:
            await mending.once()
    assert verify_chain(ours.chain_directory, FACTS).problems == []
