"""What a puppet is like, and whom it has to do with: drawn once for each.

Each is busy with some kinds of statements and leaves the others alone (swarm testing, Groce et al.
2012): some seed does one thing all the time and nothing else. Its lies agree in whom they are for:
two circles hear two versions, and somebody alone a third.

Half of them are creatures of habit instead: all that they say is in order but for what a habit or
two make of it, so that honest nodes believe them for as long as it takes.

    two versions  a statement of a topic has a face for each circle, in time another for everybody
    a crowd       under many fresh keys, brought in by requests: a statement, then its contrary
    again         lists of their proposals name an item several times
    stale         what was heard long ago is said now
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from daa_consensus.votes import Kind
from simnet.world.adversaries.shapes import ACTIONS, BODIES, PAYLOADS, SLOTLESS, fields_of, tuple_of
from simnet.world.adversaries.variations import WAYS

ACTS = ("make up", "repeat", "clone", "endorse", "contradict", "crowd", "replay")
PACES = (0.0, 0.05, 0.2, 0.5)  # of acts, a message
BURSTS = (1, 4, 12, 24)  # statements at a time
# Kinds of statements that messages carry bare: the others travel as operations, or by requests.
WORDS = tuple(
    kind
    for kind in Kind
    if kind not in (Kind.MEMBERSHIP, Kind.OPENING, Kind.ACCUSATION, Kind.VERDICT)
)
# Kinds of statements that belong together: a puppet is busy with one of these groups.
TOPICS = (
    tuple(kind for kind in Kind if kind not in SLOTLESS),
    tuple(kind for kind in Kind if kind in SLOTLESS and kind in WORDS),
    WORDS,
)
RUDE_SHARE = 0.1  # of puppets that send what no decoder takes
VARIED_MAX = 3  # places of one proposal
HABITS = ("a crowd", "again", "stale", "two versions")
HABITS_MAX = 2  # of one puppet


def some(chance: random.Random, items: Sequence[Any]) -> tuple[Any, ...]:
    """A few of them, or all, or none."""
    return tuple(chance.sample(items, min(len(items), chance.choice((0, 1, 1, 2, 3, len(items))))))


@dataclass(frozen=True, slots=True)
class Temper:
    """What one puppet is like; drawn once."""

    forked: tuple[Kind, ...]  # own statements that it gives more faces than one
    hides: bool  # a forked statement from who does not see it, instead of showing another one
    withheld: tuple[Kind, ...]
    secrets: tuple[type, ...]  # messages that it does not write
    tampers: bool  # with its own proposals
    varied: int  # places of such a proposal, at the most
    focus: frozenset[tuple[type, str]]  # fields
    ways: tuple[str, ...]  # in which it changes lists
    bodies: tuple[type, ...]  # that it makes up
    kinds: tuple[Kind, ...]
    actions: tuple[type, ...]
    acts: tuple[str, ...]
    pace: float
    burst: int
    endorses: bool  # what it clones
    keeps_back: bool
    is_rude: bool
    is_lost: bool
    is_odd: bool  # what it makes up may have anybody's name, and any number

    @classmethod
    def drawn(cls, chance: random.Random) -> "Temper":
        """Anything at once, or a habit or two of an otherwise honest node."""
        found = cls._mixed(chance)
        if chance.randrange(2):
            return found
        found = replace(found, **HONEST)
        for habit in chance.sample(HABITS, chance.randint(1, HABITS_MAX)):
            found = replace(found, **_habit(habit, found, chance))
        return found

    @classmethod
    def _mixed(cls, chance: random.Random) -> "Temper":
        words = chance.choice(TOPICS)
        return cls(
            forked=some(chance, words),
            hides=not chance.randrange(4),
            withheld=some(chance, words) if chance.randrange(2) else (),
            secrets=some(chance, BODIES) if not chance.randrange(4) else (),
            tampers=bool(chance.randrange(2)),
            varied=chance.randint(1, VARIED_MAX),
            focus=_focus(chance) if chance.randrange(4) else frozenset(),
            ways=some(chance, WAYS) or WAYS,
            bodies=some(chance, BODIES) or BODIES,
            kinds=some(chance, words) or words,
            actions=some(chance, ACTIONS) or ACTIONS,
            acts=some(chance, ACTS) or ACTS,
            pace=chance.choice(PACES),
            burst=chance.choice(BURSTS),
            endorses=bool(chance.randrange(2)),
            keeps_back=not chance.randrange(4),
            is_rude=chance.random() < RUDE_SHARE,
            is_lost=not chance.randrange(8),
            is_odd=True,
        )


Change = dict[str, Any]  # fields of a Temper

HONEST: Final[Change] = {
    **dict.fromkeys(("forked", "withheld", "secrets", "acts"), ()),
    **dict.fromkeys(("tampers", "endorses", "keeps_back", "is_rude", "is_lost", "is_odd"), False),
    **{"focus": frozenset(), "varied": 0, "pace": 0.0},
}


def _busy(temper: Temper, chance: random.Random, act: str) -> Change:
    return {
        "acts": (*temper.acts, act),
        "pace": chance.choice(PACES[1:]),
        "burst": chance.choice(BURSTS[1:]),
    }


def _habit(name: str, temper: Temper, chance: random.Random) -> Change:
    match name:
        case "two versions":
            return {"forked": chance.choice(TOPICS)}
        case "a crowd":  # what it asks for its crowd it puts into its own sets, too
            return {**_busy(temper, chance, "crowd"), "tampers": True, "endorses": True}
        case "again":
            return {"tampers": True, "varied": 1, "focus": _focus(chance), "ways": ("repeat",)}
        case _:
            return _busy(temper, chance, "replay")


def _focus(chance: random.Random) -> frozenset[tuple[type, str]]:
    """A field of each payload, a list where it has any: there is more to do with them."""
    found: set[tuple[type, str]] = set()
    for of in PAYLOADS:
        places = [place for place, _ in fields_of(of)]
        lists = [place for place, hint in fields_of(of) if tuple_of(hint) is not None]
        if places:
            found.add((of, chance.choice(lists or places)))
    return frozenset(found)


class Company:
    """Whom it has to do with: two circles, neither empty, and of the larger one a confidant."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._circle: dict[int, int] = {}

    @property
    def known(self) -> list[int]:
        return list(self._circle)

    def meet(self, receiver: int) -> None:
        if receiver not in self._circle:
            side = 1 - self._circle[self.known[0]] if len(self._circle) == 1 else None
            self._circle[receiver] = self._chance.randrange(2) if side is None else side

    def circle(self, which: int) -> frozenset[int]:
        return frozenset(each for each, side in self._circle.items() if side == which)

    @property
    def confidant(self) -> frozenset[int]:
        larger = max(self.circle(0), self.circle(1), key=len)
        return frozenset(sorted(larger)[:1])

    def some(self) -> frozenset[int]:
        """A circle, the confidant, all others, or just anybody."""
        chance, known = self._chance, frozenset(self._circle)
        match chance.randrange(8):
            case 0 | 1:
                return self.circle(chance.randrange(2))
            case 2 | 3 | 4 | 5:
                return self.confidant
            case 6:
                return known - self.confidant
            case _:
                return frozenset(each for each in known if chance.randrange(2))

    def audience(self) -> frozenset[int]:
        """Of one lie."""
        return frozenset(self._circle) if self._chance.randrange(3) else self.some()
