"""Members find each other, lose each other and find each other again; news reaches everybody."""

from collections.abc import Mapping
from functools import partial

import pytest
import trio
import trio.testing

from daa_dag.ids import ChainId, NodeId
from daa_node.cli.free_ports import free_ports
from daa_node.errors import PeerFault, Unavailable
from daa_node.identity.record import Role, encode_record
from daa_node.network.addresses import peer_id_in
from daa_node.network.discovery import (
    CHECK_S,
    HEAD_START_S,
    LOOK_UP_AFTER_S,
    MEET_EVERY_S,
    REDIAL_S_FIRST,
    Discovery,
    OwnRecord,
)
from daa_node.network.gossip import HEAD_EVERY_S_MAX, head_every_s
from daa_node.network.hello import OPEN_PROTOCOLS
from daa_node.network.topics import record_key
from daa_node.seams import Address, PeerId
from tests.daa_node.network.neighbours import KEYS, Neighbour, heard, running, until

MEMBERS = (0, 1, 2)


def hints_of(ports: Mapping[int, int]) -> dict[PeerId, tuple[Address, ...]]:
    return {
        KEYS[number].peer_id: (Address(f"/ip4/127.0.0.1/tcp/{port}/p2p/{KEYS[number].peer_id}"),)
        for number, port in ports.items()
    }


async def run_whole(
    neighbour: Neighbour,
    hints: Mapping[PeerId, tuple[Address, ...]],
    task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.CancelScope() as scope:
        async with running(neighbour, gossip=True):
            task_status.started(scope)
            await neighbour.discovery.run(hints)


def is_in_touch(one: Neighbour, two: Neighbour) -> bool:
    return two.peer_id in one.transport.connected() and one.welcomed(two)


async def test_members_meet_talk_and_meet_again_after_a_restart() -> None:
    ports = dict(zip(MEMBERS, free_ports(len(MEMBERS)), strict=True))
    hints = hints_of(ports)
    nodes = {number: Neighbour(number, MEMBERS, ports[number]) for number in MEMBERS}
    async with trio.open_nursery() as nursery:
        scopes = {n: await nursery.start(run_whole, nodes[n], hints) for n in (0, 2)}
        # where the genesis does not have it: its record says more than everybody knows
        elsewhere = {peer: known for peer, known in hints.items() if peer != KEYS[1].peer_id}
        scopes[1] = await nursery.start(run_whole, nodes[1], elsewhere)
        pairs = [(a, b) for a in MEMBERS for b in MEMBERS if a != b]
        await until(lambda: all(is_in_touch(nodes[a], nodes[b]) for a, b in pairs))
        await trio.sleep(1.5)  # gossip's streams and the DHT's first round

        await heard(nodes[2], 41, [nodes[0], nodes[1]])
        key = record_key(KEYS[1].node_id)
        await until_record(nodes[0], key)

        scopes[1].cancel()
        await until(lambda: nodes[1].peer_id not in nodes[0].transport.connected())
        again = Neighbour(1, MEMBERS, ports[1])
        started_s = trio.current_time()
        await nursery.start(run_whole, again, {})  # it knows nobody: the others must come
        await until(lambda: is_in_touch(again, nodes[0]) and is_in_touch(again, nodes[2]))
        assert trio.current_time() - started_s < LOOK_UP_AFTER_S  # dialled where it was
        left = [event for event in nodes[0].events.tail() if event["name"] == "peer_left"]
        assert [event["peer_id"] for event in left] == [again.peer_id]
        nursery.cancel_scope.cancel()


async def test_two_members_that_start_at_once_hold_one_connection() -> None:
    ports = dict(zip(MEMBERS, free_ports(len(MEMBERS)), strict=True))
    hints = hints_of(ports)
    nodes = [Neighbour(number, MEMBERS, ports[number]) for number in MEMBERS]
    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(run_whole, node, hints)
        await until(lambda: all(is_in_touch(a, b) for a in nodes for b in nodes if a is not b))
        for node in nodes:
            swarm = node.transport._parts.swarm  # type: ignore[union-attr]
            assert [len(held) for held in swarm.connections.values()] == [1, 1]
        nursery.cancel_scope.cancel()


async def test_a_member_dials_whom_it_waited_for_in_vain() -> None:
    ports = dict(enumerate(free_ports(2)))
    nodes = [Neighbour(number, (0, 1), ports[number]) for number in (0, 1)]
    late = max(nodes, key=lambda node: node.transport.peer_id)
    other = nodes[1 - nodes.index(late)]
    async with trio.open_nursery() as nursery:
        await nursery.start(run_whole, other, {})  # it knows nobody to dial
        await nursery.start(run_whole, late, hints_of(ports))
        await until(lambda: is_in_touch(late, other) and is_in_touch(other, late))
        nursery.cancel_scope.cancel()


def failed_dials(node: Neighbour) -> list[str]:
    return [event["address"] for event in node.events.tail() if event["name"] == "dial_failed"]


async def test_whoever_is_at_a_place_is_a_way_in_and_so_is_who_comes_there_later() -> None:
    (port,) = free_ports(1)
    place = Address(f"/dns/localhost/tcp/{port}")
    ours, first = Neighbour(0, bootstrap=(place,)), Neighbour(1, (), port)
    async with trio.open_nursery() as nursery:
        await nursery.start(run_whole, ours, {})
        await until(lambda: failed_dials(ours) != [])
        assert set(failed_dials(ours)) == {place}
        there = await nursery.start(run_whole, first, {})
        await until(lambda: is_in_touch(ours, first))
        there.cancel()
        await until(lambda: not ours.transport.connected())
        second = Neighbour(2, (), port)
        await nursery.start(run_whole, second, {})
        await until(lambda: is_in_touch(ours, second), timeout_s=8)
        nursery.cancel_scope.cancel()


async def test_a_place_of_ones_own_is_dialled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    ours = Neighbour(0, (), port, bootstrap=(Address(f"/ip4/127.0.0.1/tcp/{port}"),))
    dials, dial = [], ours.transport.dial

    async def counted(address: Address) -> PeerId:
        dials.append(address)
        return await dial(address)

    monkeypatch.setattr(ours.transport, "dial", counted)
    async with trio.open_nursery() as nursery:
        await nursery.start(run_whole, ours, {})
        await trio.sleep(3 * CHECK_S)
        assert not ours.transport.connected()
        assert failed_dials(ours) == []
        assert len(dials) == 1
        nursery.cancel_scope.cancel()


async def test_who_becomes_a_member_later_is_dialled_as_one() -> None:
    ours, newcomer = (Neighbour(number, (0,)) for number in (0, 1))
    async with trio.open_nursery() as nursery:
        for node in (ours, newcomer):  # the newcomer knows of nobody to dial
            await nursery.start(run_whole, node, {})
        ours.directory.learn(newcomer.own.current())
        assert not ours.transport.connected()
        ours.directory.enlist({KEYS[1].node_id: KEYS[1].peer_id})
        await until(lambda: is_in_touch(ours, newcomer))
        nursery.cancel_scope.cancel()


async def test_a_height_is_told_only_where_somebody_looks_on_and_has_not_heard_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, other, watcher = (Neighbour(number, (0, 1)) for number in (0, 1, 2))
    told: list[int] = []

    async def note(height: int) -> None:
        told.append(height)

    ours.gossip.announce_head = note  # type: ignore[method-assign]
    ours.transport.connected = lambda: [other.peer_id]  # type: ignore[method-assign]
    height = 3
    ours.directory.learn(other.own.current())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.gossip.announce_heads, lambda: height)
        await trio.sleep(2 * HEAD_EVERY_S_MAX)
        height = 4
        await trio.sleep(2 * HEAD_EVERY_S_MAX)
        assert told == []  # members write to each other
        ours.directory.learn(watcher.own.current())
        height = 5
        await trio.sleep(2 * HEAD_EVERY_S_MAX)
        assert told == [5]
        height = ours.told_height = 6
        await trio.sleep(2 * HEAD_EVERY_S_MAX)
        assert told == [5]  # others have said so
        nursery.cancel_scope.cancel()


async def test_who_looks_on_is_told_of_heights_as_often_as_the_network_is_quick(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, watcher = Neighbour(0, (0,), delta_s=0.05), Neighbour(1, (0,))
    told: list[int] = []

    async def note(height: int) -> None:
        told.append(height)

    ours.gossip.announce_head = note  # type: ignore[method-assign]
    ours.transport.connected = lambda: [watcher.peer_id]  # type: ignore[method-assign]
    ours.directory.learn(watcher.own.current())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.gossip.announce_heads, lambda: round(trio.current_time() * 100))
        await trio.sleep(HEAD_EVERY_S_MAX)
        assert len(told) >= 4  # every twenty deltas
        nursery.cancel_scope.cancel()
    assert head_every_s(0.5) == head_every_s(60.0) == HEAD_EVERY_S_MAX


async def until_record(node: Neighbour, key: str) -> None:
    with trio.fail_after(30):
        while await node.transport.get_record(key) is None:
            await trio.sleep(0.1)


async def test_a_peer_that_is_refused_is_dialled_less_and_less_often() -> None:
    ports = dict(enumerate(free_ports(2)))
    ours = Neighbour(0, (0, 1), ports[0])
    other = Neighbour(1, (0, 1), ports[1], chain_id=ChainId(b"\xbb" * 32))
    async with trio.open_nursery() as nursery:
        await nursery.start(run_whole, ours, hints_of(ports))
        await nursery.start(run_whole, other, {})
        await trio.sleep(4)
        nursery.cancel_scope.cancel()
    assert 2 <= len(ours.refusals()) <= 14  # two a meeting: ours of them, theirs of us


@pytest.mark.long
async def test_a_peer_that_cannot_be_reached_keeps_us_from_no_other() -> None:
    """Its record came by gossip, and names an address where nobody is."""
    ours, gone, there = (Neighbour(number, (0,)) for number in (0, 1, 2))
    async with running(gone):
        ours.directory.learn(gone.own.current())
    async with running(ours), running(there), trio.open_nursery() as nursery:
        ours.directory.learn(there.own.current())
        nursery.start_soon(ours.discovery.run, {})
        await until(lambda: there.peer_id in ours.transport.connected(), 4 * MEET_EVERY_S)
        nursery.cancel_scope.cancel()


async def test_who_says_that_nobody_can_dial_it_is_not_dialled_and_its_own_call_is_taken() -> None:
    """But at an address that the operator insists on."""
    ports = dict(enumerate(free_ports(2)))
    ours, hidden = (Neighbour(number, (0, 1), ports[number]) for number in (0, 1))
    own = OwnRecord(hidden.keys, list, Role.CLOUD, (), hidden.clock)  # no address
    ours.directory.learn(own.current())
    address = hints_of(ports)[hidden.peer_id]
    async with trio.open_nursery() as nursery:
        await nursery.start(run_whole, ours, hints_of(ports))
        await nursery.start(partial(running_alone, hidden))
        await trio.sleep(HEAD_START_S + 10 * REDIAL_S_FIRST)
        assert not ours.transport.connected()
        await hidden.transport.dial(ours.address)
        await until(lambda: hidden.peer_id in ours.transport.connected())
        nursery.cancel_scope.cancel()
    insisting = Discovery(
        *(ours.transport, ours.directory, ours.gossip, ours.own, ours.clock, ours.events, address)
    )
    assert insisting._addresses_of(hidden.peer_id) == list(address)


async def test_a_newer_record_counts_while_the_addresses_of_the_last_are_dialled() -> None:
    ours, other = (Neighbour(number, (0, 1)) for number in (0, 1))
    stale = [Address(f"/ip4/127.0.0.1/tcp/{port}/p2p/{other.peer_id}") for port in (1, 2, 3)]
    newer = Address(f"/ip4/127.0.0.1/tcp/4/p2p/{other.peer_id}")
    addresses, dialled = stale, list[Address]()
    own = OwnRecord(other.keys, lambda: addresses, Role.CLOUD, (), other.clock)
    ours.directory.learn(own.current())

    async def dial(address: Address) -> PeerId:
        nonlocal addresses
        dialled.append(address)
        if address == newer:
            return other.peer_id
        addresses = [newer]
        ours.directory.learn(own.current())
        raise Unavailable("nobody is there")

    ours.transport.dial = dial  # type: ignore[method-assign]
    assert await ours.discovery._dial(other.peer_id) is None
    assert dialled == [stale[0], newer]


@pytest.mark.parametrize(("outside", "first"), [("8.8.4.4", 1), ("8.8.4.5", 0)])
async def test_who_is_behind_our_own_router_is_dialled_within_first(
    outside: str, first: int
) -> None:
    """What leads in from outside may lead nowhere from here, and takes ten seconds to say so."""
    ours, other = (Neighbour(number, (0, 1)) for number in (0, 1))
    told = [
        Address(f"/ip4/{host}/tcp/4002{kind}/p2p/{other.peer_id}")
        for kind in ("", "/ws")
        for host in (outside, "192.168.1.3")
    ]
    ours.transport.addresses = lambda: [  # type: ignore[method-assign]
        Address(f"/{host}/tcp/4001/p2p/{ours.peer_id}")
        for host in ("ip4/8.8.4.4", "ip4/192.168.1.2", "dns/home.example")
    ]
    ours.directory.learn(OwnRecord(other.keys, lambda: told, Role.CLOUD, (), other.clock).current())
    dialled = list[Address]()

    async def dial(address: Address) -> PeerId:
        dialled.append(address)
        return other.peer_id

    ours.transport.dial = dial  # type: ignore[method-assign]
    assert await ours.discovery._dial(other.peer_id) is None
    assert dialled == [told[first]]


async def running_alone(
    neighbour: Neighbour, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    async with running(neighbour):
        task_status.started()
        await trio.sleep_forever()


async def test_a_banned_peer_is_parted_with() -> None:
    ports = dict(enumerate(free_ports(2)))
    ours, other = (Neighbour(number, (0, 1), ports[number]) for number in (0, 1))
    async with trio.open_nursery() as nursery:
        await nursery.start(run_whole, ours, hints_of(ports))
        await nursery.start(run_whole, other, hints_of(ports))
        await until(lambda: is_in_touch(ours, other))
        while not ours.directory.blame(other.peer_id, PeerFault("bad-signature")):
            pass
        await until(lambda: other.peer_id not in ours.transport.connected())
        nursery.cancel_scope.cancel()


async def test_the_banned_that_come_back_keep_nobody_from_noticing_who_has_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A WebSocket that never answers our goodbye takes a second to close."""
    ours, member = Neighbour(0), PeerId("member")
    crowd = [PeerId(f"peer {n}") for n in range(60)]
    connected, parted = [member, *crowd], 0

    async def hang_up(peer_id: PeerId) -> None:
        nonlocal parted
        await trio.sleep(1)
        parted += 1

    ours.transport.connected = lambda: connected  # type: ignore[method-assign]
    ours.transport.hang_up = hang_up  # type: ignore[method-assign]
    for peer_id in crowd:
        while not ours.directory.blame(peer_id, PeerFault("bad-signature")):
            pass
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.discovery._look_around, nursery)
        await trio.sleep(5)
        connected = crowd
        began_s = trio.current_time()
        await ours.discovery._while(lambda: member in ours.discovery._connected)
        assert trio.current_time() - began_s <= 2 * CHECK_S
        assert 2 * len(crowd) <= parted <= 6 * len(crowd)  # to each, one after the other
        nursery.cancel_scope.cancel()


async def test_who_is_in_touch_with_everybody_looks_once_for_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, members = Neighbour(0), {NodeId(bytes([n]) * 32): PeerId(f"peer {n}") for n in range(20)}
    looks = judged = 0

    def connected() -> list[PeerId]:
        nonlocal looks
        looks += 1
        return [*members.values()]

    def banned_for_s(peer_id: PeerId) -> float:
        nonlocal judged
        judged += 1
        return 0.0

    ours.directory.enlist(members)
    ours.directory.banned_for_s = banned_for_s  # type: ignore[method-assign]
    ours.transport.connected = connected  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.discovery._look_around, nursery)
        await trio.sleep(10.25)
        assert ours.discovery._kept == members.keys()
        assert looks <= len(members) + 23
        assert judged <= 3 * len(members)  # not at each look: nothing has changed
        nursery.cancel_scope.cancel()


async def test_who_goes_by_connections_and_members_is_woken_by_the_look_that_finds_another(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, connected, woken = Neighbour(0), [PeerId("one")], 0

    async def wait() -> None:
        nonlocal woken
        while True:
            await ours.directory.crowd_changed.park()
            woken += 1

    ours.transport.connected = lambda: list(connected)  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ours.discovery._look_around, nursery)
        for change in (
            lambda: connected.append(PeerId("two")),
            lambda: connected.remove(PeerId("one")),
            lambda: ours.directory.enlist({KEYS[1].node_id: PeerId("two")}),
            lambda: ours.directory.learn(Neighbour(2).own.current()),
        ):
            await trio.sleep(20 * CHECK_S)
            before = woken
            change()
            await trio.sleep(1.5 * CHECK_S)
            assert before < woken <= before + 2  # whoever is kept in touch with makes it look again
            nothing_since = woken
            await trio.sleep(20 * CHECK_S)
            assert woken <= nothing_since + 1
        nursery.cancel_scope.cancel()


async def test_the_own_record_is_stable_until_something_changes() -> None:
    node = Neighbour(0)
    async with running(node):
        first = node.own.current()
        assert node.own.current() is first
    second = node.own.current()  # no address any more
    assert second.record.sequence > first.record.sequence


async def test_the_dht_takes_a_record_under_its_own_name_only() -> None:
    node = Neighbour(0)
    signed = node.own.current()
    payload = encode_record(signed)
    judge = node.discovery.judge_record
    assert judge(record_key(KEYS[0].node_id), payload) == signed.record.sequence
    assert judge(record_key(KEYS[1].node_id), payload) is None
    assert judge(record_key(KEYS[0].node_id), payload[:-1]) is None
    other_signature = payload[:-1] + bytes([payload[-1] ^ 1])
    assert judge(record_key(KEYS[0].node_id), other_signature) is None


def test_the_peer_of_an_address_is_the_last_one_named() -> None:
    assert peer_id_in(Address("/ip4/192.0.2.1/tcp/1/p2p/12D3KooWx")) == "12D3KooWx"
    assert peer_id_in(Address("/ip4/192.0.2.1/tcp/1")) == ""


async def test_a_node_that_stops_while_it_greets_a_peer_just_stops() -> None:
    ours, other = Neighbour(0), Neighbour(1)
    greeting = trio.Event()

    async def slow_door(peer_id: PeerId) -> bool:
        greeting.set()
        with trio.CancelScope(shield=True):
            await trio.sleep(0.3)  # longer than everything else takes to stop
        return True

    ours.transport.guard(slow_door, OPEN_PROTOCOLS, ours.blame, ours.directory.is_member)
    async with running(other):
        async with running(ours):
            await ours.transport.dial(other.address)
            with trio.fail_after(30):
                await greeting.wait()
        assert ours.transport.connected() == []
