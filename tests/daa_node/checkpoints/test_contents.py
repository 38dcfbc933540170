"""Who votes in which epoch is told by the chain itself, in time that grows with it alone."""

import pytest

from daa_consensus.bft.messages import Block, EmptyPayload, genesis_block
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import BlockId
from daa_node.checkpoints.contents import _lead_on
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators
from tests.daa_node.checkpoints.little_chain import CHAIN_ID, FACTS

BLOCKS = 60


class Counted(dict[BlockId, Block]):
    """How often somebody asks for a block."""

    asked = 0

    def get(self, which: BlockId) -> Block | None:  # type: ignore[override]
        self.asked += 1
        return super().get(which)


def blocks_in_line(count: int) -> list[Block]:
    line = [genesis_block(CHAIN_ID, FACTS.first_vertex.vertex_id)]
    for view in range(1, count + 1):
        line.append(Block(CHAIN_ID, 0, view, 0, line[-1].id, view - 1, EmptyPayload()))
    return line


@pytest.mark.parametrize("has_gap", [False, True])
def test_each_block_is_looked_at_once_however_many_certificates_prove_nothing(
    has_gap: bool,
) -> None:
    line = blocks_in_line(BLOCKS)
    blocks = Counted({block.id: block for block in line if not (has_gap and block.view == 1)})
    certificates = [
        Certificate(Statement(FACTS.domain(e), Kind.FINALIZE, b.view, b.height, b.id), ())
        for e, b in enumerate(line[2:])
    ]

    def verify(_certificate: Certificate, _validators: Validators) -> None:
        raise PeerFault("bad_signature", "nobody signed")

    validators = _lead_on(FACTS.validators(), line[0].id, blocks, certificates, verify)
    assert validators.now.epoch == 0
    assert blocks.asked < 4 * BLOCKS
