"""A front desk over a little page, as tests of answers and of sockets want it."""

from daa_dag.ids import ChainId, NodeId
from daa_node.gateway.config import GatewayConfig
from daa_node.gateway.front_desk import Facts, FrontDesk
from daa_node.seams import Address, PeerId
from daa_node.wire.page_files import Site

PEER = PeerId("12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5")
ADDRESSES = (
    f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER}",
    f"/ip4/127.0.0.1/tcp/4001/ws/p2p/{PEER}",
    f"/ip6/::1/tcp/4001/ws/p2p/{PEER}",
)
BIG = bytes(range(256)) * 4096 * 4  # 4 MiB
FILES = {
    "index.html": b"<!doctype html>",
    "assets/page-BT5cQ_-x.js": b"let it = 'run'",
    "assets/page-BT5cQ_-x.js.br": b"brotli",
    "assets/page-BT5cQ_-x.js.gz": b"gzip",
    "pyodide/big.wasm": BIG,
    "recompute.py": b"import numpy",
    "numpy-2.0.2-cp312.whl": b"PK",
    "only.gz": b"packed",
}


def front_desk(
    config: GatewayConfig | None = None,
    files: dict[str, bytes] | None = None,
    addresses: tuple[str, ...] = ADDRESSES,
) -> FrontDesk:
    """Its node is at height 7."""
    facts = Facts(
        ChainId(b"c" * 32),
        NodeId(b"n" * 32),
        PEER,
        lambda: [Address(address) for address in addresses],
        lambda: 7,
        lambda: ["certificate"],
        lambda: (3, 256),
    )
    return FrontDesk(config or GatewayConfig(), Site(FILES if files is None else files), facts)
