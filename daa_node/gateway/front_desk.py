"""What a visitor's browser is answered: the page, and where it dials. A pure function, no sockets.

    visit --(host is ours?)--(GET or HEAD?)--> /gateway.json, or a file of the site, or 404

Every answer carries the same strict policy: the page loads nothing from elsewhere, is framed by
nobody, and connects to this daemon alone. Workers take it from the answer that brings their script.
A name that an attacker points at our address (DNS rebinding) is not ours, and is told nothing.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import trio

from daa_dag.ids import ChainId, NodeId
from daa_node.gateway.config import GatewayConfig
from daa_node.gateway.dialling import dialable, origins
from daa_node.seams import Address, PeerId
from daa_node.wire.http_messages import Headers, Reply, Visit
from daa_node.wire.listening import LOOPBACK_NAMES
from daa_node.wire.page_files import ASKED_AGAIN, Site, file_reply
from daa_node.wire.protocols import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN

SCHEMA_VERSION = 1
FRESH_S = 1.0  # what /gateway.json tells is made once a second, whoever asks
WITHOUT_PAGE = (
    "This daemon runs without the page for volunteers. Install that of its version with "
    '`pip install "daa-compute[gateway]"` (in a source tree: `make page`, which needs Node.js), '
    "and start the daemon again.\n"
)
# Any port: what rebinds a name cannot choose ours, and a person may forward another one to it.
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the page is told about the node behind it."""

    chain_id: ChainId
    node_id: NodeId
    peer_id: PeerId
    addresses: Callable[[], list[Address]]
    height: Callable[[], int]
    wanted: Callable[[], list[str]]  # kinds of tasks for volunteers
    places: Callable[[], tuple[int, int]]  # of volunteers: taken, and all


class FrontDesk:
    """Answers every visit; nothing that a visitor writes raises here."""

    def __init__(self, config: GatewayConfig, site: Site, facts: Facts) -> None:
        self._config = config
        self._site = site
        self._facts = facts
        self._hosts = {*LOOPBACK_NAMES, *config.hosts}
        self._made_at_s = -FRESH_S
        self._told = b""
        self._policy: Headers = ()

    def answer(self, visit: Visit) -> Reply:
        self._refresh()
        named = _HOST.fullmatch(visit.host.lower())
        if named is None or named[1] not in self._hosts:
            return self._refusal(421, "this host name is none of ours: see gateway.hosts\n")
        if visit.method not in ("GET", "HEAD"):
            return self._refusal(405, "GET or HEAD\n", (("Allow", "GET, HEAD"),))
        path = visit.target.partition("?")[0]
        if path == "/gateway.json":
            return self._reply(200, self._told, "application/json", ASKED_AGAIN)
        if self._site.version is None:
            return self._refusal(503, WITHOUT_PAGE)
        found = self._site.find(path) if path.startswith("/") else None
        if found is None:
            return self._refusal(404, "no such page\n")
        return file_reply(found, visit, self._policy)

    def _refusal(self, status: int, words: str, more: Headers = ()) -> Reply:
        return self._reply(status, words.encode(), "text/plain; charset=utf-8", "no-store", more)

    def _reply(
        self, status: int, body: bytes, content_type: str, cache_control: str, more: Headers = ()
    ) -> Reply:
        headers = (
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", cache_control),
        )
        return Reply(status, (*headers, *more, *self._policy), body)

    def _refresh(self) -> None:
        now_s = trio.current_time()
        if now_s - self._made_at_s < FRESH_S:
            return
        self._made_at_s = now_s
        facts = self._facts
        dialled = dialable(self._config, facts.addresses(), facts.peer_id)
        self._policy = _policy(origins(dialled))
        told = {
            "schema_version": SCHEMA_VERSION,
            "chain_id": facts.chain_id.hex(),
            "node_id": facts.node_id.hex(),
            "peer_id": facts.peer_id,
            "dial": dialled,
            "protocol_version": PROTOCOL_VERSION,
            "protocol_version_min": PROTOCOL_VERSION_MIN,
            "site": self._site.version,
            "height": facts.height(),
            "wanted": facts.wanted(),
            "volunteers": facts.places(),
        }
        self._told = json.dumps(told).encode()


def _policy(connect_to: tuple[str, ...]) -> Headers:
    content = (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "worker-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "manifest-src 'self'",
        " ".join(("connect-src 'self'", *connect_to)),
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return (
        ("Content-Security-Policy", "; ".join(content)),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Embedder-Policy", "require-corp"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
    )
