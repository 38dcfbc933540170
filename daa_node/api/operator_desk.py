"""What an operator's program is answered over HTTP: it reads, and changes nothing.

    visit --(Host is ours?)--(GET or HEAD?)--(not from another site?)--(no query?)-->
        /livez | --(token?)--> /readyz, /metrics, /v1/status, /v1/peers, or 404

A page elsewhere cannot ask in its visitor's name: a name that is pointed at us (DNS rebinding) is
no Host of ours, a browser tells where a request comes from, and no browser sends the token by
itself. Who has no token learns no more than that somebody lives here.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import trio

from daa_node.api.metrics import CONTENT_TYPE, Facts, Metrics
from daa_node.api.tokens import Right, Tokens
from daa_node.wire.http_messages import Headers, Reply, Visit
from daa_node.wire.limits import MIB
from daa_node.wire.listening import LOOPBACK_NAMES

ANSWER_TIMEOUT_S = 10.0  # peers are asked for two seconds at the most
ANSWER_BYTES_MAX = 16 * MIB  # as on the control socket
HTTP_PORT = 80  # a browser leaves it out
# Nothing here is a page: should a browser show an answer all the same, it runs and loads nothing.
POLICY: Headers = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
_OWN_SITE = ("", "same-origin", "none")  # of Sec-Fetch-Site; none: a person typed the address


@dataclass(frozen=True, slots=True)
class Sources:
    """Where answers come from."""

    status: Callable[[], Awaitable[Mapping[str, Any]]]
    peers: Callable[[], Awaitable[Mapping[str, Any]]]
    why_not_ready: Callable[[], str | None]  # None: it is
    facts: Callable[[], Awaitable[Facts]]


class OperatorDesk:
    """Answers every visit; nothing that a visitor writes raises here."""

    def __init__(
        self,
        tokens: Tokens,
        sources: Sources,
        port: Callable[[], int],
        hosts: tuple[str, ...] = (),
    ) -> None:
        """`port`: at which the door listens now. `hosts`: more of what a Host may be, exactly."""
        self._tokens = tokens
        self._sources = sources
        self._port = port
        self._hosts = hosts
        self._metrics = Metrics()
        self.answers: Counter[int] = Counter()  # by status, since the start
        self._routes: dict[str, Callable[[], Awaitable[Reply]]] = {
            "/readyz": self._readyz,
            "/metrics": self._scrape,
            "/v1/status": self._status,
            "/v1/peers": self._peers,
        }

    async def answer(self, visit: Visit) -> Reply:
        reply = await self._decide(visit)
        self.answers[reply.status] += 1
        return reply

    async def _decide(self, visit: Visit) -> Reply:
        refused = self._refused(visit)
        if refused is not None:
            return refused
        if visit.target == "/livez":
            return _reply(200, b"alive\n")
        if self._tokens.right_of(visit.authorization) < Right.READ:
            challenge = ("WWW-Authenticate", 'Bearer realm="daa-node"')
            words = "send the token of api-read.token: Authorization: Bearer TOKEN\n"
            return _reply(401, words.encode(), more=(challenge,))
        route = self._routes.get(visit.target)
        if route is None:
            known = ", ".join(["/livez", *self._routes])
            return _reply(404, f"no such path; there are {known}\n".encode())
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            return await route()
        return _reply(503, f"no answer within {ANSWER_TIMEOUT_S:.0f} s\n".encode())

    def _refused(self, visit: Visit) -> Reply | None:
        """Before anybody looks at the token, and on every path."""
        hosts = self._own_hosts()
        if visit.host.lower() not in hosts:
            return _reply(421, b"this Host is none of ours: see api.hosts\n")
        if visit.method not in ("GET", "HEAD"):
            return _reply(405, b"GET or HEAD\n", more=(("Allow", "GET, HEAD"),))
        is_foreign = visit.origin != "" and visit.origin.lower() not in {
            f"http://{host}" for host in hosts
        }
        if is_foreign or visit.sec_fetch_site.lower() not in _OWN_SITE:
            return _reply(403, b"no page of another site may ask here\n")
        if "?" in visit.target or "#" in visit.target:
            words = b"no path here takes a query; a token belongs into the header Authorization\n"
            return _reply(400, words)
        return None

    def _own_hosts(self) -> set[str]:
        port = self._port()
        hosts = {*self._hosts, *(f"{name}:{port}" for name in LOOPBACK_NAMES)}
        return hosts | set(LOOPBACK_NAMES) if port == HTTP_PORT else hosts

    async def _readyz(self) -> Reply:
        why = self._sources.why_not_ready()
        return _reply(200, b"ready\n") if why is None else _reply(503, f"{why}\n".encode())

    async def _scrape(self) -> Reply:
        return _reply(200, self._metrics.text(await self._sources.facts()), CONTENT_TYPE)

    async def _status(self) -> Reply:
        return _told(await self._sources.status())

    async def _peers(self) -> Reply:
        return _told(await self._sources.peers())


def _told(answer: Mapping[str, Any]) -> Reply:
    body = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
    if len(body) > ANSWER_BYTES_MAX:
        return _reply(500, f"the answer has {len(body)} bytes: ask `daa-node`\n".encode())
    return _reply(200, body, _JSON)


def _reply(status: int, body: bytes, content_type: str = _TEXT, more: Headers = ()) -> Reply:
    headers = (("Content-Type", content_type), ("Content-Length", str(len(body))))
    return Reply(status, (*headers, *more, *POLICY), body)
