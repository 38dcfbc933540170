"""Attacks with a name, each aimed at one line of the proof (docs/consensus.md).

Parts are written like "01|0'23": node 0 hears node 1, and its twin's other body, 0', hears 2 and 3.
Four nodes need three for a quorum, seven need five.
"""

import re
from dataclasses import replace
from random import Random

from daa_consensus.votes import Kind
from simnet.results.twins.scripts import SCENE_DELTAS, Place, Scene, Script, places_of
from simnet.world.scenario import AdversaryConfig, AdversaryKind, ChangeConfig, FaultConfig

SUSTAINED_VIEWS = 50
SUSTAINED_DELTAS = 4  # of each of them: most end before their scene does
MEMBERS_VIEWS, MEMBERS_DELTAS = 16, 4
LONG_DELTAS = 24  # outlasts two views that are given up
OVERTHROW_DELTAS, OVERTHROW_VIEWS = 2 * LONG_DELTAS, 6
AWAY_S, AWAY_VIEWS = 6.0, 24  # 24 delta: what it takes to cross two boundaries
ONE, TWO = (0,), (0, 1)  # twins
ALL = "00'123"  # four nodes, one of them a twin


def _hosts(part: str) -> frozenset[Place]:
    return frozenset((int(node), len(body)) for node, body in re.findall("(.)('?)", part))


def _scene(leader: int | None, parts: str, deltas: int = SCENE_DELTAS, **seen_by: str) -> Scene:
    """`seen_by`: of a kind of statement, whom alone it reaches."""
    hidden = tuple((Kind(kind), _hosts(hosts)) for kind, hosts in seen_by.items())
    return Scene(leader, tuple(map(_hosts, parts.split("|"))), hidden, deltas)


def _led(leader: int | None, *parts: str, deltas: int = SCENE_DELTAS) -> tuple[Scene, ...]:
    """A view for each of these, led by the same node."""
    return tuple(_scene(leader, each, deltas) for each in parts)


def _halves() -> list[Script]:
    disjoint = ("01|0'23", "012|0'3")
    overlapping = ("012|0'23", "013|0'12", "023|0'13", "012|0'123")
    wide = "01234|0'1'456"  # two quorums of seven that share node 4
    united = (ALL, *overlapping[:2], ALL)
    return [
        Script("leader-twin-disjoint", 4, ONE, _led(0, *disjoint * 2)),
        Script("leader-twin-overlapping", 4, ONE, _led(0, *overlapping)),
        Script("double-notarize", 7, TWO, tuple(_scene(leader, wide) for leader in (0, 1, 0))),
        Script("consecutive-twin-leaders", 4, ONE, _led(0, *united * 2)),
    ]


def _certificates() -> list[Script]:
    """A certificate exists, and hardly anybody has it."""
    split = "012|0'3"
    # One node alone sees view 1 final, from Finalizes of 0, 1 and 2; 0' and 3 nullify it.
    parted = (
        _scene(0, split, LONG_DELTAS, finalize="1"),
        _scene(2, "0'23|01"),
        _scene(0, "00'23|1"),
    )
    # 0 alone can build the notarization of an honest leader's block; the rest nullify view 1.
    withheld = (
        _scene(1, ALL, LONG_DELTAS, notarize="0"),
        _scene(2, ALL, nullify="12"),
        _scene(3, ALL),
        _scene(0, split),
    )
    # One honest node alone sees it, finalizes, and may never nullify.
    seen_by_one = (
        _scene(0, ALL, LONG_DELTAS, notarize="3"),
        _scene(0, split),
        _scene(3, ALL, LONG_DELTAS, notarize="1"),
    )
    return [
        Script("finalize-nullify-split", 4, ONE, parted),
        Script("certificate-withheld-two-views", 4, ONE, withheld),
        Script("notarization-seen-by-one", 4, ONE, seen_by_one),
    ]


def _lives() -> list[Script]:
    """Epochs, disks, crashes and clocks. Everybody is up after 1 s, and votes from 1.3 s on."""
    flip = ("012|0'3", "03|0'12")
    wide = ("01234|0'456", "0256|0'1234")
    wiped = FaultConfig(kind="disk", disk="wiped", at_s=1.6, for_s=0.6, nodes=(2,))
    rolled_back = FaultConfig(kind="disk", disk="rolled_back", at_s=1.6, for_s=0.4, nodes=(3,))
    of_seven = rolled_back.model_copy(update={"nodes": (6,)})
    crash = FaultConfig(kind="kill", at_s=1.8, for_s=4.0, nodes=(1,))
    clocks = tuple(
        FaultConfig(kind="clock", at_s=0, for_s=8, nodes=(node,), skew_ms=ms, drift_ppm=ppm)
        for node, ms, ppm in ((1, 2000, 50_000), (2, -2000, -50_000), (3, 0, 100_000))
    )
    beside = "log-rolled-back-beside-a-twin"
    return [
        Script("twin-across-epochs", 4, ONE, _led(None, *flip * 8, deltas=3), epoch_rounds=1),
        Script("log-deleted", 4, ONE, _led(0, *flip), (wiped,)),
        Script("log-rolled-back", 4, (), _led(3, "13|02", "03|12"), (rolled_back,)),
        Script(beside, 7, ONE, (_scene(0, wide[0]), _scene(6, wide[1])), (of_seven,)),
        Script("twin-and-a-crash", 7, ONE, _led(0, *wide * 2), (crash,)),
        Script("skewed-clocks", 4, ONE, _led(0, *flip * 2), clocks),
    ]


def _claims() -> list[Script]:
    """Lies about work: roots, Acks and results."""
    kinds: dict[str, AdversaryKind] = {
        "contributor-with-two-roots": "double_offerer",
        "false-ack": "false_acker",
        "false-exec": "false_executor",
    }
    scenes = (_scene(0, "012|03"), _scene(1, "012|03"))
    return [
        Script(name, 4, (), scenes, liars=(AdversaryConfig(kind=kind, nodes=(0,)),))
        for name, kind in kinds.items()
    ]


def _members() -> list[Script]:
    """Twins that come, go and change while they are two: an epoch a round, twelve views of it.

    A body that is `behind` gets no vote and no certificate: it stays in an epoch in which its key
    is a member, and says so to everybody.
    """

    def behind(everyone: str, body: str) -> tuple[Scene, ...]:
        others = everyone.replace(body, "")
        words = {"notarize": others, "nullify": others, "finalize": others}
        return (_scene(None, everyone, MEMBERS_DELTAS, **words),) * MEMBERS_VIEWS

    def apart(*splits: str) -> tuple[Scene, ...]:
        views = range(MEMBERS_VIEWS)
        return tuple(_scene(None, splits[v % len(splits)], MEMBERS_DELTAS) for v in views)

    def script(
        name: str, nodes: int, twin: int, scenes: tuple[Scene, ...], *changes: ChangeConfig
    ) -> Script:
        outside = sum(4 in (change.successor, change.node) for change in changes)
        return Script(
            *(name, nodes, (twin,), scenes), epoch_rounds=1, standing_by=outside, changes=changes
        )

    leave = ChangeConfig(kind="leave", at_s=0.0, node=0)
    rotate = ChangeConfig(kind="rotate", at_s=0.0, node=1, successor=4)
    heavier = ChangeConfig(kind="stake", at_s=0.0, node=0, stake=2)
    join = ChangeConfig(kind="join", at_s=0.0, node=4, stake=1)
    back = ChangeConfig(kind="join", at_s=3.0, node=0, stake=1)
    gaining = apart("01234|0'45612", "012345|0'56")
    joining = apart("4012|4'123", "40123|4'3", "012344'")
    return [
        script("twin-leaves", 5, 0, behind("012340'", "0'"), leave),
        script("twin-leaves-and-returns", 5, 0, behind("012340'", "0'"), leave, back),
        script("heir-is-a-twin", 5, 4, behind("012344'", "4'"), rotate),
        script("twin-gains-stake", 7, 0, gaining, heavier),
        script("joiner-is-a-twin", 5, 4, joining, join),
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

    def overthrow(nodes: int, twins: tuple[int, ...], sides: str) -> Script:
        leaders = [twins[view % len(twins)] for view in range(OVERTHROW_VIEWS)]
        scenes = tuple(_scene(leader, sides, OVERTHROW_DELTAS) for leader in leaders)
        return Script(f"one-twin-too-many-of-{nodes}", nodes, twins, scenes)

    return [
        overthrow(4, (0, 1), "012|0'1'3"),
        overthrow(7, (0, 1, 2), "01234|0'1'2'56"),
        *_overthrows(),
    ]


def _overthrows() -> list[Script]:
    """f+1 twins of one committee alone, on either side of a change of members."""

    def silent(leader: int | None, sides: str) -> Scene:
        return replace(_scene(leader, sides, OVERTHROW_DELTAS), silent=True)

    def newcomer(nodes: int, twins: tuple[int, ...], leaver: int, sides: str) -> Script:
        """Who takes over a seat is one twin more than its committee survives."""
        change = ChangeConfig(kind="rotate", at_s=0.0, node=leaver, successor=nodes)
        settle = Scene(None, ())  # so that the newcomer knows the boundary, and no more, by pages
        return Script(
            f"newcomer-is-one-twin-too-many-of-{nodes}",
            nodes + 1,
            twins,
            (settle, *(silent(None, sides),) * OVERTHROW_VIEWS),
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
    return [
        newcomer(4, (0, 4), 1, "0412|0'4'3"),
        newcomer(7, (0, 1, 7), 2, "017234|0'1'7'56"),
        Script(
            "former-members-sign-another-past",
            6,
            (0, 1),
            (silent(0, "01245|0'1'3"),) * AWAY_VIEWS,
            (FaultConfig(kind="kill", at_s=0.0, for_s=AWAY_S, nodes=(3,)),),
            epoch_rounds=1,
            standing_by=2,
            changes=gone,
            seed=1,  # one in four forks nothing
        ),
    ]
