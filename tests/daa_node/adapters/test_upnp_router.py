"""A router on loopback, with real SSDP and SOAP, is asked for ports."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from daa_node.adapters import upnp_router
from daa_node.adapters.upnp_router import UpnpRouter
from daa_node.errors import Unavailable
from daa_node.wire.upnp_messages import PERMANENT_ONLY
from simnet.nodes.processes.router_face import RouterFace, answer_searches

OWN, OUTSIDE = "127.0.0.1", "203.0.113.9"


class Box:
    """Which ports are open, by number outside."""

    def __init__(self) -> None:
        self.open: dict[int, tuple[int, int]] = {}  # inside, seconds
        self.of_others: set[int] = set()

    def ask(self, inside: int, outside: int, seconds: int) -> bool:
        if outside in self.of_others:
            return False
        if inside:
            self.open[outside] = inside, seconds
        else:
            self.open.pop(outside, None)
        return True


@contextmanager
def router(box: Box) -> Iterator[tuple[RouterFace, UpnpRouter]]:
    face = RouterFace(OWN, OUTSIDE, box.ask)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((OWN, 0))
        works = [face.serve_forever, lambda: answer_searches(door, face.location)]
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        yield face, UpnpRouter(door.getsockname())
        face.shutdown()
        face.server_close()


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upnp_router, "hosts_for", lambda *_: [OWN])
    monkeypatch.setattr(upnp_router, "SEARCH_S", 1.0)


async def test_a_port_is_opened_refreshed_and_closed() -> None:
    box = Box()
    with router(box) as (face, ours):
        for _ in range(2):
            assert await ours.open_port(4001, 3600) == (OUTSIDE, 4001)
        assert box.open == {4001: (4001, 3600)}
        told = dict(face.asked)["AddPortMapping"]
        assert (told["NewInternalClient"], told["NewProtocol"]) == (OWN, "TCP")
        await ours.close_port(4001)
        assert not box.open


async def test_a_host_that_has_another_address_by_now_has_its_port_opened_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with router(Box()) as (face, ours):
        for own in (OWN, "127.0.0.2"):
            monkeypatch.setattr(upnp_router, "hosts_for", lambda *_, own=own: [own])
            await ours.open_port(4001, 3600)
            assert dict(face.asked)["AddPortMapping"]["NewInternalClient"] == own


async def test_a_number_that_another_has_is_passed_over_a_few_times() -> None:
    box = Box()
    box.of_others = {4001, 4002}
    with router(box) as (_, ours):
        assert await ours.open_port(4001, 3600) == (OUTSIDE, 4003)
        assert box.open == {4003: (4001, 3600)}
        box.of_others = set(range(4001, 4001 + upnp_router.OUTSIDE_PORTS_MAX))
        with pytest.raises(Unavailable, match="to others"):
            await ours.open_port(4001, 3600)


async def test_what_another_of_the_home_has_opened_is_neither_taken_nor_closed() -> None:
    box = Box()
    box.of_others = {4001, 4002, 4003}
    with router(box) as (face, ours):
        assert await ours.open_port(4001, 3600) == (OUTSIDE, 4004)
        await ours.close_port(4004)
        closed = [told["NewExternalPort"] for action, told in face.asked if "Delete" in action]
        assert closed == ["4004"]


async def test_a_router_that_knows_no_lease_gets_none() -> None:
    box = Box()
    with router(box) as (face, ours):
        answer = face.answer

        def for_ever(action: str, told: dict[str, str]) -> tuple[int, dict[str, str]]:
            if told.get("NewLeaseDuration", "0") != "0":
                return PERMANENT_ONLY, {}
            return answer(action, told)

        face.answer = for_ever  # type: ignore[method-assign]
        await ours.open_port(4001, 3600)
        assert box.open[4001] == (4001, 0)


async def test_one_that_opens_nothing_keeps_us_from_no_other() -> None:
    box = Box()
    with router(box) as (face, ours), router(Box()) as (refusing, _):
        refusing.why_not = 606
        places = [each.location.encode() for each in (refusing, face)]

        async def answers(own: str) -> list[tuple[str, bytes]]:
            return [(own, b"HTTP/1.1 200 OK\r\nLOCATION: " + at + b"\r\n\r\n") for at in places]

        ours._answers = answers  # type: ignore[method-assign]
        for _ in range(2):
            assert await ours.open_port(4001, 3600) == (OUTSIDE, 4001)
        assert len(refusing.asked) == 1  # who opened it is asked first from then on
        await ours.close_port(4001)
        assert not box.open


async def test_a_router_that_refuses_or_has_no_address_or_is_none_is_said_so() -> None:
    with router(Box()) as (face, ours):
        face.outside = "0.0.0.0"
        with pytest.raises(Unavailable, match="no address outside"):
            await ours.open_port(4001, 3600)
        face.outside = "<b>"
        with pytest.raises(Unavailable, match="does not know its own address"):
            await ours.open_port(4001, 3600)
        face.why_not = 606
        with pytest.raises(Unavailable):
            await ours.open_port(4001, 3600)
    with pytest.raises(Unavailable, match="no router answers"):
        await ours.open_port(4001, 3600)
