"""Who gets which task, what three said of it, and who was right. Decides; sends nothing.

    open --given to COPIES--> full --all have answered--> agreed
      |                                              \\--> to be looked at by ourselves --> settled
      `-- its answer is known: each verdict is judged as it comes

A result counts if three gave the same and nothing speaks against it. What they find wrong, and what
they disagree about, is for ourselves to compute: no volunteer's word counts alone. So is what
three agree about of fewer addresses than there are, and of what they could agree about without any
work one in AUDITED_EVERY, by lot. Lots are drawn with a seed that nobody else has.

What one address has taken and not answered is bounded, so that others find room. Times in seconds
of trio's clock.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from blake3 import blake3

from daa_dag.ids import NodeId
from daa_node.errors import PeerFault
from daa_node.gateway.piece import IN_BITS, Piece
from daa_node.wire.limits import KIB, MIB
from daa_node.wire.volunteer_messages import Ready, Result, TaskKind, Verdict, encode_task

COPIES = 3
OPEN_BYTES_MAX = 64 * MIB  # of all tasks that are open
OPEN_MAX = 512  # two for each session
WAITING_MAX = 128  # tasks that wait for volunteers: six a second of one who is alone
ADDRESS_BYTES = OPEN_BYTES_MAX // 8  # beyond so much an address takes no more: one large task, too
SLOWEST_BYTES_PER_S = 64 * KIB  # a page that takes less is too slow for us
SLACK_S = 10.0
PATIENCE_S = 10.0  # so long it waits for somebody at another address
ALONE_S = 20.0  # so long a task waits for others to be ready, then we look ourselves
MISSED_MAX = 3  # deadlines in a row
DROPPED_MAX = 16  # tasks in a row
AUDITED_EVERY = 5
ENDED_KEPT = 16  # tasks of a session that are over: a verdict twice is told from a late one
DEADLINES_S = {
    TaskKind.LOSS: 120.0,
    TaskKind.GRADIENT: 120.0,
    TaskKind.SEGMENT: 300.0,
}
DEADLINE_S = 30.0  # of all others


@dataclass(slots=True, eq=False)
class Seat:
    """One volunteer at the desk."""

    session: bytes
    name: NodeId
    public_key: bytes
    address: str
    wants: Ready = field(default_factory=lambda: Ready(0, frozenset()))
    due_s: dict[bytes, float] = field(default_factory=dict)  # tasks that it has, by their ids
    ended: OrderedDict[bytes, bool] = field(default_factory=OrderedDict)  # and whether answered
    missed: int = 0
    dropped: int = 0

    @property
    def is_free(self) -> bool:
        return len(self.due_s) < self.wants.count

    def end(self, task: bytes, answered: bool) -> None:
        del self.due_s[task]
        self.ended[task] = answered
        if len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)


@dataclass(slots=True, eq=False)
class Task:
    """A piece that is out."""

    id: bytes
    piece: Piece
    frame: bytes  # as each volunteer gets it
    opened_s: float
    answer: Result | None  # if it is known
    given_back_s: float | None = None  # when somebody last did
    asked: set[NodeId] = field(default_factory=set)  # whoever had it
    addresses: set[str] = field(default_factory=set)
    out: set[NodeId] = field(default_factory=set)  # and still has it
    verdicts: dict[NodeId, tuple[Seat, Result]] = field(default_factory=dict)
    is_ours: bool = False  # to look at

    @property
    def wants(self) -> int:
        """How many more volunteers."""
        return 0 if self.is_ours else COPIES - len(self.out) - len(self.verdicts)

    @property
    def time_s(self) -> float:
        """What a volunteer has for it, its way there included."""
        way_s = len(self.frame) / SLOWEST_BYTES_PER_S
        return deadline_s(self.piece.kind) + way_s + SLACK_S

    @property
    def waits_since_s(self) -> float:
        """For others to be ready, while nobody has it: what took long and was given back, anew."""
        return self.opened_s if self.given_back_s is None else self.given_back_s


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a seat's verdict: right, wrong, or not known yet."""

    seat: Seat
    task: bytes
    is_right: bool | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What volunteers found, for the daemon to weigh: three equal results, or our own."""

    piece: Piece
    result: Result
    is_sound: bool
    is_ours: bool  # computed here, too


@dataclass(frozen=True, slots=True)
class Look:
    """A task to be computed by ourselves; then `looked`."""

    task: Task
    is_disputed: bool = False  # or somebody's word only wants to be checked


@dataclass(frozen=True, slots=True)
class Leave:
    """A seat that answers nothing any more."""

    seat: Seat


Effect = Judged | Evidence | Look | Leave


class TaskDesk:
    """All tasks that are out, and all who are here."""

    def __init__(self, seed: bytes, address_bytes: int = ADDRESS_BYTES) -> None:
        """`address_bytes`: who has more from an address gets no more there."""
        self._seed = seed
        self._address_bytes = address_bytes
        self._held_bytes: Counter[str] = Counter()  # of tasks that are out, by address
        self._seats: dict[bytes, Seat] = {}  # by session
        self._tasks: OrderedDict[bytes, Task] = OrderedDict()  # the oldest first
        self._opened = 0
        self._open_bytes = 0

    def sit(self, seat: Seat) -> None:
        self._seats[seat.session] = seat

    def seats_of(self, name: NodeId) -> list[Seat]:
        """More than one while those before are asked to go."""
        return [seat for seat in self._seats.values() if seat.name == name]

    def rise(self, seat: Seat, now_s: float) -> None:
        """It is gone; what it had goes to others."""
        self._seats.pop(seat.session, None)
        for task in list(seat.due_s):
            self.drop(seat, task, now_s)
        if not self._held_bytes[seat.address]:
            del self._held_bytes[seat.address]

    def lacking(self) -> frozenset[TaskKind]:
        """Kinds that somebody would take now; none if there is no room for more tasks."""
        if len(self._tasks) >= OPEN_MAX or self._open_bytes >= OPEN_BYTES_MAX:
            return frozenset()
        if sum(task.wants > 0 for task in self._tasks.values()) >= WAITING_MAX:
            return frozenset()
        return frozenset().union(*(seat.wants.kinds for seat in self._free()))

    def draw(self, purpose: str) -> int:
        """A number of 64 bits that nobody else can know."""
        self._opened += 1
        return _lot(self._seed, purpose.encode(), self._opened.to_bytes(8))

    def open(self, task_id: bytes, piece: Piece, answer: Result | None, now_s: float) -> Task:
        """Put a piece on the desk."""
        deadline_ms = int(1000 * deadline_s(piece.kind))
        frame = encode_task(task_id, piece.kind, piece.parameters, piece.blobs, deadline_ms)
        task = self._tasks[task_id] = Task(task_id, piece, frame, now_s, answer)
        self._open_bytes += len(frame)
        return task

    def give(self, now_s: float) -> tuple[Task, Seat] | None:
        """The oldest task for which somebody is ready, and who gets it."""
        free = self._free()
        for task in self._tasks.values() if free else ():
            seat = self._drawn(task, free, now_s)
            if seat is not None:
                seat.due_s[task.id] = now_s + task.time_s
                self._held_bytes[seat.address] += len(task.frame)
                task.asked.add(seat.name)
                task.addresses.add(seat.address)
                task.out.add(seat.name)
                return task, seat
        return None

    def kind_of(self, seat: Seat, task_id: bytes) -> TaskKind | None:
        """Of a task that this seat has; None if its time is over.

        Raises PeerFault "replayed" or "unknown-task".
        """
        if task_id in seat.due_s:
            return self._tasks[task_id].piece.kind
        answered = seat.ended.get(task_id)
        if answered:
            raise PeerFault("replayed", "there is a verdict of yours for this task")
        if answered is None:
            raise PeerFault("unknown-task", "this session has no such task")
        return None

    def take(self, seat: Seat, verdict: Verdict) -> Iterator[Effect]:
        """A signed verdict on a task that the seat has. Raises PeerFault "malformed"."""
        task = self._tasks[verdict.task]
        if not task.piece.has_form(verdict.result):
            raise PeerFault("malformed", f"no result of a task of kind {task.piece.kind}")
        seat.end(task.id, answered=True)
        self._held_bytes[seat.address] -= len(task.frame)
        seat.missed = seat.dropped = 0
        task.out.discard(seat.name)
        task.verdicts[seat.name] = (seat, verdict.result)
        if task.answer is not None:
            yield from self._judge(task, seat, verdict.result == task.answer)
        elif task.piece.kind in IN_BITS and not task.piece.is_seen_through(verdict.result):
            yield from self._judge(task, seat, False)
        else:
            yield Judged(seat, task.id, None)
            yield from self._weigh(task)

    def drop(self, seat: Seat, task_id: bytes, now_s: float) -> None:
        """The seat gives a task back."""
        if task_id in seat.due_s:
            task = self._tasks[task_id]
            seat.end(task_id, answered=False)
            self._held_bytes[seat.address] -= len(task.frame)
            task.out.discard(seat.name)
            task.given_back_s = now_s
            seat.dropped += 1

    def pass_time(self, now_s: float) -> Iterator[Effect]:
        """What is over now: deadlines, and tasks that wait for volunteers in vain."""
        for seat in list(self._seats.values()):
            for task_id in [task for task, due_s in seat.due_s.items() if due_s <= now_s]:
                self.drop(seat, task_id, now_s)
                seat.missed += 1
                if seat.missed == MISSED_MAX:
                    yield Leave(seat)
            if seat.dropped >= DROPPED_MAX:
                yield Leave(seat)
        for task in list(self._tasks.values()):
            if task.out or task.is_ours or now_s - task.waits_since_s < ALONE_S:
                continue
            if task.verdicts and task.answer is None:
                yield self._look(task, is_disputed=False)
            else:
                self._close(task)

    def looked(self, task: Task, truth: Result | None) -> Iterator[Effect]:
        """What we have found ourselves; None: nothing, so that nobody was right or wrong."""
        self._close(task)
        if truth is None:
            return
        for seat, result in list(task.verdicts.values()):
            yield Judged(seat, task.id, result == truth)
        yield Evidence(task.piece, truth, task.piece.is_sound(truth), is_ours=True)

    def _weigh(self, task: Task) -> Iterator[Effect]:
        if len(task.verdicts) < COPIES:
            return
        results = {result for _, result in task.verdicts.values()}
        (result, *others) = results
        is_disputed = bool(others) or not task.piece.is_sound(result)
        if is_disputed or self._is_doubted(task):
            yield self._look(task, is_disputed)
            return
        self._close(task)
        for seat, _ in task.verdicts.values():
            yield Judged(seat, task.id, True)
        yield Evidence(task.piece, result, is_sound=True, is_ours=False)

    def _is_doubted(self, task: Task) -> bool:
        """Whether we look at what three agree about."""
        kind = task.piece.kind
        if kind not in IN_BITS and self.draw("audit") % AUDITED_EVERY == 0:
            return True
        spoke = {seat.address for seat, _ in task.verdicts.values()}
        there = {s.address for s in self._seats.values() if s.wants.count and kind in s.wants.kinds}
        return len(spoke) < min(COPIES, len(spoke | there))

    def _judge(self, task: Task, seat: Seat, is_right: bool) -> Iterator[Effect]:
        yield Judged(seat, task.id, is_right)
        if task.answer is None:
            del task.verdicts[seat.name]  # another one is asked in its place
        elif not task.wants and not task.out:
            self._close(task)

    def _look(self, task: Task, is_disputed: bool) -> Look:
        """Nobody has it any more; while it waits for us it takes nobody's room."""
        assert not task.out
        task.is_ours = True
        self._open_bytes -= len(task.frame)
        task.frame = b""
        return Look(task, is_disputed)

    def _close(self, task: Task) -> None:
        if self._tasks.pop(task.id, None) is not None:
            self._open_bytes -= len(task.frame)

    def _free(self) -> list[Seat]:
        """Who would take a task now."""
        held, most = self._held_bytes, self._address_bytes
        seats = self._seats.values()
        return [seat for seat in seats if seat.is_free and held[seat.address] < most]

    def _drawn(self, task: Task, free: Sequence[Seat], now_s: float) -> Seat | None:
        if task.wants <= 0:
            return None
        kind, seats = task.piece.kind, self._seats.values()
        able = [s for s in free if kind in s.wants.kinds and s.name not in task.asked]
        elsewhere = [seat for seat in able if seat.address not in task.addresses]
        if able and not elsewhere and now_s - task.opened_s < PATIENCE_S:
            others = (s for s in seats if s.address not in task.addresses)
            if any(kind in seat.wants.kinds for seat in others):
                return None  # they are only busy
        lots = elsewhere or able
        return min(lots, key=lambda s: _lot(self._seed, task.id, s.session), default=None)


def deadline_s(kind: TaskKind) -> float:
    """For computing it, from when it is there."""
    return DEADLINES_S.get(kind, DEADLINE_S)


def _lot(seed: bytes, *parts: bytes) -> int:
    return int.from_bytes(blake3(b"".join((seed, *parts))).digest(length=8))
