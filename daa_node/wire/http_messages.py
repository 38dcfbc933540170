"""One HTTP request and its answer, as far as they matter to whoever decides what is answered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]
Send = Callable[[bytes], Awaitable[None]]
Stream = Callable[[Send], Awaitable[None]]
ReadBody = Callable[[int], Awaitable[bytes | None]]


async def _no_body(_bytes_max: int) -> bytes | None:
    return b""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request; a header that is missing is empty, values of one that comes twice are joined."""

    method: str
    target: str
    host: str
    accept_encoding: str = ""
    if_none_match: str = ""
    authorization: str = ""
    origin: str = ""
    sec_fetch_site: str = ""
    last_event_id: str = ""
    content_type: str = ""
    visitor: str = ""  # the address that asks
    # Whoever answers decides whether a body is worth reading, and how much of it. None: it has
    # more. Raises what a connection raises that ends, or is too slow.
    has_body: bool = False
    read_body: ReadBody = _no_body


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is what GET gets; HEAD gets the same headers without it.

    `stream` goes on after it for as long as the visitor listens; the connection ends with it. What
    its `send` is given has to be taken within a time, and whoever does not take it is cut off.
    `is_trusted`: the visitor has shown a secret of ours, and where it comes from others may, too.
    """

    status: int
    headers: Headers
    body: bytes
    stream: Stream | None = None
    is_trusted: bool = False


Desk = Callable[[Visit], Reply]
AskingDesk = Callable[[Visit], Awaitable[Reply]]  # one that has to ask others first
