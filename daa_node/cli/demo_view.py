"""What a person sees while a demo runs: a live table on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from daa_node.cli import report
from daa_node.cli.cluster import Cluster, Daemon

ROUNDS_SHOWN_MAX = 12
CURVE_WIDTH = 50


class DemoView:
    """Call `show` after every poll of the cluster, inside `with view.open():`."""

    def __init__(self, cluster: Cluster, stream: TextIO) -> None:
        self._cluster = cluster
        self._stream = stream
        self._console = Console(file=stream)
        self._live: Live | None = None
        self._told_height = -1
        self._told_waiting = ""
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=False)

    def open(self) -> AbstractContextManager[object]:
        return self._live if self._live is not None else nullcontext()

    def show(self) -> None:
        news, self._cluster.news = self._cluster.news, []
        for line in news:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        if self._live is not None:
            self._live.update(self._picture())
        else:
            self._tell()

    def finish(self) -> None:
        """Tell what `show` held back, once no daemon has more to say."""
        if self._live is None:
            self._tell_rounds(everything=True)

    def _tell(self) -> None:
        self._tell_rounds()
        told = "; ".join(sorted(set(filter(None, map(_waiting, self._cluster.daemons)))))
        if told != self._told_waiting:
            self._told_waiting = told
            if told:
                self._say(f"waiting: {told}")

    def _tell_rounds(self, everything: bool = False) -> None:
        lines = merged_rounds(self._cluster.daemons)
        for line in lines:
            height = line["height"]
            # who took part in the newest round tells more of it than who caught up
            settled = line["wall_s"] or height == 0 or height < lines[-1]["height"]
            if height > self._told_height and (settled or everything):
                self._told_height = height
                self._say(round_line(line, self._cluster))

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _picture(self) -> Group:
        nodes = Table("node", "phase", "round", "height", "loss", "sent", "why", box=None)
        for index, daemon in enumerate(self._cluster.daemons):
            nodes.add_row(f"node-{index}", *_node_cells(daemon))
        rounds = Table("height", "loss", "certified by", "from nodes", "sent a node", "s")
        done = merged_rounds(self._cluster.daemons)
        for line in done[-ROUNDS_SHOWN_MAX:]:
            rounds.add_row(*_round_cells(line, self._cluster))
        total = self._cluster.genesis.job.end.rounds or 1
        height = done[-1]["height"] if done else 0
        bar = Table.grid(padding=(0, 1))
        bar.add_row(f"round {height} of {total}", ProgressBar(total=total, completed=height))
        return Group(nodes, "", rounds, bar)


def merged_rounds(daemons: list[Daemon]) -> list[dict[str, Any]]:
    """Every round once, as a node tells it that took part rather than caught up."""
    best: dict[int, dict[str, Any]] = {}
    for daemon in daemons:
        for line in daemon.rounds:
            known = best.get(line["height"])
            if known is None or (line["wall_s"] and not known["wall_s"]):
                best[line["height"]] = line
    return [best[height] for height in sorted(best)]


def sent_per_node(height: int, daemons: list[Daemon]) -> int:
    """Mean bytes that a node sent in the round that made `height`."""
    sent = [
        int(line["bytes_sent"] or 0)
        for daemon in daemons
        for line in daemon.rounds
        if line["height"] == height and line["wall_s"]
    ]
    return sum(sent) // len(sent) if sent else 0


def round_line(line: dict[str, Any], cluster: Cluster) -> str:
    """One finished round in a line of text."""
    height, loss, certified, contributors, sent, wall = _round_cells(line, cluster)
    total = cluster.genesis.job.end.rounds
    of = f"/{total}" if total else ""
    if line["height"] == 0:
        return f"round {height}{of}  loss {loss}  the genesis weights"
    return (
        f"round {height}{of}  loss {loss}  from nodes {contributors}  certified by {certified}  "
        f"{sent} sent a node  {wall} s"
    )


def put_loss_curve(losses: Sequence[tuple[int, float | None]], stream: TextIO = sys.stdout) -> None:
    """Held-out loss by height, as bars of text; words where there is none, or it is no number."""
    top = max((loss for _, loss in losses if loss is not None and isfinite(loss)), default=0.0)
    for height, loss in losses:
        if loss is None:
            print(f"{height:>5}  not measured", file=stream)
        elif not isfinite(loss):
            print(f"{height:>5}  no number: the model is spoilt", file=stream)
        else:
            share = loss / top if top > 0 else 0.0
            print(
                f"{height:>5}  {loss:7.4f}  {'#' * max(1, round(CURVE_WIDTH * share))}", file=stream
            )


def _loss_cell(loss: float | None) -> str:
    if loss is None:
        return "-"
    return f"{loss:.4f}" if isfinite(loss) else "no number"


def _round_cells(line: dict[str, Any], cluster: Cluster) -> tuple[str, ...]:
    height, shown_loss = line["height"], _loss_cell(line["loss_nats"])
    if height == 0:
        return (str(height), shown_loss, "genesis", "-", "-", "-")
    return (
        str(height),
        shown_loss,
        _who(line["certified_by"], cluster),
        _who(line["contributors"], cluster),
        report.size(sent_per_node(height, cluster.daemons)),
        f"{line['wall_s']:.1f}",
    )


def _who(node_ids: list[str], cluster: Cluster) -> str:
    """Nodes by their numbers: `0 1 3`."""
    numbers = {daemon.node_id: index for index, daemon in enumerate(cluster.daemons)}
    return " ".join(str(number) for number in sorted(numbers[name] for name in node_ids)) or "-"


def _node_cells(daemon: Daemon) -> tuple[str, ...]:
    status = daemon.status
    if daemon.down is not None:
        return (f"gone ({daemon.down})", "-", "-", "-", "-", "the others go on")
    if status is None:
        return ("starting", "-", "-", "-", "-", "")
    decisions = status["decisions"]
    why = status["waiting"] or (decisions[-1]["reason"] if decisions else "")
    return (
        str(status["phase"]),
        str(status["round"]),
        str(status["height"]),
        _loss_cell(status["loss_nats"]),
        report.size(status["bytes_sent"]),
        str(why),
    )


def _waiting(daemon: Daemon) -> str:
    """Whom it waits for; empty if for nobody. Every daemon waits for itself while it starts."""
    said = str((daemon.status or {}).get("waiting") or "")
    return said if "reachable" in said else ""
