"""How a network stands, for anybody: a page and a JSON object without a word about its hosts.

Told are the network, its progress and how many take part. Not told are addresses, names of nodes,
paths, disks, memory, settings, events and what is waited for. There is no token, nothing can be
done, and whoever asks how often, the answer is made once a second.
"""

import html
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from daa_node.api.metrics import PHASES
from daa_node.api.replies import JSON, POLICY, as_json, replied, said
from daa_node.wire.http_messages import Headers, Reply, Visit

SCHEMA_VERSION = 1
FRESH_S = 1.0
CACHED = ("Cache-Control", "public, max-age=1")
PAGE_POLICY: Headers = (
    CACHED,
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
    ),
    *((name, value) for name, value in POLICY if name.startswith(("Referrer", "X-"))),
)
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:3rem auto;padding:0 1rem;"
    "color-scheme:light dark}dt{opacity:.7}dd{margin:0 0 .8rem;font-size:1.2rem}"
)


class PublicDesk:
    """Of one node. `status` is what the command of that name answers."""

    def __init__(
        self,
        network: str,
        status: Callable[[], Awaitable[Mapping[str, Any]]],
        is_ready: Callable[[], bool],
    ) -> None:
        self._network = network
        self._status = status
        self._is_ready = is_ready
        self._made_at_s = -FRESH_S
        self._told: dict[str, Any] = {}

    async def answer(self, visit: Visit) -> Reply:
        """Any Host is right here: there is nothing that a page elsewhere could get for itself."""
        if visit.method not in ("GET", "HEAD"):
            return said(405, "GET or HEAD", (("Allow", "GET, HEAD"),))
        if visit.has_body:
            return said(413, "a request has no body here")
        await self._refresh()
        if visit.target == "/":
            body = _page(self._told).encode()
            return replied(200, body, "text/html; charset=utf-8", policy=PAGE_POLICY)
        if visit.target == "/status.json":
            return replied(200, as_json(self._told), JSON, policy=PAGE_POLICY)
        return said(404, "there are / and /status.json")

    async def _refresh(self) -> None:
        now_s = trio.current_time()
        if now_s - self._made_at_s < FRESH_S:
            return
        self._made_at_s = now_s
        self._told = redacted(await self._status(), self._network, self._is_ready())


def redacted(status: Mapping[str, Any], network: str, is_ready: bool) -> dict[str, Any]:
    """Each value is picked by its name: what status tells some day stays untold until then."""
    phase = status["phase"] if status["phase"] in PHASES else "other"
    return {
        "schema_version": SCHEMA_VERSION,
        "network": network,
        "chain_id": status["chain_id"],
        "takes_part": is_ready,
        "phase": phase,
        "round": status["round"],
        "height": status["height"],
        "loss_nats": status["loss_nats"],
        "loss_jumped": status["alarm"] is not None,
        "done": bool(status["done"]),
        "validators": {name: status["validators"][name] for name in ("reachable", "total")},
        "trainers": {name: status["trainers"][name] for name in ("reachable", "total")},
    }


def _page(told: Mapping[str, Any]) -> str:
    validators, trainers, loss = told["validators"], told["trainers"], told["loss_nats"]
    rows = {
        "This node": "takes part" if told["takes_part"] else f"is at: {told['phase']}",
        "Round": told["round"],
        "Certified states": told["height"],
        "Held-out loss": "not measured yet" if loss is None else f"{loss:.4f} nats a token",
        "Validators in reach": f"{validators['reachable']} of {validators['total']}",
        "Trainers in reach": f"{trainers['reachable']} of {trainers['total']}",
        "Job": "done" if told["done"] else "under way",
    }
    name = html.escape(told["network"])
    items = "".join(
        f"<dt>{html.escape(key)}</dt><dd>{html.escape(str(value))}</dd>"
        for key, value in rows.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="refresh" content="10">'
        f"<title>{name}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{name}</h1><dl>{items}</dl></main></body></html>\n"
    )
