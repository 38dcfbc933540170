"""Attacks with a name, each aimed at one line of the proof (docs/consensus.md).

Nodes 0 and up are twins where there are any: A and B are their bodies. Four nodes need three for a
quorum, seven need five.
"""

from random import Random

from daa_consensus.votes import Kind
from simnet.results.twins.scripts import Place, Scene, Script, places_of
from simnet.world.scenario import AdversaryConfig, AdversaryKind, ChangeConfig, FaultConfig

SUSTAINED_VIEWS = 50
SUSTAINED_DELTAS = 4  # of each of them: most end before their scene does
MEMBERS_VIEWS, MEMBERS_DELTAS = 16, 4
LONG_DELTAS = 24  # outlasts two views that are given up
OVERTHROW_DELTAS, OVERTHROW_VIEWS = 2 * LONG_DELTAS, 6
AWAY_S, AWAY_VIEWS = 6.0, 24  # 24 delta: what it takes to cross two boundaries


def _part(*places: Place | int) -> frozenset[Place]:
    """Hosts; a number stands for a node's first body."""
    return frozenset((place, 0) if isinstance(place, int) else place for place in places)


def _all(nodes: int, twins: tuple[int, ...]) -> tuple[frozenset[Place], ...]:
    return (frozenset(places_of(nodes, twins)),)


A, B = (0, 0), (0, 1)
A1, B1 = (1, 0), (1, 1)
A2, B2 = (2, 0), (2, 1)
ONE, TWO, SEVEN_ONE = (0,), (0, 1), (0,)


def _halves() -> list[Script]:
    disjoint = [(_part(A, 1), _part(B, 2, 3)), (_part(A, 1, 2), _part(B, 3))]
    overlapping = [
        (_part(A, 1, 2), _part(B, 2, 3)),
        (_part(A, 1, 3), _part(B, 1, 2)),
        (_part(A, 2, 3), _part(B, 1, 3)),
        (_part(A, 1, 2), _part(B, 1, 2, 3)),
    ]
    wide = (_part(A, A1, 2, 3, 4), _part(B, B1, 4, 5, 6))  # two quorums of seven that share node 4
    return [
        Script("leader-twin-disjoint", 4, ONE, tuple(Scene(0, parts) for parts in disjoint * 2)),
        Script("leader-twin-overlapping", 4, ONE, tuple(Scene(0, p) for p in overlapping)),
        Script("double-notarize", 7, TWO, (Scene(0, wide), Scene(1, wide), Scene(0, wide))),
        Script(
            "consecutive-twin-leaders",
            4,
            ONE,
            tuple(Scene(0, parts) for parts in (_all(4, ONE), *overlapping[:2], _all(4, ONE)) * 2),
        ),
    ]


def _certificates() -> list[Script]:
    """A certificate exists, and hardly anybody has it."""
    everyone = _all(4, ONE)
    split = (_part(A, 1, 2), _part(B, 3))
    return [
        # One node alone sees view 1 final, from Finalizes of A, 1 and 2; B and 3 nullify it.
        Script(
            "finalize-nullify-split",
            4,
            ONE,
            (
                Scene(0, split, ((Kind.FINALIZE, _part(1)),), LONG_DELTAS),
                Scene(2, (_part(B, 2, 3), _part(A, 1))),
                Scene(0, (_part(A, B, 2, 3), _part(1))),
            ),
        ),
        # A alone can build the notarization of an honest leader's block; the rest nullify view 1.
        Script(
            "certificate-withheld-two-views",
            4,
            ONE,
            (
                Scene(1, everyone, ((Kind.NOTARIZE, _part(A)),), LONG_DELTAS),
                Scene(2, everyone, ((Kind.NULLIFY, _part(1, 2)),)),
                Scene(3, everyone),
                Scene(0, split),
            ),
        ),
        # One honest node alone sees it, finalizes, and may never nullify.
        Script(
            "notarization-seen-by-one",
            4,
            ONE,
            (
                Scene(0, everyone, ((Kind.NOTARIZE, _part(3)),), LONG_DELTAS),
                Scene(0, split),
                Scene(3, everyone, ((Kind.NOTARIZE, _part(1)),), LONG_DELTAS),
            ),
        ),
    ]


def _lives() -> list[Script]:
    """Epochs, disks, crashes and clocks. Everybody is up after 1 s, and votes from 1.3 s on."""
    flip = [(_part(A, 1, 2), _part(B, 3)), (_part(A, 3), _part(B, 1, 2))]
    wide = [
        (_part(A, 1, 2, 3, 4), _part(B, 4, 5, 6)),
        (_part(A, 2, 5, 6), _part(B, 1, 2, 3, 4)),
    ]
    amnesiac = (Scene(3, (_part(1, 3), _part(0, 2))), Scene(3, (_part(0, 3), _part(1, 2))))

    def disk(what: str, at_s: float, for_s: float, node: int) -> FaultConfig:
        fields = {"kind": "disk", "disk": what, "at_s": at_s, "for_s": for_s, "nodes": (node,)}
        return FaultConfig.model_validate(fields)

    def clock(node: int, skew_ms: float, drift_ppm: float) -> FaultConfig:
        return FaultConfig(
            kind="clock", at_s=0.0, for_s=8.0, nodes=(node,), skew_ms=skew_ms, drift_ppm=drift_ppm
        )

    crash = FaultConfig(kind="kill", at_s=1.8, for_s=4.0, nodes=(1,))
    return [
        Script(
            "twin-across-epochs",
            4,
            ONE,
            tuple(Scene(None, parts, deltas=3) for parts in flip * 8),
            epoch_rounds=1,
        ),
        Script(
            "log-deleted",
            4,
            ONE,
            tuple(Scene(0, parts) for parts in flip),
            (disk("wiped", 1.6, 0.6, 2),),
        ),
        Script("log-rolled-back", 4, (), amnesiac, (disk("rolled_back", 1.3, 0.4, 3),)),
        Script(
            "log-rolled-back-beside-a-twin",
            7,
            SEVEN_ONE,
            tuple(Scene(leader, parts) for leader, parts in zip((0, 6), wide, strict=True)),
            (disk("rolled_back", 1.3, 0.4, 6),),
        ),
        Script(
            "twin-and-a-crash",
            7,
            SEVEN_ONE,
            tuple(Scene(0, parts) for parts in wide * 2),
            (crash,),
        ),
        Script(
            "skewed-clocks",
            4,
            ONE,
            tuple(Scene(0, parts) for parts in flip * 2),
            (clock(1, 2000.0, 50_000.0), clock(2, -2000.0, -50_000.0), clock(3, 0.0, 100_000.0)),
        ),
    ]


def _claims() -> list[Script]:
    """Lies about work: roots, Acks and results."""
    split = (_part(0, 1, 2), _part(0, 3))

    def beside(name: str, kind: AdversaryKind) -> Script:
        liars = (AdversaryConfig(kind=kind, nodes=(0,)),)
        return Script(name, 4, (), (Scene(0, split), Scene(1, split)), liars=liars)

    return [
        beside("contributor-with-two-roots", "double_offerer"),
        beside("false-ack", "false_acker"),
        beside("false-exec", "false_executor"),
    ]


def _members() -> list[Script]:
    """Twins that come, go and change while they are two: an epoch a round, twelve views of it.

    B gets no vote and no certificate: it stays behind in an epoch in which its key is a member, and
    says so to everybody.
    """

    def behind(nodes: int, twins: tuple[int, ...], body: Place) -> tuple[Scene, ...]:
        (everyone,) = _all(nodes, twins)
        kinds = (Kind.NOTARIZE, Kind.NULLIFY, Kind.FINALIZE)
        hidden = tuple((kind, everyone - {body}) for kind in kinds)
        return (Scene(None, (everyone,), hidden, deltas=MEMBERS_DELTAS),) * MEMBERS_VIEWS

    def apart(*splits: tuple[frozenset[Place], ...]) -> tuple[Scene, ...]:
        views = range(MEMBERS_VIEWS)
        return tuple(
            Scene(None, splits[view % len(splits)], deltas=MEMBERS_DELTAS) for view in views
        )

    leave = ChangeConfig(kind="leave", at_s=0.0, node=0)
    rotate = ChangeConfig(kind="rotate", at_s=0.0, node=1, successor=4)
    heavier = ChangeConfig(kind="stake", at_s=0.0, node=0, stake=2)
    join = ChangeConfig(kind="join", at_s=0.0, node=4, stake=1)
    back = ChangeConfig(kind="join", at_s=3.0, node=0, stake=1)
    A4, B4 = (4, 0), (4, 1)

    def script(
        name: str, nodes: int, twins: tuple[int, ...], scenes: tuple[Scene, ...],
        changes: tuple[ChangeConfig, ...], standing_by: int = 0,
    ) -> Script:  # fmt: skip
        return Script(
            name, nodes, twins, scenes, epoch_rounds=1, standing_by=standing_by, changes=changes
        )

    return [
        script("twin-leaves", 5, ONE, behind(5, ONE, B), (leave,)),
        script("twin-leaves-and-returns", 5, ONE, behind(5, ONE, B), (leave, back)),
        script("heir-is-a-twin", 5, (4,), behind(5, (4,), B4), (rotate,), 1),
        script(
            "twin-gains-stake",
            7,
            ONE,
            apart(
                (_part(A, 1, 2, 3, 4), _part(B, 4, 5, 6, 1, 2)),
                (_part(A, 1, 2, 3, 4, 5), _part(B, 5, 6)),
            ),
            (heavier,),
        ),
        script(
            "joiner-is-a-twin",
            5,
            (4,),
            apart(
                (_part(A4, 0, 1, 2), _part(B4, 1, 2, 3)),
                (_part(A4, 0, 1, 2, 3), _part(B4, 3)),
                _all(5, (4,)),
            ),
            (join,),
            1,
        ),
    ]


def _sustained(nodes: int, twins: tuple[int, ...]) -> Script:
    """A new split for each of many views."""
    chance = Random(nodes)
    places = places_of(nodes, twins)
    scenes = []
    for _ in range(SUSTAINED_VIEWS):
        inside = frozenset(place for place in places if chance.randrange(2))
        parts = tuple(part for part in (inside, frozenset(places) - inside) if part)
        leader = chance.choice((*twins, chance.randrange(nodes)))
        scenes.append(Scene(leader, parts, deltas=SUSTAINED_DELTAS))
    return Script(f"sustained-{SUSTAINED_VIEWS}-views-{nodes}", nodes, twins, tuple(scenes))


def safe() -> list[Script]:
    """At most f are faulty: everything must hold."""
    sustained = [_sustained(4, ONE), _sustained(7, TWO)]
    return [*_halves(), *_certificates(), *_lives(), *_claims(), *_members(), *sustained]


def unsafe() -> list[Script]:
    """f+1 twins: each side is a quorum of its own. It must fork, and the audit must see it."""
    four = (_part(A, A1, 2), _part(B, B1, 3))
    seven = (_part(A, A1, A2, 3, 4), _part(B, B1, B2, 5, 6))
    views = range(OVERTHROW_VIEWS)
    return [
        Script(
            "one-twin-too-many-of-4",
            4,
            (0, 1),
            tuple(Scene(view % 2, four, deltas=OVERTHROW_DELTAS) for view in views),
        ),
        Script(
            "one-twin-too-many-of-7",
            7,
            (0, 1, 2),
            tuple(Scene(view % 3, seven, deltas=OVERTHROW_DELTAS) for view in views),
        ),
        *_overthrows(),
    ]


def _overthrows() -> list[Script]:
    """f+1 twins of one committee alone, on either side of a change of members."""
    A4, B4, A7, B7 = (4, 0), (4, 1), (7, 0), (7, 1)

    def newcomer(
        nodes: int, twins: tuple[int, ...], leaver: int, sides: tuple[frozenset[Place], ...]
    ) -> Script:
        """Who takes over a seat is one twin more than its committee survives."""
        change = ChangeConfig(kind="rotate", at_s=0.0, node=leaver, successor=nodes)
        settle = Scene(None, ())  # so that the newcomer knows the boundary, and no more, by pages
        return Script(
            f"newcomer-is-one-twin-too-many-of-{nodes}",
            nodes + 1,
            twins,
            (
                settle,
                *(Scene(None, sides, deltas=OVERTHROW_DELTAS, silent=True),) * OVERTHROW_VIEWS,
            ),
            epoch_rounds=1,
            from_change=True,
            standing_by=1,
            changes=(change,),
        )

    # One side goes on and hands over two seats while node 3 is away. Then those who left tell it
    # another past: together they are a quorum of the epoch in which they were members.
    gone = tuple(
        ChangeConfig(kind="rotate", at_s=0.0, node=node, successor=4 + node) for node in (0, 1)
    )
    sides = (_part(A, A1, 2, 4, 5), _part(B, B1, 3))
    return [
        newcomer(4, (0, 4), 1, (_part(A, A4, 1, 2), _part(B, B4, 3))),
        newcomer(7, (0, 1, 7), 2, (_part(A, A1, A7, 2, 3, 4), _part(B, B1, B7, 5, 6))),
        Script(
            "former-members-sign-another-past",
            6,
            (0, 1),
            (Scene(0, sides, deltas=OVERTHROW_DELTAS, silent=True),) * AWAY_VIEWS,
            (FaultConfig(kind="kill", at_s=0.0, for_s=AWAY_S, nodes=(3,)),),
            epoch_rounds=1,
            standing_by=2,
            changes=gone,
        ),
    ]
