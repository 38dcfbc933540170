"""Names for vertices: give one, take it back, list them. Needs no daemon."""

from pathlib import Path

from daa_node.checkpoints.listing import VertexRow, own_view
from daa_node.checkpoints.tags import Tags
from daa_node.cli import report
from daa_node.cli.checkpoint import open_chain, tags_of
from daa_node.cli.data_directory import DataDirectory, write_durably
from daa_node.errors import StorageFailed, UserError


def put(root: Path, name: str, which: str, move: bool, as_json: bool) -> None:
    """Raises UserError unless `which` is a vertex that is certified here."""
    directory, made = open_chain(root)
    row = own_view(directory.chain).find(tags_of(directory, made).spelled_out(which))
    check_certified(row)
    with directory.tags_held():
        known = tags_of(directory, made)
        known.put(name, row.vertex_id, move)
        _write(directory, known)
    if as_json:
        vertex_id = row.vertex_id.hex()
        report.put_json({"name": name, "vertex_id": vertex_id, "height": row.vertex.height})
    else:
        report.put(f"{name} is vertex {row.vertex_id.hex()}, height {row.vertex.height}")


def check_certified(row: VertexRow) -> None:
    """Raises UserError unless it is, or is what the genesis says."""
    if row.vertex.height and not row.is_certified:
        raise UserError(
            f"vertex {row.vertex_id.hex()[:16]} has no certificate here: only what is certified "
            "has a tag",
            exit_code=1,
        )


def remove(root: Path, name: str, as_json: bool) -> None:
    directory, made = open_chain(root)
    with directory.tags_held():
        known = tags_of(directory, made)
        known.remove(name)
        _write(directory, known)
    if as_json:
        report.put_json({"removed": name})
    else:
        report.put(f"removed the tag {name}; its vertex is as it was")


def show(root: Path, as_json: bool) -> None:
    """Also those whose vertex is not here."""
    directory, made = open_chain(root)
    named = tags_of(directory, made).names()
    view, ids = own_view(directory.chain), {*named.values()}
    pairs = zip(view.ids, view.heights, strict=True)
    heights = {vertex_id: height for vertex_id, height in pairs if vertex_id in ids}
    if as_json:
        rows = [
            {"name": name, "vertex_id": vertex_id.hex(), "height": heights.get(vertex_id)}
            for name, vertex_id in named.items()
        ]
        report.put_json({"tags": rows})
        return
    cells = [[name, heights.get(vertex_id), vertex_id.hex()] for name, vertex_id in named.items()]
    report.put_table(("NAME", "HEIGHT", "VERTEX"), cells)


def _write(directory: DataDirectory, known: Tags) -> None:
    try:
        write_durably(directory.tags, known.as_text().encode())
    except OSError as failure:
        raise StorageFailed(f"cannot write {directory.tags}: {failure.strerror}") from failure
