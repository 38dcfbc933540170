"""The signer over a journal that records every call: order, refusals, restarts, quarantine."""

from dataclasses import replace

import pytest
import trio
import trio.testing

from daa_consensus.bft.messages import OfferBody
from daa_consensus.committee import Domain
from daa_consensus.votes import Kind, Statement
from daa_dag import canonical
from daa_dag.ids import BlobRoot, ChainId, ValidatorSetRoot, VertexId
from daa_node.agreement.signer import LOG_BYTES_MAX, PENDING_STATEMENTS_MAX, Signer
from daa_node.errors import Refused, StorageFailed, UserError
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys

KEYS = NodeKeys.from_seed(b"alice")
CHAIN = ChainId(b"\x01" * 32)
DOMAIN = Domain(CHAIN, 0, ValidatorSetRoot(b"\x02" * 32))
A, B = b"\xaa" * 32, b"\xbb" * 32


class CountingEntropy:
    """Fresh bytes at every draw."""

    def __init__(self) -> None:
        self.draws = 0

    def bytes(self, size_bytes: int) -> bytes:
        self.draws += 1
        return self.draws.to_bytes(size_bytes)


class FakeJournal:
    """A disk in memory: what a crash would leave, every call in order, and faults on demand."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.guard: bytes | None = None
        self.calls: list[str] = []
        self.failing: set[str] = set()
        self.gate: trio.Event | None = None

    async def load(self) -> list[bytes]:
        return list(self.log)

    async def append(self, record: bytes) -> None:
        await self._call("append")
        self.log.append(record)

    async def rewrite(self, records: list[bytes]) -> None:
        await self._call("rewrite")
        self.log = list(records)

    async def read_guard(self) -> bytes | None:
        return self.guard

    async def write_guard(self, payload: bytes) -> None:
        await self._call("guard")
        self.guard = payload

    async def _call(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if name in self.failing:
            raise StorageFailed("no space left on device")
        self.calls.append(name)


ENTROPY = CountingEntropy()


async def started(journal: FakeJournal, history_exists: bool = False) -> Signer:
    signer = Signer(KEYS, CHAIN, journal, ENTROPY)
    await signer.load(history_exists)
    return signer


def vote(kind: Kind, view: int, block: bytes = A) -> Statement:
    if kind is Kind.NULLIFY:
        return Statement(DOMAIN, kind, view, 0, None)
    return Statement(DOMAIN, kind, view, 1, block)


def of_round(kind: Kind, height: int, root: bytes = A) -> Statement:
    value: canonical.Value = [A, root]
    if kind is Kind.OFFER:
        names = KEYS.node_id, VertexId(A), BlobRoot(root)
        value = OfferBody(height, *names, 9, "int8", 8, 7, 6, 5, 4, ()).as_value()
    return Statement(DOMAIN, kind, 0, height, value)


async def test_log_then_guard_then_the_signature() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    assert journal.calls == ["rewrite", "guard"]  # a first start claims the directory
    for statement in (vote(Kind.NOTARIZE, 1), of_round(Kind.EXEC, 1), of_round(Kind.OFFER, 2)):
        journal.calls.clear()
        signed = await signer.sign(statement)
        assert journal.calls == ["append", "guard"]
        assert signed.signature in journal.log[-1]
        envelope.verify_signed(signed, {KEYS.node_id: KEYS.ml_dsa_public_key}, DOMAIN)


@pytest.mark.parametrize("step", ["append", "guard"])
async def test_a_full_disk_sends_no_vote_and_keeps_the_slot_for_the_same_words(step: str) -> None:
    journal = FakeJournal()
    signer = await started(journal)
    journal.failing = {step, "rewrite"}
    for _ in range(3):
        with pytest.raises(StorageFailed, match="no space left"):
            await signer.sign(vote(Kind.NOTARIZE, 1, A))
    with pytest.raises(Refused, match="slot-taken"):
        await signer.sign(vote(Kind.NOTARIZE, 1, B))
    journal.failing = set()
    journal.calls.clear()
    first = await signer.sign(vote(Kind.NOTARIZE, 1, A))
    # Nobody knows what a failed append has left: the log begins anew.
    assert journal.calls == [{"append": "rewrite"}.get(step, "append"), "guard"]
    again = await (await started(journal)).sign(vote(Kind.NOTARIZE, 1, A))
    assert again.signature == first.signature


async def test_a_disk_that_stays_full_does_not_fill_memory() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    journal.failing = {"append", "rewrite"}
    for view in range(1, 1 + 3 * PENDING_STATEMENTS_MAX):
        with pytest.raises(StorageFailed):
            await signer.sign(vote(Kind.NULLIFY, view))
    assert len(signer._pending) <= PENDING_STATEMENTS_MAX
    journal.failing = set()
    await signer.sign(vote(Kind.NULLIFY, 10_000))
    assert signer._pending == []


async def test_the_same_words_bring_the_same_signature_before_and_after_a_restart() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    statements = [
        vote(Kind.PROPOSAL, 1),
        vote(Kind.NOTARIZE, 1),
        vote(Kind.FINALIZE, 1),
        of_round(Kind.OFFER, 1),
        of_round(Kind.EXEC, 1),
        vote(Kind.NULLIFY, 2),
    ]
    first = [await signer.sign(statement) for statement in statements]
    journal.calls.clear()
    assert [await signer.sign(statement) for statement in statements] == first
    assert journal.calls == []
    signer = await started(journal)
    assert journal.calls == []  # log and guard agree: replay writes nothing and signs nothing
    assert [await signer.sign(statement) for statement in statements] == first
    for statement in (vote(Kind.NOTARIZE, 1, B), of_round(Kind.EXEC, 1, B)):
        with pytest.raises(Refused, match="slot-taken"):
            await signer.sign(statement)


async def test_an_exec_forbids_notarizing_the_abort_over_a_restart() -> None:
    journal = FakeJournal()
    await (await started(journal)).sign(of_round(Kind.EXEC, 4))
    signer = await started(journal)
    with pytest.raises(Refused, match="executed"):
        await signer.sign(vote(Kind.NOTARIZE, 1), abort_round=4)


async def test_a_vote_for_an_abort_does_not_forbid_the_exec_over_a_restart() -> None:
    journal = FakeJournal()
    await (await started(journal)).sign(vote(Kind.NOTARIZE, 1), abort_round=4)
    signer = await started(journal)
    await signer.sign(of_round(Kind.EXEC, 4))
    with pytest.raises(Refused, match="executed"):
        await signer.sign(vote(Kind.NOTARIZE, 2), abort_round=4)


async def test_restored_tells_the_machine_where_it_stood() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    words = [
        await signer.sign(of_round(Kind.OFFER, 3)),
        await signer.sign(vote(Kind.NOTARIZE, 7)),
        await signer.sign(vote(Kind.NULLIFY, 8)),
    ]
    restored = (await started(journal)).restored()
    assert (restored.epoch, restored.view) == (0, 8)
    assert list(restored.statements) == words


async def test_words_that_wait_together_share_one_commit() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    journal.calls.clear()
    async with trio.open_nursery() as nursery:
        for height in range(8):
            nursery.start_soon(signer.sign, of_round(Kind.OFFER, height))
    assert journal.calls.count("append") <= 2
    assert journal.calls.count("guard") <= 2
    restored = (await started(journal)).restored()
    assert len(restored.statements) == 8


async def test_a_word_given_during_a_commit_is_in_the_next_one_and_not_in_this_guard() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    async with trio.open_nursery() as nursery:
        journal.gate = trio.Event()
        nursery.start_soon(signer.sign, vote(Kind.NOTARIZE, 1))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(signer.sign, vote(Kind.NOTARIZE, 2))
        await trio.testing.wait_all_tasks_blocked()
        journal.gate.set()
        while journal.calls[-1] != "guard" or "append" not in journal.calls:
            await trio.lowlevel.checkpoint()
        crashed = FakeJournal()
        crashed.log, crashed.guard = list(journal.log), journal.guard
    again = await started(crashed)
    assert again.quarantine is None
    assert again.restored().view == 1
    assert len((await started(journal)).restored().statements) == 2


async def test_a_word_whose_caller_was_cancelled_is_carried_by_the_next_commit() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    async with signer._disk, trio.open_nursery() as nursery:
        nursery.start_soon(signer.sign, vote(Kind.NOTARIZE, 1))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with pytest.raises(Refused, match="slot-taken"):
        await signer.sign(vote(Kind.NOTARIZE, 1, B))
    await signer.sign(of_round(Kind.OFFER, 1))
    assert len((await started(journal)).restored().statements) == 2


async def test_a_commit_once_begun_is_finished_by_a_cancelled_caller() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(signer.sign, vote(Kind.NOTARIZE, 1))
            while not signer._disk._lock.locked():
                await trio.lowlevel.checkpoint()
            scope.cancel()
    assert journal.calls[-2:] == ["append", "guard"]
    assert (await started(journal)).quarantine is None


async def test_the_log_is_rewritten_when_it_grows_and_stays_bounded() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    signer._log_bytes = LOG_BYTES_MAX - 8000  # as after a thousand statements
    for view in range(1, 10):
        await signer.sign(vote(Kind.NOTARIZE, view))
        signer.finalized(0, view, 0)
    assert journal.calls.count("rewrite") == 2  # the first start's, and this one
    assert sum(map(len, journal.log)) < 40_000
    again = await started(journal)
    assert again.quarantine is None
    last = await signer.sign(vote(Kind.NOTARIZE, 9))
    assert (await again.sign(vote(Kind.NOTARIZE, 9))).signature == last.signature
    with pytest.raises(Refused):
        await again.sign(vote(Kind.NULLIFY, 3))


async def test_acks_and_rejoins_are_not_slotted_and_touch_no_disk() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    journal.calls.clear()
    for value in ([A], [A, B]):
        await signer.sign(Statement(DOMAIN, Kind.ACK, 0, 1, value))
    await signer.sign(signer.rejoin_statement(DOMAIN))
    assert journal.calls == []


async def test_a_log_that_leads_the_guard_is_a_crash_and_no_quarantine() -> None:
    journal = FakeJournal()
    signer = await started(journal)
    await signer.sign(vote(Kind.NOTARIZE, 1))
    older = journal.guard
    first = await signer.sign(vote(Kind.NOTARIZE, 2))
    journal.guard = older
    signer = await started(journal)
    assert signer.quarantine is None
    assert journal.guard != older
    assert (await signer.sign(vote(Kind.NOTARIZE, 2))).signature == first.signature
    with pytest.raises(Refused, match="slot-taken"):
        await signer.sign(vote(Kind.NOTARIZE, 2, B))


async def test_a_crash_in_the_middle_of_the_first_start_is_no_quarantine() -> None:
    journal = FakeJournal()
    journal.failing = {"guard"}
    with pytest.raises(StorageFailed):
        await started(journal)
    journal.failing = set()
    signer = await started(journal)
    assert signer.quarantine is None
    assert journal.guard is not None


async def lost_log(journal: FakeJournal) -> None:
    journal.log = []


async def log_without_its_end(journal: FakeJournal) -> None:
    journal.log.pop()


async def log_restored_from_a_backup(journal: FakeJournal) -> None:
    await started(journal)
    guard = journal.guard
    twin = FakeJournal()
    signer = await started(twin)
    for height in range(6):
        await signer.sign(of_round(Kind.OFFER, height))
    journal.log, journal.guard = twin.log, guard  # more records than the guard, but lower marks


async def lost_guard(journal: FakeJournal) -> None:
    journal.guard = None


async def log_without_a_word_of_a_lower_slot(journal: FakeJournal) -> None:
    signer = await started(journal)
    await signer.sign(of_round(Kind.EXEC, 5))
    await signer.sign(of_round(Kind.EXEC, 4))
    journal.log.pop()  # no mark in the guard tells: the record's number does


async def damaged_guard(journal: FakeJournal) -> None:
    journal.guard = b""


async def guard_without_sense(journal: FakeJournal) -> None:
    journal.guard = b"\x81\xa1x\x01"


LOSSES = [
    lost_log,
    log_without_its_end,
    log_without_a_word_of_a_lower_slot,
    log_restored_from_a_backup,
    lost_guard,
    damaged_guard,
    guard_without_sense,
]


@pytest.mark.parametrize("loss", LOSSES)
async def test_who_lost_its_memory_observes_until_its_own_rejoin_is_final(loss: object) -> None:
    journal = FakeJournal()
    signer = await started(journal)
    for view in range(1, 4):
        await signer.sign(vote(Kind.NOTARIZE, view))
    stale = signer.rejoin_statement(DOMAIN)
    await loss(journal)  # type: ignore[operator]
    signer = await started(journal)
    assert signer.quarantine is not None
    for statement in (vote(Kind.NOTARIZE, 9), of_round(Kind.OFFER, 9), of_round(Kind.EXEC, 9)):
        with pytest.raises(Refused, match="quarantined"):
            await signer.sign(statement)
    rejoin = signer.rejoin_statement(DOMAIN)
    await signer.sign(rejoin)
    assert isinstance(rejoin.value, bytes)
    assert isinstance(stale.value, bytes)
    assert not await signer.rejoined(stale.value, 0, 20, 6), "made before the restart"
    assert signer.quarantine is not None
    assert await signer.rejoined(rejoin.value, 0, 20, 6)
    await _check_votes_after_rejoin(signer)
    again = await started(journal)
    assert again.quarantine is None
    with pytest.raises(Refused):
        await again.sign(vote(Kind.NOTARIZE, 21, B))


async def _check_votes_after_rejoin(signer: Signer) -> None:
    """Rejoined at view 20 and height 6."""
    assert signer.quarantine is None
    assert signer.restored().view == 22
    with pytest.raises(Refused, match="behind-floor"):
        await signer.sign(vote(Kind.NOTARIZE, 21))
    with pytest.raises(Refused, match="behind-floor"):
        await signer.sign(of_round(Kind.OFFER, 7))
    with pytest.raises(Refused, match="behind-floor"):
        await signer.sign(of_round(Kind.EXEC, 6))
    with pytest.raises(Refused, match="behind-floor"):
        await signer.sign(vote(Kind.NOTARIZE, 22), abort_round=6)
    await signer.sign(vote(Kind.NOTARIZE, 22))
    await signer.sign(of_round(Kind.OFFER, 8))
    await signer.sign(of_round(Kind.EXEC, 7))


async def test_an_empty_directory_beside_a_chain_with_our_votes_is_a_loss() -> None:
    assert (await started(FakeJournal())).quarantine is None
    signer = await started(FakeJournal(), history_exists=True)
    assert signer.quarantine is not None
    assert "missing" in signer.quarantine


async def test_a_damaged_guard_beside_no_log_is_no_first_start() -> None:
    journal = FakeJournal()
    journal.guard = b""
    signer = await started(journal)
    assert signer.quarantine == "the guard file is damaged"


@pytest.mark.parametrize("records_lost", [1, 4])
async def test_a_crash_in_the_middle_of_a_rejoin_keeps_its_floors(records_lost: int) -> None:
    journal = FakeJournal()
    signer = await started(journal)
    for view in range(1, 4):
        await signer.sign(vote(Kind.NOTARIZE, view))
    del journal.log[-records_lost:]
    signer = await started(journal)
    nonce = signer.rejoin_statement(DOMAIN).value
    assert isinstance(nonce, bytes)
    journal.failing = {"guard"}
    with pytest.raises(StorageFailed):
        await signer.rejoined(nonce, 0, 20, 6)
    assert signer.quarantine is not None
    journal.failing = set()
    await _check_votes_after_rejoin(await started(journal))


async def test_a_quarantine_lasts_over_restarts() -> None:
    journal = FakeJournal()
    await (await started(journal)).sign(vote(Kind.NOTARIZE, 1))
    journal.log = []
    for _ in range(3):
        signer = await started(journal)
        assert signer.quarantine is not None
        await signer.sign(signer.rejoin_statement(DOMAIN))


async def test_nothing_is_signed_before_the_memory_is_loaded() -> None:
    signer = Signer(KEYS, CHAIN, FakeJournal(), ENTROPY)
    with pytest.raises(Refused, match="not loaded"):
        await signer.sign(vote(Kind.NOTARIZE, 1))


async def test_a_directory_of_another_node_or_network_is_refused() -> None:
    journal = FakeJournal()
    await started(journal)
    stranger = Signer(NodeKeys.from_seed(b"bob"), CHAIN, journal, ENTROPY)
    with pytest.raises(UserError, match="every node needs its own"):
        await stranger.load()
    elsewhere = Signer(KEYS, ChainId(bytes(32)), journal, ENTROPY)
    with pytest.raises(UserError, match="every node needs its own"):
        await elsewhere.load()


async def test_a_log_that_contradicts_itself_stops_the_start() -> None:
    first, second = FakeJournal(), FakeJournal()
    await (await started(first)).sign(vote(Kind.NOTARIZE, 1, A))
    signer = await started(second)
    await signer.sign(of_round(Kind.OFFER, 1))
    await signer.sign(vote(Kind.NOTARIZE, 1, B))
    first.log.append(second.log[2])
    third = FakeJournal()
    bob = Signer(NodeKeys.from_seed(b"bob"), CHAIN, third, ENTROPY)
    await bob.load()
    await bob.sign(vote(Kind.NOTARIZE, 2))
    base, *rest = first.log
    for log in (first.log, rest, [base, second.log[2]], [base, third.log[1]], [base, b"\xc0"]):
        journal = FakeJournal()
        journal.log, journal.guard = log, first.guard
        with pytest.raises(StorageFailed, match="contradicts itself"):
            await started(journal)


async def test_another_epoch_is_another_slot() -> None:
    signer = await started(FakeJournal())
    await signer.sign(vote(Kind.NOTARIZE, 1, A))
    later = replace(vote(Kind.NOTARIZE, 1, B), domain=replace(DOMAIN, epoch=1))
    await signer.sign(later)
