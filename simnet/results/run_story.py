"""What the page of a run tells, as plain data: every node's lane of time, what befell it, and what
came of it. dashboard/src/report/ draws it; `story.ts` there names the same fields.

Times are whole milliseconds of virtual time. A column of marks is a list a field (`at`, `view`,
...), not an object a mark: a run has hundreds of thousands of them.
"""

import json
import shlex
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from simnet.checks.outcome import ROUTERS, SCENARIO_FILE
from simnet.results.run_files import Event, events_of, outcome_of, run_file
from simnet.world.determinism import BROKEN, DOWN, FAULT, FINAL, LIAR, ROUND, UP, VIEW, VOTE
from simnet.world.links import NS

LANES_MAX = 64  # more do not fit a screen: those whom something befell come first
MARKS_A_LANE_MAX = 4_000  # of each kind; more are one blot
FAULTS_MAX, BROKEN_MAX = 200, 50  # that are told of; the trace has all
NODES_MAX, ROUNDS_MAX = 1_000, 2_000  # rows of a table
VERTICES_MAX, VERTEX_DIGITS = 8, 16  # of one height; more than one is a fork already

MS = 10**6  # in ns

Episode = tuple[Event, int]  # a fault as it began, and when it healed or the run ended, in ns


@dataclass(slots=True)
class Trace:
    """The events of a trace, sorted out."""

    end_ns: int = 1
    # By node and what it is; the newest, for a run's end tells most.
    marks: defaultdict[tuple[int, str], deque[Event]] = field(
        default_factory=lambda: defaultdict(partial(deque, maxlen=MARKS_A_LANE_MAX))
    )
    left_out: int = 0
    faults: list[Event] = field(default_factory=list)
    broken: list[Event] = field(default_factory=list)
    liars: dict[int, str] = field(default_factory=dict)

    @property
    def nodes(self) -> list[int]:
        return sorted({node for node, _ in self.marks})


def story_of(folder: Path) -> dict[str, Any]:
    """Of the run in `folder`. Raises UserError if the run's files are not there."""
    outcome = outcome_of(folder)
    trace, path = _trace(folder), run_file(folder, SCENARIO_FILE)
    lanes, episodes = _lanes(trace), _episodes(trace)
    return {
        "scenario": outcome["scenario"],
        "ok": outcome["ok"],
        "endMs": trace.end_ns // MS,
        "figures": _figures(outcome),
        "invariants": _invariants(outcome, trace),
        "sometimes": [{"name": m["name"], "hits": m["hits"]} for m in outcome["sometimes"]],
        "lanes": [_lane(trace, node) for node in lanes],
        "lanesLeftOut": len(trace.nodes) - len(lanes),
        "marksLeftOut": trace.left_out,
        "broken": [
            {"atMs": event["t_ns"] // MS, "name": event["name"], "detail": event["detail"]}
            for event in trace.broken[:BROKEN_MAX]
        ],
        "faults": [_fault(*episode) for episode in episodes[:FAULTS_MAX]],
        "faultsLeftOut": max(0, len(episodes) - FAULTS_MAX),
        "nodes": [_node(trace, node, episodes) for node in trace.nodes[:NODES_MAX]],
        "nodesLeftOut": max(0, len(trace.nodes) - NODES_MAX),
        **_rounds(trace),
        "routers": [_router(row) for row in outcome["facts"].get(ROUTERS, ())],
        "measured": [[name, json.dumps(fact)] for name, fact in outcome["facts"].items()],
        "file": path.read_text(encoding="utf-8"),
        "again": _again(path, outcome),
    }


def _again(path: Path, outcome: Event) -> str:
    """For a shell, whatever stands in a file that somebody else has sent."""
    values = {"--seed": outcome["seed"], "--fidelity": outcome["fidelity"]}
    given = [str(word) for option in values.items() for word in option]
    return shlex.join(["simnet", "run", str(path), *given])


def _trace(folder: Path) -> Trace:
    trace = Trace()
    for event in events_of(folder):
        what = event["what"]
        trace.end_ns = max(trace.end_ns, event["t_ns"])
        if what == FAULT:
            trace.faults.append(event)
        elif what == BROKEN:
            trace.broken.append(event)
        elif what == LIAR:
            trace.liars[event["node"]] = event["kind"]
        elif what in (VIEW, VOTE, FINAL, ROUND, DOWN, UP):
            kept = trace.marks[event["node"], what]
            trace.left_out += len(kept) == MARKS_A_LANE_MAX
            kept.append(event)
    return trace


def _lanes(trace: Trace) -> list[int]:
    """The nodes that get a lane, in their order."""
    befallen = {node for event in trace.faults for node in event["nodes"]} | {*trace.liars}
    wanted = sorted(trace.nodes, key=lambda node: (node not in befallen, node))
    return sorted(wanted[:LANES_MAX])


def _figures(outcome: Event) -> dict[str, object]:
    kept = ("seed", "fidelity", "nodes", "virtual_s", "wall_s", "cpu_s", "trace_hash")
    return {name: outcome[name] for name in kept} | {"roots": outcome["final_roots"]}


def _invariants(outcome: Event, trace: Trace) -> list[Event]:
    """Those that broke come first, with when, where the trace says it."""
    when = {event["name"]: event["t_ns"] for event in reversed(trace.broken)}  # the first of each

    def verdict(item: Event) -> str:
        if item["ok"]:  # a run ends, or counts for nothing, where something broke
            return "held until then" if trace.broken else "held"
        at_ns = when.get(item["name"])
        return "BROKEN" if at_ns is None else f"BROKEN at {at_ns / NS:.3f} s"

    return [
        {
            "name": item["name"],
            "verdict": verdict(item),
            "holds": item["ok"],
            "detail": "" if item["ok"] else item["detail"],
        }
        for item in sorted(outcome["invariants"], key=lambda item: bool(item["ok"]))
    ]


def _lane(trace: Trace, node: int) -> Event:
    views, votes = trace.marks[node, VIEW], trace.marks[node, VOTE]
    finals, rounds = trace.marks[node, FINAL], _measured(trace.marks[node, ROUND])
    return {
        "node": node,
        "liar": trace.liars.get(node),
        "views": {"at": _times(views), "view": [event["view"] for event in views]},
        "votes": {
            "at": _times(votes),
            "view": [event["view"] for event in votes],
            "kind": [event["kind"] for event in votes],
        },
        "finals": {
            "at": _times(finals),
            "height": [event["height"] for event in finals],
            "payload": [event["payload"] for event in finals],
        },
        "losses": {
            "at": _times(rounds),
            "height": [event["height"] for event in rounds],
            "nats": [event["loss_nats"] for event in rounds],
        },
        "downs": _downs(trace, node),
    }


def _times(events: Iterable[Event]) -> list[int]:
    return [event["t_ns"] // MS for event in events]


def _measured(rounds: Iterable[Event]) -> list[Event]:
    """With a loss that is a number: a model that has gone to pieces has none, nor has JSON."""
    return [event for event in rounds if _is_number(event.get("loss_nats"))]


def _is_number(loss: float | None) -> bool:
    return loss is not None and isfinite(loss)


def _downs(trace: Trace, node: int) -> list[tuple[int, int]]:
    """When its process was away: from and until."""
    ups_ns = [event["t_ns"] for event in trace.marks[node, UP]]
    found = []
    for gone in trace.marks[node, DOWN]:
        back_ns = min((up for up in ups_ns if up >= gone["t_ns"]), default=trace.end_ns)
        found.append((gone["t_ns"] // MS, back_ns // MS))
    return found


def _episodes(trace: Trace) -> list[Episode]:
    """In the order in which they began."""
    begun: dict[str, list[int]] = defaultdict(list)
    found: list[Episode] = []
    for event in trace.faults:
        key = f"{event['kind']} {event['nodes']} {event['detail']}"
        if event["begins"]:
            begun[key].append(len(found))
            found.append((event, trace.end_ns))
        elif begun[key]:
            place = begun[key].pop(0)
            found[place] = (found[place][0], event["t_ns"])
    return found


def _fault(first: Event, end_ns: int) -> Event:
    return {
        "fromMs": first["t_ns"] // MS,
        "toMs": end_ns // MS,
        "kind": first["kind"],
        "detail": first["detail"],
        "nodes": first["nodes"],
    }


def _node(trace: Trace, node: int, episodes: Sequence[Episode]) -> Event:
    """Its row: what its lane shows, in numbers, also where it has none."""
    votes, rounds = trace.marks[node, VOTE], _measured(trace.marks[node, ROUND])
    return {
        "node": node,
        "liar": trace.liars.get(node),
        "views": len(trace.marks[node, VIEW]),
        "votes": len(votes),
        "nullified": sum(event["kind"] == "nullify" for event in votes),
        "finals": len(trace.marks[node, FINAL]),
        "rounds": len(trace.marks[node, ROUND]),
        "downMs": sum(until - since for since, until in _downs(trace, node)),
        "faults": sum(node in first["nodes"] for first, _ in episodes),
        "lossNats": rounds[-1]["loss_nats"] if rounds else None,
    }


def _rounds(trace: Trace) -> Event:
    """A row a height, the newest ones where they are too many."""
    by_height: dict[int, list[Event]] = defaultdict(list)
    for node in trace.nodes:
        for event in trace.marks[node, ROUND]:
            by_height[event["height"]].append(event)
    heights = sorted(by_height)
    return {
        "rounds": [_round(height, by_height[height]) for height in heights[-ROUNDS_MAX:]],
        "roundsLeftOut": max(0, len(heights) - ROUNDS_MAX),
    }


def _round(height: int, events: Sequence[Event]) -> Event:
    times = _times(events)
    vertices = sorted({str(event["vertex"])[:VERTEX_DIGITS] for event in events})
    return {
        "height": height,
        "firstMs": min(times),
        "lastMs": max(times),
        "nodes": len(events),
        "contributors": events[0]["contributors"],
        "vertices": vertices[:VERTICES_MAX],
    }


def _router(row: Event) -> Event:
    """How a node that stands behind one was reached."""
    return {
        "node": row["node"],
        "nat": row["nat"],
        "passage": row["passage"],
        "rounds": row.get("rounds"),  # older runs did not count them
        "relays": row["relays"],
        "relayedWith": row["relayed_with"],
        "punchedWith": row["punched_with"],
    }
