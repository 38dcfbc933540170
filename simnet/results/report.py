"""A page that a person can read: what every node did when, what went wrong, and what came of it.

`simnet run --out DIR` leaves `scenario.yaml`, `outcome.json` and `trace.jsonl`; the page is made of
these three alone. One lane a node: views as shades, votes as ticks, final blocks as marks, time
without the process in grey; faults lie as bands over the lanes of those whom they befell.
"""

import json
import os
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

from daa_node.errors import UserError
from simnet.checks.outcome import OUTCOME_FILE, ROUTERS, SCENARIO_FILE, TRACE_FILE
from simnet.world.determinism import BROKEN, DOWN, FAULT, FINAL, LIAR, ROUND, UP, VIEW, VOTE
from simnet.world.links import NS

LANES_MAX = 48  # more do not fit a screen: those whom something befell come first
MARKS_A_LANE_MAX = 4_000  # of each kind; more are one blot
LANE_PX, LABEL_PX, TOP_PX = 30, 90, 24
WIDTH_PX_MIN, WIDTH_PX_MAX, VIEW_PX = 1_100, 16_000, 10
CHART_PX = 200
FAULTS_MAX, BROKEN_MAX = 200, 50  # that are told of; the trace has all
LINES_BEFORE = 3  # where two traces part

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


def make_report(folder: Path) -> str:
    """The page of the run in `folder`. Raises UserError if the run's files are not there."""
    outcome = _outcome(folder)
    trace, path = _trace(folder), _file(folder, SCENARIO_FILE)
    lanes, name = _lanes(trace), escape(str(outcome["scenario"]))
    again = f"simnet run {path} --seed {outcome['seed']} --fidelity {outcome['fidelity']}"
    sections = {
        "What had to hold": _invariants(outcome, trace),
        "Timeline": _legend() + _timeline(trace, lanes) + _omissions(trace, lanes),
        "What was done to it": _faults(trace),
        "Held-out loss, nats": _losses(trace),
        "Rounds": _rounds(trace),
        "Behind routers": _routers(outcome),
        "Measured": _table(*((key, json.dumps(fact)) for key, fact in outcome["facts"].items())),
        "Scenario": f"<pre>{escape(path.read_text(encoding='utf-8'))}</pre>",
        "Again": f"<pre>{escape(again)}</pre>",
    }
    told = "\n".join(f"<h2>{title}</h2>{body}" for title, body in sections.items() if body)
    head = f"<h1>{name}{'' if outcome['ok'] else ': broken'}</h1>\n{_figures(outcome)}"
    return _PAGE.format(title=name, body=f"{head}\n{told}")


def first_difference(one: Path, other: Path) -> str | None:
    """Where the traces of two runs part, with the lines before it; None if they are equal.

    A file holds events, the hash covers messages as well: those may differ alone. Raises UserError
    if a run's file is missing.
    """
    before = deque[str](maxlen=LINES_BEFORE)
    number = 0
    for number, (left, right) in enumerate(zip_longest(_lines(one), _lines(other)), 1):
        if left != right and None in (left, right):
            longer = one if right is None else other
            return "\n".join([*before, f"only {longer} goes on after event {number - 1}"])
        if left != right:
            return "\n".join([*before, f"- {number}: {left}", f"+ {number}: {right}"])
        before.append(f"  {number}: {left}")
    left, right = (_outcome(folder)["trace_hash"] for folder in (one, other))
    if left != right:
        return f"all {number} events are equal, messages are not: trace {left}, trace {right}"
    return None


def _outcome(folder: Path) -> Event:
    path = _file(folder, OUTCOME_FILE)
    try:
        found: Event = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{path}: this is no outcome of a run") from None
    return found


def _lines(folder: Path) -> Iterator[str]:
    """Of its trace."""
    with _file(folder, TRACE_FILE).open(encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


def _file(folder: Path, name: str) -> Path:
    """Raises UserError for a file of a run that is not there."""
    path = folder / name
    if not path.is_file() or not os.access(path, os.R_OK):
        raise UserError(f"no {path} can be read: make it with `simnet run SCENARIO --out {folder}`")
    return path


def _trace(folder: Path) -> Trace:
    trace = Trace()
    for line in _lines(folder):
        try:
            event: Event = json.loads(line)
        except ValueError:
            raise UserError(f"{folder}: its trace is of no run that ended") from None
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
    spans = [f"<span>{name} <b>{escape(str(value))}</b></span>" for name, value in figures.items()]
    return f"<p class=figures>{' '.join(spans)}</p>"


def _table(*rows: Sequence[object], head: Sequence[str] = (), classes: Sequence[str] = ()) -> str:
    """`classes` of the rows, if they have any; nothing where there are no rows."""
    lines = ["<tr>" + "".join(f"<th>{name}</th>" for name in head) + "</tr>"] if head else []
    for row, of in zip_longest(rows, classes, fillvalue=""):
        cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
        lines.append(f"<tr class={of}>{cells}</tr>" if of else f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>" if rows else ""


def _element(name: str, words: str = "", **attributes: object) -> str:
    """Of a picture; `words` are those that a mouse finds there."""
    told = " ".join(
        f"{key.rstrip('_')}={f'{value:.1f}' if isinstance(value, float) else value}"
        for key, value in attributes.items()
    )
    return f"<{name} {told}><title>{escape(words)}</title></{name}>"


def _invariants(outcome: Event, trace: Trace) -> str:
    when = {event["name"]: event["t_ns"] for event in reversed(trace.broken)}  # the first of each

    def verdict(item: Event) -> str:
        if item["ok"]:  # a run ends, or counts for nothing, where something broke
            return "held until then" if trace.broken else "held"
        at_ns = when.get(item["name"])
        return "BROKEN" if at_ns is None else f"BROKEN at {at_ns / NS:.3f} s"

    items = sorted(outcome["invariants"], key=lambda item: bool(item["ok"]))
    rows = [(i["name"], verdict(i), "" if i["ok"] else i["detail"]) for i in items]
    table = _table(*rows, classes=["held" if item["ok"] else "broken" for item in items])
    marks = ", ".join(f"{escape(m['name'])} {m['hits']}" for m in outcome["sometimes"])
    return f"{table}<p>{marks}</p>"


def _legend() -> str:
    swatches = {
        **VOTE_COLOURS,
        **{f"final {payload}": colour for payload, colour in FINAL_COLOURS.items()},
        **{"fault": "#f4c7c3", "down": "#bbbbbb", "dashed: broken": "#c0392b"},
    }
    spans = [f"<span><i style='background:{c}'></i>{words}</span>" for words, c in swatches.items()]
    return f"<p class=legend>{' '.join(spans)}</p>"


class _Axis:
    """Time from left to right."""

    def __init__(self, width: int, end_ns: int) -> None:
        self._width = width
        self.end_ns = end_ns

    def x(self, t_ns: float) -> float:
        return LABEL_PX + (self._width - LABEL_PX - 10) * t_ns / self.end_ns

    def span(self, begin_ns: int, end_ns: int, least: float) -> dict[str, float]:
        """Where a box lies that is not too small to be seen."""
        return {"x": self.x(begin_ns), "width": max(least, self.x(end_ns) - self.x(begin_ns))}

    def mark(self, t_ns: float, y1: int, y2: int, words: str = "", **attributes: object) -> str:
        return _element("line", words, x1=self.x(t_ns), x2=self.x(t_ns), y1=y1, y2=y2, **attributes)

    def ticks(self, height: int) -> Iterator[str]:
        step_s = 1.0
        while self.end_ns / NS / step_s > 24:
            step_s *= 2 if str(step_s)[0] in "15" else 2.5
        tick = 0
        while (t_ns := tick * step_s * NS) <= self.end_ns:
            yield self.mark(t_ns, TOP_PX - 6, height, class_="grid")
            yield f"<text class=tick x={self.x(t_ns):.1f} y=14>{tick * step_s:g} s</text>"
            tick += 1


def _timeline(trace: Trace, lanes: list[int]) -> str:
    views = max((len(trace.marks[node, VIEW]) for node in lanes), default=0)
    width = min(WIDTH_PX_MAX, max(WIDTH_PX_MIN, views * VIEW_PX))
    height = TOP_PX + LANE_PX * len(lanes) + 6
    axis, episodes = _Axis(width, trace.end_ns), _episodes(trace)
    shapes = list(axis.ticks(height))
    for row, node in enumerate(lanes):
        top, liar = TOP_PX + row * LANE_PX, trace.liars.get(node)
        shapes.append(f"<text x=4 y={top + (14 if liar else 19)}>node {node}</text>")
        if liar is not None:
            shapes.append(f"<text class=liar x=4 y={top + 26}>{escape(liar)}</text>")
        shapes += _lane(trace, node, top, axis)
        for first, end_ns in episodes:
            if node in first["nodes"]:
                box = {"class_": "fault", **axis.span(first["t_ns"], end_ns, 1), "y": top}
                words = f"{first['kind']} {first['detail']}"
                shapes.append(_element("rect", words, **box, height=LANE_PX - 2))
    for event in trace.broken[:BROKEN_MAX]:
        words = f"{event['name']}: {event['detail']}"
        shapes.append(axis.mark(event["t_ns"], TOP_PX - 6, height, words, class_="end"))
    return (
        f"<div class=scroll><svg width={width} height={height} "
        f"viewBox='0 0 {width} {height}'>{''.join(shapes)}</svg></div>"
    )


def _lane(trace: Trace, node: int, top: int, axis: _Axis) -> Iterator[str]:
    views = trace.marks[node, VIEW]
    ends_ns = [*(event["t_ns"] for event in views), axis.end_ns][1:]
    for event, end_ns in zip(views, ends_ns, strict=False):
        shade = "#eef2f7" if event["view"] % 2 else "#dde6f0"
        span = axis.span(event["t_ns"], end_ns, 0.5)
        yield _element("rect", f"view {event['view']}", **span, y=top + 4, height=20, fill=shade)
    for gone in trace.marks[node, DOWN]:
        back = [up["t_ns"] for up in trace.marks[node, UP] if up["t_ns"] >= gone["t_ns"]]
        span = axis.span(gone["t_ns"], min(back, default=axis.end_ns), 0.5)
        words = f"down from {gone['t_ns'] / NS:.3f} s"
        yield _element("rect", words, **span, y=top + 2, height=24, fill="#bbbbbb")
    for event in trace.marks[node, VOTE]:
        colour = VOTE_COLOURS.get(event["kind"], "#777777")
        words = f"{event['kind']}, view {event['view']}"
        yield axis.mark(event["t_ns"], top + 14, top + 24, words, stroke=colour)
    for event in trace.marks[node, FINAL]:
        colour = FINAL_COLOURS.get(event["payload"], "#777777")
        words = f"final {event['payload']}, height {event['height']}, {event['t_ns'] / NS:.3f} s"
        yield _element("circle", words, cx=axis.x(event["t_ns"]), cy=top + 9, r=3.5, fill=colour)


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


def _faults(trace: Trace) -> str:
    episodes = _episodes(trace)
    rows: list[Sequence[object]] = [
        (
            f"{first['t_ns'] / NS:.3f}",
            f"{end / NS:.3f}",
            f"{first['kind']} {first['detail']}",
            ", ".join(map(str, first["nodes"])),
        )
        for first, end in episodes[:FAULTS_MAX]
    ]
    if len(episodes) > FAULTS_MAX:
        rows.append((f"and {len(episodes) - FAULTS_MAX} more",))
    return _table(*rows, head=("from, s", "until, s", "fault", "nodes"))


def _routers(outcome: Event) -> str:
    """How each node that stands behind one was reached."""
    rows = [
        (
            *(row[key] for key in ("node", "nat", "passage", "relays")),
            *(_listed(row[key]) for key in ("relayed_with", "punched_with")),
        )
        for row in outcome["facts"].get(ROUTERS, ())
    ]
    head = ("node", "behind", "got through", "relays", "relayed with nodes", "punched with nodes")
    return _table(*rows, head=head)


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))


def _omissions(trace: Trace, lanes: list[int]) -> str:
    laneless, told = len(trace.nodes) - len(lanes), []
    if laneless:
        told.append(f"{laneless} nodes have no lane")
    if trace.left_out:
        left = f"{trace.left_out} marks were too many for their lanes"
        told.append(f"{left}: the oldest are left out")
    return f"<p>{'; '.join(told)}</p>" if told else ""


def _losses(trace: Trace) -> str:
    lines: dict[int, list[tuple[int, float]]] = {}
    for node in trace.nodes:
        told = [event for event in trace.marks[node, ROUND] if event.get("loss_nats") is not None]
        if told and len(lines) < LANES_MAX:
            lines[node] = [(event["t_ns"], event["loss_nats"]) for event in told]
    if not lines:
        return ""
    values = [loss for points in lines.values() for _, loss in points]
    low, high = min(values), max(values)
    axis, scale = _Axis(WIDTH_PX_MIN, trace.end_ns), (CHART_PX - 30) / ((high - low) or 1.0)
    shapes = []
    for index, (node, points) in enumerate(lines.items()):
        places = [f"{axis.x(t_ns):.1f},{10 + (high - loss) * scale:.1f}" for t_ns, loss in points]
        line, colour = f"'{' '.join(places)}'", LOSS_COLOURS[index % len(LOSS_COLOURS)]
        shapes.append(_element("polyline", f"node {node}", fill="none", stroke=colour, points=line))
    shapes.append(f"<text x=4 y=18>{high:.3f}</text><text x=4 y={CHART_PX - 18}>{low:.3f}</text>")
    return f"<svg width={WIDTH_PX_MIN} height={CHART_PX}>{''.join(shapes)}</svg>"


def _rounds(trace: Trace) -> str:
    by_height: dict[int, list[Event]] = defaultdict(list)
    for node in trace.nodes:
        for event in trace.marks[node, ROUND]:
            by_height[event["height"]].append(event)
    rows = [
        (
            height,
            f"{min(e['t_ns'] for e in events) / NS:.3f}",
            f"{max(e['t_ns'] for e in events) / NS:.3f}",
            len(events),
            events[0]["contributors"],
            ", ".join(sorted({str(e["vertex"])[:16] for e in events})),
        )
        for height, events in sorted(by_height.items())
    ]
    head = ("height", "first, s", "last, s", "nodes", "contributors", "vertex")
    return _table(*rows, head=head)


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
