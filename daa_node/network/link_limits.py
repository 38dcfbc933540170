"""What the operator lets this node's link carry: bits a second each way, and bytes a day.

    open --a tenth of the day's bytes is left--> saving: of blobs, only our contribution is served;
                                                 no history, and no new circuit
         --nothing is left--> spent: no blob is served, and nothing more is fetched
         --midnight UTC, or a larger budget--> open

Strangers have a quarter of a day's bytes, all of them together, and none of what is saved: else
whoever likes could make a member sit out. Gossip is paid out of it whoever passes it on, for any of
them may start it. Beyond it they are answered nothing, their news is passed on to nobody, and what
they send nevertheless counts no more: nobody can refuse what comes.

Three counts make up a day: blobs, by frame; what is relayed, as it comes and as it leaves; and all
else that streams carry (see carried). Blobs wait for the caps, as do strangers' circuits and long
answers to them. Members' circuits and long answers, of theirs and of ours, go first, with a part of
a cap. Letters, which are what members send each other to agree, gossip and short answers wait for
no cap, and no budget holds back what members agree by. What is under way when a limit is reached
comes to its end. What the day has cost is on disk, so that a restart gives nothing back; nor does a
clock that was wrong and is put right.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import trio

from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import BlobRoot
from daa_node.errors import StorageFailed
from daa_node.network.carried import Carried
from daa_node.network.config import NetworkConfig
from daa_node.network.pace import Pace
from daa_node.network.spreading import SPREAD_KINDS
from daa_node.network.untaken import Piece
from daa_node.observability.events import DATA_BUDGET, STORAGE_FAILED, EventLog
from daa_node.seams import BlobStore

MBIT_BYTES = 1e6 / 8
GB_BYTES = 10**9
DAY_NS = 24 * 3600 * 10**9
BURST_S = 0.25  # of a cap, at once
LAST_SHARE = 0.1  # of a day's bytes: for our contribution, and for what we need ourselves
STRANGERS_SHARE = 0.25
FIRST_SHARE = 0.5  # of a cap: answers to members, and their circuits; the rest is our bulk's
LOOK_EVERY_S = 1.0
SAVE_EVERY_S = 30.0  # what a crash may give back
DAYS_KEPT = 2  # beside this one: what the record tells of, and where a clock has been since
OWN_KEPT = 4  # contributions: of this round and those that others may still want
KIND, NAME = "link", "day"
RECORD_BYTES_MAX = 64


class Budget(StrEnum):
    OPEN = "open"
    SAVING = "saving"
    SPENT = "spent"


class Cap:
    """So many Mbit/s, as the operator has it now; None: as the link bears."""

    def __init__(self, mbit_s: Callable[[], float | None]) -> None:
        self._mbit_s = mbit_s
        self._made_for: float | None = None
        self._pace: Pace | None = None
        self._first: Pace | None = None  # of FIRST_SHARE
        self._turn, self._first_turn = trio.Lock(), trio.Lock()

    @property
    def bytes_per_s(self) -> float | None:
        """None: as the link bears."""
        mbit_s = self._mbit_s()
        return None if mbit_s is None else mbit_s * MBIT_BYTES

    def take_at_once(self, size_bytes: int) -> bool:
        """Whether there is enough, and nobody waits."""
        pace = self._now()
        return pace is None or (not self._turn.locked() and pace.take_at_once(size_bytes))

    async def take(self, size_bytes: int) -> None:
        """Wait for it: whoever asks first is served first."""
        async with self._turn:
            pace = self._now()
            if pace is not None:
                await pace.take(size_bytes)

    async def take_first(self, size_bytes: int) -> None:
        """Ahead of who waits to `take`, and of what that gets; FIRST_SHARE of the cap at most."""
        if self._now() is None:
            return
        async with self._first_turn:
            pace = self._now()
            if pace is not None and self._first is not None:
                pace.spend(size_bytes)
                await self._first.take(size_bytes)

    async def pass_through(self, size_bytes: int, goes_first: bool) -> None:
        if goes_first:
            await self.take_first(size_bytes)
        elif not self.take_at_once(size_bytes):
            await self.take(size_bytes)

    def _now(self) -> Pace | None:
        mbit_s = self._mbit_s()
        if mbit_s != self._made_for:
            self._made_for, bytes_per_s = mbit_s, (mbit_s or 0.0) * MBIT_BYTES
            first = FIRST_SHARE * bytes_per_s
            self._pace = Pace(bytes_per_s, BURST_S * bytes_per_s) if mbit_s else None
            self._first = Pace(first, BURST_S * first) if mbit_s else None
        return self._pace


class LinkLimits:
    """Those of one node. `load` before anything is sent; `run` keeps the day's count."""

    def __init__(
        self,
        settings: Callable[[], NetworkConfig],
        wall_ns: Callable[[], int],
        store: BlobStore,
        events: EventLog,
    ) -> None:
        self._settings = settings
        self._wall_ns = wall_ns
        self._store = store
        self._events = events
        self.carried = Carried()  # by streams; set before anything is
        self.weigh: Callable[[Piece], int] = len  # a frame: as many bytes as the link carries
        self.up = Cap(lambda: settings().upload_mbit_s)
        self.down = Cap(lambda: settings().download_mbit_s)
        self._own: deque[BlobRoot] = deque(maxlen=OWN_KEPT)
        self._day = wall_ns() // DAY_NS
        # Of this day, blobs and circuits: to and from members, and all of before a restart.
        self._members_bytes = 0
        self._guests_bytes = 0  # all others; a restart forgets them as theirs
        self._carried_before = (0, 0)  # by streams, of members and of strangers, before this day
        self._saved_bytes = 0
        self._spent_on: dict[int, int] = {}  # of other days; the one turned from last is the last
        self._told = Budget.OPEN

    def note_own(self, root: BlobRoot) -> None:
        """Our newest contribution."""
        self._own.append(root)

    def count(self, size_bytes: int, of_stranger: bool = False) -> None:
        """Bulk, or what we relay, has left or come."""
        self._turn_day()
        if of_stranger:
            self._guests_bytes += size_bytes
        else:
            self._members_bytes += size_bytes
        self._look()

    async def came(self, frame: Piece) -> None:
        """Read no more before the cap allows it: the kernel's window is full then, and waits."""
        size_bytes = self.weigh(frame)
        self.count(size_bytes)
        if not self.down.take_at_once(size_bytes):
            await self.down.take(size_bytes)

    @property
    def spent_bytes(self) -> int:
        """Today, but for what strangers send beyond their share: nobody can refuse what comes."""
        self._turn_day()
        of_members = self._members_bytes + self.carried.of_members - self._carried_before[0]
        most, of_strangers = self._budget_bytes(), self._strangers_bytes()
        if most is not None:
            of_strangers = min(of_strangers, int(STRANGERS_SHARE * most))
        return of_members + of_strangers

    @property
    def budget(self) -> Budget:
        most = self._budget_bytes()
        if most is None or self.spent_bytes < (1 - LAST_SHARE) * most:
            return Budget.OPEN
        return Budget.SAVING if self.spent_bytes < most else Budget.SPENT

    def may_serve(self, kind: str, root: BlobRoot, to_stranger: bool = False) -> bool:
        """Also what shows that our work is sound, as long as our work may leave."""
        budget = self.budget
        if to_stranger:
            return self._has_for_strangers()
        is_ours = kind not in SPREAD_KINDS or root in self._own
        return budget is Budget.OPEN or (budget is Budget.SAVING and is_ours)

    def may_answer(self, of_history: bool, to_stranger: bool = False) -> bool:
        """A request. To members all but history: what they agree by, and what shows our work."""
        if to_stranger:
            return self._has_for_strangers()
        return not of_history or self.budget is Budget.OPEN

    def may_relay(self, for_guest: bool) -> bool:
        """Another circuit, a reservation, or news to pass on."""
        return self._has_for_strangers() if for_guest else self.budget is Budget.OPEN

    async def relay(self, size_bytes: int, for_guest: bool) -> None:
        """A piece that has come and is to leave again; those of members go ahead of bulk."""
        self.count(2 * size_bytes, for_guest)
        for cap in (self.down, self.up):
            await cap.pass_through(size_bytes, goes_first=not for_guest)

    async def until_may_fetch(self) -> None:
        while self.budget is Budget.SPENT:
            self._look()
            await trio.sleep(LOOK_EVERY_S)

    def standing(self) -> Mapping[str, Any] | None:
        """For `status`; None where nothing is limited."""
        now, most = self._settings(), self._budget_bytes()
        if most is None and now.upload_mbit_s is None and now.download_mbit_s is None:
            return None
        return {
            "upload_mbit_s": now.upload_mbit_s,
            "download_mbit_s": now.download_mbit_s,
            "budget": str(self.budget),
            "spent_bytes_today": self.spent_bytes,
            "budget_bytes_a_day": most,
        }

    async def load(self) -> None:
        """What the day has cost before a restart."""
        try:
            payload = await self._store.get_record(KIND, NAME)
            match [] if payload is None else canonical.decode(payload, RECORD_BYTES_MAX):
                case [int() as day, int() as spent] if day == self._day and spent >= 0:
                    self._members_bytes = self._saved_bytes = spent
                case [int() as day, int() as spent] if spent >= 0:
                    self._spent_on[day] = spent
        except (StorageFailed, NotCanonical) as failure:
            self._events.emit(STORAGE_FAILED, detail=f"the day's data are not known: {failure}")
        self._look()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(SAVE_EVERY_S)
            self._look()
            await self.save()

    async def save(self) -> None:
        spent = self.spent_bytes
        if spent == self._saved_bytes:
            return
        try:
            await self._store.put_record(KIND, NAME, canonical.encode([self._day, spent]), False)
            self._saved_bytes = spent
        except StorageFailed as failure:
            self._events.emit(STORAGE_FAILED, detail=f"the day's data are not kept: {failure}")

    def _budget_bytes(self) -> int | None:
        gigabytes = self._settings().data_gb_a_day
        return None if gigabytes is None else int(gigabytes * GB_BYTES)

    def _strangers_bytes(self) -> int:
        return self._guests_bytes + self.carried.of_strangers - self._carried_before[1]

    def _has_for_strangers(self) -> bool:
        self._turn_day()
        most = self._budget_bytes()
        have_some = most is None or self._strangers_bytes() < STRANGERS_SHARE * most
        return have_some and self.budget is Budget.OPEN

    def _turn_day(self) -> None:
        day = self._wall_ns() // DAY_NS
        if day != self._day:
            before, self._day = self._day, day
            self._spent_on[before] = self.spent_bytes  # of the day that is over
            self._guests_bytes = 0
            self._carried_before = self.carried.of_members, self.carried.of_strangers
            self._members_bytes = self._spent_on.pop(day, 0)
            while len(self._spent_on) > DAYS_KEPT:
                del self._spent_on[next(iter(self._spent_on))]

    def _look(self) -> None:
        """Tell of a limit that is reached, or left."""
        budget = self.budget
        if budget is not self._told:
            self._told = budget
            self._events.emit(
                DATA_BUDGET,
                budget=str(budget),
                spent_bytes=self.spent_bytes,
                budget_bytes=self._budget_bytes(),
            )
