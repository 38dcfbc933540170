"""The dashboard's files: public code, which holds no token and is told nothing without one.

The page takes its token from the part of the address that no browser sends (`#token=...`), and asks
the other routes with it. Its policy lets it load and ask at this door alone, and nothing inline.
"""

from daa_node.api.replies import said
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Headers, Reply
from daa_node.wire.page_files import Site, file_reply

WITHOUT_DASHBOARD = (
    "this daemon runs without the dashboard: build it in the source tree with `make dashboard`, "
    "which needs Node.js, and start the daemon again"
)
DASHBOARD_POLICY: Headers = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


def dashboard_routes(site: Site) -> tuple[Route, ...]:
    """Where the dashboard was not built, they say how it is."""

    async def answer(asked: Asked) -> Reply:
        if site.version is None:
            return said(503, WITHOUT_DASHBOARD)
        found = site.find(asked.path)
        if found is None:
            return said(404, "the dashboard has no such file")
        return file_reply(found, asked.visit, DASHBOARD_POLICY)

    meaning = "The dashboard, for a browser: code that is public, and holds no secrets."
    html = "text/html; charset=utf-8"
    return (
        Route("GET", "/", Right.NOTHING, answer, is_linked=True, gives=html, meaning=meaning),
        Route(
            "GET",
            "/dashboard/*",
            Right.NOTHING,
            answer,
            may_lack=True,
            gives="*/*",
            meaning=meaning,
        ),
    )
