"""The checkpoint DAG newest first, as lines of text: each vertex in a lane, with what leads to it.

    *  8f2c91ab  height 4  ...        a vertex, and the lanes that pass it
    |\\                                it merges two
    | *  77d0e1f2  height 3  ...
    |/                                both stand on the same vertex

A lane is what is still expected below: the parent of a vertex above. The order is that of the
graph, turned round. Pure: what `log` prints and what `picture` draws are the same rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low

from daa_dag.checkpoint import Vertex
from daa_dag.ids import NodeId, VertexId
from daa_node.checkpoints.listing import VertexRow

ABBREVIATION_MIN = 8  # what a command takes for the start of an id


@dataclass(frozen=True, slots=True)
class Drawn:
    """One vertex, where it stands, and the lines below it.

    `column`: of the vertex. `above` and `below`: what each lane expects before and after it;
    `joined`: columns of lanes above that end in it, beside its own.
    """

    row: VertexRow
    column: int
    above: tuple[VertexId, ...]
    below: tuple[VertexId, ...]
    joined: tuple[int, ...]


def drawn(rows: Sequence[VertexRow]) -> list[Drawn]:
    """`rows` newest first, children before parents; parents that are not among them end a lane."""
    here = {row.vertex_id for row in rows}
    lanes: list[VertexId] = []
    found = []
    for row in rows:
        if row.vertex_id not in lanes:
            lanes.append(row.vertex_id)
        above = tuple(lanes)
        column = lanes.index(row.vertex_id)
        joined = tuple(at for at, lane in enumerate(lanes) if lane == row.vertex_id and at > column)
        left = [lane for lane in lanes[:column] if lane != row.vertex_id]
        right = [lane for lane in lanes[column:] if lane != row.vertex_id]
        lanes = [*left, *(parent for parent in row.vertex.parents if parent in here), *right]
        found.append(Drawn(row, column, above, tuple(lanes), joined))
    return found


def graph_lines(drawings: Sequence[Drawn], captions: Sequence[str]) -> Iterator[str]:
    """A line a vertex, `captions` beside them, and lines where lanes join and part."""
    for one, caption in zip(drawings, captions, strict=True):
        width = len(one.above)
        for at in reversed(one.joined):  # the rightmost first: those left of it stand still
            yield _joining(width, at, one.column)
            width -= 1
        lanes = ["*" if at == one.column else "|" for at in range(width)]
        yield f"{' '.join(lanes)}  {caption}"
        parents = len(one.below) - (width - 1)
        for more in range(1, parents):
            stays = ["|"] * (one.column + more)
            moves = ["\\"] * (width - one.column)
            yield f"{' '.join(stays)}{' '.join(moves)}".rstrip()
        if parents == 0 and one.column < width - 1:
            stays, moves = ["|"] * one.column, ["/"] * (width - 1 - one.column)
            yield f"{''.join(lane + ' ' for lane in stays)} {' '.join(moves)}".rstrip()


def _joining(width: int, at: int, column: int) -> str:
    """Lane `at` of `width` runs into the one at `column`; those right of it close up."""
    line = [" "] * (2 * width)
    line[: 2 * at : 2] = "|" * at
    for place in range(2 * column + 1, 2 * at - 1):
        if line[place] == " ":
            line[place] = "_"
    for later in range(at, width):
        line[2 * later - 1] = "/"
    return "".join(line).rstrip()


def abbreviations(ids: Sequence[bytes], among: Iterable[bytes] = ()) -> dict[bytes, str]:
    """The shortest start of each id that is of no other one, eight digits at least.

    Nor is it of any of `among`: of many ids few begin as these do.
    """
    starts = {one[: ABBREVIATION_MIN // 2] for one in ids}
    others = (one for one in among if one[: ABBREVIATION_MIN // 2] in starts)
    names = sorted({one.hex() for one in (*ids, *others)})
    found = {}
    for at, name in enumerate(names):
        beside = [names[other] for other in (at - 1, at + 1) if 0 <= other < len(names)]
        length = max((_common(name, other) + 1 for other in beside), default=0)
        found[bytes.fromhex(name)] = name[: max(length, ABBREVIATION_MIN)]
    return found


def loss_below(vertex: Vertex) -> int | None:
    """Of the model that this step began from, in micronats: the median of what contributors say.

    The lower of two in the middle. It is their word: nobody verifies it. Zero is of who could not
    measure: where most could not, nothing is known.
    """
    said = [each.base_loss_micronats for each in vertex.contributors if each.weight]
    measured = [loss for loss in said if loss > 0]
    return median_low(measured) if 2 * len(measured) > len(said) else None


def losses_of(rows: Iterable[VertexRow]) -> dict[VertexId, int]:
    """The loss of each vertex that a later one tells of, in micronats."""
    found: dict[VertexId, int] = {}
    for row in rows:
        loss = loss_below(row.vertex)
        if loss is not None and len(row.vertex.parents) == 1:
            found[row.vertex.parents[0]] = loss
    return found


def authors_of(row: VertexRow) -> list[NodeId]:
    """Whose contributions count in it."""
    return [each.author for each in row.vertex.contributors if each.weight]


def _common(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
