"""Which volunteers may come in: places for all and for each address, new names, faults. No I/O.

    knocks --(places, faults)--> hello --(new names)--> has a place --> left

An address is what a single customer holds (see Transport.network_of). Times in seconds.
"""

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault

HOUR_S = 3600.0
NEW_NAMES_A_PLACE = 2  # of an address in an hour, for each session that it may have
FAULTS_A_PLACE = 2  # likewise: what no honest page does
ADDRESSES_KEPT = 4096  # those without a session give way, the longest unseen first
# What no page of ours does, whatever its clock and its version. The rest may be anybody's mistake.
FAULTS = frozenset(
    {
        "malformed",
        "oversize",
        "peer-id",
        "replayed",
        "role",
        "signature",
        "too-fast",
        "unknown-task",
    }
)


@dataclass(slots=True)
class _Address:
    places: int = 0
    new_names: OrderedDict[NodeId, float] = field(default_factory=OrderedDict)  # since when
    faults: deque[float] = field(default_factory=deque)


class Admission:
    """Judges with nothing awaited in between, so that many who come at once are many."""

    def __init__(self, sessions_max: int, per_address_max: int) -> None:
        self._sessions_max = sessions_max
        self._per_address_max = per_address_max
        self._faults_max = FAULTS_A_PLACE * per_address_max
        self._new_names_max = NEW_NAMES_A_PLACE * per_address_max
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self.places = 0  # that are taken
        self.refused: Counter[str] = Counter()  # ever, by reason

    def enter(self, address: str, now_s: float) -> None:
        """Take a place. Raises PeerFault: "closed", "full", "address-full" or "address-faults"."""
        if self._sessions_max == 0:
            raise PeerFault("closed", "this daemon asks nothing of volunteers")
        known = self._of(address)
        while known.faults and now_s - known.faults[0] > HOUR_S:
            known.faults.popleft()
        if len(known.faults) >= self._faults_max:
            raise PeerFault("address-faults", "your address did wrong too often: in an hour")
        if known.places >= self._per_address_max:
            raise PeerFault("address-full", f"{known.places} sessions from your address")
        if self.places >= self._sessions_max:
            raise PeerFault("full", f"{self.places} volunteers are here")
        known.places += 1
        self.places += 1

    def leave(self, address: str) -> None:
        """Give the place back."""
        self._of(address).places -= 1
        self.places -= 1

    def meet(self, address: str, name: NodeId, is_known: bool, now_s: float) -> None:
        """Raises PeerFault "new-names" for one too many from there."""
        names = self._of(address).new_names
        while names and now_s - next(iter(names.values())) > HOUR_S:
            names.popitem(last=False)
        if is_known or name in names:
            return
        if len(names) >= self._new_names_max:
            raise PeerFault("new-names", f"{len(names)} new names from your address in an hour")
        names[name] = now_s

    def refuse(self, address: str, reason: str, now_s: float) -> None:
        """Count it, and hold it against the address if no honest page does it."""
        self.refused[reason] += 1
        if reason in FAULTS:
            faults = self._of(address).faults
            faults.append(now_s)
            if len(faults) > self._faults_max:
                faults.popleft()

    def _of(self, address: str) -> _Address:
        known = self._addresses.setdefault(address, _Address())
        self._addresses.move_to_end(address)
        if len(self._addresses) > ADDRESSES_KEPT:
            longest_unseen = next(a for a, held in self._addresses.items() if not held.places)
            del self._addresses[longest_unseen]
        return known
