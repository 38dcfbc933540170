"""The checkpoint DAG as one SVG file: nothing is fetched, and it reads on light and on dark.

A vertex is a circle in its lane, newest on top, a ring around those whose state lies whole beside
the chain. Lines lead down to parents. Texts stand right of all lanes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from daa_dag.ids import VertexId
from daa_node.checkpoints.history import Drawn

ROW, LANE, MARGIN, RADIUS = 26, 22, 24, 5  # pixels
CHARACTER = 7.2  # of the fixed font at 12 pixels
TAG_GAP = 8

_STYLE = """
  :root { color-scheme: light dark; }
  svg { background: #ffffff; font: 12px ui-monospace, Menlo, Consolas, monospace; }
  text { fill: #1f2328; } .quiet { fill: #59636e; } .title { font-weight: bold; }
  .way { stroke: #8c959f; stroke-width: 2; fill: none; }
  .vertex { fill: #0969da; } .snapshot { stroke: #0969da; stroke-width: 2; fill: none; }
  .tag { fill: #ddf4ff; stroke: #54aeff; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; }
    text { fill: #e6edf3; } .quiet { fill: #9198a1; }
    .way { stroke: #656c76; }
    .vertex { fill: #4493f8; } .snapshot { stroke: #4493f8; }
    .tag { fill: #132339; stroke: #1f6feb; }
  }
"""


@dataclass(frozen=True, slots=True)
class Caption:
    """The words beside one vertex."""

    short: str
    about: str
    tags: tuple[str, ...]
    has_snapshot: bool


def picture(title: str, drawings: Sequence[Drawn], captions: Sequence[Caption]) -> str:
    """The file's text; `drawings` as `history.drawn` gives them."""
    lanes = max(len(one.above) for one in drawings)
    words_x = MARGIN + lanes * LANE
    longest = max(map(_width, captions))
    width = round(words_x + max(longest, CHARACTER * len(title)) + MARGIN)
    height = MARGIN * 2 + ROW * (len(drawings) + 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{MARGIN}" y="{MARGIN}">{escape(title)}</text>',
    ]
    places = {one.row.vertex_id: _place(at, one) for at, one in enumerate(drawings)}
    for one in drawings:
        lines += _ways(one, places, height)
    for at, (one, caption) in enumerate(zip(drawings, captions, strict=True)):
        lines += _vertex(*_place(at, one), words_x, caption)
    return "\n".join([*lines, "</svg>", ""])


def _place(at: int, one: Drawn) -> tuple[int, int]:
    return MARGIN + one.column * LANE, MARGIN + ROW * (at + 1)


def _ways(one: Drawn, places: dict[VertexId, tuple[int, int]], height: int) -> Iterator[str]:
    """Down to each parent; to the lower edge where it is not in the picture."""
    x, y = places[one.row.vertex_id]
    for parent in one.row.vertex.parents:
        if parent not in places:
            yield f'<path class="way" stroke-dasharray="3 4" d="M {x} {y} V {height}"/>'
            continue
        to_x, to_y = places[parent]
        # It leaves its lane at once for one further right, and late for one further left.
        bend = f"L {to_x} {y + ROW} V {to_y}" if to_x > x else f"V {to_y - ROW} L {to_x} {to_y}"
        yield f'<path class="way" d="M {x} {y} {bend if to_x != x else f"V {to_y}"}"/>'


def _vertex(x: int, y: int, words_x: int, caption: Caption) -> Iterator[str]:
    yield f'<circle class="vertex" cx="{x}" cy="{y}" r="{RADIUS}"/>'
    if caption.has_snapshot:
        yield f'<circle class="snapshot" cx="{x}" cy="{y}" r="{RADIUS + 4}"/>'
    at_x = float(words_x)
    yield f'<text x="{at_x:.0f}" y="{y + 4}">{escape(caption.short)}</text>'
    at_x += CHARACTER * (len(caption.short) + 1)
    for tag in caption.tags:
        box = CHARACTER * len(tag) + TAG_GAP
        yield (
            f'<rect class="tag" x="{at_x:.0f}" y="{y - 9}" width="{box:.0f}" height="18" rx="5"/>'
            f'<text x="{at_x + TAG_GAP / 2:.0f}" y="{y + 4}">{escape(tag)}</text>'
        )
        at_x += box + TAG_GAP
    yield f'<text class="quiet" x="{at_x:.0f}" y="{y + 4}">{escape(caption.about)}</text>'


def _width(caption: Caption) -> float:
    tags = sum(CHARACTER * len(tag) + 2 * TAG_GAP for tag in caption.tags)
    return CHARACTER * (len(caption.short) + 1 + len(caption.about)) + tags
