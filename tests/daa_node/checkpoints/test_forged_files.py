"""Files that fit their names and are of no chain: a start names them, and takes no memory."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import (
    Block,
    EmptyPayload,
    encode_block,
    encode_certificate,
)
from daa_consensus.votes import Kind, Statement
from daa_dag.ids import VertexId
from daa_node.checkpoints import chain as chain_module
from daa_node.errors import StorageFailed
from tests.daa_node.checkpoints.little_chain import (
    CHAIN_ID,
    FACTS,
    KEYS,
    ChainMaker,
    certificate_of,
    make_chain,
)

FAR = 2**50


@pytest.fixture
def maker(tmp_path: Path) -> ChainMaker:
    return make_chain(tmp_path, 4)


def refused(maker: ChainMaker) -> str:
    with pytest.raises(StorageFailed) as why:
        trio.run(ChainMaker(maker.directory).open)
    return str(why.value)


def put_final(maker: ChainMaker, block: Block, epoch: int) -> str:
    """A block, and a certificate of its own; the certificate's name."""
    statement = Statement(FACTS.domain(epoch), Kind.FINALIZE, block.view, block.height, block.id)
    (maker.chain_directory / "blocks" / block.id.hex()).write_bytes(encode_block(block))
    name = f"certificates/{block.id.hex()}.final"
    signed = encode_certificate(certificate_of(statement, KEYS[:3]))
    (maker.chain_directory / name).write_bytes(signed)
    return name


def test_an_epoch_that_no_block_leads_to(maker: ChainMaker) -> None:
    tip = maker.tip
    block = Block(CHAIN_ID, FAR, FAR, tip.height, tip.id, tip.view, EmptyPayload())
    name = put_final(maker, block, FAR)
    assert refused(maker) == f"{name} is damaged: its block is of another epoch"


def test_an_epoch_that_its_block_does_not_have(maker: ChainMaker) -> None:
    tip = maker.tip
    block = Block(CHAIN_ID, tip.epoch, tip.view + 1, tip.height, tip.id, tip.view, EmptyPayload())
    name = put_final(maker, block, FAR)
    assert refused(maker) == f"{name} is damaged: its block is of another epoch"


def test_epochs_far_ahead_that_blocks_lead_to_are_taken(
    maker: ChainMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "EPOCHS_AHEAD", -1)
    trio.run(ChainMaker(maker.directory).open)


def test_a_height_far_above_all_others(maker: ChainMaker) -> None:
    vertex = replace(maker.newest, height=FAR)
    path = maker.chain_directory / "vertices" / vertex.vertex_id.hex()
    path.write_bytes(vertex.encode())
    assert f"vertices/{path.name} says that it is of height {FAR}" in refused(maker)


@pytest.mark.parametrize("suffix", [".exec", ".final"])
def test_a_certificate_under_another_ones_name(maker: ChainMaker, suffix: str) -> None:
    folder = maker.chain_directory / "certificates"
    names = {end: sorted(folder.glob(f"*{end}")) for end in (".exec", ".final")}
    other = names[".final" if suffix == ".exec" else ".exec"][0]
    victim = names[suffix][0]
    victim.write_bytes(other.read_bytes())
    if suffix == ".final":
        wanted = f"certificates/{victim.name} is damaged: it certifies something else"
        assert refused(maker) == wanted
        return
    maker = ChainMaker(maker.directory)
    trio.run(maker.open)
    vertex_id = VertexId(bytes.fromhex(victim.stem))
    with pytest.raises(StorageFailed, match="it certifies something else"):
        trio.run(maker.chain.exec_certificate, vertex_id)


@pytest.mark.parametrize(
    "name", ["vertices/readme", "certificates/x.final", "vertices/" + "z" * 64]
)
def test_a_name_that_nothing_of_a_chain_has(maker: ChainMaker, name: str) -> None:
    (maker.chain_directory / name).write_bytes(b"hello")
    assert refused(maker) == f"{name} does not belong there"
