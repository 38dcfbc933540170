"""The certified chain on disk: list it, look at it, verify it. Needs no daemon."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from daa_dag.ids import VertexId
from daa_node.checkpoints.listing import VertexRow, own_view
from daa_node.checkpoints.tags import Tags, parse_tags
from daa_node.checkpoints.verify import verify_chain
from daa_node.checkpoints.verify_report import Anchor, Report
from daa_node.cli import local, report
from daa_node.cli.data_directory import DataDirectory, read_text
from daa_node.errors import UserError
from daa_node.genesis import Genesis, chain_facts
from daa_node.identity.other_protocol import OtherProtocol

SHOWN_ID_CHARS = 16


def list_vertices(root: Path, count: int, as_json: bool) -> None:
    """One line a vertex, of the newest so many."""
    directory, _ = open_chain(root)
    view = own_view(directory.chain)
    rows = [_summary(row) for row in view.last(count)]
    if len(rows) < len(view.ids):
        report.note(f"the newest {len(rows)} of {len(view.ids)}: -n {len(view.ids)} lists them all")
    if as_json:
        report.put_json({"vertices": rows})
        return
    heads = ("HEIGHT", "ROUND", "CERTIFIED BY", "CONTRIBUTORS", "TOKENS", "SNAPSHOT", "VERTEX")
    cells = [
        [
            row["height"],
            row["training_round"],
            len(row["certified_by"]) or ("above" if row["certified"] and row["height"] else 0),
            len(row["contributors"]),
            row["tokens_total"],
            "yes" if row["snapshot"] else "",
            row["vertex_id"][:SHOWN_ID_CHARS],
        ]
        for row in rows
    ]
    report.put_table(heads, cells)


def show(root: Path, which: str, as_json: bool) -> None:
    """All of one vertex."""
    directory, made = open_chain(root)
    row = own_view(directory.chain).find(tags_of(directory, made).spelled_out(which))
    whole = {**_summary(row), **_plain(asdict(row.vertex))}
    if as_json:
        report.put_json(whole)
        return
    for key, said in whole.items():
        if isinstance(said, list) and said:
            report.put(f"{key}:")
            for item in said:
                report.put(f"  {item if isinstance(item, str) else json.dumps(item)}")
        else:
            report.put(f"{key}: {said if isinstance(said, str) else json.dumps(said)}")


def verify(root: Path, trusted: str | None, start: str | None, as_json: bool) -> None:
    """Check everything; every problem by file, and then SystemExit(1)."""
    directory, made = open_chain(root)
    anchor = _anchor(trusted, start, tags_of(directory, made))
    console = Console(stderr=True)
    with Progress(
        TextColumn("verifying"),
        BarColumn(),
        DownloadColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("verifying", total=None)
        try:
            found = verify_chain(
                directory.chain,
                chain_facts(made),
                lambda done, total: progress.update(task, completed=done, total=total),
                anchor,
            )
        except OtherProtocol as other:
            raise UserError(
                f"{directory.chain}: what the validators agreed on is proved up to round "
                f"{other.last_round}, and nothing else of this chain was looked at, as "
                f"{other.why}: install {other.wanted} of daa-compute, and verify again",
                exit_code=1,
            ) from None
    if as_json:
        report.put_json(_as_json(found))
    else:
        _put(found, directory.chain)
    if not found.ok:
        raise SystemExit(1)


def open_chain(root: Path) -> tuple[DataDirectory, Genesis]:
    """A node's directory that has a chain, and its network. Raises UserError."""
    directory = DataDirectory(root)
    directory.check()
    made = local.read_genesis(directory.genesis)
    if not directory.chain.is_dir():
        raise UserError(f"{root} has no chain yet: run its daemon first", exit_code=1)
    return directory, made


def tags_of(directory: DataDirectory, made: Genesis) -> Tags:
    """The tags that this node has given. Raises UserError if their file is damaged."""
    text = "{}"
    if directory.tags.exists():
        text = read_text(directory.tags, "file of tags", "")
    return parse_tags(str(directory.tags), text, made.chain_id)


def _anchor(trusted: str | None, start: str | None, tags: Tags) -> Anchor | None:
    if trusted is not None and start is not None:
        raise UserError("--from trusts its vertex already: give --trust or --from, not both")
    text = trusted if start is None else start
    if text is None:
        return None
    text = tags.spelled_out(text)
    if not re.fullmatch("[0-9a-f]{64}", text.lower()):
        raise UserError(
            f"{text!r} is no vertex id: give all of its 64 hexadecimal digits, or a tag"
        )
    return Anchor(VertexId(bytes.fromhex(text)), starts_replay=start is not None)


def _summary(row: VertexRow) -> dict[str, Any]:
    vertex = row.vertex
    return {
        "vertex_id": row.vertex_id.hex(),
        "height": vertex.height,
        "training_round": vertex.training_round,
        "model_root": vertex.model_root.hex(),
        "certified": row.is_certified,
        "certified_by": [signer.hex() for signer in row.certified_by],
        "contributors": [facts.author.hex() for facts in vertex.contributors],
        "tokens_total": vertex.tokens_total,
        "snapshot": row.has_snapshot,
    }


def _as_json(found: Report) -> dict[str, Any]:
    promised = None
    if found.promised is not None:
        height, vertex_id = found.promised
        promised = {"height": height, "vertex_id": vertex_id.hex()}
    return {
        "ok": found.ok,
        "chain_id": found.chain_id.hex(),
        "heights": found.heights,
        "tip": None if found.tip is None else found.tip.hex(),
        "promised": promised,
        "replayed_from": found.replayed_from,
        "pruned_below": found.pruned_below,
        "vertices": found.vertices,
        "certificates": found.certificates,
        "light": found.light,
        "chunks": found.chunks,
        "bytes_read": found.bytes_read,
        "problems": [{"what": p.what, "where": p.where} for p in found.problems],
    }


def _put(found: Report, directory: Path) -> None:
    report.put(f"chain {found.chain_id.hex()}")
    report.put(
        f"{found.vertices} vertices up to height {found.heights}, {found.certificates} "
        f"certificates, {found.chunks} chunks, {report.size(found.bytes_read)} read"
    )
    if found.tip is not None:
        report.put(f"newest certified vertex {found.tip.hex()}")
    if found.promised is not None:
        height, vertex_id = found.promised
        report.put(f"final by the headers, but not here: height {height}, vertex {vertex_id.hex()}")
    if found.light:
        report.put(
            f"{found.light} vertices of old epochs are proved by one certificate an epoch: those "
            "of their own were let go, or never came"
        )
    if found.pruned_below:
        report.put(f"states below height {found.pruned_below} were pruned: its snapshot is kept")
    if found.replayed_from > found.pruned_below:
        report.put(f"not replayed up to height {found.replayed_from}: its snapshot is trusted")
    for problem in found.problems:
        report.put(f"PROBLEM {directory / problem.where}: {problem.what}")
    report.put("everything holds" if found.ok else f"problems: {len(found.problems)}")


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
