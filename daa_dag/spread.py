"""Spread one blob among many who want it, so that each chunk leaves here about once.

Pure, as fetch, which is the other end: whoever has a blob whole runs this, and its fetchers tell it
what they have by now. Each is offered a part of its own, and told what others have, who pass it on.

    UNOFFERED --offered--> OUT --a fetcher has it--> BROUGHT
        ^                   |
        +-- no longer than patience, and a second more where it was sent meanwhile

Only who is alone with a blob is as sparing. Of what several have from the start, as members have a
certified delta, each of them offers what is unoffered first and then, as far as a fetcher takes
things as quickly as ever, whatever that one lacks: else fat links would stand idle while thin ones
pass on. Whether others have a snapshot nobody says, and a fetcher shows it: a chunk that it was
never offered here, and that nobody here has, it got from one of them. More than a third must have
shown that, as those who lie may be as many; until then we are as sparing as if alone.

Then a chunk is offered again only when it was out for longer than that, or when a fetcher has no
other way to it: it names such orphans, is told who else has them, and gets those of whose holders
it knows and that were offered to nobody for as long; each time twice as many copies may go
out. So one who takes its part and keeps it, or claims what it does not give, costs the others one
patience, and a second if it asks for it late, and us one copy, and f of them together as many times
that as f has binary digits. Claims to what was never offered change nothing. Of what nobody else
has, a fetcher gets an even share until others say that they have it from there, so that who claims
at once takes no more than that. Nobody is forgotten who goes: what is out to it comes back with
patience, and who comes again has no share anew.

Invariants, checked after every step:
  * no fetcher is offered more than OFFERS_MAX chunks that it does not have yet;
  * no fetcher has more than NEIGHBOURS_MAX neighbours: what is kept grows with the fetchers alone;
  * no chunk is unoffered that was offered and that somebody says it has.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from math import inf
from operator import or_

from daa_dag.ids import NodeId, digest_of

# Fewer chunks than these are fetched from whoever has them: to pass them on takes another way
# there and back, and several copies of 3 MiB leave a link of 100 Mbit/s in half a second.
SPREAD_CHUNKS_MIN = 12
OFFERS_START = 8  # chunks: two answers of four
# Where nobody knows how many will come, to the first; half as many to the second, and then one to
# each: soon they are offered more, and until then whoever comes finds some that nobody has.
START_UNKNOWN = 4
OFFERS_MAX = 32  # as many as a fetcher asks one peer for
# How much longer than the quickest an offer may take, for more at once, and for no fewer: what
# waits for long in front of a link is not on its way to anybody.
QUEUE_S = 0.5
QUEUE_S_MAX = 1.0
# Whoever joins is told of so many others, and so are they: a net of random neighbours, in which
# everything comes to everybody in two or three steps.
NEIGHBOURS_MAX = 8
INTRODUCED_MAX = 2  # in one answer, beside those: to who lacks what they have
TOLD_MAX = NEIGHBOURS_MAX + INTRODUCED_MAX
ORPHANS_MAX = 64  # named in one request
FEW_TIMES = 8  # one in so many are few: of others the first OFFERS_MAX are found in some 256 looks
# A chunk is out for as long as four slow ones, but at least for a second and at most for eight:
# nobody's lies stretch it further. Nobody is late where most wait as long: on two cores that nine
# nodes share, a second passes before anybody has anything, and half a blob would leave twice.
PATIENCE_S_MIN = 1.0
PATIENCE_S_MAX = 8.0
PATIENCE_TIMES = 4
WAITS_KEPT = 16
# Nobody who fetches says nothing for so long: a session that is as silent is given up by then.
QUIET_S = 60.0
CALL_BACK_EVERY_S = PATIENCE_S_MIN / 8


class Patience:
    """How long to wait for what usually takes less: of the newest waits the upper quarter, times 4.

    Where waits grow, as in front of a link, they grow less than that. Of waits that are over the
    shortest are known first: where most wait still, `still_s` says for how long by now.
    """

    def __init__(self, slowness: float = 1.0) -> None:
        """`slowness`: how many times longer than usual everything takes."""
        self._slowness = slowness
        self.still_s = 0.0
        self._waits_s: deque[float] = deque(maxlen=WAITS_KEPT)

    def took(self, wait_s: float) -> None:
        self._waits_s.append(wait_s)

    @property
    def limit_s(self) -> float:
        usual_s = sorted(self._waits_s)[len(self._waits_s) * 3 // 4] if self._waits_s else 0.0
        least_s, most_s = PATIENCE_S_MIN * self._slowness, PATIENCE_S_MAX * self._slowness
        return min(most_s, max(least_s, PATIENCE_TIMES * max(usual_s, self.still_s)))


@dataclass(frozen=True, slots=True)
class Told:
    """What one fetcher is told: its offers, and of others what they have. Masks of chunks."""

    offered: int
    holders: tuple[tuple[NodeId, int], ...]
    news: int  # what it has heard of with this


@dataclass(slots=True)
class _Turn:
    """One chunk's: how many copies may go out, and have, before patience ends."""

    began_s: float
    copies_max: int
    copies: int = 0


@dataclass(slots=True)
class _Fetcher:
    held: int = 0  # mask of chunks, as it says
    given: int = 0  # mask: what it had at first, and what it was offered or sent
    changed: int = 0  # by which news it last had more
    out_s: dict[int, float] = field(default_factory=dict)  # chunk -> since when it is out to it
    sent_s: dict[int, float] = field(default_factory=dict)  # of these, when it was first sent
    window: int = OFFERS_START
    quickest_s: float = inf
    near: list[tuple[bytes, NodeId]] = field(default_factory=list)  # neighbours, nearest first
    introduced: dict[NodeId, None] = field(default_factory=dict)  # to be told of beside them
    told: dict[NodeId, int] = field(default_factory=dict)  # of whom, and what they had
    place: bytes = b""  # its own: where copies for it begin
    taken: int = 0  # how many of what it was offered it then had
    kept: int = 0  # mask of what it took, and nobody else says that it has
    kept_since_s: float = 0.0  # since when there is any, or more may be kept all the same
    named: int = 0  # how often others were told of it beside their neighbours

    def is_late(self, index: int, limit_s: float, now_s: float) -> bool:
        """What was sent a moment ago is on its way, however late it was asked for."""
        was_sent_s = now_s - self.sent_s.get(index, -inf)
        return now_s - self.out_s[index] > limit_s and was_sent_s > PATIENCE_S_MIN

    def settle(self, index: int) -> float:
        """It is out no more. Returns since when it was."""
        self.sent_s.pop(index, None)
        return self.out_s.pop(index)

    def note_wait(self, wait_s: float) -> None:
        self.quickest_s = min(self.quickest_s, wait_s)
        queued_s = wait_s - self.quickest_s
        if queued_s < QUEUE_S:
            self.window = min(OFFERS_MAX, self.window + 1)
        elif queued_s > QUEUE_S_MAX:
            self.window = max(1, self.window - 1)


class _Unoffered:
    """Chunks that nobody was offered, in the order in which they will be."""

    def __init__(self, order: Iterable[int]) -> None:
        self._order = dict.fromkeys(order)
        self.mask = mask_of(self._order)

    def add(self, index: int) -> None:
        """Behind all others."""
        self._order[index] = None
        self.mask |= 1 << index

    def discard(self, index: int) -> None:
        self._order.pop(index, None)
        self.mask &= ~(1 << index)

    def first(self, lacked: int, most: int) -> list[int]:
        """The first of these that are here, `most` at most.

        Whoever claims nearly all of a large blob has us look through nearly all for each that it
        lacks: few are listed instead, whatever their order.
        """
        here = self.mask & lacked
        if not here or not most:
            return []
        if FEW_TIMES * here.bit_count() < len(self._order):
            return indices_of(here)[:most]
        return list(islice((index for index in self._order if here >> index & 1), most))


class Spread:
    """One blob of `chunk_count` chunks. Times are seconds of any clock."""

    def __init__(
        self,
        chunk_count: int,
        receivers: int | None,
        salt: bytes = b"",
        stake_of: Mapping[NodeId, int] | None = None,
        is_alone: bool | None = True,
        twins: int = 0,
    ) -> None:
        """`receivers`: how many are going to want it, about; None: nobody knows, one or hundreds.

        `salt`: of the order of the chunks. `stake_of`: for how much the wait of each counts; of
        others nothing. None: all are equal. `is_alone`: whether nobody else has it whole; None: as
        fetchers show. `twins`: mask of chunks that equal another, with which they come.
        """
        self._stake_of = stake_of
        self._is_alone = is_alone
        self._twins = twins
        self._anywhere = 0  # mask: what fetchers have, wherever it is from
        self._asked_s = -inf  # when a fetcher last said something, or was sent something
        self._chunk_count = chunk_count
        self._all = (1 << chunk_count) - 1
        self._unoffered = _Unoffered(sorted(range(chunk_count), key=shuffled(salt)))
        self._offered = 0  # mask: to anybody, ever
        self._brought = 0  # mask, of these: somebody else has them
        self._turns: dict[int, _Turn] = {}  # of what was offered
        self._called_back_s = -inf
        self._fetchers: dict[NodeId, _Fetcher] = {}
        self._shown: set[NodeId] = set()  # fetchers that have it from others, too
        self._news = 0
        self._receivers = receivers
        self._joined_s = -inf  # when the last fetcher came
        self._lone = 0  # mask of chunks that only one says that it has
        self._takers: dict[int, _Fetcher] = {}  # of these
        self._patience = Patience()

    def tell(
        self, peer: NodeId, have: int, orphans: Iterable[int], heard: int, now_s: float
    ) -> Told:
        """`have`: mask of what it holds. `heard`: the news that it knows, 0 if none.

        `orphans`: chunks, rarest first, that it has no other way to.
        """
        have &= self._all
        self._asked_s = now_s
        fetcher = self._fetchers.get(peer)
        if fetcher is None:
            fetcher, self._joined_s = self._welcome(peer), now_s
            fetcher.given = have  # it came before, from anybody
        if have & ~(fetcher.given | self._anywhere | self._twins):
            self._shown.add(peer)
        self._anywhere |= have
        self._note_held(fetcher, have, now_s)
        self._call_back(now_s)
        for index in self._choice(fetcher, orphans, now_s):
            if len(fetcher.out_s) >= fetcher.window:
                break
            self._offer(fetcher, index, now_s)
        self._check_invariants(fetcher)
        holders = tuple((node, self._fetchers[node].held) for node in self._told(peer, heard))
        return Told(mask_of(fetcher.out_s), holders, self._news)

    def sent(self, peer: NodeId, indices: Iterable[int], now_s: float) -> None:
        """These have left for it. Who asks again and again gains no time."""
        if (fetcher := self._fetchers.get(peer)) is None:
            return
        self._asked_s = now_s
        for index in indices:
            fetcher.given |= 1 << index
            if index in fetcher.out_s and index not in fetcher.sent_s:
                fetcher.sent_s[index] = now_s

    def is_over(self, now_s: float) -> bool:
        """Whether nobody fetches it any more: whoever comes then cannot hope for those before."""
        return now_s - self._asked_s > QUIET_S

    def _welcome(self, peer: NodeId) -> _Fetcher:
        """A new one, with its nearest; to others it may be nearer than some that they have."""
        new = _Fetcher(window=self._start, place=peer)
        for node, other in self._fetchers.items():
            place = (bytes(digest_of(node + peer)), peer)
            if len(other.near) < NEIGHBOURS_MAX or place < other.near[-1]:
                other.near = sorted([*other.near, place])[:NEIGHBOURS_MAX]
        distances = sorted((bytes(digest_of(peer + node)), node) for node in self._fetchers)
        new.near = distances[:NEIGHBOURS_MAX]
        self._fetchers[peer] = new
        return new

    @property
    def _start(self) -> int:
        """How many chunks whoever comes next is offered before it has shown how quick it is."""
        if self._receivers is None:
            return max(1, START_UNKNOWN >> len(self._fetchers))
        among = max(1, self._receivers)
        return max(1, min(OFFERS_START, -(-self._chunk_count // among), OFFERS_MAX // among))

    def _offer(self, fetcher: _Fetcher, index: int, now_s: float) -> None:
        self._offered |= 1 << index
        fetcher.given |= 1 << index
        fetcher.out_s[index] = now_s
        turn = self._turns.get(index)
        if turn is None or now_s - turn.began_s > self._patience.limit_s:
            copies = 1 if turn is None else 2 * turn.copies_max
            turn = self._turns[index] = _Turn(now_s, copies)
        turn.copies += 1
        if turn.copies >= turn.copies_max:
            self._unoffered.discard(index)

    def _note_held(self, fetcher: _Fetcher, have: int, now_s: float) -> None:
        gained = have & ~fetcher.held
        if not gained:
            return
        for index in indices_of(gained & self._lone):
            self._takers.pop(index).kept &= ~(1 << index)
        self._lone &= ~gained
        fetcher.held |= gained
        self._news += 1
        fetcher.changed = self._news
        for index in [index for index in fetcher.out_s if gained >> index & 1]:
            wait_s = now_s - fetcher.settle(index)
            fetcher.taken += 1
            if not self._brought >> index & 1:
                self._takers[index] = fetcher
                self._lone |= 1 << index
                fetcher.kept_since_s = fetcher.kept_since_s if fetcher.kept else now_s
                fetcher.kept |= 1 << index
            self._patience.took(wait_s)
            fetcher.note_wait(wait_s)
        for index in indices_of(gained & self._offered & ~self._brought):
            self._unoffered.discard(index)
        self._brought |= gained & self._offered

    def _call_back(self, now_s: float) -> None:
        """What was out for too long may be offered to others."""
        if now_s - self._called_back_s < CALL_BACK_EVERY_S:
            return
        self._called_back_s = now_s
        self._patience.still_s = self._most_wait_s(now_s)
        limit_s = self._patience.limit_s
        for fetcher in self._fetchers.values():
            late = [index for index in fetcher.out_s if fetcher.is_late(index, limit_s, now_s)]
            if late:
                fetcher.window = 1  # until it shows that it is quicker
                self._take_back(fetcher, late)

    def _most_wait_s(self, now_s: float) -> float:
        """For how long the greater part of all stake, or of all receivers, waits for what is out.

        That is no news of one of them, but of this machine, or its link, or all of theirs; liars
        alone are too few to stretch it. Names without a stake can be many.
        """
        stake_of = self._stake_of or dict.fromkeys(self._fetchers, 1)
        expected = max(self._receivers or 0, len(stake_of))
        total = sum(stake_of.values()) if self._stake_of else expected
        waits_s = [
            (now_s - next(iter(fetcher.out_s.values()), now_s), stake_of.get(node, 0))
            for node, fetcher in self._fetchers.items()
        ]
        waiting = 0
        for wait_s, stake in sorted(waits_s, reverse=True):
            waiting += stake
            if 2 * waiting > total:
                return wait_s
        return 0.0

    def _take_back(self, fetcher: _Fetcher, indices: Iterable[int]) -> None:
        for index in indices:
            fetcher.settle(index)
            if not self._brought >> index & 1 and not self._is_out(index):
                self._unoffered.add(index)
                self._turns[index].began_s = -inf  # over, however long patience is by then

    def _is_out(self, index: int) -> bool:
        return any(index in fetcher.out_s for fetcher in self._fetchers.values())

    def _choice(self, fetcher: _Fetcher, orphans: Iterable[int], now_s: float) -> Iterator[int]:
        """What it may be offered, best first."""
        mine = fetcher.held | mask_of(fetcher.out_s)
        yield from self._unoffered.first(~mine, self._room_of(fetcher, now_s))
        limit_s, others = self._patience.limit_s, self._brought & ~fetcher.held
        strangers = [
            (node, fresh, other)
            for node, other in self._fetchers.items()
            if other is not fetcher and (fresh := other.held & ~fetcher.told.get(node, 0))
        ]
        with_strangers = reduce(or_, (fresh for _, fresh, _ in strangers), 0)
        for index in orphans:
            if not others >> index & 1:
                continue  # it is unoffered, or out, and may still come
            if with_strangers >> index & 1:
                _introduce(fetcher, strangers, index)
            elif index not in fetcher.out_s:
                turn = self._turns[index]
                if turn.copies < turn.copies_max or now_s - turn.began_s > limit_s:
                    yield index
        if self._has_others:
            yield from self._copies(fetcher)

    def _room_of(self, fetcher: _Fetcher, now_s: float) -> int:
        """How much of what nobody has it may get.

        Who claims at once what it is offered looks quicker than all others, and would soon have
        most of a blob: as long as nobody has it from there, it gets an even share, and as much
        again after each patience.
        """
        if self._has_others:
            return OFFERS_MAX
        limit_s = self._patience.limit_s
        if fetcher.kept and now_s - fetcher.kept_since_s > limit_s:
            self._forgive(fetcher)
        # Whoever comes alone, and late, has all of it: several that are whole by now give it parts.
        all_are_here = len(self._fetchers) == 1 or now_s - self._joined_s > limit_s
        among = max(len(self._fetchers), 0 if all_are_here else self._receivers or 0)
        keeps = (fetcher.kept | mask_of(fetcher.out_s)).bit_count()
        return min(OFFERS_MAX, max(0, -(-self._chunk_count // among) - keeps))

    @property
    def _has_others(self) -> bool:
        """Whether others have it whole: then a link that waits for fetchers to pass on is idle."""
        if self._is_alone is not None:
            return not self._is_alone
        return 3 * len(self._shown) > len(self._fetchers)

    def _forgive(self, fetcher: _Fetcher) -> None:
        for index in indices_of(fetcher.kept):
            del self._takers[index]
        self._lone &= ~fetcher.kept
        fetcher.kept = 0

    def _copies(self, fetcher: _Fetcher) -> Iterator[int]:
        """Of the others each that it lacks, beginning anywhere: not all the same ones at once."""
        lacks = self._all & ~fetcher.held & ~mask_of(fetcher.out_s)
        chance = digest_of(b"%d" % self._news + fetcher.place)
        start = int.from_bytes(chance[:4]) % self._chunk_count
        for rest, first in ((lacks >> start, start), (lacks & ((1 << start) - 1), 0)):
            while rest:
                lowest = rest & -rest
                yield first + lowest.bit_length() - 1
                rest ^= lowest

    def _told(self, peer: NodeId, heard: int) -> list[NodeId]:
        """Of whom it hears: of neighbours with more than it has heard of, and of new ones."""
        fetcher = self._fetchers[peer]
        near = [node for _, node in fetcher.near]
        known = [node for node in near if self._fetchers[node].changed > heard]
        fresh = list(fetcher.introduced)
        fetcher.introduced.clear()
        fetcher.told |= {node: self._fetchers[node].held for node in [*near, *fresh]}
        return [*known, *(node for node in fresh if node not in known)]

    def _check_invariants(self, fetcher: _Fetcher) -> None:
        assert len(fetcher.out_s) <= OFFERS_MAX
        assert len(fetcher.near) <= NEIGHBOURS_MAX
        assert not self._brought & self._unoffered.mask


def _introduce(
    fetcher: _Fetcher, strangers: list[tuple[NodeId, int, _Fetcher]], index: int
) -> None:
    """It is going to be told of one who has that chunk, unless it will be of enough others.

    Of one who took what it was offered, before whoever just says so; and of each as often.
    """
    if len(fetcher.introduced) < INTRODUCED_MAX:
        have = [(node, other) for node, fresh, other in strangers if fresh >> index & 1]
        node, other = min(have, key=lambda each: (not each[1].taken, each[1].named))
        other.named += 1
        fetcher.introduced[node] = None


def mask_of(indices: Iterable[int]) -> int:
    each = tuple(indices)
    bits = bytearray(max(each, default=-1) // 8 + 1)
    for index in each:  # or each would copy all those before it
        bits[index // 8] |= 1 << index % 8
    return int.from_bytes(bits, "little")


def indices_of(mask: int) -> list[int]:
    """Ascending."""
    return [
        8 * at + bit
        for at, byte in enumerate(mask.to_bytes((mask.bit_length() + 7) // 8, "little"))
        if byte
        for bit in range(8)
        if byte >> bit & 1
    ]


PlaceOf = Callable[[int], bytes]


def shuffled(salt: bytes) -> PlaceOf:
    """A place for each chunk that looks like chance to whoever does not know the salt."""
    return lambda index: digest_of(salt + b"%d" % index)
