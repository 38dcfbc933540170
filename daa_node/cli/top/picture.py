"""What `top` draws, as lines of text: no wider and no more than there is room for.

Nothing is told by colour. What others have said is shown without the characters that would move a
terminal's cursor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import wrap
from typing import Any

from daa_node.cli import remote, report
from daa_node.cli.top.board import CONTRIBUTE, Board

LABEL = 9  # characters of a label and the space behind it
LOSSES_SHOWN = 40
NEWS_PIPED, NEWS_LEAST = 6, 3  # where there is room, as many as it takes
WHY_LINES_MAX = 3
BAR_MAX = 20
AWAITED_NAMED_MAX = 4
SILENT_S = 3.0  # without an answer: a daemon is busy at times
ID_SHOWN = 8  # digits, as far as a person compares them
WIDE_SPARKS, PLAIN_SPARKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
# Of peers, what matters most first: what has no room is left out from the right.
COLUMNS = ("NODE", "REACH", "RTT MS", "HEIGHT", "LEVEL", "HEALTH", "WEAKEST")


@dataclass(frozen=True, slots=True)
class Room:
    """`rows` None: as many as it takes."""

    columns: int
    rows: int | None
    has_blocks: bool = True  # whether the terminal has characters beyond ASCII


def lines(board: Board, room: Room, now_ts: float) -> list[str]:
    """The whole picture; `now_ts` in unix seconds."""
    head = [*_head(board, now_ts), *_standing(board, room, now_ts)]
    if room.rows is None:
        told = [*head, *_peers(board, room, None), *_news(board, NEWS_PIPED)]
        return [_cut(line, room) for line in told]
    left = room.rows - len(head)
    peers = _peers(board, room, max(0, left - min(len(board.news), NEWS_LEAST)))
    told = [*head, *peers, *_news(board, max(0, left - len(peers)))]
    return [_cut(line, room) for line in told[: room.rows]]


def _head(board: Board, now_ts: float) -> list[str]:
    told = f"daa-node top {board.root}  {datetime.fromtimestamp(now_ts):%H:%M:%S}"
    if board.asked_ts is not None and now_ts - board.asked_ts >= SILENT_S:
        told += f"  SILENT for {now_ts - board.asked_ts:.0f} s"
    status = board.status
    if status is None:
        return [told]
    node, chain = str(status.get("node_id"))[:ID_SHOWN], str(status.get("chain_id"))[:ID_SHOWN]
    return [f"{told}  node {node}  chain {chain}  pid {status.get('pid')}"]


def _standing(board: Board, room: Room, now_ts: float) -> list[str]:
    status = board.status
    if status is None:
        return [*_wrapped("phase", f"no answer: {board.down}", room), ""]
    told = [*_wrapped("phase", f"{status.get('phase')}: {_why(status)}", room)]
    told.append(_row("round", _round(board, now_ts)))
    told.append(_row("loss", _loss(board, room)))
    if board.open_round is not None:
        told.append(_row("updates", _updates(board)))
    told.append(_row("quorum", _quorum(status)))
    told.append(_row("reach", _reach(status)))
    sent, received = status.get("bytes_sent") or 0, status.get("bytes_received") or 0
    told.append(_row("bytes", f"{report.size(sent)} sent, {report.size(received)} received"))
    counted, of = board.contributed()
    told.append(_row("mine", f"in {counted} of the last {of} rounds" if of else "no round yet"))
    told += [_row("health", health) for health in _health(board)]
    return [*told, ""]


def _why(status: Mapping[str, Any]) -> str:
    if status.get("waiting"):
        return str(status["waiting"])
    if status.get("ended_because"):
        return f"the job has ended: {status['ended_because']}"
    if status.get("paused"):
        return "paused by its operator, it trains once it is resumed (daa-node resume)"
    decisions = status.get("decisions") or [{}]
    return str(decisions[0].get("reason", "no decision yet"))


def _round(board: Board, now_ts: float) -> str:
    status = board.status or {}
    height, total = status.get("height"), board.job.rounds
    of = "" if total is None else f" of {total}"
    if board.open_round is None:
        return f"none is open, height {height}{of}"
    open_s = max(0.0, now_ts - board.opened_ts)
    told = f"{board.open_round}{of}, height {height}, open {open_s:.0f} s"
    if board.job.window_s:
        told += f" {_bar(open_s / board.job.window_s)} of {board.job.window_s:g} s"
    return told


def _bar(share: float) -> str:
    full = round(BAR_MAX * min(1.0, share))
    return f"[{'#' * full}{'.' * (BAR_MAX - full)}]"


def _loss(board: Board, room: Room) -> str:
    loss = (board.status or {}).get("loss_nats")
    if not isinstance(loss, int | float):
        never = (board.status or {}).get("never_trains")
        return "not measured: this node never trains" if never else "not measured yet"
    width = max(0, min(LOSSES_SHOWN, room.columns - LABEL - len("0.0000 nats  ")))
    return (
        f"{loss:.4f} nats  {sparkline(board.losses()[-width:] if width else [], room.has_blocks)}"
    )


def sparkline(values: Sequence[float], has_blocks: bool) -> str:
    """A character a value, higher ones higher."""
    sparks = WIDE_SPARKS if has_blocks else PLAIN_SPARKS
    low, high = min(values, default=0.0), max(values, default=0.0)
    if not high > low:
        return sparks[0] * len(values)
    scale = (len(sparks) - 1) / (high - low)
    return "".join(sparks[round((value - low) * scale)] for value in values)


def _updates(board: Board) -> str:
    awaited = board.awaited()
    if not awaited:
        return f"{len(board.held)} held by a quorum, nobody awaited"
    me = str((board.status or {}).get("node_id"))
    named = ["this node" if node == me else node[:ID_SHOWN] for node in awaited]
    shown = ", ".join(named[:AWAITED_NAMED_MAX])
    more = len(named) - AWAITED_NAMED_MAX
    return f"{len(board.held)} held; awaited: {shown}{f' and {more} more' if more > 0 else ''}"


def _quorum(status: Mapping[str, Any]) -> str:
    who, trainers = status.get("validators") or {}, status.get("trainers") or {}
    told = f"{who.get('reachable')} of {who.get('total')} here, it takes {who.get('quorum')}"
    if trainers.get("total"):
        told += f"; {trainers.get('reachable')} of {trainers['total']} trainers"
    return told


def _reach(status: Mapping[str, Any]) -> str:
    standing = status.get("reachability") or {}
    relays = len(standing.get("relays") or ())
    through = f", {relays} relay{'s' * (relays > 1)}" if relays else ""
    return f"{standing.get('reach')}{through}"


def _health(board: Board) -> list[str]:
    """What is amiss here, and how others see this node."""
    status = board.status or {}
    told = [str(status[key]) for key in ("alarm",) if status.get(key)]
    if status.get("damaged"):
        told.append(f"{len(status['damaged'])} damaged records, see `daa-node status`")
    storage = status.get("storage") or {}
    if storage.get("level") in ("near", "over"):
        told.append(f"storage is {storage['level']} its bound")
    # a guest may say of this node what it likes
    members = [peer for peer in board.peers if peer.get("part") in CONTRIBUTE]
    views = [peer["sees_us"] for peer in members if peer.get("sees_us")]
    if views:
        worst = min(views, key=lambda view: view.get("score", 0.0))
        first = sum(view.get("level") == "priority" for view in views)
        told.append(
            f"priority with {first} of {len(views)} peers; lowest score "
            f"{worst.get('score', 0.0):.2f}, by {worst.get('weakest')}"
        )
    return told


def _peers(board: Board, room: Room, rows: int | None) -> list[str]:
    """A table in `rows` lines at most, an empty one behind it; who contributes and is here first.

    Of those that are away, contributors alone: guests come and go. They are last, as anybody may
    send as many as a node lets in.
    """
    known = [p for p in board.peers if p.get("connected") or p.get("part") in CONTRIBUTE]
    peers = sorted(
        known, key=lambda peer: (peer.get("part") not in CONTRIBUTE, not peer.get("connected"))
    )
    if not peers or (rows is not None and rows < 3):
        return []
    shown = peers if rows is None or len(peers) <= rows - 2 else peers[: rows - 3]
    cells = [COLUMNS, *map(_cells, shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    fits = [n for n in range(1, len(widths) + 1) if sum(widths[:n]) + 2 * (n - 1) <= room.columns]
    count = max(fits, default=1)
    table = ["  ".join(map(str.ljust, row[:count], widths)).rstrip() for row in cells]
    if len(shown) < len(peers):
        table.append(f"and {len(peers) - len(shown)} more: daa-node peers")
    return [*table, ""]


def _cells(peer: Mapping[str, Any]) -> tuple[str, ...]:
    rtt_ms = peer.get("rtt_ms")
    way = peer.get("way") if peer.get("connected") else "away"
    return (
        str(peer.get("node_id") or peer.get("peer_id"))[:ID_SHOWN],
        str(way or "-"),
        "-" if rtt_ms is None else f"{rtt_ms:.0f}",
        str(peer.get("height")),
        *remote.health_cells(peer.get("health")),
    )


def _news(board: Board, count: int) -> list[str]:
    """The newest first: it is what has no room last."""
    newest = list(board.news)[-count:] if count else []
    moments = [datetime.fromtimestamp(one.ts).strftime("%H:%M:%S") for one in newest]
    told = [f"{at} {one.what}: {one.why}" for at, one in zip(moments, newest, strict=True)]
    return told[::-1]


def _row(label: str, text: str) -> str:
    return f"{label:<{LABEL}}{text}"


def _wrapped(label: str, text: str, room: Room) -> list[str]:
    pieces = wrap(plain(text), max(20, room.columns - LABEL)) or [""]
    return [_row("" if n else label, piece) for n, piece in enumerate(pieces[:WHY_LINES_MAX])]


def _cut(line: str, room: Room) -> str:
    text = plain(line, room.has_blocks)
    end = "…" if room.has_blocks else "~"
    return text if len(text) <= room.columns else text[: room.columns - 1] + end


def plain(text: str, has_blocks: bool = True) -> str:
    """Without what moves a cursor, and without what an ASCII terminal lacks."""
    kept = "".join(c if c.isprintable() else " " for c in text)
    return kept if has_blocks else kept.encode("ascii", "replace").decode()
