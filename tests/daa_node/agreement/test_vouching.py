"""What a vote may rely on is on the disk before it is signed, whenever the disk refused it."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

from daa_consensus.bft.effects import Finalized, Keep, SignAndSend
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import AbortPayload, Block, Payload, SetPayload
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import Domain
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlockId, ChainId, NodeId, ValidatorSetRoot
from daa_node.agreement.facts import Facts
from daa_node.agreement.parts import AgreementParts
from daa_node.agreement.vouching import Vouching
from daa_node.errors import StorageFailed
from daa_node.observability.events import EventLog

CHAIN = ChainId(b"\x01" * 32)
DOMAIN = Domain(CHAIN, 0, ValidatorSetRoot(b"\x02" * 32))
ME = NodeId(b"\x03" * 32)


class Bench:
    """A Vouching whose disk and signer note in `done` what was kept and signed, by view."""

    def __init__(self) -> None:
        self.is_full = False
        self.done: list[str] = []
        kept = SimpleNamespace(keep=self._keep, keep_blocks=self._keep_blocks)
        signer = SimpleNamespace(finalized=lambda *_: None, sign=self._sign)
        self.events = EventLog(lambda: 0)
        validators = SimpleNamespace(limits=Limits(4, 4))
        parts = SimpleNamespace(
            me=ME, recovery=kept, signer=signer, events=self.events, validators=validators
        )
        known = SimpleNamespace(domain=DOMAIN, view=0)
        self.vouching = Vouching(
            cast(AgreementParts, parts),
            cast(Simplex, SimpleNamespace(known=known)),
            cast(Facts, None),
            lambda _: None,
            lambda signed, _: self.done.append(f"said {signed.statement.view}"),
        )

    async def final(self, view: int, height: int) -> None:
        block = Block(CHAIN, 0, view, height, BlockId(b"\x04" * 32), view - 1, AbortPayload(height))
        words = Statement(DOMAIN, Kind.FINALIZE, view, height, block.id)
        await self.vouching.note_final(Finalized((block,), Certificate(words, ()), ()), [])

    async def nullified(self, view: int) -> None:
        """A quorum has said so."""
        words = Statement(DOMAIN, Kind.NULLIFY, view, 0, None)
        await self.vouching.keep(Keep(Certificate(words, ()), None))

    async def nullify(self, view: int) -> None:
        words = Statement(DOMAIN, Kind.NULLIFY, view, 0, None)
        await self.vouching.sign(SignAndSend(words, None))

    async def propose(self, payload: Payload) -> None:
        block = Block(CHAIN, 0, 9, 1, BlockId(b"\x04" * 32), 8, payload)
        words = Statement(DOMAIN, Kind.PROPOSAL, 9, 1, block.id)
        await self.vouching.sign(SignAndSend(words, block))

    def _check(self) -> None:
        if self.is_full:
            raise StorageFailed("no space left on device")

    async def _keep(self, certificate: Certificate, _: Block | None) -> None:
        self._check()
        what = "final" if certificate.statement.kind is Kind.FINALIZE else "nullified"
        self.done.append(f"{what} {certificate.statement.view}")

    async def _keep_blocks(self, blocks: Iterable[Block]) -> None:
        self._check()
        self.done += [f"block {block.view}" for block in blocks]

    async def _sign(self, words: Statement, _: int | None) -> Signed:
        return Signed(words, ME, b"")


async def test_what_became_final_on_a_full_disk_is_kept_before_the_next_vote() -> None:
    bench = Bench()
    bench.is_full = True
    await bench.final(3, 1)
    await bench.final(4, 1)
    await bench.nullify(5)
    assert bench.done == []
    bench.is_full = False
    await bench.vouching.sign_again()
    assert bench.done == ["block 3", "final 3", "block 4", "final 4", "said 5"]
    await bench.nullify(6)
    assert bench.done[5:] == ["said 6"]


async def test_a_certificate_that_the_disk_refused_is_kept_before_the_next_vote() -> None:
    bench = Bench()
    bench.is_full = True
    await bench.nullified(1)
    await bench.nullified(2)
    await bench.nullify(3)
    assert bench.done == []
    bench.is_full = False
    await bench.nullify(4)
    assert bench.done == ["nullified 1", "nullified 2", "said 4"]
    await bench.vouching.sign_again()
    assert bench.done[3:] == ["said 3"]


async def test_of_what_a_full_disk_owes_only_the_newest_height_is_remembered() -> None:
    bench = Bench()
    bench.is_full = True
    for height in range(1, 100):
        await bench.final(height, height)
    bench.is_full = False
    await bench.nullify(100)
    assert bench.done == ["block 99", "final 99", "said 100"]


async def test_certificates_that_a_full_disk_owes_are_of_no_use_below_a_final_block() -> None:
    bench = Bench()
    bench.is_full = True
    for view in range(1, 100):
        await bench.nullified(view)
    await bench.final(100, 1)
    await bench.nullified(101)
    bench.is_full = False
    await bench.nullify(102)
    assert bench.done == ["block 100", "final 100", "nullified 101", "said 102"]


async def test_a_block_that_others_would_not_take_is_not_proposed() -> None:
    bench = Bench()
    await bench.propose(SetPayload(1, (), (), "mean", 0, (b"e",) * 5, (), ()))
    assert bench.done == []
    told = [event["why"] for event in bench.events.tail() if event["name"] == "vote_refused"]
    assert told == ["malformed: block of view 9: evidence is not a list of 0 to 4"]
    await bench.propose(SetPayload(1, (), (), "mean", 0, (b"e",) * 4, (), ()))
    assert bench.done == ["block 9", "said 9"]
