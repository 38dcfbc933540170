"""The one task that signs what this validator says, and never twice.

    sign -> read as others read it -> judged by the rules of `slots` -> signed
         -> log (record, fdatasync) -> guard -> returned

Nothing is returned, so nothing is sent, before log and guard are both durable. The log may lead the
guard: a crash between the two leaves a statement that was never sent, and it is kept. Those that
wait together share one record and one guard (group commit).

    READY  <-- rejoined --  QUARANTINED
      ^                          ^
      +-- load: log and guard agree, or both are absent on a proven first start
                                 +-- load: guard missing, invalid, or ahead of the log

Quarantined, the signer gives no vote, Offer or Exec until a Rejoin with this process's own nonce is
final at some view w; then votes from w + 2, Offers from the round after the open one, Exec from the
open one. Replaying the log never signs. Source: docs/protocol.md, section 7.

What a quarantine comes to: its Rejoin must become final without it. Of four validators or more the
others can do that, unless it weighs too much. Of three or fewer nothing is final without everybody:
what it sent before may have reached anybody, or be under way, and as it must sign nothing else for
the same slot, it stays silent.
"""

from dataclasses import dataclass, replace
from typing import Any

import trio

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.own_statements import check_statement
from daa_consensus.committee import VALIDATORS_MAX, Committee, Domain
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Kind, Signed, Statement
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import ChainId, NodeId
from daa_node.agreement.slots import (
    UNREADABLE,
    Slot,
    SlotEntry,
    Slots,
    entry_of,
    entry_value,
    marks_of,
    marks_value,
)
from daa_node.errors import Refused, StorageFailed, UserError
from daa_node.identity import envelope
from daa_node.identity.keys import NodeKeys
from daa_node.prompt_lock import PromptLock
from daa_node.seams import Entropy, Journal

# A node signs about 8 statements of 3.5 kB a round: one rewrite in about 150 rounds.
LOG_BYTES_MAX = 4 * 2**20
# In place of the log's size while a write of it has failed: the next try begins a new one, for
# nobody knows what of the old one is on the disk.
ANEW_BYTES = LOG_BYTES_MAX + 1
RECORD_BYTES_MAX = 2**21  # 32 views of 4 statements and 8 rounds of 2 statements take under 0.6 MB
GUARD_BYTES_MAX = 4096
# Statements admitted but not yet durable: all votes of several views. More means that the disk
# refuses.
PENDING_STATEMENTS_MAX = 64
NONCE_BYTES = 32
_UNSLOTTED = (
    *(Kind.ACK, Kind.REJOIN, Kind.MEMBERSHIP),
    *(Kind.OPENING, Kind.ACCUSATION, Kind.VERDICT),
)
_NOT_LOADED = "not loaded yet"
QUARANTINED = "quarantined"  # the reason of a refusal that a Rejoin ends
MALFORMED = "malformed"  # the reason of a refusal of what others would not take
# Of any network: what the committee of the day refuses beyond this, a message's own check finds.
STATEMENT_LIMITS = Limits(VALIDATORS_MAX, VALIDATORS_MAX)


@dataclass(frozen=True, slots=True)
class Restored:
    """What the machine starts from after a restart: never more than was signed."""

    epoch: int
    view: int  # highest voted in, or the first in which we may vote
    floor: Slot  # from which on every vote is among the statements
    # every remembered slotted statement: Offers and Execs, then votes by view
    statements: tuple[Signed, ...]


class Signer:
    """Owns the validator's voice. Call load() once, then sign() from any task."""

    def __init__(
        self, keys: NodeKeys, chain_id: ChainId, journal: Journal, entropy: Entropy
    ) -> None:
        self._keys = keys
        self._chain_id = chain_id
        self._journal = journal
        self._slots = Slots()
        self._nonce = entropy.bytes(NONCE_BYTES)  # drawn anew every start: an old Rejoin is void
        self._quarantine: str | None = _NOT_LOADED
        # From here on no earlier life's Rejoin lets us vote; None if this one has to ask.
        self._rejoins_up_to: Slot | None = None
        self._disk = PromptLock()
        self._sequence = 0  # of the newest log record
        self._log_bytes = 0
        self._pending: list[SlotEntry] = []
        self._admitted = 0  # tickets given out
        self._durable = 0  # every statement up to this ticket is in log and guard

    @property
    def quarantine(self) -> str | None:
        """Why no votes are given, or None."""
        return self._quarantine

    def restored(self) -> Restored:
        epoch, view = self._slots.view
        words = tuple(entry.signed for entry in self._slots.entries())
        return Restored(epoch, view, self._slots.view_floor, words)

    async def load(self, history_exists: bool = False) -> None:
        """Read log and guard, and settle whether we may vote. Signs nothing.

        `history_exists`: nothing shows that this node has never voted, so that an absent log is a
        loss and not a first start. Raises StorageFailed for a log that is damaged
        in its middle or contradicts itself, UserError for one of another node or network.
        """
        records = await self._journal.load()
        guard_bytes = await self._journal.read_guard()
        for record in records:
            self._replay(record)
        guard, fault = _guard_of(guard_bytes), None
        untouched = self._sequence <= 1 and not self._slots.entries()
        if guard is None and guard_bytes is not None:
            fault = "the guard file is damaged"
        elif guard is None and not (untouched and not history_exists):
            fault = "the guard file is missing: it was lost, or the keys came here without it"
        elif guard is not None:
            fault = self._check_guard(guard)
        self._quarantine = fault
        self._rejoins_up_to = self._slots.view if fault is None else None
        if fault is None and (guard is None or guard["sequence"] < self._sequence or not records):
            await self._begin(first_start=not records)

    async def sign(self, statement: Statement, abort_round: int | None = None) -> Signed:
        """The statement under our key, durable in log and guard once this returns.

        `abort_round` is set when the statement is a Notarize of a block that aborts that round.
        The same statement gives the same signature again. Raises Refused when it would contradict
        an earlier statement, when others would call it malformed, or while quarantined;
        StorageFailed when the disk refuses: then the slot stays taken by this statement, and
        signing it again tries the disk again.
        """
        if len(self._pending) >= PENDING_STATEMENTS_MAX and statement.kind not in _UNSLOTTED:
            await self._make_durable(self._admitted)  # or raises: no more until the disk has room
        entry = self._admit(statement, abort_round)
        await self._make_durable(entry.ticket)
        return entry.signed

    def finalized(self, epoch: int, view: int, height: int) -> None:
        """The block of `view` is final and `height` is its round: forget what lies behind it.

        The round itself is kept: its closing is still open, and our Exec for it binds us.
        """
        self._slots.raise_floors((epoch, view), (epoch, height), (epoch, height))

    def rejoin_statement(self, domain: Domain) -> Statement:
        """What to sign and send so that the others let us vote again."""
        return Statement(domain, Kind.REJOIN, 0, 0, self._nonce)

    async def rejoined(self, nonce: bytes, epoch: int, view: int, height: int) -> bool:
        """A Rejoin with `nonce` is final in the block of `view`, at `height`; end the quarantine.

        False when the nonce is not this process's own, or nothing is to be ended. Before the crash
        we may have voted up to view + 1, offered for height + 1 and executed up to height.
        """
        assert self._quarantine != _NOT_LOADED
        if self._quarantine is None or nonce != self._nonce:
            return False
        async with self._disk:
            self._slots.raise_floors((epoch, view + 2), (epoch, height + 2), (epoch, height + 1))
            with trio.CancelScope(shield=True):
                await self._write_base()
            self._quarantine = None
        return True

    def is_used_elsewhere(self, nonce: bytes, epoch: int, view: int) -> bool:
        """Whether a Rejoin with `nonce`, final at `view`, shows another process with our key.

        This one has asked for none. An earlier one that had votes above the Rejoin's view, and this
        one remembers that; while it cannot be sure, the answer is no.
        """
        if self._rejoins_up_to is None or nonce == self._nonce:
            return False
        return (epoch, view + 2) > self._rejoins_up_to

    def _admit(self, statement: Statement, abort_round: int | None) -> SlotEntry:
        """Judge and sign in memory, without a pause: in the order of calls."""
        assert statement.domain.chain_id == self._chain_id
        assert abort_round is None or statement.kind is Kind.NOTARIZE
        _check_readable(statement)
        if statement.kind in _UNSLOTTED:
            # They cannot contradict anything: signed at once, never logged, durable from the start.
            return SlotEntry(envelope.sign(statement, self._keys))
        if self._quarantine is not None:
            raise Refused(QUARANTINED, f"{statement.kind}: {self._quarantine}")
        entry = self._slots.judge(statement, abort_round)
        if entry is not None:
            return entry
        if len(self._pending) >= PENDING_STATEMENTS_MAX:
            raise StorageFailed(f"{len(self._pending)} signed statements wait for the disk")
        self._admitted += 1
        entry = SlotEntry(envelope.sign(statement, self._keys), self._admitted)
        self._slots.note(entry)
        self._pending.append(entry)
        return entry

    async def _make_durable(self, ticket: int) -> None:
        if self._durable >= ticket:
            return  # of what needs no log, too: it does not wait for who writes
        async with self._disk:
            if self._durable >= ticket:
                return  # somebody's commit has carried our statement along
            batch, last = list(self._pending), self._admitted
            # Once begun, a commit ends: half of one would leave memory and disk apart.
            with trio.CancelScope(shield=True):
                if self._log_bytes > LOG_BYTES_MAX:
                    await self._write_base()
                else:
                    await self._append(batch)
            self._durable = last
            del self._pending[: len(batch)]

    async def _append(self, batch: list[SlotEntry]) -> None:
        sequence = self._sequence + 1
        # Taken before the first pause: statements admitted meanwhile must not run ahead of the log.
        guard = self._guard(sequence)
        record = canonical.encode(["words", sequence, [entry_value(entry) for entry in batch]])
        log_bytes, self._log_bytes = self._log_bytes + len(record), ANEW_BYTES
        await self._journal.append(record)
        self._sequence = sequence
        self._log_bytes = log_bytes
        await self._journal.write_guard(guard)

    async def _write_base(self) -> None:
        """Replace the log by one record of all that is remembered, then write the guard."""
        sequence = self._sequence + 1
        guard = self._guard(sequence)
        identity: list[canonical.Value] = [self._chain_id, self._keys.node_id]
        record = canonical.encode(["base", sequence, *identity, self._slots.as_value()])
        assert len(record) <= RECORD_BYTES_MAX
        self._log_bytes = ANEW_BYTES
        await self._journal.rewrite([record])
        self._sequence = sequence
        self._log_bytes = len(record)
        await self._journal.write_guard(guard)

    async def _begin(self, first_start: bool) -> None:
        if first_start:
            await self._write_base()
        else:
            await self._journal.write_guard(self._guard(self._sequence))

    def _guard(self, sequence: int) -> bytes:
        epoch, view = self._slots.view
        return canonical.encode(
            {
                "chain_id": self._chain_id,
                "node_id": self._keys.node_id,
                "sequence": sequence,
                "epoch": epoch,
                "view": view,
                "highest": marks_value(self._slots.highest),
            }
        )

    def _check_guard(self, guard: dict[str, Any]) -> str | None:
        """Why the log cannot be trusted beside this guard; also learns from a guard that leads."""
        self._check_owner(guard["chain_id"], guard["node_id"])
        marks: dict[str, Slot] = guard["highest"]
        known = self._slots.highest
        ahead = [name for name, slot in marks.items() if slot > known.get(name, (0, 0))]
        if guard["sequence"] <= self._sequence and not ahead:
            return None
        fault = (
            f"the guard file is ahead of the log (record {guard['sequence']} against "
            f"{self._sequence}): the log lost statements that were sent"
        )
        self._sequence = max(self._sequence, guard["sequence"])
        self._slots.raise_marks(marks)
        return fault

    def _replay(self, payload: bytes) -> None:
        try:
            value = canonical.decode(payload, RECORD_BYTES_MAX)
            match value:
                case ["base", int(sequence), bytes(chain_id), bytes(node_id), dict(memory)]:
                    self._check_owner(chain_id, node_id)
                    self._slots = Slots.of_value(memory)
                case ["words", int(sequence), list(words)] if sequence == self._sequence + 1:
                    for entry in words:
                        self._note_own(entry_of(entry))
                case _:
                    raise ValueError("no record follows here that this program writes")
        except (NotCanonical, *UNREADABLE) as fault:
            raise StorageFailed(
                f"the agreement log contradicts itself after record {self._sequence}: {fault}"
            ) from fault
        self._sequence = sequence
        self._log_bytes += len(payload)

    def _note_own(self, entry: SlotEntry) -> None:
        if entry.signed.signer != self._keys.node_id:
            raise ValueError("a statement of another node")
        self._slots.note(replace(entry, ticket=0))

    def _check_owner(self, chain_id: bytes, node_id: bytes) -> None:
        if (chain_id, node_id) != (self._chain_id, self._keys.node_id):
            raise UserError(
                f"the agreement directory holds what node {node_id.hex()[:16]} signed on chain "
                f"{chain_id.hex()[:16]}, this is node {self._keys.node_id.hex()[:16]} on chain "
                f"{self._chain_id.hex()[:16]}: it was copied here from another node; put this "
                "node's own one back, every node needs its own"
            )


def _check_readable(statement: Statement) -> None:
    """Others score whoever signs what their decoders refuse, and a signature cannot be unsaid."""
    try:
        check_statement(statement, STATEMENT_LIMITS)
    except BadMessage as fault:
        raise Refused(MALFORMED, f"{statement.kind}: {fault}") from None


def _guard_of(payload: bytes | None) -> dict[str, Any] | None:
    if payload is None:
        return None
    try:
        value = canonical.decode(payload, GUARD_BYTES_MAX)
        value["highest"] = marks_of(value["highest"])
        if not isinstance(value["sequence"], int):
            return None
        if not isinstance(value["chain_id"], bytes) or not isinstance(value["node_id"], bytes):
            return None
    except (NotCanonical, *UNREADABLE):
        return None
    assert isinstance(value, dict)
    return value


def is_for_good(committee: Committee, member: NodeId) -> bool:
    """Whether the others can make nothing final without this member."""
    return committee.total - committee.stake_of[member] < committee.quorum


def outlook(
    why: str | None, committee: Committee, me: NodeId, is_trainer: bool = False
) -> str | None:
    """Why we are in quarantine and what ends it, for a person; None if we are not."""
    if why is None:
        return None
    if is_trainer:
        return f"{why}; it contributes again once a set carries its Rejoin"
    if me not in committee.stake_of:
        return f"{why}; it looks on, as it is no validator"
    others = committee.total - committee.stake_of[me]
    weights = f"others weigh {others} of {committee.total}, everything needs {committee.quorum}"
    if not is_for_good(committee, me):
        return f"{why}; the {weights}: they let it vote again once a quorum of them is here"
    return (
        f"{why}; nobody can let it vote again (the {weights}): the network stands for good. If "
        "its `agreement` directory still lies somewhere just as it was left, stop the node and put "
        "it back; never an older copy, which might sign twice. Else `daa-node checkpoint export` "
        "saves the model, `daa-node init` makes this node anew in another directory, and `daa-node "
        "genesis create` a new network, which begins with first weights"
    )
