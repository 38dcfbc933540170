"""How many rounds it takes until a cheat is found, and is out, beside what the lot predicts.

    python benchmarks/cheats.py [CHEAT ...] [--fidelity light process] [--seeds 2] [--rounds 30]
        [--share 1/2] [--nodes 4] [--jobs 1] [--json]

One of a few daemons trains otherwise than it shows (simnet/world/adversaries/cheating_core.py):
whole daemons in virtual time (`light`), or real processes with their workers on loopback. The
others check what the lot gives them, dispute what differs, and convict. What is counted, and what
the lot predicts, is told in simnet/results/cheat_rounds.py.

    p             chance of being found, a round; expected, 95 %: rounds that follow from it
    found after   so many contributions one of its checks differed; late: runs beyond the 95 %
    out after     so many nobody acknowledges any more, for a quorum has convicted it, or members
                  shun it; by: runs in which it was convicted
    void          share of contributions that counted nothing, as they were another's
    rate          share of contributions that were found: p, if the lot is right
    honest        convictions of others, and their work found false, of so many of their segments

Ends with 1 if an honest node is convicted, or its work found false; if somebody is found so late
and so often that the lot does it once in a thousand times; or if somebody is found and stays.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from fractions import Fraction

from simnet.results.cheat_rounds import SIX, TOLD, Row, Setting, faults, row_of


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(TOLD)
    parser.add_argument("cheats", nargs="*", metavar="CHEAT", help=f"of {names}; six if none")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--share", default="1/2", help="of contributions that are drawn")
    worlds = ("light", "trio", "process")
    parser.add_argument("--fidelity", nargs="+", choices=worlds, default=["light"])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    unknown = set(options.cheats) - set(TOLD)
    if unknown:
        parser.error(f"no such cheat: {', '.join(sorted(unknown))}")
    return options


def table(options: argparse.Namespace) -> list[Row]:
    setting = Setting(options.rounds, Fraction(options.share), options.nodes)
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {
            (cheat, fidelity): [
                pool.submit(setting.run, cheat, fidelity, seed) for seed in range(options.seeds)
            ]
            for cheat in options.cheats or SIX
            for fidelity in options.fidelity
        }
        return [
            row_of(cheat, fidelity, [one.result() for one in runs])
            for (cheat, fidelity), runs in running.items()
        ]


def show(rows: Sequence[Row]) -> None:
    heads = f"{'p':>7}{'expected':>10}{'95 %':>6}  {'found after':18}{'late':>6}  "
    outs = f"{'out after':18}{'by':>5}{'void':>5}"
    print(f"{'cheat':20}{'world':8}{heads}{outs}{'rate':>7}  {'distance':19}honest")
    for row in rows:
        found, out = (
            " ".join("-" if many is None else str(many) for many in places)
            for places in (row.first, row.out_after)
        )
        far = "" if row.distance is None else f"{row.distance[0]:.1e} to {row.distance[1]:.1e}"
        late, by = f"{row.late}/{row.told}", f"{row.convicted}/{len(row.out_after)}"
        print(
            f"{row.cheat:20}{row.fidelity:8}{row.chance:7.3f}{row.expected:10.1f}"
            f"{row.sure_within:6}  {found:18}{late:>6}  {out:18}{by:>5}"
            f"{row.void:5.0%}{row.rate:7.3f}  {far:19}{row.honest_accused}/{row.honest_checked}"
        )


def main() -> None:
    options = parse()
    rows = table(options)
    wrong = faults(rows)
    if options.json:
        shown = {"schema_version": 2, "rows": [asdict(row) for row in rows], "faults": wrong}
        print(json.dumps(shown))
    else:
        show(rows)
        for each in wrong:
            print(f"WRONG: {each}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
