"""How many rounds it takes until a cheat is found, beside what the lot predicts.

    python benchmarks/cheats.py [CHEAT ...] [--seeds 3] [--rounds 40] [--share 1/2] [--json]
        [--fidelity light | process] [--nodes 4] [--found seen]

One of a few daemons trains otherwise than it shows (simnet/world/adversaries/cheating_core.py),
whole daemons in virtual time or real ones with their workers on loopback. The others check what the
lot gives them. A round draws the cheat's contribution with the share, and one of its segments; a
check sees some cheats in each of them, for it looks at the seal, too, and others in one only. So
with the chance p = share x segments that show it / segments a round, it takes 1 / p rounds on
average, and 19 of 20 times no more than log 0.05 / log (1 - p).

Counted are the cheat's contributions that a quorum acknowledged, from the first one that was not
honest. `found` says what counts as found; what is found again afterwards is in `rate`, the share of
contributions found, whose expectation is p. `honest` are the checks of everybody else: whoever of
them is found differing is found wrongly, and then this ends with 1.
"""

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import ceil, inf, log
from statistics import fmean
from typing import Any, get_args

from simnet.nodes.processes.run import run_processes
from simnet.nodes.virtual.world import run_virtual
from simnet.world.determinism import UP, Trace
from simnet.world.scenario import Cheat, Scenario

SURE = 0.95
SEGMENTS = 4
STEPS_OF_A_SEGMENT = 4
WITHIN_S = 1800  # of a run; rounds take less than a second
Event = dict[str, Any]
# The round of a contribution and its author in hex, if this is where it is found.
Found = Callable[[Event], tuple[int, str] | None]


def seen(event: Event) -> tuple[int, str] | None:
    """One node has trained the segment again, and it came out elsewhere."""
    if event["what"] == "segment_checked" and event["finding"] == "differs":
        return event["round"], event["author"]
    return None


FOUND: dict[str, Found] = {"seen": seen}


# Of a round's segments those whose check sees the cheat; the seal is part of every check.
SEEN_IN: dict[Cheat, int] = {
    "stale_base": SEGMENTS,
    "skips_steps": SEGMENTS,
    "rounds_weights": SEGMENTS,
    "doubles_gradients": SEGMENTS,
    "wrong_batches": SEGMENTS,
    "copies_update": SEGMENTS,
    "skips_in_the_middle": 1,
    "skips_one_step": 1,
    "rounds_once": 1,
    "moments_only": 1,
    "doubles_update": SEGMENTS,
    "drops_what_it_owes": SEGMENTS,
    "knows_the_lot": SEGMENTS - 1,
}


@dataclass(frozen=True)
class Run:
    """What one run showed of one cheat."""

    cheat: Cheat
    seed: int
    contributions: int  # that were not honest, and acknowledged by a quorum
    first: int | None  # which of them was found first, from 1; None: none
    times: int  # it was found
    distances: tuple[float, ...]  # of the checks that found it
    honest_checked: int  # segments of others
    honest_found: int  # of these
    broken: tuple[str, ...]  # invariants


@dataclass(frozen=True)
class Row:
    """The runs of one cheat."""

    cheat: Cheat
    chance: float  # of being found, a round
    expected: float  # rounds
    sure_within: int  # rounds, in 95 of 100 runs
    first: tuple[int | None, ...]  # by seed
    late: int  # runs that took longer than `sure_within`
    rate: float
    contributions: int
    distance: tuple[float, float] | None  # least and most
    honest_checked: int
    honest_found: int
    broken: tuple[str, ...]


def scenario_of(options: argparse.Namespace, cheat: Cheat, seed: int) -> Scenario:
    share = Fraction(options.share)
    return Scenario.model_validate(
        {
            "name": f"cheat-{cheat.replace('_', '-')}",
            "seed": seed,
            "fidelity": options.fidelity,
            "nodes": [{"count": options.nodes}],
            "topology": {"preset": "local"},
            "duration_s": WITHIN_S,
            "work": {
                "kind": "training",
                "rounds": options.rounds,
                "inner_steps_max": SEGMENTS * STEPS_OF_A_SEGMENT,
                "spot_checks": {
                    "share": [share.numerator, share.denominator],
                    "segments": SEGMENTS,
                },
            },
            "adversaries": [{"kind": "cheat", "nodes": [options.nodes - 1], "cheat": cheat}],
        }
    )


def run(options: argparse.Namespace, cheat: Cheat, seed: int) -> Run:
    file, scenario = io.StringIO(), scenario_of(options, cheat, seed)
    if scenario.fidelity == "process":
        os.environ.setdefault("SIMNET_BACKEND", "proxy")  # loopback: links are not the matter here
        outcome = run_processes(scenario, Trace(file), None)
    else:
        outcome = run_virtual(scenario, Trace(file))
    events = [json.loads(line) for line in file.getvalue().splitlines()]
    broken = tuple(each.name for each in outcome.invariants if not each.ok)
    return judged(cheat, seed, events, options.nodes - 1, FOUND[options.found], broken)


def judged(
    cheat: Cheat, seed: int, events: list[Event], node: int, found: Found, broken: tuple[str, ...]
) -> Run:
    """Of what honest nodes tell about the cheat, which is node `node`, and about each other."""
    names = {event["node"]: event["node_id"] for event in events if event["what"] == UP}
    heard = [event for event in events if event.get("node") != node]
    offered = {
        event["round"]
        for event in heard
        if event["what"] == "offer_eligible" and event["author"] == names[node]
    }
    dishonest = sorted(offered)[1:]  # a cheat waits until one of its updates is merged
    caught = {hit for event in heard if (hit := found(event)) is not None}
    rounds = sorted(round_ for round_, author in caught if author == names[node])
    checked = [event for event in heard if event["what"] == "segment_checked"]
    distances = [
        float(event["distance"])  # an infinite one is told in words
        for event in checked
        if event["author"] == names[node] and event["finding"] == "differs"
        if event["distance"] is not None
    ]
    return Run(
        cheat=cheat,
        seed=seed,
        contributions=len(dishonest),
        first=1 + dishonest.index(rounds[0]) if rounds else None,
        times=len(rounds),
        distances=tuple(distances),
        honest_checked=sum(event["author"] != names[node] for event in checked),
        honest_found=sum(author != names[node] for _, author in caught),
        broken=broken,
    )


def row_of(cheat: Cheat, share: Fraction, runs: Sequence[Run]) -> Row:
    chance = float(share * SEEN_IN[cheat] / SEGMENTS)
    sure_within = ceil(log(1 - SURE) / log(1 - chance)) if chance < 1 else 1
    distances = [distance for one in runs for distance in one.distances]
    contributions = sum(one.contributions for one in runs)
    return Row(
        cheat=cheat,
        chance=chance,
        expected=1 / chance,
        sure_within=sure_within,
        first=tuple(one.first for one in runs),
        late=sum((one.first or inf) > sure_within for one in runs),
        rate=sum(one.times for one in runs) / max(1, contributions),
        contributions=contributions,
        distance=(min(distances), max(distances)) if distances else None,
        honest_checked=sum(one.honest_checked for one in runs),
        honest_found=sum(one.honest_found for one in runs),
        broken=tuple(sorted({name for one in runs for name in one.broken})),
    )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cheats", nargs="*", metavar="CHEAT", help=f"of {', '.join(SEEN_IN)}")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--share", default="1/2", help="of contributions that are drawn")
    parser.add_argument("--fidelity", choices=("light", "trio", "process"), default="light")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--found", choices=FOUND, default="seen")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    unknown = set(options.cheats) - set(get_args(Cheat))
    if unknown:
        parser.error(f"no such cheat: {', '.join(sorted(unknown))}")
    return options


def table(options: argparse.Namespace) -> list[Row]:
    share = Fraction(options.share)
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {
            cheat: [pool.submit(run, options, cheat, seed) for seed in range(options.seeds)]
            for cheat in options.cheats or SEEN_IN
        }
        return [
            row_of(cheat, share, [one.result() for one in runs]) for cheat, runs in running.items()
        ]


def show(rows: Sequence[Row]) -> None:
    heads = f"{'expected':>9}{'95 %':>6}{'mean':>7}{'late':>6}  {'rounds until found':22}"
    print(f"{'cheat':20}{heads}{'p':>7}{'rate':>7}  {'distance':19}honest")
    for row in rows:
        found = [first for first in row.first if first is not None]
        mean = f"{fmean(found):.1f}" if len(found) == len(row.first) else "-"
        each = " ".join("-" if first is None else str(first) for first in row.first)
        far = "" if row.distance is None else f"{row.distance[0]:.1e} to {row.distance[1]:.1e}"
        late = f"{row.late}/{len(row.first)}"
        print(
            f"{row.cheat:20}{row.expected:9.1f}{row.sure_within:6}{mean:>7}{late:>6}  {each:22}"
            f"{row.chance:7.3f}{row.rate:7.3f}  {far:19}{row.honest_found}/{row.honest_checked}"
        )
        for name in row.broken:
            print(f"  broken: {name}")


def main() -> None:
    options = parse()
    rows = table(options)
    if options.json:
        print(json.dumps({"schema_version": 1, "rows": [asdict(row) for row in rows]}))
    else:
        show(rows)
    sys.exit(any(row.honest_found or row.broken for row in rows))


if __name__ == "__main__":
    main()
