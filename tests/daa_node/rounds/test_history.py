"""What a node tells of its rounds is what its chain holds, each once, however often it is read."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

from daa_consensus.votes import Certificate
from daa_dag.checkpoint import Vertex
from daa_dag.ids import VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.observability.events import EventLog
from daa_node.rounds.history import History
from daa_node.seams import Trainer
from tests.daa_node.rounds.test_end import with_losses


class Chain:
    """As much of a ChainStore as a history asks."""

    def __init__(self, *losses: int) -> None:
        self._vertices: dict[VertexId, Vertex] = {}
        for height, loss in enumerate(losses):
            below = tuple(self._vertices)[-1:]
            vertex = replace(with_losses(loss), height=height, parents=below)
            self._vertices[vertex.vertex_id] = vertex
        self.heights = self

    def __len__(self) -> int:
        return len(self._vertices)

    async def ids(self, first: int) -> AsyncIterator[VertexId]:
        for vertex_id in [*self._vertices][first:]:
            yield vertex_id

    async def vertex(self, vertex_id: VertexId) -> Vertex | None:
        return self._vertices.get(vertex_id)

    async def exec_certificate(self, _: VertexId) -> Certificate | None:
        return None

    @property
    def newest(self) -> Vertex:
        return [*self._vertices.values()][-1]


def drawn(history: History) -> list[int]:
    return [one["height"] for one in history.recent.graph_told()["vertices"]]


async def test_what_is_drawn_is_what_is_listed_also_where_the_chain_is_read_again() -> None:
    chain = Chain(0, 2_500_000, 2_400_000)
    history = History(cast(ChainStore, chain), cast(Trainer, None), EventLog(lambda: 0))
    for read in (history.recall(), history.recall(), history.recall_anew(chain.newest)):
        await read
        assert [one.height for one in history.records] == drawn(history) == [0, 1, 2]
    assert [one.loss_nats for one in history.records[:2]] == [2.5, 2.4]
    history.add(replace(chain.newest, height=3, parents=(chain.newest.vertex_id,)), None)
    assert drawn(history) == [0, 1, 2, 3]
