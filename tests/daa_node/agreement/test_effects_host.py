"""What the host tells the signer about aborts, over a real signer, log and store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from daa_consensus.bft.effects import SignAndSend
from daa_consensus.bft.events import Event, VoteArrived
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import AbortPayload, Block, EmptyPayload, genesis_block
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.state import Restored, Simplex
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.votes import Kind, Statement
from daa_dag.ids import ChainId, NodeId, ValidatorSetRoot, VertexId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.adapters.disk_journal import open_journal
from daa_node.adapters.offload import ThreadOffload
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.agreement.effects_host import EffectsHost
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.inbox import Inbox
from daa_node.agreement.messages import RUN_BLOCKS_MAX, Body, Position, SentBlock
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.questions import Questions
from daa_node.agreement.recovery import RecoveryStore
from daa_node.agreement.signer import Signer
from daa_node.agreement.writer import Writer
from daa_node.identity.keys import NodeKeys
from daa_node.network.mailbox import Mailbox
from daa_node.observability.events import EventLog
from daa_node.seams import Transport
from tests.daa_node.agreement.fixed_members import fixed_validators

KEYS = NodeKeys.from_seed(b"alice")
ME = KEYS.node_id
CHAIN = ChainId(b"\x01" * 32)
DOMAIN = Domain(CHAIN, 0, ValidatorSetRoot(b"\x02" * 32))
GENESIS = genesis_block(CHAIN, VertexId(b"\x03" * 32))
ROUND = 3
ABORT = Block(CHAIN, 0, 7, ROUND, GENESIS.id, 0, AbortPayload(ROUND))
EXEC = Statement(DOMAIN, Kind.EXEC, 0, ROUND, [b"\xaa" * 32, b"\xbb" * 32])


class Telling(Writer):
    """What is answered lies here, whoever asked."""

    def __init__(self, parts: AgreementParts) -> None:
        super().__init__(parts, lambda: Position(0, 7, 0, 2, 0))
        self.answered: list[Body] = []

    def answer(self, _member: NodeId, body: Body) -> None:
        self.answered.append(body)


class Stage:
    """A host that knows the abort block, and what it was stepped with."""

    def __init__(self, signer: Signer, directory: Path) -> None:
        self.signer = signer
        self.stepped: list[Event] = []
        committee = Committee((Validator(ME, 1),))
        limits = Limits(1, 1)
        events = EventLog(lambda: 0)
        keys = {ME: KEYS.ml_dsa_public_key}
        validators = fixed_validators(CHAIN, committee, keys, 100)
        # No members, so that the transport is never asked for anything.
        mailbox = Mailbox(
            cast(Transport, None),
            lambda _: None,
            lambda _: None,
            [],
            lambda: 2**20,
            self._no_fault,
            1.0,
        )
        parts = AgreementParts(
            me=ME,
            validators=validators,
            delta_ns=10**9,
            signer=signer,
            inbound=Inbound(validators),
            mailbox=mailbox,
            recovery=RecoveryStore(DiskBlobStore(directory / "chain"), limits),
            stored_block=self._no_block,
            events=events,
            fault=self._no_fault,
        )
        machine = Simplex(CHAIN, committee, ME, Timing(10**9), 100, Restored(GENESIS))
        facts = Facts(limits)
        questions = Questions(facts, parts.inbound, self._no_answer)
        inbox = cast(Inbox, SimpleNamespace(step_with=self.stepped.append))
        self.writer = Telling(parts)
        self.host = EffectsHost(parts, machine, facts, questions, inbox, self.writer)
        self.host.restored([ABORT])

    async def votes(self, kind: Kind) -> bool:
        """Whether the machine's wish to say this of the abort came true."""
        before = len(self.stepped)
        statement = Statement(DOMAIN, kind, ABORT.view, ABORT.height, ABORT.id)
        await self.host.carry_out(SignAndSend(statement, None))
        said = self.stepped[before:]
        assert all(isinstance(e, VoteArrived) and e.signed.statement == statement for e in said)
        return bool(said)

    async def _no_block(self, _: object) -> None:
        return None

    async def _no_answer(self, _: object) -> None:
        raise AssertionError("nothing was asked")

    def _no_fault(self, *_: object) -> None:
        raise AssertionError("nobody wrote")


@asynccontextmanager
async def on_stage(directory: Path) -> AsyncIterator[Stage]:
    async with open_journal(directory / "agreement", ThreadOffload()) as journal:
        signer = Signer(KEYS, CHAIN, journal, SystemEntropy())
        await signer.load()
        yield Stage(signer, directory)


@pytest.fixture(autouse=True)
def directories(tmp_path: Path) -> None:
    (tmp_path / "agreement").mkdir()
    (tmp_path / "chain").mkdir()


async def test_who_executed_does_not_notarize_the_abort_but_finalizes_it(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        await stage.signer.sign(EXEC)
        assert not await stage.votes(Kind.NOTARIZE)
        assert await stage.votes(Kind.FINALIZE)


async def test_who_notarized_the_abort_may_execute_and_then_finalize_it(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        assert await stage.votes(Kind.NOTARIZE)
        await stage.signer.sign(EXEC)
        assert await stage.votes(Kind.FINALIZE)


async def test_a_block_comes_with_the_empty_ones_below_it_as_many_as_a_message_holds(
    tmp_path: Path,
) -> None:
    """Who was away in a bad hour lacks thousands, and asks again once a delta."""
    blocks = [ABORT]
    for _ in range(RUN_BLOCKS_MAX + 5):
        below = blocks[-1]
        blocks.append(Block(CHAIN, 0, below.view + 1, ROUND, below.id, below.view, EmptyPayload()))
    async with on_stage(tmp_path) as stage:
        stage.host.restored(blocks)
        for block in (blocks[-1], blocks[3]):
            await stage.host.send_block(NodeId(b"m" * 32), block.id)
    down = blocks[::-1]
    assert stage.writer.answered == [
        SentBlock(down[0], tuple(down[1 : RUN_BLOCKS_MAX + 1])),
        SentBlock(blocks[3], (blocks[2], blocks[1])),
    ]
