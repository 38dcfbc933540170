"""Whether a blob that others fetch as well comes to a stand, and how much holders then lend.

    others bring chunks --none for a while, or too few--> lent LENT_START --> twice as many --> all
            ^------------------ another than a holder brings one ---+

Who lies to us holds us up for a while and no longer. Where all are merely slow, each that asked for
everything at once would make its holder slower still: so a holder is asked for little at first, and
for nothing while it owes us something.
"""

from daa_dag.ids import NodeId

# Without a chunk for so long since one could be asked, or for as long as sessions may take to open,
# or answers to come (8 s at most); or when at this pace a quarter of the time would not do.
STALL_S = 4.0
DUE_SHARE = 0.25
LENT_START = 4  # chunks; twice as many each time that the fetch is looked at, twice a second


class Stall:
    """Of one fetch. Times are seconds of any clock."""

    def __init__(self, slowness: float = 1.0) -> None:
        """`slowness`: how many times longer than usual a chunk takes."""
        self._stall_s = STALL_S * slowness
        self._passed_s = 0.0  # when a chunk came, from another than a holder once those lend
        self._offered_s: float | None = None  # since when a holder spreads the blob to us
        self._lent = LENT_START // 2

    def begin(self, now_s: float) -> None:
        """Nobody is asked yet."""
        self._passed_s = now_s

    def note_offers(self, now_s: float) -> None:
        """From now on a chunk could be asked for."""
        if self._offered_s is None:
            self._offered_s = self._passed_s = now_s

    def note_chunk(self, source: NodeId, relays: set[NodeId], now_s: float) -> None:
        if self._lent < LENT_START or source in relays:
            self._passed_s, self._lent = now_s, LENT_START // 2

    def is_due(self, now_s: float, slow_s: float) -> bool:
        """Whether nothing has come for too long."""
        return now_s - self._passed_s > max(self._stall_s, slow_s)

    def due_share(self, now_s: float, began_s: float, slow_s: float) -> float:
        """Seconds that count against the deadline, over DUE_SHARE: 0 while it is too early."""
        passed_s = now_s - (began_s if self._offered_s is None else self._offered_s)
        return passed_s / DUE_SHARE if passed_s > max(self._stall_s, slow_s) else 0.0

    def lend(self) -> int:
        """How many chunks holders are asked for beside what they offer."""
        self._lent *= 2
        return self._lent
