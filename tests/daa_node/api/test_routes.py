"""Which row a path finds, and what its query may be."""

import pytest

from daa_node.api.replies import said
from daa_node.api.routes import Asked, Parameter, Route, RouteTable, is_query, read_query
from daa_node.api.tokens import TOKEN_CHARACTERS, Right
from daa_node.wire.http_messages import Reply

PARAMS = (Parameter("after", "a height", 0), Parameter("limit", "rows", 50, 100))
WORDS = (Parameter("name", "of an event", "all"),)


async def _nothing(_: Asked) -> Reply:
    return said(200, "")


def row(path: str, method: str = "GET") -> Route:
    return Route(method, path, Right.READ, _nothing)


def test_a_path_finds_its_rows_and_a_folder_whatever_lies_below_it() -> None:
    table = RouteTable([row("/a"), row("/a", "POST"), row("/a/*"), row("/a/b")])
    assert list(table.at("/a")) == ["GET", "POST"]
    assert table.at("/a/b")["GET"].path == "/a/b"
    assert table.at("/a/")["GET"].path == table.at("/a/c/d")["GET"].path == "/a/*"
    assert not table.at("/ab")
    assert not table.at("")
    assert table.paths() == ["/a", "/a/b"]


def test_two_rows_of_one_method_and_path_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="twice"):
        RouteTable([row("/a"), row("/a")])


def test_a_query_has_each_parameter_or_its_default() -> None:
    assert read_query("", PARAMS) == {"after": 0, "limit": 50}
    assert read_query("limit=7&after=9007199254740991", PARAMS) == {"after": 2**53 - 1, "limit": 7}
    assert read_query("name=round_aborted", WORDS) == {"name": "round_aborted"}


@pytest.mark.parametrize(
    "text", ["limit=101", "after=9007199254740992", "after=01", "after=x", "limit=", "none=1"]
)
def test_what_a_route_does_not_take_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="after|limit") as refused:
        read_query(text, PARAMS)
    assert text not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        ("after=1", True),
        ("after=1&limit=2", True),
        ("name=round_aborted", True),
        ("", False),
        ("after", False),
        ("after=", False),
        ("after=1&", False),
        ("after=%31", False),
        ("after=1+1", False),
        ("a=1&" * 16 + "a=1", False),
        ("token=" + "a" * TOKEN_CHARACTERS, False),
        ("a" * TOKEN_CHARACTERS + "=1", False),
        ("after=1\n", False),
    ],
)
def test_a_query_is_short_words_alone(text: str, may_be: bool) -> None:
    assert is_query(text) is may_be
