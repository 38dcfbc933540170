"""Where a node is: it tells everybody in its turn, and nothing slow holds that news up."""

import pytest
import trio
import trio.testing

from daa_node.identity.record import Role, decode_record
from daa_node.network.discovery import NEWCOMERS_SPREAD_S, PUBLISH_S, OwnRecord
from daa_node.network.topics import record_key
from daa_node.network.turns import share_of
from daa_node.seams import Address, PeerId
from tests.daa_node.network.neighbours import KEYS, Neighbour


async def test_newcomers_tell_everybody_of_themselves_each_at_its_own_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told_at_s: dict[PeerId, float] = {}

    async def note(record_bytes: bytes) -> None:
        told_at_s.setdefault(decode_record(record_bytes).record.peer_id, trio.current_time())

    watchers = [Neighbour(number, (0,)) for number in (1, 2)]
    async with trio.open_nursery() as nursery:
        for watcher in watchers:
            watcher.gossip.announce_record = note  # type: ignore[method-assign]
            watcher.transport.connected = lambda: [PeerId("a")]  # type: ignore[method-assign]
            nursery.start_soon(watcher.discovery._publish)
        await trio.sleep(NEWCOMERS_SPREAD_S + 5)
        nursery.cancel_scope.cancel()
    turns = [NEWCOMERS_SPREAD_S * share_of(watcher.peer_id) for watcher in watchers]
    assert abs(turns[1] - turns[0]) > 5
    told = [told_at_s[watcher.peer_id] for watcher in watchers]
    assert told == pytest.approx(turns, abs=1)


async def test_who_is_where_the_genesis_says_has_its_record_kept_by_others_at_its_own_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    kept_at_s: dict[str, float] = {}
    told: list[bytes] = []

    async def keep(key: str, payload: bytes) -> None:
        kept_at_s.setdefault(key, trio.current_time())

    async def note(record_bytes: bytes) -> None:
        told.append(record_bytes)

    members = [Neighbour(number, (0, 1)) for number in (0, 1)]
    async with trio.open_nursery() as nursery:
        for member in members:
            member.gossip.announce_record = note  # type: ignore[method-assign]
            member.transport.connected = lambda: [PeerId("a")]  # type: ignore[method-assign]
            member.transport.put_record = keep  # type: ignore[method-assign]
            nursery.start_soon(member.discovery._publish)
        await trio.sleep(PUBLISH_S + 10)
        nursery.cancel_scope.cancel()
    assert not told  # everybody has read the genesis
    turns = [PUBLISH_S * (1 - share_of(member.peer_id)) for member in members]
    kept = [kept_at_s[record_key(KEYS[number].node_id)] for number in (0, 1)]
    assert kept == pytest.approx(turns, abs=10)  # a look each five seconds


async def test_what_the_dht_draws_out_keeps_nobody_from_telling_where_it_is_now(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, told = Neighbour(0, (0, 1)), list[tuple[Address, ...]]()
    listens = [Address(f"/ip4/192.0.2.1/tcp/4001/p2p/{ours.peer_id}")]

    async def note(record_bytes: bytes) -> None:
        told.append(decode_record(record_bytes).record.addresses)

    async def never(key: str, payload: bytes) -> None:
        await trio.sleep_forever()

    ours.own._addresses = ours.transport.addresses = lambda: listens  # type: ignore[method-assign]
    ours.gossip.announce_record = note  # type: ignore[method-assign]
    ours.transport.connected = lambda: [PeerId("a")]  # type: ignore[method-assign]
    ours.transport.put_record = never  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.discovery._publish)
        await trio.sleep(12)
        before, listens = listens, []
        await trio.sleep(12)
        nursery.cancel_scope.cancel()
    assert told == [tuple(before), ()]


async def test_what_a_newer_record_puts_right_is_waited_for_no_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Neither for an address that it does not have any more, nor for the DHT's answer."""
    ours, other = Neighbour(0, (0, 1)), Neighbour(1, (0, 1))
    gone, there = (Address(f"/ip4/192.0.2.{n}/tcp/4001/p2p/{other.peer_id}") for n in (1, 2))
    listens, dialled = [gone], list[Address]()

    async def dial(address: Address) -> PeerId:
        dialled.append(address)
        if address == gone:
            await trio.sleep_forever()
        return other.peer_id

    async def never(key: str) -> bytes | None:
        await trio.sleep_forever()
        return None

    own = OwnRecord(other.keys, lambda: listens, Role.CLOUD, (), other.clock)
    ours.directory.learn(own.current())
    ours.transport.dial = dial  # type: ignore[method-assign]
    ours.transport.get_record = never  # type: ignore[method-assign]
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.discovery._dial, other.peer_id)
            nursery.start_soon(ours.discovery._look_up, other.keys.node_id)
            await trio.sleep(5)
            assert dialled == [gone]
            listens = [there]
            ours.directory.learn(own.current())
    assert dialled == [gone, there]
