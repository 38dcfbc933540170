"""What a puppet is like, and whom it has to do with: drawn once for each.

Each is busy with some kinds of words and leaves the others alone (swarm testing, Groce et al.
2012): some seed does one thing all the time and nothing else. Its lies agree in whom they are for:
two circles hear two stories, and somebody alone a third.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daa_consensus.votes import Kind
from simnet.adversaries.shapes import ACTIONS, BODIES, PAYLOADS, SLOTLESS, fields_of, tuple_of
from simnet.adversaries.variations import WAYS

ACTS = ("make up", "repeat", "clone", "endorse", "contradict")
PACES = (0.0, 0.05, 0.2, 0.5)  # of acts, a letter
BURSTS = (1, 4, 12, 24)  # words at a time
WORDS = tuple(kind for kind in Kind if kind is not Kind.MEMBERSHIP)  # that letters carry bare
# Kinds of words that belong together: a puppet is busy with one of these groups.
TOPICS = (
    tuple(kind for kind in Kind if kind not in SLOTLESS),
    tuple(kind for kind in Kind if kind in SLOTLESS and kind in WORDS),
    WORDS,
)
RUDE_SHARE = 0.1  # of puppets that send what no decoder takes


def some(chance: random.Random, items: Sequence[Any]) -> tuple[Any, ...]:
    """A few of them, or all, or none."""
    return tuple(chance.sample(items, min(len(items), chance.choice((0, 1, 1, 2, 3, len(items))))))


@dataclass(frozen=True, slots=True)
class Temper:
    """What one puppet is like; drawn once."""

    forked: tuple[Kind, ...]  # own words that it gives more faces than one
    withheld: tuple[Kind, ...]
    secrets: tuple[type, ...]  # letters that it does not write
    tampers: bool  # with its own proposals
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

    @classmethod
    def drawn(cls, chance: random.Random) -> "Temper":
        words = chance.choice(TOPICS)
        return cls(
            forked=some(chance, words),
            withheld=some(chance, words) if chance.randrange(2) else (),
            secrets=some(chance, BODIES) if not chance.randrange(4) else (),
            tampers=bool(chance.randrange(2)),
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
        )


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
    """Whom it has to do with: two circles, and of the larger one somebody who is told more."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._circle: dict[int, int] = {}

    @property
    def known(self) -> list[int]:
        return list(self._circle)

    def meet(self, receiver: int) -> None:
        if receiver not in self._circle:
            self._circle[receiver] = self._chance.randrange(2)

    def circle(self, which: int) -> frozenset[int]:
        return frozenset(each for each, side in self._circle.items() if side == which)

    @property
    def confidant(self) -> frozenset[int]:
        larger = max(self.circle(0), self.circle(1), key=len)
        return frozenset(sorted(larger)[:1])

    def some(self) -> frozenset[int]:
        """A circle, the confidant, all others, or just anybody."""
        chance, known = self._chance, frozenset(self._circle)
        match chance.randrange(6):
            case 0 | 1:
                return self.circle(chance.randrange(2))
            case 2 | 3:
                return self.confidant
            case 4:
                return known - self.confidant
            case _:
                return frozenset(each for each in known if chance.randrange(2))

    def audience(self) -> frozenset[int]:
        """Of one lie."""
        return frozenset(self._circle) if self._chance.randrange(3) else self.some()
