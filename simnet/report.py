"""A page that a person can read: what every node did when, what went wrong, and what came of it.

`simnet run --out DIR` leaves `scenario.yaml`, `outcome.json` and `trace.jsonl`; the page is made of
these three alone. One lane a node: views as shades, votes as ticks, final blocks as marks, time
without the process in grey; faults lie as bands over the lanes of those whom they befell.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from daa_node.errors import UserError
from simnet.determinism import BROKEN, DOWN, FAULT, FINAL, LIAR, ROUND, UP, VIEW, VOTE
from simnet.links import NS
from simnet.outcome import OUTCOME_FILE, SCENARIO_FILE, TRACE_FILE

LANES_MAX = 48  # more do not fit a screen: those whom something befell come first
MARKS_A_LANE_MAX = 4_000  # of each kind; more are one blot
LANE_PX, LABEL_PX, TOP_PX = 30, 90, 24
WIDTH_PX_MIN, WIDTH_PX_MAX, VIEW_PX = 1_100, 16_000, 10
CHART_PX = 200
FAULTS_MAX, BROKEN_MAX = 200, 50  # that are told of; the trace has all

VOTE_COLOURS = {
    "proposal": "#333333",
    "notarize": "#2f6db5",
    "nullify": "#d9822b",
    "finalize": "#2e8b57",
}
FINAL_COLOURS = {"set": "#2f6db5", "result": "#2e8b57", "abort": "#c0392b", "empty": "#999999"}
LOSS_COLOURS = ("#2f6db5", "#2e8b57", "#d9822b", "#8e44ad", "#c0392b", "#16a085", "#7f6000")

Event = dict[str, Any]
Episode = tuple[Event, int]  # a fault as it began, and when it healed or the run ended, in ns


@dataclass(slots=True)
class Story:
    """The events of a trace, sorted out."""

    end_ns: int = 1
    by_node: dict[int, dict[str, deque[Event]]] = field(  # the newest: a run's end tells most
        default_factory=lambda: defaultdict(
            lambda: defaultdict(partial(deque, [], MARKS_A_LANE_MAX))
        )
    )
    faults: list[Event] = field(default_factory=list)
    broken: list[Event] = field(default_factory=list)
    liars: dict[int, str] = field(default_factory=dict)
    left_out: int = 0


def make_report(folder: Path) -> str:
    """The page of the run in `folder`. Raises UserError if the run's files are not there."""
    outcome = _outcome(folder)
    story = _story(folder / TRACE_FILE)
    lanes = _lanes(story)
    parts = [
        f"<h1>{escape(str(outcome['scenario']))}{'' if outcome['ok'] else ': broken'}</h1>",
        _figures(outcome),
        _invariants(outcome, story),
        _legend(),
        _timeline(story, lanes),
        _omissions(story, lanes),
        _faults(story),
        _losses(story),
        _rounds(story),
        _facts(outcome),
        f"<h2>Scenario</h2><pre>{escape(_read(folder / SCENARIO_FILE))}</pre>",
        f"<h2>Again</h2><pre>simnet run {escape(str(folder / SCENARIO_FILE))} "
        f"--seed {outcome['seed']} --fidelity {outcome['fidelity']}</pre>",
    ]
    return _PAGE.format(title=escape(str(outcome["scenario"])), body="\n".join(parts))


def first_difference(one: Path, other: Path, context: int = 3) -> str | None:
    """Where the traces of two runs part, with the lines before it; None if they are equal.

    A file holds events, the hash covers messages as well: those may differ alone. Raises UserError
    if a run's file is missing.
    """
    before: list[str] = []
    number = 0
    pairs = zip(_lines(one / TRACE_FILE), _lines(other / TRACE_FILE), strict=False)
    for number, (left, right) in enumerate(pairs, 1):
        if left != right:
            return "\n".join([*before, f"- {number}: {left}", f"+ {number}: {right}"])
        before = [*before, f"  {number}: {left}"][-context:]
    lengths = [sum(1 for _ in _lines(folder / TRACE_FILE)) for folder in (one, other)]
    if lengths[0] != lengths[1]:
        longer = one if lengths[0] > lengths[1] else other
        return "\n".join([*before, f"only {longer} goes on after event {number}"])
    left, right = (_outcome(folder)["trace_hash"] for folder in (one, other))
    if left != right:
        return f"all {number} events are equal, messages are not: trace {left}, trace {right}"
    return None


def _outcome(folder: Path) -> Event:
    path = folder / OUTCOME_FILE
    try:
        found: Event = json.loads(_read(path))
    except ValueError:
        raise UserError(f"{path}: this is no outcome of a run") from None
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as failure:
        raise UserError(
            f"{path}: {failure.strerror}: make it with `simnet run SCENARIO --out {path.parent}`"
        ) from None


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\n")
    except OSError as failure:
        raise UserError(
            f"{path}: {failure.strerror}: make it with `simnet run SCENARIO --out {path.parent}`"
        ) from None


def _story(path: Path) -> Story:
    story = Story()
    for line in _lines(path):
        try:
            event: Event = json.loads(line)
        except ValueError:
            raise UserError(f"{path}: this is no trace of a run that ended") from None
        what = event["what"]
        story.end_ns = max(story.end_ns, event["t_ns"])
        if what == FAULT:
            story.faults.append(event)
        elif what == BROKEN:
            story.broken.append(event)
        elif what == LIAR:
            story.liars[event["node"]] = event["kind"]
        elif what in (VIEW, VOTE, FINAL, ROUND, DOWN, UP):
            kept = story.by_node[event["node"]][what]
            story.left_out += len(kept) == MARKS_A_LANE_MAX
            kept.append(event)
    return story


def _lanes(story: Story) -> list[int]:
    """The nodes that get a lane, in their order."""
    befallen = {node for event in story.faults for node in event["nodes"]} | {*story.liars}
    wanted = sorted(story.by_node, key=lambda node: (node not in befallen, node))
    return sorted(wanted[:LANES_MAX])


def _figures(outcome: Event) -> str:
    figures = {
        "seed": outcome["seed"],
        "fidelity": outcome["fidelity"],
        "nodes": outcome["nodes"],
        "virtual time": f"{outcome['virtual_s']:.1f} s",
        "wall time": f"{outcome['wall_s']:.1f} s",
        "CPU": f"{outcome['cpu_s']:.1f} s",
        "trace": outcome["trace_hash"],
        "final roots": ", ".join(root[:16] for root in outcome["final_roots"]) or "none",
    }
    return (
        "<p class=figures>"
        + " ".join(
            f"<span>{escape(name)} <b>{escape(str(value))}</b></span>"
            for name, value in figures.items()
        )
        + "</p>"
    )


def _invariants(outcome: Event, story: Story) -> str:
    when = {event["name"]: event["t_ns"] for event in reversed(story.broken)}  # the first of each
    rows = ""
    for item in sorted(outcome["invariants"], key=lambda item: bool(item["ok"])):
        name, verdict, detail = item["name"], "held", "" if item["ok"] else item["detail"]
        if not item["ok"]:
            verdict = f"BROKEN at {when[name] / NS:.3f} s" if name in when else "BROKEN"
        elif story.broken:
            verdict = "held until then"  # a run ends, or counts for nothing, where something broke
        rows += (
            f"<tr class={'held' if item['ok'] else 'broken'}><td>{escape(name)}</td>"
            f"<td>{verdict}</td><td>{escape(detail)}</td></tr>"
        )
    marks = ", ".join(f"{escape(m['name'])} {m['hits']}" for m in outcome["sometimes"])
    return f"<h2>What had to hold</h2><table>{rows}</table><p>{marks}</p>"


def _legend() -> str:
    def swatch(colour: str, words: str) -> str:
        return f"<span><i style='background:{colour}'></i>{words}</span>"

    votes = [swatch(colour, kind) for kind, colour in VOTE_COLOURS.items()]
    finals = [swatch(colour, f"final {payload}") for payload, colour in FINAL_COLOURS.items()]
    rest = [swatch("#f4c7c3", "fault"), swatch("#bbbbbb", "down")]
    rest.append(swatch("#c0392b", "dashed: broken"))
    return "<h2>Timeline</h2><p class=legend>" + " ".join([*votes, *finals, *rest]) + "</p>"


def _timeline(story: Story, lanes: list[int]) -> str:
    views = max((len(story.by_node[node][VIEW]) for node in lanes), default=0)
    width = min(WIDTH_PX_MAX, max(WIDTH_PX_MIN, views * VIEW_PX))
    height = TOP_PX + LANE_PX * len(lanes) + 6

    def x(t_ns: int) -> float:
        return LABEL_PX + (width - LABEL_PX - 10) * t_ns / story.end_ns

    shapes, episodes = [*_axis(story.end_ns, height, x)], _episodes(story)
    for row, node in enumerate(lanes):
        top = TOP_PX + row * LANE_PX
        shapes += _label(story, node, top)
        shapes += _lane(story.by_node[node], top, x, story.end_ns)
        shapes += _bands(episodes, node, top, x)
    for event in story.broken[:BROKEN_MAX]:
        at, words = x(event["t_ns"]), escape(f"{event['name']}: {event['detail']}")
        shapes.append(
            f"<line class=end x1={at:.1f} x2={at:.1f} y1={TOP_PX - 6} y2={height}>"
            f"<title>{words}</title></line>"
        )
    return (
        f"<div class=scroll><svg width={width} height={height} "
        f"viewBox='0 0 {width} {height}'>{''.join(shapes)}</svg></div>"
    )


def _label(story: Story, node: int, top: int) -> Iterator[str]:
    liar = story.liars.get(node)
    yield f"<text x=4 y={top + (14 if liar else 19)}>node {node}</text>"
    if liar is not None:
        yield f"<text class=liar x=4 y={top + 26}>{escape(liar)}</text>"


def _axis(end_ns: int, height: int, x: Any) -> Iterator[str]:
    step_s = 1.0
    while end_ns / NS / step_s > 24:
        step_s *= 2 if str(step_s)[0] in "15" else 2.5
    tick = 0
    while tick * step_s * NS <= end_ns:
        at = x(tick * step_s * NS)
        yield f"<line class=grid x1={at:.1f} x2={at:.1f} y1={TOP_PX - 6} y2={height} />"
        yield f"<text class=tick x={at:.1f} y=14>{tick * step_s:g} s</text>"
        tick += 1


def _lane(events: dict[str, deque[Event]], top: int, x: Any, end_ns: int) -> Iterator[str]:
    views = list(events[VIEW])
    for index, event in enumerate(views):
        end = views[index + 1]["t_ns"] if index + 1 < len(views) else end_ns
        wide = max(0.5, x(end) - x(event["t_ns"]))
        shade = "#eef2f7" if event["view"] % 2 else "#dde6f0"
        yield (
            f"<rect x={x(event['t_ns']):.1f} y={top + 4} width={wide:.1f} height=20 fill='{shade}'>"
            f"<title>view {event['view']}</title></rect>"
        )
    for gone in events[DOWN]:
        back = [event["t_ns"] for event in events[UP] if event["t_ns"] >= gone["t_ns"]]
        wide = max(0.5, x(min(back, default=end_ns)) - x(gone["t_ns"]))
        yield (
            f"<rect x={x(gone['t_ns']):.1f} y={top + 2} width={wide:.1f} height=24 fill='#bbbbbb'>"
            f"<title>down from {gone['t_ns'] / NS:.3f} s</title></rect>"
        )
    for event in events[VOTE]:
        colour = VOTE_COLOURS.get(event["kind"], "#777777")
        at = x(event["t_ns"])
        yield (
            f"<line x1={at:.1f} x2={at:.1f} y1={top + 14} y2={top + 24} stroke='{colour}'>"
            f"<title>{escape(event['kind'])}, view {event['view']}</title></line>"
        )
    for event in events[FINAL]:
        colour = FINAL_COLOURS.get(event["payload"], "#777777")
        yield (
            f"<circle cx={x(event['t_ns']):.1f} cy={top + 9} r=3.5 fill='{colour}'>"
            f"<title>final {escape(event['payload'])}, height {event['height']}, "
            f"{event['t_ns'] / NS:.3f} s</title></circle>"
        )


def _episodes(story: Story) -> list[Episode]:
    """In the order in which they began."""
    begun: dict[str, list[int]] = defaultdict(list)
    found: list[Episode] = []
    for event in story.faults:
        key = f"{event['kind']} {event['nodes']} {event['detail']}"
        if event["begins"]:
            begun[key].append(len(found))
            found.append((event, story.end_ns))
        elif begun[key]:
            place = begun[key].pop(0)
            found[place] = (found[place][0], event["t_ns"])
    return found


def _faults(story: Story) -> str:
    if not story.faults:
        return ""
    episodes = _episodes(story)
    rows = "".join(
        f"<tr><td>{first['t_ns'] / NS:.3f}</td><td>{end / NS:.3f}</td>"
        f"<td>{escape(first['kind'])} {escape(first['detail'])}</td>"
        f"<td>{escape(', '.join(map(str, first['nodes'])))}</td></tr>"
        for first, end in episodes[:FAULTS_MAX]
    )
    if len(episodes) > FAULTS_MAX:
        rows += f"<tr><td>and {len(episodes) - FAULTS_MAX} more</td></tr>"
    head = "<tr><th>from, s</th><th>until, s</th><th>fault</th><th>nodes</th></tr>"
    return f"<h2>What was done to it</h2><table>{head}{rows}</table>"


def _bands(episodes: list[Episode], node: int, top: int, x: Any) -> Iterator[str]:
    for first, end in episodes:
        if node in first["nodes"]:
            wide = max(1.0, x(end) - x(first["t_ns"]))
            words = f"{first['kind']} {first['detail']}"
            yield (
                f"<rect class=fault x={x(first['t_ns']):.1f} y={top} width={wide:.1f} "
                f"height={LANE_PX - 2}><title>{escape(words)}</title></rect>"
            )


def _omissions(story: Story, lanes: list[int]) -> str:
    told = []
    if len(story.by_node) > len(lanes):
        told.append(f"{len(story.by_node) - len(lanes)} nodes have no lane")
    if story.left_out:
        told.append(
            f"{story.left_out} marks were too many for their lanes: the oldest are left out"
        )
    return f"<p>{'; '.join(told)}</p>" if told else ""


def _losses(story: Story) -> str:
    lines: dict[int, list[tuple[int, float]]] = {}
    for node in sorted(story.by_node):
        points = [
            (event["t_ns"], event["loss_nats"])
            for event in story.by_node[node][ROUND]
            if event.get("loss_nats") is not None
        ]
        if points and len(lines) < LANES_MAX:
            lines[node] = points
    if not lines:
        return ""
    values = [loss for points in lines.values() for _, loss in points]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    width = WIDTH_PX_MIN

    def place(t_ns: int, loss: float) -> str:
        x = LABEL_PX + (width - LABEL_PX - 10) * t_ns / story.end_ns
        return f"{x:.1f},{10 + (CHART_PX - 30) * (high - loss) / span:.1f}"

    shapes = [
        f"<polyline fill=none stroke='{LOSS_COLOURS[index % len(LOSS_COLOURS)]}' "
        f"points='{' '.join(place(*point) for point in points)}'>"
        f"<title>node {node}</title></polyline>"
        for index, (node, points) in enumerate(lines.items())
    ]
    shapes.append(f"<text x=4 y=18>{high:.3f}</text><text x=4 y={CHART_PX - 18}>{low:.3f}</text>")
    return (
        f"<h2>Held-out loss, nats</h2><svg width={width} height={CHART_PX}>{''.join(shapes)}</svg>"
    )


def _rounds(story: Story) -> str:
    by_height: dict[int, list[Event]] = defaultdict(list)
    for node in story.by_node.values():
        for event in node[ROUND]:
            by_height[event["height"]].append(event)
    if not by_height:
        return ""
    rows = "".join(
        f"<tr><td>{height}</td><td>{min(e['t_ns'] for e in events) / NS:.3f}</td>"
        f"<td>{max(e['t_ns'] for e in events) / NS:.3f}</td><td>{len(events)}</td>"
        f"<td>{events[0]['contributors']}</td>"
        f"<td>{', '.join(sorted({str(e['vertex'])[:16] for e in events}))}</td></tr>"
        for height, events in sorted(by_height.items())
    )
    return (
        "<h2>Rounds</h2><table><tr><th>height</th><th>first, s</th><th>last, s</th><th>nodes</th>"
        f"<th>contributors</th><th>vertex</th></tr>{rows}</table>"
    )


def _facts(outcome: Event) -> str:
    if not outcome["facts"]:
        return ""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(json.dumps(value))}</td></tr>"
        for name, value in outcome["facts"].items()
    )
    return f"<h2>Measured</h2><table>{rows}</table>"


_PAGE = """<!doctype html>
<html lang=en><meta charset=utf-8><title>{title}</title>
<style>
body {{ font: 14px/1.45 system-ui, sans-serif; margin: 24px; color: #222; max-width: 1240px }}
h1 {{ margin: 0 0 4px }} h2 {{ margin: 26px 0 6px; font-size: 17px }}
table {{ border-collapse: collapse }} td, th {{ padding: 2px 12px 2px 0; text-align: left }}
.figures span, .legend span {{ margin-right: 16px; white-space: nowrap }}
.legend i {{ display: inline-block; width: 10px; height: 10px; margin-right: 5px }}
.held td:nth-child(2) {{ color: #2e8b57 }} .broken td {{ color: #c0392b; font-weight: 600 }}
.scroll {{ overflow-x: auto; border: 1px solid #ddd }}
svg text {{ font-size: 11px; fill: #444 }} .tick {{ text-anchor: middle }}
svg .liar {{ font-size: 10px; fill: #c0392b }}
.grid {{ stroke: #e4e4e4 }} .fault {{ fill: #e74c3c; fill-opacity: .22 }}
.end {{ stroke: #c0392b; stroke-width: 2; stroke-dasharray: 4 3 }}
pre {{ background: #f6f6f6; padding: 10px; overflow-x: auto }}
</style>
<body>
{body}
</body></html>
"""
