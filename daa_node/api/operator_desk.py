"""Who is answered over HTTP: each visit is looked at before any row of the route table sees it.

    visit --(Host is ours?)--(not from another site?)--(a query of short words?)--
          --(token?)--(path and method?)--(enough of a right?)--(its query and body?)--> the answer

Rows that take no token go past the questions about it. A page elsewhere cannot ask in its visitor's
name: a name that is pointed at us (DNS rebinding) is no Host of ours, a browser tells where a
request comes from, asks before it sends JSON, and sends the token nowhere by itself. Who has no
token learns no more than that somebody lives here. What may change the node is audited.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import assert_never

import trio
from pydantic import BaseModel

from daa_node.api.audit import Audit, Deed, deed_of
from daa_node.api.bodies import read_body
from daa_node.api.replies import said
from daa_node.api.routes import Asked, Route, RouteTable, is_query, read_query
from daa_node.api.tokens import Right, Tokens
from daa_node.errors import NodeError, Refused, UserError
from daa_node.wire.http_messages import Reply, Visit
from daa_node.wire.listening import LOOPBACK_NAMES

ANSWER_TIMEOUT_S = 10.0  # peers are asked for two seconds at the most
HTTP_PORT = 80  # a browser leaves it out
_OWN_SITE = ("", "same-origin", "none")  # of Sec-Fetch-Site; none: a person typed the address


class Transport(Enum):
    """How a visitor's words come to us."""

    PLAIN = "http"
    TLS = "https"
    PROXY = "https to a proxy, and from there http"


class OperatorDesk:
    """Answers every visit; nothing that a visitor writes raises here."""

    def __init__(
        self,
        tokens: Tokens,
        routes: Sequence[Route],
        port: Callable[[], int],
        audit: Callable[[Deed], None],
        hosts: tuple[str, ...] = (),
        transport: Transport = Transport.PLAIN,
    ) -> None:
        """`port`: at which the door listens now. `hosts`: more of what a Host may be, exactly."""
        self._tokens = tokens
        self._table = RouteTable(routes)
        self._port = port
        self._audit = Audit(audit)
        self._hosts = hosts
        self._transport = transport
        self.answers: Counter[int] = Counter()  # by status, since the start

    async def answer(self, visit: Visit) -> Reply:
        """Raises what `visit.read_body` raises."""
        reply = await self._decide(visit)
        self.answers[reply.status] += 1
        return reply

    async def _decide(self, visit: Visit) -> Reply:
        refused = self._refused(visit)
        if refused is not None:
            return refused
        path, _, query = visit.target.partition("?")
        rows = self._table.at(path)
        route = rows.get("GET" if visit.method == "HEAD" else visit.method)
        right = self._tokens.right_of(visit.authorization)
        is_public = route is not None and route.right is Right.NOTHING
        if right is Right.NOTHING and not is_public:
            challenge = ("WWW-Authenticate", 'Bearer realm="daa-node"')
            words = "send the token of api-read.token: Authorization: Bearer TOKEN"
            return said(401, words, (challenge,))
        if route is None:
            reply, asked = self._no_route(rows), None
        elif right < route.right:
            reply, asked = said(403, "this takes the token of api-admin.token"), None
        else:
            reply, asked = await self._read(route, visit, query, right)
        if visit.method not in ("GET", "HEAD") and right is not Right.NOTHING:
            body = None if asked is None else asked.model_dump(mode="json")
            self._audit.note(right, deed_of(right, visit, body, reply))
        return reply if right is Right.NOTHING else replace(reply, is_trusted=True)

    def _no_route(self, rows: Mapping[str, Route]) -> Reply:
        if not rows:
            return said(404, f"no such path; there are {', '.join(self._table.paths())}")
        methods = ["GET, HEAD" if name == "GET" else name for name in rows]
        allowed = ", ".join(methods)
        return said(405, allowed.replace(", ", " or "), (("Allow", allowed),))

    async def _read(
        self, route: Route, visit: Visit, query: str, right: Right
    ) -> tuple[Reply, BaseModel | None]:
        """The answer, and the body if it was one."""
        try:
            parameters = read_query(query, route.params)
        except ValueError as fault:
            return said(400, str(fault)), None
        body = await read_body(visit, route.takes)
        if isinstance(body, Reply):
            return body, None
        asked = Asked(visit, visit.target.partition("?")[0], parameters, right, body)
        return await _answered(route, asked), body

    def _refused(self, visit: Visit) -> Reply | None:
        """Before anybody looks at the token, and on every path."""
        hosts = self._own_hosts()
        if visit.host.lower() not in hosts:
            return said(421, "this Host is none of ours: see api.hosts")
        is_foreign = visit.origin != "" and visit.origin.lower() not in self._own_origins(hosts)
        is_elsewhere = visit.sec_fetch_site.lower() not in _OWN_SITE
        if is_foreign or (is_elsewhere and not self._is_linked(visit)):
            return said(403, "no page of another site may ask here")
        _, mark, query = visit.target.partition("?")
        if "#" in visit.target or (mark and not is_query(query)):
            words = "no query like that; a token belongs into the header Authorization"
            return said(400, words)
        return None

    def _is_linked(self, visit: Visit) -> bool:
        """Whether it asks for a page that is public, and tells another site nothing of us."""
        route = self._table.at(visit.target).get(visit.method)
        return route is not None and route.is_linked and route.right is Right.NOTHING

    def _own_hosts(self) -> set[str]:
        port = self._port()
        hosts = {*self._hosts, *(f"{name}:{port}" for name in LOOPBACK_NAMES)}
        return hosts | set(LOOPBACK_NAMES) if port == HTTP_PORT else hosts

    def _own_origins(self, hosts: set[str]) -> set[str]:
        """Of pages that we serve, or that the proxy before us does in our name."""
        secure = {f"https://{host}" for host in hosts}
        match self._transport:
            case Transport.PLAIN:
                return {f"http://{host}" for host in hosts}
            case Transport.TLS:
                return secure
            case Transport.PROXY:
                return secure | {f"http://{host}" for host in hosts - set(self._hosts)}
            case _:
                assert_never(self._transport)


async def _answered(route: Route, asked: Asked) -> Reply:
    """Within a time; what changes the node is not left half done because a visitor leaves."""
    with trio.move_on_after(ANSWER_TIMEOUT_S) as scope:
        scope.shield = route.changes
        try:
            return await route.answer(asked)
        except (UserError, Refused) as refused:
            return said(409, str(refused))
        except NodeError as failed:
            return said(503, str(failed))
    return said(503, f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
