"""A chain as a daemon has left it, and what its commands say beside those that judge all of it."""

from collections.abc import Callable
from pathlib import Path

from daa_node.checkpoints.certified import Past, certified_chain
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.history import abbreviations, losses_of
from daa_node.checkpoints.layout import KINDS
from daa_node.checkpoints.listing import LineView, View, own_view, view_chain
from daa_node.checkpoints.own_chain import OwnChain, own_chain
from daa_node.errors import UserError
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker
from tests.daa_node.checkpoints.proofs_alone import follow_members

ROUNDS, PACKED = 14, (5, 9)


async def grow(maker: ChainMaker, rounds: int, *packed: int) -> None:
    await maker.open()
    await follow_members(maker.chain)
    for number in range(1, rounds + 1):
        await maker.publish(await maker.make_round(abort=number in (4, 6)))
        if number in packed:
            assert await maker.chain.pack(KINDS, 1)


def answers(ask: Callable[[], object]) -> object:
    """What it comes to, or the message."""
    try:
        return ask()
    except UserError as refused:
        return str(refused)


def finds(past: Past, text: str) -> object:
    return answers(lambda: past.find(text))


def told(past: Past) -> list[object]:
    """All that commands ask of it."""
    found = [finds(past, text) for text in ("tip", "x", *map(str, range(past.height + 3)))]
    vertices = [past.at(height) for height in range(past.height + 1)]
    ids = [vertex.vertex_id.hex() for vertex in vertices]
    found += [past.find(text) for one in ids for text in (one, one[:8].upper())]
    return [*found, *vertices, *map(past.has_snapshot, vertices), past.height]


def agree(chain: Path) -> bool:
    """What the whole chain says is what the node has left; whether that was enough to say it."""
    past = own_chain(ChainFiles(chain), FACTS)
    assert told(past) == told(certified_chain(ChainFiles(chain), FACTS))
    view, every = own_view(chain), view_chain(chain)
    assert [*view.ids] == [*every.ids]
    assert [*view.heights] == [*every.heights]
    assert view.find("tip") == every.find("tip")
    for count in (1, 3, 10**6):
        assert [*view.last(count)] == [*every.last(count)]
    for row in every.rows:
        assert shown(view, str(row.vertex.height), 3) == shown(every, str(row.vertex.height), 3)
    return isinstance(past, OwnChain) and past._judged is None and isinstance(view, LineView)


def shown(view: View, which: str, count: int) -> object:
    """As the log shows it."""
    listed = view.newest_of(view.find(which), count)
    losses = losses_of(view.with_children(listed))
    ids = [row.vertex_id for row in listed]
    short = abbreviations(ids, view.ids)
    return [(row, losses.get(row.vertex_id), short[row.vertex_id]) for row in listed]


def kept(node: Path) -> list[str]:
    """Names of vertices by height."""
    past = own_chain(ChainFiles(node / "chain"), FACTS)
    return [f"vertices/{past.at(height).vertex_id.hex()}" for height in range(past.height + 1)]
