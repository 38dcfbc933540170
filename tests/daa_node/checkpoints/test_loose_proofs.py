"""A signature that rots in a file is shown to nobody, sealed by no pack, and soon a good one."""

import shutil
from pathlib import Path

import pytest

from daa_consensus.bft.messages import ResultPayload
from daa_consensus.votes import Certificate
from daa_dag import canonical
from daa_dag.ids import BlockId, NodeId
from daa_node.checkpoints.layout import KINDS, exec_name, final_name
from daa_node.checkpoints.page_server import Pages
from daa_node.checkpoints.proof_mending import ProofMending
from daa_node.checkpoints.records import Records
from daa_node.checkpoints.repair import Repair
from daa_node.checkpoints.verify import verify_chain
from daa_node.errors import PeerFault, StorageFailed
from daa_node.identity.validators import LATER_EPOCH
from daa_node.observability.events import Event, EventLog
from tests.daa_node.checkpoints.lenders import lent_by
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, make_chain, vertex_at

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
    name, _ = await named(ours, "exec")
    assert await ask_for(ours, name)
    assert not ours.chain.loose.rotten
