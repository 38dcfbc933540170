"""What a person sees while a demo runs: a live table on a terminal, plain lines elsewhere."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from daa_node.cli import report
from daa_node.cli.cluster import Cluster, Daemon
from daa_node.cli.remote import count_of

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
        if self._live is not None:
            self._live.update(self._picture())
        else:
            self._tell()

    def _tell(self) -> None:
        for line in longest_rounds(self._cluster.daemons):
            if line["height"] > self._told_height:
                self._told_height = line["height"]
                self._say(round_line(line, self._cluster))
        told = "; ".join(sorted(filter(None, map(_waiting, self._cluster.daemons))))
        if told != self._told_waiting:
            self._told_waiting = told
            if told:
                self._say(f"waiting: {told}")

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _picture(self) -> Group:
        nodes = Table("node", "phase", "round", "height", "loss", "sent", "why", box=None)
        for index, daemon in enumerate(self._cluster.daemons):
            nodes.add_row(f"node-{index}", *_node_cells(daemon))
        rounds = Table("height", "loss", "certified by", "contributors", "sent a node", "s")
        done = longest_rounds(self._cluster.daemons)
        for line in done[-ROUNDS_SHOWN_MAX:]:
            rounds.add_row(*_round_cells(line, self._cluster))
        total = self._cluster.genesis.job.end.rounds or 1
        height = done[-1]["height"] if done else 0
        bar = Table.grid(padding=(0, 1))
        bar.add_row(f"round {height} of {total}", ProgressBar(total=total, completed=height))
        return Group(nodes, "", rounds, bar)


def longest_rounds(daemons: list[Daemon]) -> list[dict[str, Any]]:
    """The rounds as the node that has most of them tells them."""
    return max((daemon.rounds for daemon in daemons), key=len, default=[])


def sent_per_node(height: int, daemons: list[Daemon]) -> int:
    """Mean bytes that a node sent in the round that made `height`."""
    sent = [
        int(line["bytes_sent"] or 0)
        for daemon in daemons
        for line in daemon.rounds
        if line["height"] == height
    ]
    return sum(sent) // len(sent) if sent else 0


def round_line(line: dict[str, Any], cluster: Cluster) -> str:
    """One finished round in a line of text."""
    height, loss, certified, contributors, sent, wall = _round_cells(line, cluster)
    total = cluster.genesis.job.end.rounds
    of = f"/{total}" if total else ""
    return (
        f"round {height}{of}  loss {loss}  certified by {certified}  "
        f"contributors {contributors}  {sent} a node  {wall} s"
    )


def put_loss_curve(losses: list[tuple[int, float]], stream: TextIO = sys.stdout) -> None:
    """Held-out loss by height, as bars of text."""
    top = max((loss for _, loss in losses), default=1.0)
    for height, loss in losses:
        bar = "#" * max(1, round(CURVE_WIDTH * loss / top))
        print(f"{height:>5}  {loss:7.4f}  {bar}", file=stream)


def _round_cells(line: dict[str, Any], cluster: Cluster) -> tuple[str, ...]:
    loss, wall_s = line["loss_nats"], line["wall_s"]
    total = len(cluster.daemons)
    return (
        str(line["height"]),
        "-" if loss is None else f"{loss:.4f}",
        f"{count_of(line['certified_by'])}/{total}",
        f"{count_of(line['contributors'])}/{total}",
        report.size(sent_per_node(line["height"], cluster.daemons)),
        "-" if wall_s is None else f"{wall_s:.1f}",
    )


def _node_cells(daemon: Daemon) -> tuple[str, ...]:
    status = daemon.status
    if status is None:
        return ("starting", "-", "-", "-", "-", "")
    loss, decisions = status["loss_nats"], status["decisions"]
    why = status["waiting"] or (decisions[-1]["reason"] if decisions else "")
    return (
        str(status["phase"]),
        str(status["round"]),
        str(status["height"]),
        "-" if loss is None else f"{loss:.4f}",
        report.size(status["bytes_sent"]),
        str(why),
    )


def _waiting(daemon: Daemon) -> str:
    """What it waits for; empty if for nothing."""
    return str((daemon.status or {}).get("waiting") or "")
