"""What `top` knows: the daemon's answers, and what its events have told since.

Events fill what no answer has: which round is open since when, whose update a quorum holds by now,
and what was decided. Whoever connects anew hears the newest events again, so it begins anew, too.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from daa_node.observability import events as names

SERVING = "serving"  # of the phases
CONTRIBUTE = ("validator", "trainer")  # of the parts that a node can have
NEWS_MAX = 64  # lines kept; a screen shows a few
# Events that a person should see beside decisions, and the field that tells why.
TROUBLES: Mapping[str, str] = {
    names.TRAINER_LOST: "why",
    names.TRAINER_REFUSED: "why",
    names.STORAGE_FAILED: "detail",
    names.QUARANTINED: "why",
    names.KEY_ELSEWHERE: "why",
    names.LOSS_JUMPED: "why",
    names.API_FAILED: "error",
    names.GATEWAY_FAILED: "error",
}


@dataclass(frozen=True, slots=True)
class News:
    """A decision, or a trouble; `ts` in unix seconds."""

    ts: float
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Job:
    """What the genesis says of the rounds; None where it says nothing, or cannot be read."""

    window_s: float | None = None
    rounds: int | None = None


@dataclass(slots=True)
class Board:
    """Of one daemon. Answers are as its control socket gives them, and may lack anything."""

    root: str
    job: Job = Job()
    status: Mapping[str, Any] | None = None  # None: nobody answers
    peers: Sequence[Mapping[str, Any]] = ()
    rounds: Sequence[Mapping[str, Any]] = ()
    down: str = "asking the daemon"  # why nobody answers
    news: deque[News] = field(default_factory=lambda: deque(maxlen=NEWS_MAX))
    open_round: int | None = None
    opened_ts: float = 0.0
    asked_ts: float | None = None  # since when an answer is waited for
    held: set[str] = field(default_factory=set)  # whose update of that round a quorum holds

    def begin(self) -> None:
        """Forget what events have told: they come again."""
        self.news.clear()
        self._close()

    def gone(self, why: str) -> None:
        """Nobody answers any more."""
        self.status, self.peers, self.rounds, self.down = None, (), (), why
        self._close()

    def note(self, event: Mapping[str, Any]) -> None:
        name, ts = event.get("name"), event.get("ts")
        match name:
            case names.ROUND_STARTED:
                self._close()
                self.open_round, self.opened_ts = event.get("round"), _number(ts)
            case names.OFFER_ELIGIBLE:
                if event.get("round") == self.open_round:
                    self.held.add(str(event.get("author")))
            case names.ROUND_FINALIZED | names.ROUND_ABORTED:
                self._close()
            case names.DECISION:
                self._tell(ts, str(event.get("decision")), event.get("reason"))
            case str() if name in TROUBLES:
                self._tell(ts, name, event.get(TROUBLES[name]))
            case _:
                pass

    def awaited(self) -> list[str]:
        """Ids of contributors that are here and whose update a quorum does not hold yet."""
        if self.open_round is None or self.status is None:
            return []
        here = [
            str(p.get("node_id"))
            for p in self.peers
            if p.get("connected") and p.get("part") in CONTRIBUTE and not p.get("never_trains")
        ]
        # In a round that it only serves, this node brings nothing.
        serves = self.status.get("phase") == SERVING or self.status.get("never_trains")
        if self.status.get("part") in CONTRIBUTE and not serves:
            here.insert(0, str(self.status.get("node_id")))
        return [node for node in here if node not in self.held]

    def losses(self) -> list[float]:
        """Held-out loss of the rounds that the daemon remembers, oldest first.

        Of a spoilt model it may be no number, which no line can show.
        """
        told = [line.get("loss_nats") for line in self.rounds]
        return [float(loss) for loss in told if isinstance(loss, int | float) and isfinite(loss)]

    def contributed(self) -> tuple[int, int]:
        """In how many of the remembered rounds this node's update is, and of how many."""
        me = None if self.status is None else self.status.get("node_id")
        told = [line.get("contributors") for line in self.rounds if line.get("height")]
        named = [who for who in told if isinstance(who, list)]
        return sum(me in who for who in named), len(named)

    def _close(self) -> None:
        self.open_round, self.held = None, set()

    def _tell(self, ts: object, what: str, why: object) -> None:
        if not self.news or (self.news[-1].what, self.news[-1].why) != (what, str(why)):
            self.news.append(News(_number(ts), what, str(why)))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
