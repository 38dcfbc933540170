"""A blob on its way to disk, of which somebody is told how far it has come."""

from collections.abc import Callable, Sequence

from daa_dag.chunking import Manifest
from daa_node.seams import BlobWriter

OnBytes = Callable[[int], None]


class CountedWriter:
    """A BlobWriter over another one. What lies there already is told at once."""

    def __init__(self, inner: BlobWriter, manifest: Manifest, on_bytes: OnBytes) -> None:
        self._inner = inner
        self._on_bytes = on_bytes
        on_bytes(manifest.size_bytes - sum(manifest.sizes[index] for index in inner.missing()))

    def missing(self) -> list[int]:
        return self._inner.missing()

    async def write_chunk(self, index: int, payload: bytes) -> None:
        await self._inner.write_chunk(index, payload)
        self._on_bytes(len(payload))

    async def write_chunks(self, chunks: Sequence[tuple[int, bytes | memoryview]]) -> None:
        await self._inner.write_chunks(chunks)
        self._on_bytes(sum(len(payload) for _, payload in chunks))

    async def read_into(self, indices: Sequence[int], target: memoryview) -> None:
        await self._inner.read_into(indices, target)

    async def commit(self, durable: bool = True) -> None:
        await self._inner.commit(durable)
