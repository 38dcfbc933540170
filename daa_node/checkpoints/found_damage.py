"""What is found wrong with a chain: told of, mended where others have it good, or given up."""

from collections.abc import Awaitable, Callable
from itertools import islice

from daa_node.checkpoints.repair import Repair
from daa_node.errors import StorageFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog

FOUND_MAX = 64  # told of by `status`; the events name all
# Tries of one pass that came to nothing: whoever is alone with a dead disk asks nobody any more.
# The next pass goes on asking from there, so what nobody has is in the way of nothing for ever.
FAILED_MAX = 64
GIVEN_UP_MAX = 4096  # names in memory, so that none is told of twice: half a megabyte

Mend = Callable[[Repair], Awaitable[bool]]


class FoundDamage:
    """Of one chain; a pass after the other."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._repair: Repair | None = None
        self._damaged = dict[str, None]()  # in this pass, each once, and not mended
        self._mended = dict[str, None]()  # in this pass
        self._failed = 0  # tries of this pass
        self.asks = True  # at this place of the path
        self._given_up = dict[str, None]()  # told of as lost since the start, the newest

    def begin(self, repair: Repair | None) -> None:
        """A new pass. None: nobody is asked, and what is found is only told."""
        self._repair = repair
        self._damaged, self._mended, self._failed = {}, {}, 0
        self.asks = True

    @property
    def is_spent(self) -> bool:
        """Whether this pass asks nobody any more."""
        return self._failed >= FAILED_MAX

    @property
    def damaged(self) -> list[str]:
        """By this pass, in words: what is wrong, and stays so."""
        return list(self._damaged)

    @property
    def mended(self) -> list[str]:
        """By this pass, in words."""
        return list(self._mended)

    async def wrong(self, failure: StorageFailed, mend: Mend | None = None) -> bool:
        """Tell of it, and mend it; whether there is a good one now."""
        what = str(failure)
        if what in self._damaged:
            return False
        self._damaged[what] = None
        self._log.emit(events.RECORD_DAMAGED, detail=what)
        if mend is None or self._repair is None or not self.asks or self.is_spent:
            return False
        try:
            is_good = await mend(self._repair)
        except StorageFailed as fault:  # a disk that takes nothing more
            self._log.emit(events.STORAGE_FAILED, detail=str(fault))
            is_good = False
        if not is_good:
            self._failed += 1
            self._say_lost(what)
            return False
        del self._damaged[what]
        self._mended[what] = None
        self._given_up.pop(what, None)
        self._log.emit(events.RECORD_REPAIRED, detail=what)
        return True

    def shown(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """As many of both as `status` tells of."""
        return tuple(islice(self._damaged, FOUND_MAX)), tuple(islice(self._mended, FOUND_MAX))

    def _say_lost(self, what: str) -> None:
        """Once, until it is there again: each pass tries anew."""
        if what in self._given_up:
            return
        self._given_up[what] = None
        while len(self._given_up) > GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]
        self._log.emit(events.RECORD_LOST, detail=what)
