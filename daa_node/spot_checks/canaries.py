"""Run the canary steps of one node, tell the others what came of it, and ask them.

    step by step, in turns at the worker, seldom --> calibrated, and told from then on
              `-- it fails too often: the genesis' tolerance holds for all

A restart takes the first step again: if that comes out as it did, the rest is what it was.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import trio

from daa_dag.errors import NotCanonical
from daa_dag.ids import NodeId
from daa_node.errors import NodeError, PeerFault, StorageFailed, Unavailable
from daa_node.network.requests import Requests
from daa_node.observability.events import (
    CALIBRATED,
    CALIBRATION_FAILED,
    STORAGE_FAILED,
    EventLog,
)
from daa_node.seams import BlobStore, CanaryStep, PeerId, Trainer
from daa_node.spot_checks.calibration import (
    CANARY_STEPS,
    REPORT_BYTES_MAX,
    Calibration,
    decode_report,
)

REQUEST = "device"  # the request's name
KIND = NAME = "calibration"  # of the record
VERSION = 1  # of it, a list of lists; a later one begins with its number
FAILURES_MAX = 8  # of a worker's, or of rounds that leave no time
RETRY_S = 5.0
RESTS = 31  # after a step, times what it took: our own training has nearly all of the worker
ASK_S = 5.0  # between two looks at whom to ask, and at what to keep
REFRESH_S = 600.0  # a node may have moved to another device

Turn = Callable[[Callable[[], Awaitable[CanaryStep]]], Awaitable[CanaryStep]]


@dataclass(frozen=True, slots=True)
class Others:
    """How one node speaks to the other members."""

    members: Callable[[], Collection[NodeId]]  # connected, without ourselves
    node_of: Callable[[PeerId], NodeId | None]
    # (node, request's name, body, bytes of the answer at most) -> answer; raises NodeError
    ask: Callable[[NodeId, str, bytes, int], Awaitable[bytes]]
    fault: Callable[[NodeId, PeerFault], None]


class Canaries:
    """`run` must be running while rounds walk."""

    def __init__(
        self,
        calibration: Calibration,
        trainer: Trainer,
        turn: Turn,
        store: BlobStore,
        others: Others,
        events: EventLog,
    ) -> None:
        """`turn` does work at the worker when it is its turn; raises NodeError."""
        self._calibration = calibration
        self._trainer = trainer
        self._turn = turn
        self._store = store
        self._others = others
        self._events = events
        self._asked_s: dict[NodeId, float] = {}
        self._step_s = 0.0  # what the newest canary step took of the worker
        self._kept = b""

    def serve(self, requests: Requests) -> None:
        """Answer the others from now on."""
        requests.register(REQUEST, self._answer)

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._measure)
            while True:
                await self._ask_all()
                await self._keep()
                await trio.sleep(ASK_S)

    async def _answer(self, peer_id: PeerId, _body: bytes) -> bytes:
        """Nothing as long as we do not know."""
        node = self._others.node_of(peer_id)
        if node is None or node not in self._calibration.members():
            raise Unavailable("devices are told to members")
        own = self._calibration.own
        return b"" if own is None else own.encode()

    async def _measure(self) -> None:
        failures = 0
        while self._calibration.steps_taken < CANARY_STEPS:
            await trio.sleep(RESTS * self._step_s)
            try:
                await self._note(await self._turn(self._take))
            except NodeError as failure:
                failures += 1
                if failures == FAILURES_MAX:
                    self._events.emit(CALIBRATION_FAILED, why=str(failure))
                    return
                await trio.sleep(RETRY_S)
        own = self._calibration.own
        assert own is not None
        self._events.emit(
            CALIBRATED,
            device=own.device,
            steps=own.steps,
            median=own.median,
            high=own.high,
            repeats=self._calibration.repeats,
        )

    async def _take(self) -> CanaryStep:
        began_s = trio.current_time()
        try:
            return await self._trainer.canary(self._calibration.steps_taken)
        finally:
            self._step_s = trio.current_time() - began_s

    async def _note(self, step: CanaryStep) -> None:
        if self._calibration.steps_taken == 0 and await self._restored(step):
            return
        self._calibration.note_own(step)

    async def _restored(self, again: CanaryStep) -> bool:
        try:
            kept = await self._store.get_record(KIND, NAME)
            return kept is not None and self._calibration.restore(kept, again)
        except StorageFailed as failure:
            self._events.emit(STORAGE_FAILED, detail=str(failure))
        except (NotCanonical, ValueError, TypeError):
            return False  # written by another version: measured anew
        return False

    async def _keep(self) -> None:
        """What a restart goes on from, if it is more than is kept."""
        self._calibration.forget_others()
        self._asked_s = {n: s for n, s in self._asked_s.items() if n in self._others.members()}
        state = self._calibration.encode()
        if self._calibration.own is None or state == self._kept:
            return
        try:
            await self._store.put_record(KIND, NAME, state, durable=False)
            self._kept = state
        except StorageFailed as failure:
            self._events.emit(STORAGE_FAILED, detail=str(failure))

    async def _ask_all(self) -> None:
        for node in sorted({*self._others.members()} & {*self._calibration.members()}):
            now_s = trio.current_time()
            if now_s - self._asked_s.get(node, -REFRESH_S) < REFRESH_S:
                continue
            try:
                answer = await self._others.ask(node, REQUEST, b"", REPORT_BYTES_MAX)
                if answer:
                    self._calibration.note_report(node, decode_report(answer))
                    self._asked_s[node] = now_s
            except PeerFault as fault:
                self._others.fault(node, fault)
                self._asked_s[node] = now_s
            except NodeError:
                continue  # it is asked again
