"""What may be asked over HTTP: a table with a row for each method and path, and who may ask it.

    "/v1/peers"      that path alone
    "/dashboard/*"   whatever begins with "/dashboard/"

A row names the parameters that its query may have. They are numbers or short words, so that no
token fits into an address.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel

from daa_node.api.replies import JSON
from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Reply, Visit

NUMBER_MAX = 2**53 - 1  # what each reader of JSON takes for a whole number
_VALUE = r"[a-z0-9_.-]{1,32}"  # a token has twice as many characters
_QUERY = re.compile(rf"[a-z_]{{1,32}}={_VALUE}(&[a-z_]{{1,32}}={_VALUE}){{0,15}}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")

B = TypeVar("B", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of a query. Its default says whether it is a number, which begins at 0, or a word."""

    name: str
    meaning: str
    default: int | str
    most: int = NUMBER_MAX  # of a number


@dataclass(frozen=True, slots=True)
class Asked:
    """What an answer is made from."""

    visit: Visit
    path: str
    query: Mapping[str, int | str] = field(default_factory=dict)  # each parameter of the route
    right: Right = Right.NOTHING  # of the token that came with it
    body: BaseModel | None = None  # of the route's own kind

    def number(self, name: str) -> int:
        """A parameter that the route declares with a number as its default."""
        value = self.query[name]
        assert isinstance(value, int)
        return value

    def word(self, name: str) -> str:
        """A parameter that the route declares with a word as its default."""
        value = self.query[name]
        assert isinstance(value, str)
        return value

    def body_as(self, kind: type[B]) -> B:
        """The body, of the kind that the route names."""
        assert isinstance(self.body, kind)
        return self.body


Answer = Callable[[Asked], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row. HEAD is answered where GET is, and needs no row."""

    method: str
    path: str
    right: Right  # NOTHING: no token is asked for
    answer: Answer
    params: tuple[Parameter, ...] = ()
    is_linked: bool = False  # a page without secrets: a link elsewhere may lead a browser to it
    takes: type[BaseModel] | None = None  # what its body is, as JSON; None: it has no body
    tells: type[BaseModel] | None = None  # what its answer holds, as JSON
    may_lack: bool = False  # it answers 404 where this node has no such thing
    gives: str = JSON  # the media type of what it answers when nothing is wrong
    meaning: str = ""  # one sentence, for people who read the description

    @property
    def changes(self) -> bool:
        """Whether an answer may leave the node another one: it is audited, and not cut off."""
        return self.method != "GET"


class RouteTable:
    """Finds the rows of a path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._below: dict[str, dict[str, Route]] = {}  # by what the path begins with
        for route in routes:
            is_below = route.path.endswith("/*")
            place = self._below if is_below else self._exact
            rows = place.setdefault(route.path.removesuffix("*"), {})
            assert route.method not in rows, f"{route.method} {route.path} stands there twice"
            rows[route.method] = route

    def at(self, path: str) -> Mapping[str, Route]:
        """Its rows by method; none where there is no such path."""
        if path in self._exact:
            return self._exact[path]
        for begin, rows in self._below.items():
            if path.startswith(begin):
                return rows
        return {}

    def paths(self) -> list[str]:
        """Those that stand there by themselves, in the order of the table."""
        return list(self._exact)


def is_query(text: str) -> bool:
    """Whether it may be one of some route: few parameters, all short."""
    return _QUERY.fullmatch(text) is not None


def read_query(text: str, params: Sequence[Parameter]) -> dict[str, int | str]:
    """Each parameter of the route, by its name; "" is no query.

    Raises ValueError, whose words repeat nothing of the text: it might be a secret.
    """
    found: dict[str, int | str] = {one.name: one.default for one in params}
    by_name = {one.name: one for one in params}
    for pair in text.split("&") if text else ():
        name, _, value = pair.partition("=")
        parameter = by_name.pop(name, None)  # one that comes again is none
        if parameter is None:
            raise ValueError(_words(params))
        if isinstance(parameter.default, str):
            found[name] = value
        elif _NUMBER.fullmatch(value) and int(value) <= parameter.most:
            found[name] = int(value)
        else:
            raise ValueError(f"{name} is a whole number from 0 to {parameter.most}")
    return found


def _words(params: Sequence[Parameter]) -> str:
    if not params:
        return "this path takes no query; a token belongs into the header Authorization"
    known = ", ".join(one.name for one in params)
    return f"this path takes {known}, each once at the most, and nothing else"
