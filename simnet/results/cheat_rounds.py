"""In how many rounds a cheat is found, and is out, beside what the lot predicts.

A round draws the cheat's contribution with a share, and then one of its segments. So it finds the
cheat with the chance p = share x segments whose check shows it / segments: after 1 / p rounds on
average, and in 95 of 100 runs within log 0.05 / log (1 - p). Most cheats show in every check, for
each looks at the seal as well; those of IN_ONE_SEGMENT show in one segment. Of a round that was cut
short fewer segments may hold one: p is the mean over the contributions that there were.

Rounds are counted in contributions of the cheat that a quorum acknowledged, from the first one that
was not honest.
"""

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, comb, log
from statistics import fmean
from typing import Any, Final, get_args

from daa_node.training.boundaries import boundary_steps
from simnet.checks.spot_check_audit import DROWNED, IN_ONE_SEGMENT
from simnet.nodes.processes.run import run_processes
from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import UP, Trace
from simnet.world.scenario import Cheat, Scenario

SURE = 0.95
RARE = 1e-3
SEGMENTS = 4
STEPS_OF_A_SEGMENT = 4
WITHIN_S = 1800  # of a run; rounds take less than a second
# From the first finding: it is asked for four rounds to open, then the whole segment is replayed by
# the accuser and by a quorum, a few rounds each, and a set with their verdicts is to be decided.
OUT_WITHIN = 24
SIX: Final[tuple[Cheat, ...]] = (
    "stale_base",
    "skips_steps",
    "rounds_weights",
    "doubles_gradients",
    "wrong_batches",
    "copies_update",
)
# What drowns shows only to who is calibrated, and that takes longer than these runs.
TOLD: Final[tuple[Cheat, ...]] = tuple(sorted({*get_args(Cheat)} - DROWNED))
Event = dict[str, Any]


def shown_share(cheat: Cheat, steps: int) -> float:
    """Of the segments of a contribution of so many steps those whose check shows the cheat.

    0 of one that is honest, as it was cut short before the cheat.
    """
    is_whole = steps == SEGMENTS * STEPS_OF_A_SEGMENT
    edges = boundary_steps(steps, STEPS_OF_A_SEGMENT)
    match cheat:
        case "skips_steps":  # every second one, but never the last
            meddled = set(range(1, steps, 2))
        case "rounds_weights":  # after each step but the last
            meddled = set(range(1, steps))
        case "knows_the_lot":
            return 1 - 1 / SEGMENTS if is_whole else 0.0
        case _ if cheat in IN_ONE_SEGMENT:
            return 1 / SEGMENTS if is_whole else 0.0
        case _:
            return 1.0
    shown = sum(bool(meddled & {*range(a + 1, b + 1)}) for a, b in pairwise(edges))
    return shown / (len(edges) - 1)


@dataclass(frozen=True)
class Run:
    """What one run showed of one cheat."""

    chances: tuple[float, ...]  # to be found, of the contributions that were not honest, in order
    first: int | None  # which of them was found first, from 1; None: none
    times: int  # it was found
    out_after: int | None  # contributions; None: it contributed to the end
    convicted: bool  # and not only shunned
    void: int  # of them
    distances: tuple[float, ...]  # of the checks that found it
    honest_checked: int  # segments of others
    honest_accused: int  # of these, found false, and others convicted
    broken: tuple[str, ...]  # invariants

    @property
    def stays(self) -> bool:
        """It was found long ago."""
        found, rounds = self.first, len(self.chances)
        return self.out_after is None and found is not None and rounds - found >= OUT_WITHIN


@dataclass(frozen=True)
class Row:
    """The runs of one cheat in one kind of world."""

    cheat: Cheat
    fidelity: str
    chance: float  # of being found, a round
    expected: float  # rounds
    sure_within: int  # rounds, in 95 of 100 runs
    first: tuple[int | None, ...]  # by seed
    late: int  # runs that took longer than `sure_within`
    told: int  # runs that were long enough to say so
    out_after: tuple[int | None, ...]  # by seed
    convicted: int  # runs
    stay: int  # runs in which it was found long ago, and still contributes
    void: float  # share
    rate: float  # contributions found
    contributions: int
    distance: tuple[float, float] | None  # least and most
    honest_checked: int
    honest_accused: int
    broken: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """Of each run but its cheat, its seed and where it happens."""

    rounds: int = 30
    share: Fraction = Fraction(1, 2)  # of contributions that are drawn
    nodes: int = 4  # the last one cheats

    def scenario(self, cheat: Cheat, fidelity: str, seed: int) -> Scenario:
        return Scenario.model_validate(
            {
                "name": f"cheat-{cheat.replace('_', '-')}",
                "seed": seed,
                "fidelity": fidelity,
                "nodes": [{"count": self.nodes}],
                "topology": {"preset": "local"},
                "duration_s": WITHIN_S,
                "work": {
                    "kind": "training",
                    "rounds": self.rounds,
                    "inner_steps_max": SEGMENTS * STEPS_OF_A_SEGMENT,
                    "spot_checks": {
                        "share": [self.share.numerator, self.share.denominator],
                        "segments": SEGMENTS,
                    },
                },
                "adversaries": [{"kind": "cheat", "nodes": [self.nodes - 1], "cheat": cheat}],
            }
        )

    def run(self, cheat: Cheat, fidelity: str, seed: int) -> Run:
        file, scenario = io.StringIO(), self.scenario(cheat, fidelity, seed)
        if fidelity == "process":
            os.environ.setdefault("SIMNET_BACKEND", "proxy")  # links are not the matter here
            outcome = run_processes(scenario, Trace(file), None)
        else:
            outcome = run_virtual(scenario, Trace(file))
        events = [json.loads(line) for line in file.getvalue().splitlines()]
        broken = tuple(each.name for each in outcome.invariants if not each.ok)
        return judged(cheat, float(self.share), events, self.nodes - 1, broken)


def judged(
    cheat: Cheat, share: float, events: list[Event], node: int, broken: tuple[str, ...] = ()
) -> Run:
    """What honest nodes tell about the cheat, which is node `node`, and about each other."""
    (author,) = {
        event["node_id"] for event in events if event["what"] == UP and event["node"] == node
    }
    told: dict[str, list[Event]] = {}
    for event in events:
        if event.get("node") != node:
            told.setdefault(event["what"], []).append(event)
    steps = {
        event["round"]: event["steps"]
        for event in events
        if event["what"] == "update_sealed" and event["node"] == node
    }
    eligible = told.get("offer_eligible", [])
    offered = sorted({event["round"] for event in eligible if event["author"] == author})
    # A cheat waits until one of its updates is merged.
    chances = {round_: share * shown_share(cheat, steps.get(round_, 0)) for round_ in offered[1:]}
    dishonest = [round_ for round_, chance in chances.items() if chance > 0]
    checked = told.get("segment_checked", [])
    false = [event for event in checked if event["finding"] == "differs"]
    found = sorted({event["round"] for event in false if event["author"] == author})
    first = next((place for place, round_ in enumerate(dishonest, 1) if round_ in found), None)
    convicted = {event["offender"] for event in told.get("evidence_found", [])}
    shunned = {event["author"] for event in told.get("author_shunned", [])}
    ended = offered[-1] < max(event["round"] for event in eligible)
    is_void = {
        event["round"]
        for event in told.get("copy_found", [])
        if event["author"] == author and event["voided"]
    }
    return Run(
        chances=tuple(chances[round_] for round_ in dishonest),
        first=first,
        times=sum(round_ in found for round_ in dishonest),
        out_after=len(dishonest) if author in convicted | shunned and ended else None,
        void=len(is_void.intersection(dishonest)),
        distances=tuple(  # an infinite one is told in words
            float(event["distance"])
            for event in false
            if event["author"] == author and event["distance"] is not None
        ),
        honest_checked=sum(event["author"] != author for event in checked),
        honest_accused=sum(event["author"] != author for event in false)
        + len((convicted | shunned) - {author}),
        convicted=author in convicted,
        broken=broken,
    )


def row_of(cheat: Cheat, fidelity: str, runs: Sequence[Run]) -> Row:
    chances = [chance for one in runs for chance in one.chances]
    chance = fmean(chances) if chances else 0.0
    sure_within = ceil(log(1 - SURE) / log(1 - chance)) if 0 < chance < 1 else 1
    told = [one for one in runs if one.first is not None or len(one.chances) >= sure_within]
    distances = [distance for one in runs for distance in one.distances]
    return Row(
        cheat=cheat,
        fidelity=fidelity,
        chance=chance,
        expected=1 / chance if chance else 0.0,
        sure_within=sure_within,
        first=tuple(one.first for one in runs),
        late=sum(one.first is None or one.first > sure_within for one in told),
        told=len(told),
        out_after=tuple(one.out_after for one in runs),
        convicted=sum(one.convicted for one in runs),
        stay=sum(one.stays for one in runs),
        void=sum(one.void for one in runs) / max(1, len(chances)),
        rate=sum(one.times for one in runs) / max(1, len(chances)),
        contributions=len(chances),
        distance=(min(distances), max(distances)) if distances else None,
        honest_checked=sum(one.honest_checked for one in runs),
        honest_accused=sum(one.honest_accused for one in runs),
        broken=tuple(sorted({name for one in runs for name in one.broken})),
    )


def faults(rows: Sequence[Row]) -> list[str]:
    """What is not as the lot, and the rules, promise."""
    found = []
    for row in rows:
        name = f"{row.cheat}, {row.fidelity}"
        found += [f"{name}: broken: {each}" for each in row.broken]
        if row.honest_accused:
            found.append(f"{name}: {row.honest_accused} times honest work was found false")
        if row.stay:
            found.append(f"{name}: found, and contributed for {OUT_WITHIN} rounds and more")
        if row.contributions == 0:
            found.append(f"{name}: it never cheated")
    late, told = sum(row.late for row in rows), sum(row.told for row in rows)
    if chance_of_so_many(late, told, 1 - SURE) < RARE:
        found.append(f"{late} of {told} runs took longer than 95 of 100 should")
    return found


def chance_of_so_many(late: int, runs: int, chance: float) -> float:
    """That of so many independent runs so many are late, or more."""
    tail = range(late, runs + 1)
    return sum(comb(runs, many) * chance**many * (1 - chance) ** (runs - many) for many in tail)
