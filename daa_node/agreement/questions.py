"""Questions of the machine that take time: choose a set, judge a block, hold a set's data.

Each runs as a task of its own and is answered with an event. A question about a view ends when the
machine leaves that view.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import assert_never

import trio

from daa_consensus.bft.effects import AskPayload
from daa_consensus.bft.events import DataHeld, Event, Judged, PayloadChosen
from daa_consensus.bft.evidence import decode_evidence
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    GenesisPayload,
    ResultPayload,
    SetPayload,
    decode_signed,
)
from daa_consensus.errors import BadMessage
from daa_consensus.votes import Certificate, Kind
from daa_dag.ids import BlockId
from daa_node.agreement.facts import Facts
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.open_round import OpenRound
from daa_node.errors import PeerFault


class Questions:
    """Answers what the open round, or the facts, know; `post` takes the answers."""

    def __init__(
        self, facts: Facts, inbound: Inbound, post: Callable[[Event], Awaitable[None]]
    ) -> None:
        self._facts = facts
        self._inbound = inbound
        self._post = post
        self.tasks: trio.Nursery | None = None
        self._round = 0
        self._listener: OpenRound | None = None
        self._opened = trio.lowlevel.ParkingLot()
        self._choosing = trio.CancelScope()
        self._judging: dict[int, trio.CancelScope] = {}  # by view
        self.unjudged: dict[BlockId, Block] = {}  # of the views that are not left

    def listen(self, round_number: int, listener: OpenRound) -> None:
        """The round that questions are about from now on."""
        self._round, self._listener = round_number, listener
        self._opened.unpark_all()

    def choose(self, ask: AskPayload) -> None:
        """Find the set to propose; an older question of this kind is void."""
        self._choosing.cancel()
        self._choosing = trio.CancelScope()
        self._nursery().start_soon(self._choose, ask, self._choosing)

    def judge(self, block: Block) -> None:
        self.unjudged[block.id] = block
        self._nursery().start_soon(self._judge, block)

    def hold(self, block: Block) -> None:
        self._nursery().start_soon(self._hold, block)

    def leave_views_before(self, view: int) -> None:
        for old in [v for v in self._judging if v < view]:
            self._judging.pop(old).cancel()
        self.unjudged = {i: block for i, block in self.unjudged.items() if block.view >= view}

    async def _choose(self, ask: AskPayload, scope: trio.CancelScope) -> None:
        with scope:
            chosen = await (await self._listener_of(ask.round)).proposal()
            facts = self._facts
            payload = replace(
                chosen,
                evidence=tuple(facts.evidence),
                operations=tuple(facts.rejoins.values()),
            )
            await self._post(PayloadChosen(ask.view, payload))

    async def _judge(self, block: Block) -> None:
        with self._judging.setdefault(block.view, trio.CancelScope()):
            reason = await self._verdict(block)
            self.unjudged.pop(block.id, None)
            await self._post(Judged(block.id, reason is None, reason or ""))

    async def _verdict(self, block: Block) -> str | None:
        """None if the block may be notarized, else why not; waits until that is known."""
        facts = self._facts
        match block.payload:
            case SetPayload() as proposed:
                reason = self._unproven(proposed)
                if reason is not None:
                    return reason
                return await (await self._listener_of(proposed.round)).judge(proposed)
            case ResultPayload(round_number, vertex_id, result_root):
                while round_number not in facts.exec_certificates:
                    await facts.changed.park()
                said = facts.exec_certificates[round_number].statement.value
                return None if said == [vertex_id, result_root] else "not what was executed"
            case AbortPayload(round_number):
                while round_number not in facts.aborts_due:
                    await facts.changed.park()
                executed = round_number in facts.exec_certificates
                return "the round was executed" if executed else None
            case EmptyPayload():
                return None
            case GenesisPayload():
                return "the genesis block is never proposed"
            case _:
                assert_never(block.payload)

    def _unproven(self, proposed: SetPayload) -> str | None:
        """Why the set's evidence or operations prove nothing; None if they are all in order."""
        inbound = self._inbound
        try:
            for encoded in proposed.evidence:
                evidence = decode_evidence(encoded, inbound.limits)
                inbound.verify(evidence.first)
                if isinstance(evidence.second, Certificate):
                    inbound.verify_certificate(evidence.second)
                else:
                    inbound.verify(evidence.second)
            for encoded in proposed.operations:
                signed = decode_signed(encoded, inbound.limits)
                if signed.statement.kind is not Kind.REJOIN:
                    return f"{signed.statement.kind} is no membership operation"
                inbound.verify(signed)
        except (BadMessage, PeerFault) as fault:
            return str(fault)
        return None

    async def _hold(self, block: Block) -> None:
        assert isinstance(block.payload, SetPayload)
        listener = await self._listener_of(block.payload.round)
        await listener.hold_all(block.payload.offers)
        await self._post(DataHeld(block.id))

    async def _listener_of(self, round_number: int) -> OpenRound:
        """The round's listener, once it is open here. Waits for ever for a round that is over."""
        while self._listener is None or self._round != round_number:
            await self._opened.park()
        return self._listener

    def _nursery(self) -> trio.Nursery:
        assert self.tasks is not None, "questions come while the agreement runs"
        return self.tasks
