"""How much room a node's history may take, and what goes when there is more.

    room --nine tenths--> near --nineteen twentieths--> full: states go, then proofs --> room
                                                             +--nothing may go--> over

Full, old deltas and whole states go, oldest first; then, where the history is pruned, certificates
of old epochs. Blocks and vertices stay, one certificate an epoch, and the newest state that can be
restored: what a network has certified is never lost for want of room. Where that alone is too much
the node goes on, and says so: the bound is a wish, the disk's end is the wall (see StorageFailed).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from daa_dag.retention import Retention, below, floor_for
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.held import Held, held_by, is_good
from daa_node.checkpoints.packing import Packing
from daa_node.checkpoints.recollection import keep_pack_names
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

# Hundredths of the bound. From full down to the target a tenth goes at once: to look through what
# is held, and to write packs anew, costs more than the room.
NEAR, FULL, TARGET = 90, 95, 85
# Rounds until the next try where the last one was not enough: what is left goes as it gets old.
PAUSE_ROUNDS = 16


# Of a bound, what states and deltas may have at first: the rest is proofs and a round's own.
STATES_PART = 2


def within_bytes(
    retention: Retention, delta_bytes: int, state_bytes: int, snapshot_every: int
) -> Retention:
    """The same, with no more restorable vertices than there will be room for.

    For whoever is far behind: what would go again at once need not come. `state_bytes` are those of
    weights and momentum together.
    """
    if retention.bytes_max is None:
        return retention
    vertex_bytes = delta_bytes + -(-state_bytes // snapshot_every)
    fit = max(snapshot_every, retention.bytes_max // STATES_PART // vertex_bytes)
    return replace(retention, vertices_restorable=min(fit, retention.vertices_restorable or fit))


class Level(StrEnum):
    ROOM = "room"
    NEAR = "near"
    OVER = "over"  # and nothing is left that may go


@dataclass(frozen=True, slots=True)
class Standing:
    """What lies there, in bytes, as of the newest round."""

    chain_bytes: int
    work_bytes: int
    bytes_max: int | None
    level: Level

    @property
    def bytes(self) -> int:
        return self.chain_bytes + self.work_bytes

    def told(self) -> dict[str, object]:
        """As `status` has it."""
        return {
            "chain_bytes": self.chain_bytes,
            "work_bytes": self.work_bytes,
            "bytes_max": self.bytes_max,
            "level": str(self.level),
        }


class Quota:
    """Of one node."""

    def __init__(
        self, chain: ChainStore, retention: Retention, packing: Packing, log: EventLog
    ) -> None:
        self._chain = chain
        self.retention = retention
        self._packing = packing
        self._log = log
        self._pause = 0  # rounds to let go by
        self._failed = False  # at the last try, and told of
        self._told = frozenset[int]()  # heights of vertices that could not be read
        self.standing = Standing(0, 0, retention.bytes_max, Level.ROOM)
        # The bound as the operator wants it now.
        self.bytes_max_now: Callable[[], int | None] = lambda: self.retention.bytes_max

    def told(self) -> dict[str, object]:
        """As `status` has it, under the bound of now."""
        self._take_up()
        return self.standing.told()

    async def look(self) -> None:
        """Count, and let go of what is too much; once a round. A disk that fails is told of."""
        try:
            self._take_up()
            self._count()
            if self._pause:
                self._pause -= 1
                return
            if self._is_above(FULL):
                await self._let_go()
            self._failed = False
        except StorageFailed as failure:
            if not self._failed:
                self._log.emit(events.STORAGE_FAILED, detail=str(failure))
            self._failed, self._pause = True, PAUSE_ROUNDS

    def room_for(self, size_bytes: int) -> bool:
        """Whether so much more may come of what nobody here needs."""
        bytes_max = self.retention.bytes_max
        return bytes_max is None or (self.standing.bytes + size_bytes) * 100 < bytes_max * NEAR

    def _take_up(self) -> None:
        """Another bound is looked at as if there had been none, and told of anew."""
        bytes_max = self.bytes_max_now()
        if bytes_max == self.retention.bytes_max:
            return
        self.retention = replace(self.retention, bytes_max=bytes_max)
        self._packing.retention = self.retention
        self._pause = 0
        now = self.standing
        self.standing = Standing(now.chain_bytes, now.work_bytes, bytes_max, Level.ROOM)
        self._set(Level.NEAR if self._is_above(NEAR) else Level.ROOM)

    def _count(self) -> None:
        chain = self._chain
        held = chain.store.tally.total(), chain.work.tally.total()
        bytes_max, before = self.retention.bytes_max, self.standing.level
        self.standing = Standing(*held, bytes_max, before)
        if before is Level.OVER and self._is_above(FULL):
            return  # until it is tried again
        self._set(Level.NEAR if self._is_above(NEAR) else Level.ROOM)

    def _set(self, level: Level) -> None:
        before, now = self.standing.level, self.standing
        self.standing = Standing(now.chain_bytes, now.work_bytes, now.bytes_max, level)
        if level is before:
            return
        held, most = now.bytes, now.bytes_max
        match level:
            case Level.NEAR if before is Level.ROOM:
                self._log.emit(events.STORAGE_NEAR, bytes=held, bytes_max=most)
            case Level.OVER:
                why = self._why_over()
                self._log.emit(events.STORAGE_OVER, bytes=held, bytes_max=most, why=why)
            case _:
                pass

    def _why_over(self) -> str:
        kept = "proofs and the newest state, which are never let go"
        if self.retention.epochs_whole is None:
            kept = "the proofs of an archive, and the newest state, which are never let go"
        return f"{kept}: the node goes on; give storage.bytes_max more room, or a pruned history"

    def _is_above(self, hundredths: int) -> bool:
        bytes_max = self.retention.bytes_max
        return bytes_max is not None and self.standing.bytes * 100 > bytes_max * hundredths

    async def _let_go(self) -> None:
        """Raises StorageFailed; what is begun then is finished by the next write."""
        before, files = self.standing.bytes, 0
        # More than once: what two states share frees less than both of them take.
        # The bound may become another one whenever anything is waited for.
        while (bound := self.retention.bytes_max) is not None and self._is_above(TARGET):
            going = await self._states(self.standing.bytes - bound * TARGET // 100)
            if bound != self.retention.bytes_max:
                continue
            if not going:
                break
            files += len(going)
            await self._chain.groups.drop(sorted(going))
            await keep_pack_names(self._chain)
            self._count()
        thin = self._packing.thin  # many epochs at once at first: packs are written anew
        while self._is_above(TARGET) and (await thin() or await thin(at_once=1)):
            self._count()
        if self.standing.bytes < before:
            gained = before - self.standing.bytes
            self._log.emit(events.STORAGE_LET_GO, bytes=gained, states=files)
        if self._is_above(FULL) and bound == self.retention.bytes_max:
            self._pause = PAUSE_ROUNDS
            self._set(Level.OVER)

    async def _states(self, excess_bytes: int) -> set[str]:
        """Files of states that go, so that so much less is kept: as `kind/name`."""
        held = await held_by(self._chain)
        self._say_unreadable(held)
        snapshot_bytes = held.snapshot_bytes()
        floors = {height for height in snapshot_bytes if height >= held.lowest_floor()}
        while floors:
            floor = floor_for(excess_bytes, held.delta_bytes, snapshot_bytes, floors)
            if floor is None:
                break
            if await is_good(self._chain, held.snapshots[floor]):
                return held.names(below(floor, held.delta_bytes, snapshot_bytes))
            floors.remove(floor)  # a disk has lost a bit of it: nothing can be restored from there
        return set()

    def _say_unreadable(self, held: Held) -> None:
        """Each vertex once, until it can be read again."""
        for height in held.unreadable.keys() - self._told:
            what = f"{held.unreadable[height]}: it is gone round, and no state above it goes"
            self._log.emit(events.RECORD_DAMAGED, detail=what)
        self._told = frozenset(held.unreadable)
