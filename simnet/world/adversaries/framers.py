"""Who accuses falsely: trains honestly, and finds the work of everybody else to be false.

    framer          says so at once; met by the replay of every member, which convicts it
    late_accuser    keeps its accusations until their disputes are over their time, and then brings
                    them to everybody, again and again; met by the deadline: nobody listens

Where it is asked to judge others' disputes it finds everything false, too.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from daa_dag import canonical
from daa_dag.errors import DagError
from daa_node.agreement.messages import Message
from daa_node.disputes import court
from daa_node.disputes.charge import decode_said
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import SegmentCheck, SegmentOrder, Transport
from daa_node.wire.framing import write_message
from daa_node.wire.limits import LENGTH_PREFIX_BYTES
from daa_node.wire.protocols import REQUEST
from simnet.world.adversaries.behaviour import Behaviour

if TYPE_CHECKING:  # as the trainers beside it: no daemon is needed to know of it
    from daa_node.node_parts import LivingTrainer, NodeParts

FAR_OFF: Final = SegmentCheck(1.0, 1.0, 1.0, 0.0, None, steps_agree=True)
LATE_ROUNDS = DISPUTE_ROUNDS + 16  # what was begun before the deadline is over
TELLS_EVERY_S, TIMEOUT_S = 2.0, 2.0


class FramingTrainer:
    """The daemon's own, but for what it finds of others' work."""

    def __init__(self, parts: "NodeParts") -> None:
        self._inner: LivingTrainer = parts.trainer
        self._me = parts.keys.node_id
        self.initial_state, self.evaluate = self._inner.initial_state, self._inner.evaluate
        self.apply_delta = self._inner.apply_delta
        self.aggregate_and_step = self._inner.aggregate_and_step
        self.train_and_seal = self._inner.train_and_seal
        self.keep_boundaries = self._inner.keep_boundaries
        self.open_segment, self.canary = self._inner.open_segment, self._inner.canary

    @property
    def pid(self) -> int | None:
        return self._inner.pid

    async def check_segment(self, order: SegmentOrder) -> SegmentCheck:
        found = await self._inner.check_segment(order)
        return found if order.author == self._me else FAR_OFF


@dataclass(slots=True)
class LateAccuser(Behaviour):
    """Keeps what its daemon tells of disputes, and tells it when it is too late."""

    _newest_round: int = 0  # that anybody has told it of
    _kept: dict[bytes, int] = field(default_factory=dict)  # requests, with their round

    def hears(self, message: Message) -> None:
        self._newest_round = max(self._newest_round, message.position.resolved_round)

    async def asks(self, message: bytes) -> list[bytes]:
        """What is sent of a request of the daemon's."""
        match canonical.decode(message, len(message)):
            case [court.REQUEST, bytes(body)]:
                self._kept[message] = decode_said(body).accusation.statement.height
                return []
            case _:
                return [message]

    async def run(self, transport: Transport) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(TELLS_EVERY_S)
            due = [
                m for m, round_ in self._kept.items() if self._newest_round >= round_ + LATE_ROUNDS
            ]
            for peer_id in sorted(transport.connected()):
                for message in due:
                    with suppress(
                        *(Unavailable, PeerFault, DagError),
                        *(trio.BrokenResourceError, trio.ClosedResourceError),
                    ):
                        with trio.move_on_after(TIMEOUT_S):
                            stream = await transport.open_stream(peer_id, REQUEST)
                            await write_message(stream, message)
                            await stream.receive_some(LENGTH_PREFIX_BYTES)
                            await stream.aclose()
