"""What a node's own events say of its rounds, until it is written down. Pure.

A round is open from its first event to its end. Whose contribution was here and is not in the
certified set was left out; why, is told by what happened to it:

    refused: WORD    this node found it wrong, by the word that it was counted by
    late             too few members held it when the set was closed
    passed over      a quorum held it, and the set that was decided does not have it
    aborted          the round changed nothing
    copy             it is in the set, void: it is another's, copied
    void             it is in the set, void for another reason: too few came, or too many of one
                     voucher

Bounded: what is not written for a long time makes room, and the chain still tells of the rounds.
"""

from dataclasses import dataclass, field, replace

from daa_dag.checkpoint import COUNT_MAX
from daa_dag.ids import DIGEST_BYTES, NodeId
from daa_node.chronicle.rows import Aborted, Contributed, Decided, LeftOut
from daa_node.observability import events as names
from daa_node.observability.events import TEXT_CHARS_MAX, Event

ROUNDS_OPEN_MAX = 64
AUTHORS_OPEN_MAX = 8192  # of one round: twice what a set may hold
FINISHED_MAX = 16_384  # as many as an event log of its usual size tells of, and more
AUTHORS_KEPT_MAX = 200_000  # of all finished rounds, some 30 MB: two days of a hundred authors each
PENDING_MAX = 16_384  # decisions, and contributions of aborted rounds: an hour without a disk
NUMBER_MAX = 2e11  # a moment in the year 8307; a loss, or a time that a round took, is far below
LATE, PASSED_OVER, ABORTED, COPY, VOID = "late", "passed over", "aborted", "copy", "void"


@dataclass(slots=True)
class _Open:
    """One round that has not ended."""

    held: set[str] = field(default_factory=set)  # authors, as the events name them
    eligible: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    copies: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        return sum(map(len, (self.held, self.eligible, self.refused, self.copies)))

    def why_left_out(self, author: str) -> str:
        if author in self.refused:
            return self.refused[author]
        return PASSED_OVER if author in self.eligible else LATE


_NOTHING = _Open()


@dataclass(frozen=True, slots=True)
class Finished:
    """What this node saw of a round whose vertex it has published."""

    height: int
    at_s: float
    loss_nats: float | None
    wall_s: float | None
    sent_bytes: int | None
    seen: _Open

    def left_out(self, round_number: int, members: tuple[Contributed, ...]) -> list[LeftOut]:
        """Beside the certified set."""
        merged = {each.node_id.hex() for each in members if each.counts}
        void = {each.node_id.hex() for each in members if not each.counts}
        found = [(author, COPY if author in self.seen.copies else VOID) for author in sorted(void)]
        for author in sorted({*self.seen.held, *self.seen.refused} - merged - void):
            found.append((author, self.seen.why_left_out(author)))
        return [LeftOut(round_number, node, why) for node, why in _named(found)]


class Notes:
    """Of one node, in the order of its events."""

    def __init__(self, me: NodeId) -> None:
        self._me = me.hex()
        self._open: dict[int, _Open] = {}
        self.finished: dict[int, Finished] = {}  # by height
        self._authors = 0  # in all of them
        self.aborted: list[Aborted] = []
        self.left_out: list[LeftOut] = []  # of aborted rounds
        self.decisions: list[Decided] = []
        self.newest_height = 0
        self.until_s = 0.0  # of the newest event
        self.lost = 0  # that there was no room for

    def note(self, event: Event) -> None:
        """Take in one event of the log; it may be one of an earlier program."""
        self.until_s = max(self.until_s, _number(event.get("ts")) or 0.0)
        match event.get("name"):
            case names.OFFER_ACKED:
                self._author(event, "held")
            case names.OFFER_ELIGIBLE:
                self._author(event, "eligible")
            case names.UPDATE_SEALED:
                self._author({**event, "author": self._me}, "held")
            case names.OFFER_REFUSED:
                self._refused(event)
            case names.COPY_FOUND if event.get("voided"):
                self._author(event, "copies")
            case names.ROUND_FINALIZED:
                self._finalized(event)
            case names.ROUND_ABORTED:
                self._was_aborted(event)
            case _:
                self._decision(event)

    def written(self, height: int, aborted: int, left_out: int, decisions: int) -> None:
        """Forget rounds up to this height, and so many of the others, the oldest first."""
        for done in [each for each in self.finished if each <= height]:
            self._drop(done)
        del self.aborted[:aborted]
        del self.left_out[:left_out]
        del self.decisions[:decisions]

    def forget_pending(self) -> None:
        """All but finished rounds."""
        self.written(0, len(self.aborted), len(self.left_out), len(self.decisions))

    def _of(self, event: Event) -> _Open | None:
        number = _count(event.get("round"))
        if number is None:
            return None
        if number not in self._open:
            self._open[number] = _Open()
            while len(self._open) > ROUNDS_OPEN_MAX:
                del self._open[min(self._open)]
        return self._open.get(number)

    def _author(self, event: Event, what: str) -> None:
        seen, author = self._of(event), event.get("author")
        if seen is None or not isinstance(author, str):
            return
        names_of: set[str] = getattr(seen, what)
        if len(names_of) < AUTHORS_OPEN_MAX:
            names_of.add(author)

    def _refused(self, event: Event) -> None:
        seen, author = self._of(event), event.get("author")
        if seen is None or not isinstance(author, str) or len(seen.refused) >= AUTHORS_OPEN_MAX:
            return
        # the word is ours; what follows the colon may be the author's
        word = str(event.get("reason")).partition(":")[0]
        seen.refused[author] = _plain(f"refused: {word[:40]}")

    def _finalized(self, event: Event) -> None:
        height, seen = _count(event.get("height")), self._of(event)
        if height is None or seen is None:
            return
        del self._open[event["round"]]
        wall_s = _number(event.get("wall_s"))
        is_walked = bool(wall_s)  # a round that was followed took no time
        self._drop(height)
        self._authors += seen.size
        self.finished[height] = Finished(
            height,
            self._at_s(event),
            _number(event.get("loss_nats")) if is_walked else None,
            wall_s if is_walked else None,
            _count(event.get("bytes_sent")) if is_walked else None,
            seen,
        )
        self.newest_height = max(self.newest_height, height)
        while len(self.finished) > FINISHED_MAX:
            self._drop(min(self.finished))
        if self._authors > AUTHORS_KEPT_MAX:
            self._forget_authors()

    def _drop(self, height: int) -> None:
        dropped = self.finished.pop(height, None)
        self._authors -= 0 if dropped is None else dropped.seen.size

    def _forget_authors(self) -> None:
        """Of the oldest rounds, down to half: when they ended stays."""
        for height in sorted(self.finished):
            if self._authors <= AUTHORS_KEPT_MAX // 2:
                break
            one = self.finished[height]
            self._authors -= one.seen.size
            self.finished[height] = replace(one, seen=_NOTHING)

    def _was_aborted(self, event: Event) -> None:
        seen = self._of(event)
        if seen is None:
            return
        number = event["round"]
        del self._open[number]
        if len(self.aborted) >= PENDING_MAX or len(self.left_out) >= PENDING_MAX:
            self.lost += 1
            return
        self.aborted.append(Aborted(number, self._at_s(event)))
        found = [
            (author, seen.refused.get(author, ABORTED))
            for author in sorted({*seen.held, *seen.refused})
        ]
        self.left_out += [LeftOut(number, node, why) for node, why in _named(found)]

    def _decision(self, event: Event) -> None:
        told = _as_decision(event)
        if told is None:
            return
        if len(self.decisions) >= PENDING_MAX:
            self.lost += 1
            return
        decision, reason = told
        self.decisions.append(Decided(self._at_s(event), _plain(decision), _plain(reason)))

    def _at_s(self, event: Event) -> float:
        return _number(event.get("ts")) or 0.0


def _as_decision(event: Event) -> tuple[str, str] | None:
    """(what, why) of an event that is one."""
    match event.get("name"):
        case names.DECISION:
            return str(event.get("decision")), str(event.get("reason"))
        case names.POLICY_ADAPTED:
            return f"adapt after round {event.get('round')}", str(event.get("reason"))
        case names.ABORT_DUE:
            return f"abort round {event.get('round')}", str(event.get("reason"))
        case names.LOSS_JUMPED:
            return "alarm", str(event.get("why"))
        case names.QUORUM_WAIT:
            reach = f"{event.get('reachable')} of {event.get('total')} within reach"
            what = "wait for a quorum" if event.get("waiting") else "a quorum is back"
            return what, f"{reach}, a quorum is {event.get('quorum')}"
        case names.STANDING_CHANGED:
            return f"{event.get('level')}: {event.get('node_id')}", str(event.get("why"))
        case names.JOB_ENDED:
            return "end", str(event.get("reason"))
        case _:
            return None


def _named(found: list[tuple[str, str]]) -> list[tuple[NodeId, str]]:
    """Without what is no node's id: a log on a disk may hold anything."""
    named = []
    for text, why in found:
        try:
            node = bytes.fromhex(text)
        except ValueError:
            continue
        if len(node) == DIGEST_BYTES:
            named.append((NodeId(node), why))
    return named


def _plain(text: str) -> str:
    """As the event log cuts it, and in characters that every file takes."""
    return text[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()


def _count(value: object) -> int | None:
    """One that every file takes."""
    return value if isinstance(value, int) and 0 <= value <= COUNT_MAX else None


def _number(value: object) -> float | None:
    """One that every file takes, and every calendar as a moment."""
    if not isinstance(value, int | float) or value != value:
        return None
    return float(max(-NUMBER_MAX, min(value, NUMBER_MAX)))
