"""One HTTP request and its answer, as far as they matter to whoever decides what is answered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]


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


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is what GET gets; HEAD gets the same headers without it."""

    status: int
    headers: Headers
    body: bytes


Desk = Callable[[Visit], Reply]
AskingDesk = Callable[[Visit], Awaitable[Reply]]  # one that has to ask others first
