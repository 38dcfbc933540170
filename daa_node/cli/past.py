"""What a node remembers: its rounds, and what each host has contributed. Needs no daemon."""

import csv
import io
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from daa_dag.ids import NodeId
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.chronicle.rows import HostSum, RoundRow, Span, Sums
from daa_node.chronicle.store import ROWS_MAX
from daa_node.cli import remote, report
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.history_file import open_history
from daa_node.cli.inviting import UNITS_S
from daa_node.errors import UserError

ROUNDS_SHOWN_MAX = 1024  # without --since; as many as a daemon lists
WHYS_SHOWN_MAX = 3  # of one host
SHORT_ID = 16
_AGO = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?")
CSV_HEADS = (
    *("node_id", "mine", "rounds", "void", "tokens", "steps", "bytes", "share"),
    *("first_height", "last_height", "first_at", "last_at", "left_out", "reasons"),
)


def rounds(root: Path, since: str | None, as_json: bool) -> None:
    """Those that the daemon has in memory; the past ones if it is asked for, or none runs."""
    directory = DataDirectory(root)
    directory.check()
    has_past = directory.chain.is_dir() or _is_there(directory.history)
    if since is None and (directory.holder() is not None or not has_past):
        remote.rounds(root, as_json)  # which says how to start one
        return
    since_s = None if since is None else moment(since, time.time())
    history, _ = open_history(root)
    rows = list(_rounds(history, since_s))
    spans = [] if since_s is None else _spans(history, since_s)
    if as_json:
        told = {"rounds": [row.as_told() for row in rows]}
        report.put_json({**told, "spans": [span.as_told() for span in spans]})
        return
    if spans:
        report.put_table(_SPAN_HEADS, [_span_cells(span) for span in spans])
        report.put()
    report.put_table(_ROUND_HEADS, [_round_cells(row) for row in rows])


def contributions(root: Path, as_csv: bool, as_json: bool) -> None:
    """Raises UserError."""
    if as_csv and as_json:
        raise UserError("--csv and --json: give one of them")
    history, me = open_history(root)
    sums = history.sums()
    if as_json:
        report.put_json({**sums.as_told(me), "node_id": me.hex()})
    elif as_csv:
        for line in csv_lines(sums, me):
            report.put(line)
    else:
        _put_contributions(sums, me)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # in a folder of another user: whoever reads it says so


def moment(text: str, now_s: float) -> float:
    """Unix seconds of `12h`, which is so long ago, or of a date. Raises UserError."""
    ago = _AGO.fullmatch(text.strip().lower())
    if ago is not None:
        return now_s - int(ago[1]) * UNITS_S[ago[2]]
    try:
        if _DATE.fullmatch(text.strip()) is None:
            raise ValueError
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UserError(
            f"--since {text[:40]}: how long ago, like 90m, 12h, 7d or 2w, or a date, like "
            "2026-11-01 or 2026-11-01T18:00"
        ) from None


def _rounds(history: SqliteHistory, since_s: float | None) -> Iterator[RoundRow]:
    if since_s is None:
        after = history.newest_height() - ROUNDS_SHOWN_MAX
    else:
        lowest = history.height_since(since_s)
        if lowest is None:
            return
        after = lowest - 1
    while page := history.rounds(after, ROWS_MAX):
        for row in page:  # in between there may be one of a clock that was wrong
            if since_s is None or row.ended_s is None or row.ended_s >= since_s:
                yield row
        after = page[-1].height


def _spans(history: SqliteHistory, since_s: float) -> list[Span]:
    return [span for span in history.spans() if span.from_s + span.seconds > since_s]


_ROUND_HEADS = (
    *("HEIGHT", "ENDED", "LOSS", "CERTIFIED BY", "CONTRIBUTORS", "LEFT OUT", "TOKENS"),
    *("SENT", "WALL S", "VERTEX"),
)
_SPAN_HEADS = ("FROM", "HOURS", "ROUNDS", "ABORTED", "CONTRIBUTIONS", "TOKENS", "SENT", "LOSS")


def _round_cells(row: RoundRow) -> list[object]:
    void = sum(not each.counts for each in row.contributors)
    return [
        row.height,
        _when(row.ended_s),
        row.loss_nats,
        row.signers,
        f"{len(row.contributors)}{f', {void} void' if void else ''}",
        len(row.left_out),
        row.tokens,
        _size(row.sent_bytes),
        row.wall_s,
        row.vertex_id.hex()[:SHORT_ID],
    ]


def _span_cells(span: Span) -> list[object]:
    void = f", {span.void} void" if span.void else ""
    return [
        _when(span.from_s or None),
        span.seconds // 3600,
        span.rounds,
        span.aborted,
        f"{span.contributions}{void}",
        span.tokens,
        _size(span.sent_bytes),
        span.loss_nats,
    ]


def _put_contributions(sums: Sums, me: NodeId) -> None:
    report.put(own_line(sums, me))
    report.put()
    heads = ("HOST", "ROUNDS", "TOKENS", "SHARE", "BYTES", "FIRST", "LAST", "LAST SEEN", "LEFT OUT")
    report.put_table(heads, [_host_cells(sums, host, me) for host in sums.hosts])
    report.put()
    newest = max((host.last_height or 0 for host in sums.hosts), default=0)
    report.put(
        "* this node. LEFT OUT is what this node has seen; all else is what sets certify, up to "
        f"height {newest}."
    )


def own_line(sums: Sums, me: NodeId) -> str:
    """What did I contribute?"""
    own = next((host for host in sums.hosts if host.node_id == me), None)
    if own is None:
        return f"This node has contributed to none of {sums.rounds} rounds."
    void = f", and {own.void} more that were not merged" if own.void else ""
    left_out = f"; left out {_left_out(own.left_out)}" if own.left_out else ""
    return (
        f"This node has contributed to {own.rounds} of {sums.rounds} rounds{void}: {own.tokens} "
        f"tokens, {100 * sums.share(own):.1f} % of all, in updates of "
        f"{report.size(own.size_bytes)}{left_out}."
    )


def _host_cells(sums: Sums, host: HostSum, me: NodeId) -> list[object]:
    name = "others" if host.node_id is None else host.node_id.hex()[:SHORT_ID]
    return [
        f"{'*' if host.node_id == me else ' '} {name}",
        host.rounds,
        host.tokens,
        f"{100 * sums.share(host):.1f} %",
        report.size(host.size_bytes),
        host.first_height,
        host.last_height,
        _when(host.last_s),
        _left_out(host.left_out) if host.left_out or host.void else "",
    ]


def _left_out(whys: Mapping[str, int]) -> str:
    """`8 times: late 6, aborted 2`."""
    count = sum(whys.values())
    shown = [f"{why} {times}" for why, times in list(whys.items())[:WHYS_SHOWN_MAX]]
    more = ["and more"] if len(whys) > WHYS_SHOWN_MAX else []
    return f"{count} {'time' if count == 1 else 'times'}: {', '.join([*shown, *more])}"


def csv_lines(sums: Sums, me: NodeId) -> Iterator[str]:
    """Heads, and a line a host; times are of UTC."""
    yield ",".join(CSV_HEADS)
    for host in sums.hosts:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(
            (
                "" if host.node_id is None else host.node_id.hex(),
                "yes" if host.node_id == me else "no",
                *(host.rounds, host.void, host.tokens, host.steps, host.size_bytes),
                f"{sums.share(host):.6f}",
                *(host.first_height, host.last_height, _utc(host.first_s), _utc(host.last_s)),
                sum(host.left_out.values()),
                "; ".join(f"{why} {times}" for why, times in host.left_out.items()),
            )
        )
        yield line.getvalue()


def _size(count_bytes: int | None) -> str:
    return "-" if count_bytes is None else report.size(count_bytes)


def _when(moment_s: float | None) -> str:
    if moment_s is None:
        return "-"
    return datetime.fromtimestamp(moment_s).strftime("%Y-%m-%d %H:%M")


def _utc(moment_s: float | None) -> str:
    if moment_s is None:
        return ""
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
