"""Whoever answers for a home's router says little, soon, and of itself; without any network."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from daa_node.adapters import upnp_router
from daa_node.adapters.upnp_router import (
    ANSWERS_MAX,
    OUTSIDE_PORTS_MAX,
    PORT_LAST,
    SEARCH_S,
    SEARCHES,
    UpnpRouter,
)
from daa_node.errors import Unavailable
from daa_node.wire import upnp_messages
from daa_node.wire.upnp_messages import PAGE_BYTES_MAX, SERVICES, TAKEN, Place, Service

OWN, OUTSIDE = "192.168.1.7", "203.0.113.9"
AT = Service(SERVICES[1], Place("192.168.1.1", 5000, "/ctl"))
Answer = tuple[str, bytes]  # of whom, and what


class Door:
    """A socket for datagrams, on which these answers wait; and the factory that makes it."""

    def __init__(self, *answers: Answer, broken: str = "") -> None:
        self._answers = list(answers)
        self._broken = broken
        self.searches: list[tuple[float, bytes, object]] = []
        self.bound: object = None

    def socket(self, *_: object) -> "Door":
        return self

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def setsockopt(self, *_: object) -> None:
        """There is no network."""

    async def bind(self, address: object) -> None:
        self.bound = address
        if self._broken == "bind":
            raise OSError(99, "no such address")

    async def sendto(self, payload: bytes, address: object) -> None:
        if self._broken == "second" and self.searches:
            raise OSError(101, "no way out")
        self.searches.append((trio.current_time(), payload, address))

    async def recvfrom(self, size_bytes: int) -> tuple[bytes, tuple[str, int]]:
        if not self._answers:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        sender, answer = self._answers.pop(0)
        return answer[:size_bytes], (sender, 1900)


@pytest.fixture
def opened_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[Door], None]:
    """What the sockets of a test are."""

    def use(door: Door) -> None:
        monkeypatch.setattr(trio.socket, "socket", door.socket)

    return use


async def test_of_who_answers_a_few_of_this_home_are_heard_once(
    opened_at: Callable[[Door], None], autojump_clock: object
) -> None:
    near = [(f"192.168.1.{number}", b"first") for number in range(ANSWERS_MAX + 9)]
    door = Door(("8.8.8.8", b"far"), near[0], (near[0][0], b"second"), *near[1:])
    opened_at(door)
    began_s = trio.current_time()
    found = await UpnpRouter(("239.0.0.1", 1))._answers(OWN)
    assert found == near[:ANSWERS_MAX]
    assert door.bound == (OWN, 0)
    assert trio.current_time() == began_s  # there is room for no more


async def test_a_search_that_may_be_lost_is_said_again(
    opened_at: Callable[[Door], None], autojump_clock: object
) -> None:
    door = Door()
    opened_at(door)
    began_s = trio.current_time()
    assert await UpnpRouter(("239.0.0.1", 1))._answers(OWN) == []
    said = (upnp_messages.search(), ("239.0.0.1", 1))
    times = [began_s + turn * SEARCH_S / SEARCHES for turn in range(2)]
    assert door.searches == [(at_s, *said) for at_s in times]
    assert trio.current_time() == pytest.approx(began_s + SEARCH_S)


@pytest.mark.parametrize(("broken", "heard"), [("bind", 0), ("second", 1)])
async def test_an_address_without_a_way_out_is_none_to_ask_from(
    broken: str, heard: int, opened_at: Callable[[Door], None], autojump_clock: object
) -> None:
    opened_at(Door(("192.168.1.1", b"first"), broken=broken))
    assert len(await UpnpRouter()._answers(OWN)) == heard


class Asked:
    """A router that was found, of which some ports are taken, and what it was asked."""

    def __init__(self, taken: Sequence[int] = (), outside: str = OUTSIDE, error: int = 0) -> None:
        self._taken, self._outside, self._error = taken, outside, error
        self.said: list[tuple[str, dict[str, str]]] = []
        self.is_gone = False
        self.router = UpnpRouter()
        self.router._found = AT, OWN
        self.router._ask = self._answer  # type: ignore[assignment, method-assign]

    async def _answer(self, _at: Service, action: str, arguments: dict[str, str]) -> bytes:
        told = dict(arguments)
        self.said.append((action, told))
        if self.is_gone:
            raise Unavailable("nobody there")
        if action == "GetExternalIPAddress":
            return f"<a><NewExternalIPAddress>{self._outside}</NewExternalIPAddress></a>".encode()
        is_taken = int(told["NewExternalPort"]) in self._taken
        error = TAKEN if is_taken else self._error
        return f"<a><errorCode>{error}</errorCode></a>".encode() if error else b"<a/>"

    def tried(self) -> list[int]:
        return [int(t["NewExternalPort"]) for action, t in self.said if action == "AddPortMapping"]


@pytest.fixture(autouse=True)
def at_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this host is within its home."""
    monkeypatch.setattr(upnp_router, "hosts_for", lambda *_: [OWN])


async def test_no_number_beyond_the_last_is_asked_for() -> None:
    everything = range(PORT_LAST + 1)
    for port, tried in [(PORT_LAST - 1, 2), (PORT_LAST, 1), (4001, OUTSIDE_PORTS_MAX)]:
        asked = Asked(everything)
        with pytest.raises(Unavailable, match=f"has given port {port} and those after it to oth"):
            await asked.router.open_port(port, 60)
        assert asked.tried() == list(range(port, port + tried))


async def test_what_is_opened_is_named_inside_and_outside_and_closed_by_that_name() -> None:
    asked = Asked([4001])
    assert await asked.router.open_port(4001, 60) == (OUTSIDE, 4002)
    told = asked.said[-1][1]
    assert (told["NewInternalPort"], told["NewInternalClient"]) == ("4001", OWN)
    await asked.router.close_port(4002)
    name = {"NewRemoteHost": "", "NewExternalPort": "4002", "NewProtocol": "TCP"}
    assert asked.said[-1] == ("DeletePortMapping", name)
    assert {key: told[key] for key in name} == name
    asked.is_gone = True
    await asked.router.close_port(4002)  # nobody hears that it is not there any more


async def test_a_router_that_has_gone_is_asked_for_nothing_until_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked()
    asked.is_gone = True
    with pytest.raises(Unavailable, match="nobody there"):
        await asked.router.open_port(4001, 60)
    asked.said.clear()
    monkeypatch.setattr(upnp_router, "hosts_for", lambda *_: [])
    await asked.router.close_port(4001)
    with pytest.raises(Unavailable, match="no router answers"):
        await asked.router.open_port(4001, 60)
    assert asked.said == []


@pytest.mark.parametrize(
    ("outside", "error", "why"),
    [
        (OUTSIDE, 606, "refuses, UPnP error 606"),
        ("::", 0, "no address outside"),
        ("fe80::1%eth0", 0, "no address outside"),
        ("home.example", 0, "does not know its own address"),
    ],
)
async def test_a_router_that_opens_nothing_of_use_is_said_so(
    outside: str, error: int, why: str
) -> None:
    with pytest.raises(Unavailable, match=why):
        await Asked((), outside, error).router.open_port(4001, 60)


Serve = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def page_of(serve: Serve) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
    """What is fetched from who serves so."""
    async with trio.open_nursery() as nursery:
        listeners: Any = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        place = Place("127.0.0.1", listeners[0].socket.getsockname()[1], "/")
        yield partial(upnp_router._fetch, place, [], b"")
        nursery.cancel_scope.cancel()


def says(head: bytes, body: bytes = b"", is_silent_then: bool = False) -> Serve:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(4096)
        try:
            await stream.send_all(head + body)
            if is_silent_then:
                await trio.sleep_forever()
        except trio.BrokenResourceError:
            return  # it has heard enough

    return serve


FINE = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


async def test_a_page_as_long_as_one_may_be_is_read_and_no_byte_more() -> None:
    whole = bytes(PAGE_BYTES_MAX)
    for head in (FINE, FINE.replace(b"200 OK", b"500 Oh")):  # as errors of SOAP come
        async with page_of(says(head, whole)) as fetch:
            assert await fetch() == whole
    async with page_of(says(FINE, whole + b" ", is_silent_then=True)) as fetch:
        with pytest.raises(Unavailable, match="more than a description"):
            await fetch()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 No\r\n\r\n", "answers with 404"),
        (b"HTTP/1.1 301 There\r\nLocation: http://192.168.1.2/\r\n\r\n", "answers with 301"),
        (b"SSH-2.0-x\r\n\r\n", "answers with nothing"),
        (b"", "answers with nothing"),
    ],
)
async def test_what_is_no_page_of_a_router_is_said_so(answer: bytes, why: str) -> None:
    async with page_of(says(answer)) as fetch:
        with pytest.raises(Unavailable, match=why):
            await fetch()


async def test_who_never_comes_to_the_page_is_waited_for_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endless = b"HTTP/1.1 200 OK\r\nA: " + bytes(upnp_router.HEAD_BYTES_MAX).replace(b"\0", b"a")
    async with page_of(says(endless, is_silent_then=True)) as fetch:
        with pytest.raises(Unavailable, match="answers with nothing"):
            await fetch()
    monkeypatch.setattr(upnp_router, "REQUEST_TIMEOUT_S", 0.1)
    async with page_of(says(FINE, b"<a>", is_silent_then=True)) as fetch:
        with trio.fail_after(30), pytest.raises(Unavailable, match="takes too long"):
            await fetch()
