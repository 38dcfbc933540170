"""Twins: attacks as data. In each view somebody leads, and the hosts hear each other in parts.

A twin is one key on two hosts of honest code (Bano et al. 2020, "Twins: BFT Systems Made Robust").
A host is a place (node, body); a scene says of one view who leads it and which hosts share a part;
what speaks of that view passes between hosts of one part only, until the scene is over. Whatever
equivocation, double vote, lost certificate or amnesia can do to the votes of a view, twins in
different parts do, without a line of dishonest code.

`enumerated` gives every script of two parts a view once: scripts are equal that differ in the names
of honest nodes, of twins, of a twin's bodies or of the parts. A scene is a bit of each host's row:

    views      1  2  3
    (0, 0)     0  0  0     a twin's first body: its parts are called 0
    (0, 1)     1  0  1     any row
    leaders    1  1  0     honest nodes that lead a view: any row each
    others     ...         any multiset of rows

Of the images of a script under swaps of bodies and of twins, the least one is given.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations, product
from random import Random

from daa_consensus.votes import Kind
from simnet.world.random_changes import keeps_promise
from simnet.world.scenario import AdversaryConfig, ChangeConfig, FaultConfig

Place = tuple[int, int]  # (node, body)

SCENE_DELTAS = 8  # a view gives up after 3, twice that after one that was given up
PARTS_MAX = 3  # of a sampled scene
LONG_EPOCH_ROUNDS = 64  # leaders can be chosen in the first epoch only


@dataclass(frozen=True, slots=True)
class Scene:
    """One view. `hidden` names hosts that alone get what is of a kind.

    `silent`: what speaks of no view, but of a round or of nothing, stays inside the parts as well.
    """

    leader: int | None  # None: whoever the schedule says
    parts: tuple[frozenset[Place], ...]  # hosts that share one hear each other; parts may overlap
    hidden: tuple[tuple[Kind, frozenset[Place]], ...] = ()
    deltas: int = SCENE_DELTAS  # how long it lasts from the first statement about it
    silent: bool = False

    def hears(self, sender: Place, receiver: Place, kind: Kind | None) -> bool:
        """Whether a statement of this view passes while the scene lasts."""
        if any(kind is hidden and receiver not in seers for hidden, seers in self.hidden):
            return False
        return any(sender in part and receiver in part for part in self.parts)


@dataclass(frozen=True, slots=True)
class Script:
    """A whole attack on `nodes` of equal stake, scene by scene from view 1 on.

    The last `standing_by` of them are no validators at first; `changes` are asked for meanwhile.
    Those `from_change` leave the leaders to the schedule, and count the views of the epoch in which
    a change takes effect. Until then everything passes but what a twin's second body signs.
    """

    name: str
    nodes: int
    twins: tuple[int, ...]
    scenes: tuple[Scene, ...]
    faults: tuple[FaultConfig, ...] = ()
    liars: tuple[AdversaryConfig, ...] = ()  # besides the twins
    epoch_rounds: int = LONG_EPOCH_ROUNDS
    from_change: bool = False
    standing_by: int = 0
    changes: tuple[ChangeConfig, ...] = ()
    seed: int = 0

    @property
    def places(self) -> tuple[Place, ...]:
        return places_of(self.nodes, self.twins)

    def is_survivable(self, faulty: Collection[int]) -> bool:
        """Whether these weigh at most f in every committee that there may come to be."""
        return keeps_promise(self.nodes - self.standing_by, self.changes, faulty)


def places_of(nodes: int, twins: tuple[int, ...]) -> tuple[Place, ...]:
    """All hosts: the second bodies come after the others."""
    return (*((node, 0) for node in range(nodes)), *((node, 1) for node in twins))


# Enumeration. Twins are nodes 0 to t-1; rows are integers whose bits are the views' parts.

Leaders = tuple[int, ...]  # by view: -1 - i is twin i, k the k-th honest node to lead
Rows = tuple[Leaders, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def enumerated(nodes: int, twins: int, views: int, only_twins_lead: bool = False) -> list[Script]:
    """Every script of two parts a view, up to symmetry, named by its place in this list."""
    found: list[Script] = []
    honest = nodes - twins
    for leaders in _leaders(twins, honest, views, only_twins_lead):
        leading = max(leaders) + 1 if max(leaders) >= 0 else 0
        bodies = product(range(1 << views), repeat=2 * twins - 1)
        for free in bodies:
            for led in product(range(1 << views), repeat=leading):
                for rest in combinations_with_replacement(range(1 << views), honest - leading):
                    rows = (leaders, (0, *free), led, rest)
                    if rows == min(_images(rows)):
                        found.append(_script(rows, nodes, twins, views, len(found)))
    return found


def _leaders(twins: int, honest: int, views: int, only_twins: bool) -> Iterator[Leaders]:
    """Honest leaders are numbered in the order in which they first lead."""
    choices = [*(-1 - twin for twin in range(twins)), *range(0 if only_twins else honest)]
    for leaders in product(choices, repeat=views):
        first = dict.fromkeys(leader for leader in leaders if leader >= 0)
        if list(first) == list(range(len(first))):
            yield leaders


def _images(rows: Rows) -> Iterator[Rows]:
    """The same script under every naming of twins and of their bodies."""
    leaders, bodies, led, rest = rows
    twins = len(bodies) // 2
    pairs = [bodies[2 * twin : 2 * twin + 2] for twin in range(twins)]
    for order in permutations(range(twins)):
        renamed = {-1 - old: -1 - new for new, old in enumerate(order)}
        for flips in product((False, True), repeat=twins):
            flat = [
                row for old in order for row in (pairs[old][::-1] if flips[old] else pairs[old])
            ]
            shift = flat[0]  # the parts of the first body are called 0
            yield (
                tuple(renamed.get(leader, leader) for leader in leaders),
                tuple(row ^ shift for row in flat),
                tuple(row ^ shift for row in led),
                tuple(sorted(row ^ shift for row in rest)),
            )


def _script(rows: Rows, nodes: int, twins: int, views: int, index: int) -> Script:
    leaders, bodies, led, rest = rows
    row_of: dict[Place, int] = {(i // 2, i % 2): row for i, row in enumerate(bodies)}
    row_of |= {(twins + i, 0): row for i, row in enumerate((*led, *rest))}
    scenes = []
    for view in range(views):
        sides = [frozenset(p for p, row in row_of.items() if row >> view & 1 == s) for s in (0, 1)]
        leader = leaders[view]
        who = -1 - leader if leader < 0 else twins + leader
        scenes.append(Scene(who, tuple(side for side in sides if side)))
    return Script(f"{index}", nodes, tuple(range(twins)), tuple(scenes), seed=index)


def sampled(nodes: int, twins: int, views: int, seed: int) -> Script:
    """A random script: up to three parts a view, anybody leads, twins more often than others."""
    chance = Random(seed)
    traitors = tuple(range(twins))
    places = places_of(nodes, traitors)
    scenes = []
    for _ in range(views):
        side_of = {place: chance.randrange(PARTS_MAX) for place in places}
        sides = [frozenset(p for p in places if side_of[p] == side) for side in range(PARTS_MAX)]
        leader = chance.choice(traitors) if chance.random() < 0.5 else chance.randrange(nodes)
        scenes.append(Scene(leader, tuple(side for side in sides if side)))
    return Script(f"{seed}", nodes, traitors, tuple(scenes), seed=seed)
