"""The past of a chain for people: lines, a drawn graph, JSON, or a picture. Needs no daemon."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daa_dag.ids import VertexId
from daa_node.checkpoints.history import (
    abbreviations,
    authors_of,
    drawn,
    graph_lines,
    losses_of,
)
from daa_node.checkpoints.listing import VertexRow, View, own_view
from daa_node.checkpoints.picture import Caption, picture
from daa_node.cli import report
from daa_node.cli.checkpoint import open_chain, tags_of
from daa_node.cli.data_directory import write_durably
from daa_node.errors import UserError

AUTHORS_SHOWN_MAX = 6  # of one line
MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options of `log` say."""

    which: str
    count: int
    graph: bool
    svg: Path | None


@dataclass(frozen=True, slots=True)
class _Told:
    """One vertex as all forms of the log tell it."""

    row: VertexRow
    short: str
    authors: list[str]
    loss_micronats: int | None
    tags: list[str]


def log(root: Path, wanted: Wanted, as_json: bool) -> None:
    """Raises UserError for a vertex that is not here, and a file that cannot be written."""
    directory, made = open_chain(root)
    if wanted.svg is not None and os.path.lexists(wanted.svg):
        raise UserError(f"{wanted.svg} exists: choose another file for --svg")
    tags = tags_of(directory, made)
    view = own_view(directory.chain)
    rows = view.newest_of(view.find(tags.spelled_out(wanted.which)), wanted.count)
    told = _told(view, rows, tags.of_vertices())
    if wanted.svg is not None:
        _draw(wanted.svg, made.job.name, told)
        answer = {"file": str(wanted.svg.resolve()), "vertices": len(told)}
        if as_json:
            report.put_json(answer)
        else:
            report.put(f"wrote {wanted.svg}: {len(told)} vertices")
    elif as_json:
        report.put_json({"vertices": [_as_json(one) for one in told]})
    elif wanted.graph:
        for line in graph_lines(drawn(rows), [_line(one) for one in told]):
            report.put(line)
    else:
        for one in told:
            report.put(_line(one))


def _told(view: View, rows: list[VertexRow], tags: dict[VertexId, list[str]]) -> list[_Told]:
    short = abbreviations([row.vertex_id for row in rows], view.ids)
    authors = abbreviations([author for row in rows for author in authors_of(row)])
    losses = losses_of(view.with_children(rows))
    return [
        _Told(
            row,
            short[row.vertex_id],
            [authors[author] for author in authors_of(row)],
            losses.get(row.vertex_id),
            tags.get(row.vertex_id, []),
        )
        for row in rows
    ]


def _line(one: _Told) -> str:
    vertex = one.row.vertex
    words = [f"{one.short}  height {vertex.height}"]
    if vertex.height:
        words += [f"round {vertex.training_round}", signed(one.row), f"by {_named(one.authors)}"]
    if one.loss_micronats is not None:
        words.append(f"loss {one.loss_micronats / MICRO:.4f}")
    if one.tags:
        words.append(f"({', '.join(one.tags)})")
    return "  ".join(words)


def signed(row: VertexRow) -> str:
    """By how many, where their certificate is here."""
    if row.certified_by:
        return f"signed by {len(row.certified_by)}"
    return "certified from above" if row.is_certified else "not certified"


def _named(authors: list[str]) -> str:
    if not authors:
        return "nobody"
    more = len(authors) - AUTHORS_SHOWN_MAX
    shown = " ".join(authors[:AUTHORS_SHOWN_MAX])
    return f"{shown} and {more} more" if more > 0 else shown


def _as_json(one: _Told) -> dict[str, Any]:
    vertex = one.row.vertex
    return {
        "vertex_id": vertex.vertex_id.hex(),
        "short": one.short,
        "height": vertex.height,
        "training_round": vertex.training_round,
        "parents": [parent.hex() for parent in vertex.parents],
        "certified": one.row.is_certified,
        "certified_by": [signer.hex() for signer in one.row.certified_by],
        "contributors": [author.hex() for author in authors_of(one.row)],
        "rule": vertex.rule,
        "tokens_total": vertex.tokens_total,
        "loss_micronats": one.loss_micronats,
        "snapshot": one.row.has_snapshot,
        "tags": one.tags,
    }


def _draw(file: Path, network: str, told: list[_Told]) -> None:
    captions = [
        Caption(
            one.short,
            f"height {one.row.vertex.height}, {signed(one.row)}, by {_named(one.authors)}"
            if one.row.vertex.height
            else "the genesis",
            tuple(one.tags),
            one.row.has_snapshot,
        )
        for one in told
    ]
    text = picture(network, drawn([one.row for one in told]), captions)
    if not os.path.isdir(file.parent):
        raise UserError(f"{file}: {file.parent} is no directory: make it, or choose another file")
    try:
        write_durably(file, text.encode())
    except OSError as fault:
        raise UserError(f"{file}: {fault.strerror or fault}", exit_code=1) from None
