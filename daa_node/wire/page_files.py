"""A page's files, as they are answered: the type, how long to keep it, and in which codings.

The volunteers' page and the operator's dashboard are two such sites, each with a policy of its own.
A path is looked up whole in a table of the files that were read at the start. So there is no way
out of the site, and nothing to list; a rebuilt page is served after a restart.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from daa_dag.ids import digest_of
from daa_node.wire.http_messages import Headers, Reply, Visit

INDEX = "index.html"
KEPT_FOREVER = "public, max-age=31536000, immutable"
ASKED_AGAIN = "no-cache"  # kept, and compared by ETag
# Vite's own form: a name changes when its content does
_HASHED = re.compile(r"(?:assets|dashboard)/.+-[A-Za-z0-9_-]{8}\.[a-z0-9]+")
_CODINGS = {"br": ".br", "gzip": ".gz"}  # the best first
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "mjs": "text/javascript; charset=utf-8",
    "png": "image/png",
    "py": "text/x-python; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "wasm": "application/wasm",
    "webmanifest": "application/manifest+json",
    "whl": "application/zip",
    "woff2": "font/woff2",
    "zip": "application/zip",
}


@dataclass(frozen=True, slots=True)
class Coded:
    """A file in one coding; "" is the file itself."""

    coding: str
    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class SiteFile:
    """One file of the page."""

    content_type: str
    cache_control: str
    codings: tuple[Coded, ...]  # the best first, the file itself last

    def best_for(self, accept_encoding: str) -> Coded:
        accepted = _accepted(accept_encoding)
        return next(c for c in self.codings if not c.coding or c.coding in accepted)


class Site:
    """All files of the page; none of them where it was not built."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """`files` by their paths below the site's directory, with `/` between the parts."""
        variants = {path + ending for path in files for ending in _CODINGS.values()}
        self._files = {
            path: _site_file(path, files) for path in files if path not in variants & set(files)
        }
        self.version = _version(files) if INDEX in files else None

    def find(self, path: str) -> SiteFile | None:
        """What lies at the path of a URL, which begins with `/`."""
        return self._files.get(INDEX if path == "/" else path[1:])


def file_reply(found: SiteFile, visit: Visit, policy: Headers) -> Reply:
    """In the best coding that the visitor takes; without a body if it holds the file already."""
    chosen = found.best_for(visit.accept_encoding)
    headers: Headers = (("Cache-Control", found.cache_control), ("ETag", chosen.etag))
    if len(found.codings) > 1:
        headers += (("Vary", "Accept-Encoding"),)
    if _names(visit.if_none_match, chosen.etag):
        return Reply(304, (*headers, *policy), b"")
    if chosen.coding:
        headers += (("Content-Encoding", chosen.coding),)
    of_body = (("Content-Type", found.content_type), ("Content-Length", str(len(chosen.body))))
    return Reply(200, (*of_body, *headers, *policy), chosen.body)


def _site_file(path: str, files: Mapping[str, bytes]) -> SiteFile:
    coded = [
        _coded(coding, files[path + ending])
        for coding, ending in _CODINGS.items()
        if path + ending in files
    ]
    return SiteFile(
        _TYPES.get(path.rpartition(".")[2], "application/octet-stream"),
        KEPT_FOREVER if _HASHED.fullmatch(path) else ASKED_AGAIN,
        (*coded, _coded("", files[path])),
    )


def _coded(coding: str, body: bytes) -> Coded:
    return Coded(coding, body, f'"{digest_of(body)[:16].hex()}"')


def _version(files: Mapping[str, bytes]) -> str:
    named = b"".join(digest_of(path.encode()) + digest_of(files[path]) for path in sorted(files))
    return digest_of(named).hex()


def _accepted(accept_encoding: str) -> set[str]:
    """Codings that a browser takes: it names them, and not with a quality of 0."""
    accepted = set()
    for part in accept_encoding.split(","):
        name, _, parameters = part.partition(";")
        quality = parameters.replace(" ", "").removeprefix("q=")
        if not (quality and quality.strip("0.") == ""):
            accepted.add(name.strip().lower())
    return accepted


def _names(if_none_match: str, etag: str) -> bool:
    """Whether a browser holds it already (RFC 9110, 13.1.2: weakly compared)."""
    held = [name.strip().removeprefix("W/") for name in if_none_match.split(",")]
    return etag in held or held == ["*"]
