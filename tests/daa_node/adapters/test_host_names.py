"""Names of hosts: which addresses they stand for, whom we dial and where we listen by them."""

import errno
import os
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from daa_node.adapters import host_names, libp2p_transport
from daa_node.adapters.host_names import HostNames
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.errors import Unavailable, UserError
from daa_node.network.config import NetworkConfig
from daa_node.seams import Address
from tests.daa_node.adapters.lone_transport import transport

HERE = "node.example"
NOBODY = "127.0.0.2"  # loopback, where nothing listens


class Resolver(trio.abc.HostnameResolver):
    """Knows what the test says: numbers of each name."""

    def __init__(self, **known: Sequence[str]) -> None:
        self.known = {name.replace("_", "."): numbers for name, numbers in known.items()}
        self.silent = False

    async def getaddrinfo(
        self, host: bytes | None, port: Any, family: int = 0, *_: Any, **__: Any
    ) -> Any:
        if self.silent:
            await trio.sleep_forever()
        found = [
            (kind, socket.SOCK_STREAM, 6, "", (number, port or 0))
            for number in self.known.get((host or b"").decode(), ())
            for kind in [socket.AF_INET6 if ":" in number else socket.AF_INET]
            if family in (socket.AF_UNSPEC, kind)
        ]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise AssertionError("nobody asks whose number it is")


@asynccontextmanager
async def resolving(**known: Sequence[str]) -> AsyncIterator[Resolver]:
    resolver = Resolver(**known)
    before = trio.socket.set_custom_hostname_resolver(resolver)
    try:
        yield resolver
    finally:
        trio.socket.set_custom_hostname_resolver(before)


async def test_dns4_and_dns6_are_one_family_each_and_dns_is_both() -> None:
    names = HostNames()
    async with resolving(node_example=("2001:db8::7", "192.0.2.7", "192.0.2.7")):
        assert await names.numbers_of("dns", HERE) == ["2001:db8::7", "192.0.2.7"]
        assert await names.numbers_of("dns4", HERE) == ["192.0.2.7"]
        assert await names.numbers_of("dns6", HERE) == ["2001:db8::7"]
        assert await names.numbers_of("ip4", "192.0.2.9") == ["192.0.2.9"]


async def test_of_a_name_with_many_numbers_some_are_taken() -> None:
    many = [f"192.0.2.{number}" for number in range(1, 100)]
    async with resolving(node_example=many):
        assert await HostNames().numbers_of("dns", HERE) == many[: host_names.NUMBERS_MAX]


class Dialled(trio.abc.AsyncResource):
    """In place of a connection to `number`."""

    def __init__(self, number: str) -> None:
        self.number, self.is_closed = number, False

    async def aclose(self) -> None:
        self.is_closed = True


async def test_a_number_that_is_silent_holds_nobody_up_and_one_too_many_is_closed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    silent_s = {"192.0.2.1": 60.0, "192.0.2.2": 0.5, "192.0.2.3": 0.25}
    dialled: list[Dialled] = []

    async def dial(place: tuple[str, int]) -> Dialled:
        number = place[0]
        with trio.CancelScope(shield=number != "192.0.2.1"):  # answered before it could be ended
            await trio.sleep(silent_s[number])
        dialled.append(Dialled(number))
        return dialled[-1]

    monkeypatch.setattr(host_names, "dial", dial)
    async with resolving(node_example=tuple(silent_s)):
        won: Any = await HostNames().connect("dns", (HERE, 1))
    assert trio.current_time() == 3 * host_names.STAGGER_S
    assert len(dialled) == 2  # they answer at the same moment
    assert [one.is_closed for one in dialled] == [one is not won for one in dialled]


async def test_a_name_unknown_is_told_of_once_until_it_has_resolved() -> None:
    told: list[tuple[str, str]] = []
    names = HostNames(lambda host, why: told.append((host, why)))

    async def fails() -> None:
        with pytest.raises(socket.gaierror):
            await names.numbers_of("dns", HERE)

    async with resolving() as resolver:
        for _ in range(3):
            await fails()
        assert told == [(HERE, "Name or service not known")]
        resolver.known[HERE] = ("192.0.2.7",)
        await names.numbers_of("dns", HERE)
        resolver.known.clear()
        for _ in range(3):
            await fails()
        assert len(told) == 2


async def test_names_told_of_are_remembered_up_to_a_bound() -> None:
    names = HostNames()
    async with resolving():
        for number in range(host_names.UNRESOLVED_MAX + 5):
            with pytest.raises(socket.gaierror):
                await names.numbers_of("dns", f"n{number}.example")
    assert len(names._unresolved) == host_names.UNRESOLVED_MAX


async def test_a_resolver_that_says_nothing_is_waited_for_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with resolving() as resolver:
        resolver.silent = True
        with pytest.raises(socket.gaierror, match="no answer within 5 s"):
            await HostNames().numbers_of("dns", HERE)
    assert trio.current_time() == host_names.RESOLVE_TIMEOUT_S


async def test_the_address_that_answers_is_taken_although_it_is_not_the_first() -> None:
    async with transport(2) as target, transport(3) as ours:
        port = target.addresses()[0].split("/")[4]
        async with resolving(node_example=(NOBODY, "127.0.0.1")):
            found = await ours.dial(Address(f"/dns/{HERE}/tcp/{port}/p2p/{target.peer_id}"))
        assert found == target.peer_id


async def test_a_service_whose_name_has_an_underscore_is_dialled() -> None:
    typed = NetworkConfig.model_validate({"bootstrap": "my_node:4001"}).bootstrap[0]
    async with transport(2) as target, transport(3) as ours, resolving() as resolver:
        resolver.known["my_node"] = ("127.0.0.1",)
        port = target.addresses()[0].split("/")[4]
        named = typed.replace("4001", port)
        assert await ours.dial(Address(named)) == target.peer_id  # whoever answers there
        assert await ours.dial(Address(f"{named}/p2p/{target.peer_id}")) == target.peer_id
        assert ours.connected() == [target.peer_id]


async def test_who_is_at_an_address_need_not_be_known() -> None:
    async with transport(2) as target, transport(3) as ours:
        address = target.addresses()[0].partition("/p2p/")[0]
        for _ in range(2):  # the second time it is the same connection
            assert await ours.dial(Address(address)) == target.peer_id
        assert ours.connected() == [target.peer_id]
        assert len(ours._running().swarm.get_connections()) == 1
        own = ours.addresses()[0].partition("/p2p/")[0]
        assert await ours.dial(Address(own)) == ours.peer_id


async def test_who_is_none_of_us_is_no_way_in_and_costs_a_sentence() -> None:
    async def babble(stream: trio.SocketStream) -> None:
        await stream.send_all(b"\x13/multistream/1.0.0\n\x07/noise\n" + b"\x00\x10" + b"?" * 500)
        await trio.sleep(1)

    async with transport(3) as ours, trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, babble, 0)
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(Unavailable, match="connected, but no handshake: "):
            await ours.dial(Address(f"/ip4/127.0.0.1/tcp/{port}"))
        nursery.cancel_scope.cancel()
        assert ours.connected() == []


async def test_a_node_listens_where_its_name_resolves() -> None:
    async with (
        resolving(node_example=("127.0.0.1", "127.0.0.3")),
        transport(2, listen=(f"{HERE}:0",)) as own,
    ):
        told = [address.split("/")[2] for address in own.addresses()]
    assert told == ["127.0.0.1", "127.0.0.3"]


async def test_a_node_listens_where_its_name_is_of_this_host() -> None:
    """Of others the name may be too: of a router, or in a family that is switched off."""
    async with (
        resolving(node_example=("192.0.2.7", "127.0.0.1")),
        transport(2, listen=(f"{HERE}:0",)) as own,
    ):
        assert [address.split("/")[2] for address in own.addresses()] == ["127.0.0.1"]


async def test_of_the_numbers_of_a_name_one_that_is_taken_stops_the_start() -> None:
    taken = (await trio.open_tcp_listeners(0, host="127.0.0.3"))[0]
    port = taken.socket.getsockname()[1]
    async with taken, resolving(node_example=("127.0.0.1", "127.0.0.3")):
        with pytest.raises(OSError, match="in use"):
            await HostNames().listen("dns", (HERE, port))
        (free,) = await trio.open_tcp_listeners(port, host="127.0.0.1")  # let go again
        await free.aclose()


async def test_a_name_that_does_not_resolve_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(libp2p_transport, "NAME_RETRY_S", 0.02)
    told: list[str] = []
    own = Libp2pTransport(bytes([2]) * 32, "test", NetworkConfig(listen=(f"{HERE}:0",)))
    own.names = HostNames(lambda host, _why: told.append(host))
    async with resolving() as resolver, trio.open_nursery() as nursery:

        async def come_up() -> None:
            await trio.sleep(0.2)
            resolver.known[HERE] = ("127.0.0.1",)

        nursery.start_soon(come_up)
        with trio.fail_after(30):
            await nursery.start(own.run)
        assert told == [HERE]
        assert own.addresses()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((), f"cannot listen on /dns/{HERE}/tcp/4001: Name or service not known. Mend the name"),
        (("192.0.2.7",), "It is of another host, or of a router: listen on 0.0.0.0:4001"),
    ],
)
async def test_a_name_that_one_cannot_listen_on_stops_the_start_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, numbers: Sequence[str], words: str
) -> None:
    monkeypatch.setattr(libp2p_transport, "NAME_WAIT_S", 0.05)
    monkeypatch.setattr(libp2p_transport, "NAME_RETRY_S", 0.02)
    async with resolving(node_example=numbers):
        refused = pytest.RaisesExc(UserError, match=re.escape(words))
        with pytest.RaisesGroup(refused, flatten_subgroups=True):
            async with transport(2, listen=(HERE,)):
                raise AssertionError


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EADDRINUSE, 1), (errno.EADDRNOTAVAIL, 1), (errno.EACCES, 2)]
)
def test_only_what_stays_wrong_is_a_wrong_setting(number: int, code: int) -> None:
    error = OSError(number, os.strerror(number))
    assert libp2p_transport.cannot_listen("/ip4/0.0.0.0/tcp/80", error).exit_code == code
