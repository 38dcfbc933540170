"""Members that lend what lies in their chains, in one process; one of them may lie."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

import trio

from daa_dag.chunking import Manifest
from daa_dag.ids import NodeId
from daa_node.checkpoints.records import REQUEST, Records
from daa_node.checkpoints.repair import Lenders
from daa_node.checkpoints.replay import delta_bytes_max
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.blob_exchange import BlobFetcher, OpenWriter, Want
from daa_node.network.blob_server import BlobServer
from daa_node.tensors import GRID_ITEM_BYTES
from tests.daa_node.checkpoints.little_chain import FACTS, RULES, ChainMaker
from tests.daa_node.network.bulk_stage import MemoryBulk, source

ASKED_ONE = NodeId(bytes(32))


@asynccontextmanager
async def lent_by(
    members: Mapping[str, ChainMaker], faults: list[tuple[NodeId, str]]
) -> AsyncIterator[Lenders]:
    """They are asked in this order; whoever is called `liar` answers with another's record."""
    nodes = {source(name).node_id: name for name in members}

    async def ask(node: NodeId, name: str, body: bytes, _bytes_max: int) -> bytes:
        assert name == REQUEST
        chain = members[nodes[node]].chain
        if nodes[node] == "away":
            raise Unavailable("it is not connected")
        if nodes[node] == "liar":
            return members["liar"].newest.encode()
        return await Records(chain).answer(body)

    def blame(node: NodeId, fault: PeerFault) -> None:
        faults.append((node, fault.reason))

    async with trio.open_nursery() as nursery:
        bulk = MemoryBulk(nursery)
        sources = []
        for name, maker in members.items():
            if name in ("away", "liar"):
                continue
            server = BlobServer({"deltas": maker.store}, maker.store, bool)
            sources.append(bulk.add(name, server.serve))
        fetcher = BlobFetcher(ASKED_ONE, bulk, blame)

        async def fetch(
            want: Want, open_writer: OpenWriter, deadline_s: float, _holders: Collection[NodeId]
        ) -> Manifest:
            return await fetcher.fetch(want, sources, open_writer, deadline_s, are_enough=bool)

        yield Lenders(
            members=lambda: list(nodes),
            ask=ask,
            fetch=fetch,
            fault=blame,
            validators=FACTS.validators(),
            delta_bytes_max=delta_bytes_max(RULES),
            state_bytes=RULES.parameter_count * GRID_ITEM_BYTES,
        )
        await fetcher.aclose()
        nursery.cancel_scope.cancel()
