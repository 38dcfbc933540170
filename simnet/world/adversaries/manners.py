"""How a puppet daemon serves and listens: what is below messages, and as legal as they are.

    shelves     who asks it for a blob finds it open, closed, slow, dripping, short or damaged;
                half of them have another shelf for each asker
    pages       come late, changed or as they are
    streams     of others' messages it hangs up on after a few; it opens many for a message each

Drawn by a chance of their own: what it serves moves nothing that it says.
"""

import random
from dataclasses import dataclass, field

from daa_dag.ids import NodeId
from simnet.world.adversaries.behaviour import Shelf

# Whose blobs nobody gets is believed in nothing that needs them.
SHELVES = (*[Shelf.OPEN] * len(Shelf), *Shelf)
PAGES_LATE_S = (0.0, 0.0, 0.9, 5.0, 20.0)  # an answer may take 30
HEARD_BEFORE_HANGING_UP = (None, None, None, 0, 1, 8, 64)  # messages of one stream
STREAMS_AT_ONCE = (1, 8, 32)


@dataclass(slots=True)
class Manners:
    """One puppet daemon's."""

    chance: random.Random
    shelf: Shelf
    tells_apart: bool  # each asker finds a shelf of its own
    changes_pages: bool
    pages_late_s: float
    hangs_up_after: int | None  # messages; None: never
    streams_at_once: int
    _shelves: dict[NodeId, Shelf] = field(default_factory=dict)

    @classmethod
    def drawn(cls, chance: random.Random) -> "Manners":
        return cls(
            chance,
            shelf=chance.choice(SHELVES),
            tells_apart=bool(chance.randrange(2)),
            changes_pages=bool(chance.randrange(2)),
            pages_late_s=chance.choice(PAGES_LATE_S),
            hangs_up_after=chance.choice(HEARD_BEFORE_HANGING_UP),
            streams_at_once=chance.choice(STREAMS_AT_ONCE),
        )

    def shelf_of(self, asker: NodeId) -> Shelf:
        if not self.tells_apart:
            return self.shelf
        if asker not in self._shelves:
            self._shelves[asker] = self.chance.choice((self.shelf, *Shelf))
        return self._shelves[asker]
