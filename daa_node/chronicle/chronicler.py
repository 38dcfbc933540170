"""Keeps the history of a node up to date: beside its rounds, and never in their way.

    events --> notes --+
                       +--every ten seconds--> one batch --offload--> store
    chain  --> rounds -+

Rounds come from the certified chain, so none is lost by a crash or by a history that begins late:
what is missing below the newest one is read from the chain, a few at a time. What the event log
still says of the time before comes first. A store that fails costs what there is no room for, is
told of once an hour, and is opened again.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice

import trio

from daa_dag.ids import NodeId
from daa_node.checkpoints.chain import ChainStore
from daa_node.chronicle.certified import round_row, signers_of
from daa_node.chronicle.notes import Notes
from daa_node.chronicle.rows import Batch, RoundRow
from daa_node.chronicle.store import LACKING_MAX, HistoryParts
from daa_node.errors import StorageFailed
from daa_node.observability.events import HISTORY_FAILED, HISTORY_SET_ASIDE, Event, EventLog
from daa_node.seams import Clock, Offload

WRITE_EVERY_S = 10.0
RETRY_S = 60.0  # of a disk that refuses: to open it anew reads the whole file
TELL_EVERY_S = 3000.0  # of one that goes on refusing: an alert looks at the newest hour
ROUNDS_AT_ONCE = 64  # read from the chain and written together
PAUSE_S = 0.2  # between two such batches of an old chain, so that its reading is in nobody's way
LOGGED_AT_ONCE = 1000  # events of the log on disk, parsed on a thread
TRIM_EVERY_S = 3600.0
END_S = 3.0  # a node that stops waits no longer for it: the next start reads the rest


class Chronicler:
    """Of one node, from its start to its end."""

    def __init__(
        self,
        parts: HistoryParts,
        chain: ChainStore,
        offload: Offload,
        clock: Clock,
        log: EventLog,
        me: NodeId,
    ) -> None:
        self._parts = parts
        self._chain = chain
        self._offload = offload
        self._clock = clock
        self._log = log
        self._notes = Notes(me)
        self._past = Notes(me)  # of earlier runs, by the event log on disk
        self._is_open = False
        self._has_failed = False
        self._told_s = float("-inf")  # of it
        self._noted_until_s = self._now_s()  # later events come to `_notes`, or are in the store
        self._next_height = 1
        self._due_height = 0  # up to which the chain is to be told of
        self._trimmed_s = float("-inf")
        self._lacking: list[int] = []  # heights whose vertex was damaged, or not here yet

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; then `end` writes what is left."""
        async with self._log.subscribe() as new, trio.open_nursery() as nursery:
            self._noted_until_s = self._now_s()
            task_status.started()
            nursery.start_soon(self._keep)
            async for event in new:
                self._notes.note(event)

    async def end(self) -> None:
        """Write the last rounds. The node has stopped.

        What is not open stays so: that would read the whole file, and the log.
        """
        if self._is_open:
            with trio.move_on_after(END_S):
                await self.write()
        await self._offload.run(self._parts.store.close)
        self._is_open = False

    async def _keep(self) -> None:
        while True:
            await self.write()
            await trio.sleep(RETRY_S if self._has_failed else WRITE_EVERY_S)

    async def write(self) -> None:
        """All that is known and not written. Raises nothing that a disk can cause."""
        try:
            if not self._is_open:
                await self._begin()
            while await self._write_some():
                await trio.sleep(PAUSE_S)
            await self._trim()
        except StorageFailed as failure:
            self._is_open = False
            now_s = trio.current_time()
            if not self._has_failed or now_s - self._told_s >= TELL_EVERY_S:
                self._log.emit(HISTORY_FAILED, detail=str(failure))
                self._told_s = now_s
            self._has_failed = True
        else:
            self._has_failed = False

    async def _begin(self) -> None:
        opened = await self._offload.run(self._parts.store.open)
        if opened.set_aside is not None:
            self._log.emit(HISTORY_SET_ASIDE, why=opened.set_aside)
        self._next_height, self._lacking = opened.newest_height + 1, [*opened.lacking]
        self._due_height = max(self._due_height, (await self._chain.newest()).height)
        self._past.forget_pending()  # of an opening that failed: all of it is read again
        logged = self._parts.logged(opened.events_until_s)
        while chunk := await self._offload.run(partial(_some, logged)):
            for event in chunk:
                if opened.events_until_s < event["ts"] <= self._noted_until_s:
                    self._past.note(event)
            await self._write_notes(self._past)
        self._is_open = True

    async def _write_some(self) -> bool:
        """Whether there is more."""
        self._due_height = max(self._due_height, self._notes.newest_height)
        last = min(self._due_height, self._next_height + ROUNDS_AT_ONCE - 1)
        heights = range(self._next_height, last + 1)
        rows = {height: await self._row_at(height) for height in heights}
        found = tuple(row for row in rows.values() if row is not None)
        await self._write_notes(self._notes, found, last)
        self._past.written(last, 0, 0, 0)
        lacking = [*self._lacking, *(height for height in heights if rows[height] is None)]
        self._lacking = lacking[:LACKING_MAX]
        self._next_height = last + 1
        return last < self._due_height

    async def _write_notes(
        self, notes: Notes, rounds: tuple[RoundRow, ...] = (), height: int = 0
    ) -> None:
        """Raises StorageFailed, and then all of it is still noted."""
        batch = Batch(
            rounds,
            tuple(notes.left_out),
            tuple(notes.aborted),
            tuple(notes.decisions),
            notes.until_s,
        )
        if batch.is_empty:
            return
        await self._offload.run(partial(self._parts.store.write, batch))
        notes.written(height, len(batch.aborted), len(batch.left_out), len(batch.decisions))
        self._noted_until_s = max(self._noted_until_s, batch.events_until_s)

    async def _row_at(self, height: int) -> RoundRow | None:
        """None for a vertex that is not here, or whose files are damaged."""
        try:
            vertex_id = await self._chain.heights.at(height)
            vertex = None if vertex_id is None else await self._chain.vertex(vertex_id)
            if vertex is None:
                return None
            certificate = await self._chain.exec_certificate(vertex.vertex_id)
            set_block = await self._chain.block(vertex.decided_block)
        except StorageFailed:
            return None  # the daily reading of the chain tells of it, and mends it
        seen = self._notes.finished.get(height) or self._past.finished.get(height)
        return round_row(vertex, signers_of(certificate), set_block, seen)

    async def _look_again(self) -> None:
        """For rounds that the chain has got back, by its daily reading, or from others."""
        rows = [await self._row_at(height) for height in self._lacking]
        found = tuple(row for row in rows if row is not None)
        if found:
            await self._offload.run(partial(self._parts.store.write, Batch(found)))
            here = {row.height for row in found}
            self._lacking = [height for height in self._lacking if height not in here]

    async def _trim(self) -> None:
        if trio.current_time() - self._trimmed_s < TRIM_EVERY_S:
            return
        await self._look_again()
        trim, days = self._parts.store.trim, self._parts.config.rounds_days
        await self._offload.run(partial(trim, self._now_s(), days))
        self._trimmed_s = trio.current_time()

    def _now_s(self) -> float:
        return self._clock.wall_ns() / 1e9


def _some(logged: Iterator[Event]) -> list[Event]:
    return list(islice(logged, LOGGED_AT_ONCE))
