"""What a relay does for others is bounded, and strangers leave room for members."""

from contextlib import suppress

import pytest
import trio
from trio.testing import memory_stream_pair

from daa_node.adapters import relay_desk
from daa_node.adapters.relay_desk import RelayDesk
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.link_limits import GB_BYTES, LAST_SHARE, STRANGERS_SHARE, Budget
from daa_node.seams import ByteStream, PeerId
from daa_node.wire import protocols, relay_messages
from daa_node.wire.framing import read_message, write_message
from tests.daa_node.network.limited_link import Link

CALLER, CALLED = PeerId("member caller"), PeerId("member called")
GUEST = PeerId("guest")


class Wire:
    """One end of a stream to `peer_id`."""

    def __init__(self, end: trio.StapledStream, peer_id: PeerId) -> None:  # type: ignore[type-arg]
        self._end = end
        self.peer_id = peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await self._end.send_all(payload)

    async def receive_some(self, size_bytes_max: int) -> bytes:
        return bytes(await self._end.receive_some(size_bytes_max))

    async def aclose(self) -> None:
        await self._end.aclose()


def wires(peer_id: PeerId) -> tuple[Wire, Wire]:
    """The relay's end of a stream with the peer, and the peer's."""
    here, there = memory_stream_pair()
    return Wire(here, peer_id), Wire(there, PeerId("relay"))


class World:
    """A desk, and peers that grant what it brings them and say everything back."""

    def __init__(
        self,
        nursery: trio.Nursery,
        relayed: frozenset[PeerId] = frozenset(),
        link: Link | None = None,
    ) -> None:
        self.faults: list[str] = []
        self.gone: set[PeerId] = set()
        self.mute: set[PeerId] = set()  # who are called and do not answer
        self.hung_up: list[PeerId] = []  # on whom the desk has closed its stream then
        self._nursery = nursery
        self.desk = RelayDesk(
            self._open,
            relayed.__contains__,
            lambda peer: peer not in self.gone,
            lambda peer: peer.startswith("member"),
            lambda _peer, fault: self.faults.append(fault.reason),
            lambda: None if link is None else link.limits,
        )

    async def _open(self, peer_id: PeerId, protocol: str) -> ByteStream:
        assert protocol == protocols.RELAYED
        ours, theirs = wires(peer_id)
        self._nursery.start_soon(self._called, theirs, peer_id)
        return ours

    async def _called(self, wire: Wire, peer_id: PeerId) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            word, _ = relay_messages.wish_of(await read_message(wire, 512))
            assert word == "from"
            if peer_id in self.mute:
                assert not await wire.receive_some(1)
                self.hung_up.append(peer_id)
                return
            await write_message(wire, relay_messages.granted())
            while piece := await wire.receive_some(1 << 16):
                await wire.send_all(piece)

    async def asked(self, peer_id: PeerId, wish: bytes) -> tuple[Wire, int]:
        """The peer's end of its stream with the relay, and what it was granted."""
        ours, theirs = wires(peer_id)
        self._nursery.start_soon(self._served, ours)
        await write_message(theirs, wish)
        return theirs, relay_messages.seconds_granted(await read_message(theirs, 512))

    async def _served(self, wire: Wire) -> None:
        with suppress(PeerFault, trio.BrokenResourceError):
            await self.desk.serve(wire)
        await wire.aclose()


async def test_bytes_go_both_ways_and_either_end_closes_the_circuit(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.asked(CALLED, relay_messages.reserve())
        wire, _ = await world.asked(CALLER, relay_messages.connect(CALLED))
        assert world.desk.circuits == 1
        await wire.send_all(b"sealed")
        assert await wire.receive_some(100) == b"sealed"
        await wire.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert world.desk.circuits == 0
        nursery.cancel_scope.cancel()


async def test_a_circuit_that_says_nothing_is_closed(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.asked(CALLED, relay_messages.reserve())
        await world.asked(CALLER, relay_messages.connect(CALLED))
        await trio.sleep(relay_desk.IDLE_S + 1)
        assert world.desk.circuits == 0
        nursery.cancel_scope.cancel()


async def test_who_sends_more_than_its_pace_waits_and_guests_wait_for_each_other(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_desk, "BYTES_PER_S", 1000.0)
    monkeypatch.setattr(relay_desk, "BYTES_BURST", 1000.0)
    for callers, at_least_s in (((CALLER, PeerId("member b")), 6), (("guest a", "guest b"), 14)):
        async with trio.open_nursery() as nursery:
            world = World(nursery)
            await world.asked(CALLED, relay_messages.reserve())
            began_s = trio.current_time()

            async def send(peer_id: PeerId, world: World = world) -> None:
                wire, _ = await world.asked(peer_id, relay_messages.connect(CALLED))
                for _ in range(4):
                    await wire.send_all(bytes(1000))
                heard = 0
                while heard < 4000:
                    heard += len(await wire.receive_some(1 << 16))

            async with trio.open_nursery() as senders:
                for peer_id in callers:
                    senders.start_soon(send, PeerId(peer_id))
            took_s = trio.current_time() - began_s
            # what comes back is the called one's pace, which is one for both
            assert took_s >= at_least_s
            nursery.cancel_scope.cancel()


async def test_circuits_and_reservations_are_bounded_and_guests_leave_room(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        refused = 0
        for number in range(relay_desk.GUESTS_RESERVATIONS_MAX + 5):
            try:
                await world.asked(PeerId(f"guest {number}"), relay_messages.reserve())
            except Unavailable:
                refused += 1
        assert refused == 5
        for number in range(relay_desk.RESERVATIONS_MAX - relay_desk.GUESTS_RESERVATIONS_MAX):
            await world.asked(PeerId(f"member {number}"), relay_messages.reserve())
        with pytest.raises(Unavailable, match="have a reservation"):
            await world.asked(CALLED, relay_messages.reserve())
        await world.asked(PeerId("member 0"), relay_messages.reserve())  # again
        for number in range(relay_desk.CIRCUITS_PER_CALLER_MAX):
            await world.asked(CALLER, relay_messages.connect(PeerId(f"member {number // 2}")))
        with pytest.raises(Unavailable, match="circuits of one peer"):
            await world.asked(CALLER, relay_messages.connect(PeerId("member 50")))
        await trio.sleep(10)  # guests ask no oftener together
        for number in range(relay_desk.GUESTS_CIRCUITS_MAX + 5):
            called = PeerId(f"member {1 + number // 8}")
            with suppress(Unavailable):
                await world.asked(PeerId(f"guest {number}"), relay_messages.connect(called))
        of_members = relay_desk.CIRCUITS_PER_CALLER_MAX
        assert world.desk.circuits == of_members + relay_desk.GUESTS_CIRCUITS_MAX
        await world.asked(PeerId("member z"), relay_messages.connect(PeerId("member 40")))
        nursery.cancel_scope.cancel()


async def test_nobody_takes_all_circuits_to_one_peer(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.asked(CALLED, relay_messages.reserve())
        for _ in range(relay_desk.CIRCUITS_PER_PAIR_MAX):
            await world.asked(CALLER, relay_messages.connect(CALLED))
        with pytest.raises(Unavailable, match="to that peer"):
            await world.asked(CALLER, relay_messages.connect(CALLED))
        for number in range(relay_desk.GUESTS_CIRCUITS_TO_ONE_MAX):
            await world.asked(PeerId(f"guest {number}"), relay_messages.connect(CALLED))
        with pytest.raises(Unavailable, match="no members"):
            await world.asked(PeerId("guest z"), relay_messages.connect(CALLED))
        for number in range(40):
            await world.asked(PeerId(f"member {number}"), relay_messages.connect(CALLED))
        with pytest.raises(Unavailable, match="the one who asks"):
            await world.asked(CALLED, relay_messages.connect(CALLED))
        nursery.cancel_scope.cancel()


async def test_who_dials_again_and_again_is_told_to_ask_later(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.asked(CALLED, relay_messages.reserve())
        for asks in ((CALLER,), (PeerId("guest a"), PeerId("guest b"))):
            opened = 0
            for number in range(200):
                with suppress(Unavailable):
                    wire, _ = await world.asked(
                        asks[number % len(asks)], relay_messages.connect(CALLED)
                    )
                    opened += 1
                    await wire.aclose()
                    await trio.testing.wait_all_tasks_blocked()
            assert opened == relay_desk.CONNECTS_BURST
        await world.asked(PeerId("member b"), relay_messages.connect(CALLED))
        nursery.cancel_scope.cancel()


async def test_who_dials_too_often_is_not_forgotten_however_many_others_dial(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_desk, "MEMBERS_KEPT_MAX", 1)
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.asked(CALLED, relay_messages.reserve())
        for _ in range(int(relay_desk.CONNECTS_BURST)):
            wire, _ = await world.asked(CALLER, relay_messages.connect(CALLED))
            await wire.aclose()
            await trio.testing.wait_all_tasks_blocked()
        await world.asked(PeerId("member b"), relay_messages.connect(CALLED))
        with pytest.raises(Unavailable, match="asked too often"):
            await world.asked(CALLER, relay_messages.connect(CALLED))
        nursery.cancel_scope.cancel()


async def test_who_has_gone_has_no_reservation(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        for number in range(2 * relay_desk.GUESTS_RESERVATIONS_MAX):
            name = PeerId(f"guest {number}")
            await world.asked(name, relay_messages.reserve())
            world.gone.add(name)
        nursery.cancel_scope.cancel()


async def test_a_reservation_ends_with_its_time_unless_it_is_asked_for_again(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.asked(CALLED, relay_messages.reserve())
        await trio.sleep(relay_desk.RESERVED_S - 1)
        await world.asked(CALLER, relay_messages.connect(CALLED))
        await world.asked(CALLED, relay_messages.reserve())
        await trio.sleep(relay_desk.RESERVED_S - 1)
        await world.asked(CALLER, relay_messages.connect(CALLED))
        await trio.sleep(1)
        with pytest.raises(Unavailable, match="no reservation here"):
            await world.asked(CALLER, relay_messages.connect(CALLED))
        nursery.cancel_scope.cancel()


async def test_reservations_that_are_over_keep_nobody_out(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        for late in (False, True):
            for number in range(relay_desk.GUESTS_RESERVATIONS_MAX):
                name = PeerId(f"guest {number} {late}")
                await world.asked(name, relay_messages.reserve())
            await trio.sleep(relay_desk.RESERVED_S)
        nursery.cancel_scope.cancel()


async def test_a_called_peer_that_says_nothing_holds_no_circuit_and_its_stream_ends(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        world.mute.add(CALLED)
        await world.asked(CALLED, relay_messages.reserve())
        with (
            trio.fail_after(relay_desk.WORDS_TIMEOUT_S + 1),
            pytest.raises(Unavailable, match="does not answer"),
        ):
            await world.asked(CALLER, relay_messages.connect(CALLED))
        assert world.desk.circuits == 0
        await trio.testing.wait_all_tasks_blocked()
        assert world.hung_up == [CALLED]
        nursery.cancel_scope.cancel()


async def test_all_circuits_together_are_bounded(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_desk, "CIRCUITS_MAX", 2)
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.asked(CALLED, relay_messages.reserve())
        wires = [
            (await world.asked(PeerId(f"member {number}"), relay_messages.connect(CALLED)))[0]
            for number in range(2)
        ]
        assert world.desk.joins(PeerId("member 0"), CALLED)
        with pytest.raises(Unavailable, match="busy: 2 circuits lead through this relay"):
            await world.asked(CALLER, relay_messages.connect(CALLED))
        await wires[0].aclose()
        await trio.testing.wait_all_tasks_blocked()
        await world.asked(CALLER, relay_messages.connect(CALLED))
        assert not world.desk.joins(PeerId("member 0"), CALLED)
        nursery.cancel_scope.cancel()


class Stuck(Wire):
    """Its end has sent something, and reads nothing."""

    def __init__(self, peer_id: PeerId) -> None:
        self.peer_id = peer_id

    async def send_all(self, payload: bytes | bytearray | memoryview) -> None:
        await trio.sleep_forever()

    async def receive_some(self, size_bytes_max: int) -> bytes:
        return b"x"


async def test_ends_that_send_and_read_nothing_hold_no_circuit(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        with trio.fail_after(relay_desk.IDLE_S + 1):
            await world.desk._relay(Stuck(CALLER), Stuck(CALLED))
        nursery.cancel_scope.cancel()


async def test_no_circuit_leads_through_two_relays_and_nonsense_is_a_fault(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, frozenset({CALLER}))
        with pytest.raises(Unavailable, match="two relays"):
            await world.asked(CALLER, relay_messages.reserve())
        with pytest.raises(PeerFault, match="truncated"):
            await world.asked(CALLED, b"nonsense")
        gone, ours = wires(CALLED)
        await ours.aclose()
        with pytest.raises(PeerFault, match="truncated"):
            await world.desk.serve(gone)
        assert world.faults == ["relay-malformed"]
        nursery.cancel_scope.cancel()


async def said_back(wire: Wire, size_bytes: int) -> bool:
    """Through a circuit and back; False if it ends before."""
    heard = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.send_all, bytes(size_bytes))
        while heard < size_bytes and (piece := await wire.receive_some(1 << 16)):
            heard += len(piece)
        nursery.cancel_scope.cancel()
    return heard == size_bytes


async def test_what_is_relayed_counts_both_ways_and_guests_spend_of_strangers_data(
    autojump_clock: object,
) -> None:
    """Each byte comes and leaves again, and so does what is said back."""
    async with trio.open_nursery() as nursery:
        link = Link(data_gb_a_day=0.1)
        world, share = World(nursery, link=link), int(STRANGERS_SHARE * 10**8)
        await world.asked(CALLED, relay_messages.reserve())
        wire, _ = await world.asked(CALLER, relay_messages.connect(CALLED))
        assert await said_back(wire, 10**6)
        assert link.limits.spent_bytes == 4 * 10**6
        guests, _ = await world.asked(GUEST, relay_messages.connect(CALLED))
        assert not await said_back(guests, share)
        assert link.limits.spent_bytes == 4 * 10**6 + share
        assert link.limits.budget is Budget.OPEN
        with pytest.raises(Unavailable, match="nearly spent"):
            await world.asked(GUEST, relay_messages.connect(CALLED))
        with pytest.raises(Unavailable, match="nearly spent"):
            await world.asked(GUEST, relay_messages.reserve())
        await world.asked(CALLER, relay_messages.connect(CALLED))
        nursery.cancel_scope.cancel()


async def test_a_member_that_calls_a_guest_home_is_refused_once_strangers_data_are_spent(
    autojump_clock: object,
) -> None:
    """Not granted a circuit that ends at its first piece, as often as it dials again."""
    async with trio.open_nursery() as nursery:
        link = Link(data_gb_a_day=0.1)
        world = World(nursery, link=link)
        for peer in (GUEST, CALLED):
            await world.asked(peer, relay_messages.reserve())
        wire, _ = await world.asked(CALLER, relay_messages.connect(GUEST))
        assert await said_back(wire, 1000)
        link.limits.count(int(STRANGERS_SHARE * 10**8), of_stranger=True)
        with pytest.raises(Unavailable, match="nearly spent"):
            await world.asked(CALLER, relay_messages.connect(GUEST))
        assert not await said_back(wire, 1000)
        wire, _ = await world.asked(CALLER, relay_messages.connect(CALLED))
        assert await said_back(wire, 1000)
        nursery.cancel_scope.cancel()


async def test_the_last_tenth_of_a_day_opens_no_circuit_and_letters_pass_to_the_end(
    autojump_clock: object,
) -> None:
    async with trio.open_nursery() as nursery:
        link = Link(data_gb_a_day=1.0)
        world = World(nursery, link=link)
        await world.asked(CALLED, relay_messages.reserve())
        wire, _ = await world.asked(CALLER, relay_messages.connect(CALLED))
        guests, _ = await world.asked(GUEST, relay_messages.connect(CALLED))
        link.limits.count(int(GB_BYTES * (1 - LAST_SHARE)))
        for wish in (relay_messages.connect(CALLED), relay_messages.reserve()):
            with pytest.raises(Unavailable, match="nearly spent"):
                await world.asked(CALLER, wish)
        assert not await said_back(guests, 1000)
        began_s = trio.current_time()
        assert await said_back(wire, 10**6)
        assert trio.current_time() == began_s
        link.limits.count(int(GB_BYTES * LAST_SHARE))
        assert link.limits.budget is Budget.SPENT
        assert await said_back(wire, 1000)
        assert trio.current_time() == began_s
        assert await said_back(wire, 10**6)
        least_s = (10**6 - relay_desk.BYTES_BURST / 128) / relay_desk.SPENT_BYTES_PER_S
        assert trio.current_time() - began_s > least_s
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("caller", [CALLER, GUEST])
@pytest.mark.parametrize("way", ["upload_mbit_s", "download_mbit_s"])
async def test_circuits_keep_to_the_caps_both_ways(
    way: str, caller: PeerId, autojump_clock: object
) -> None:
    """A megabyte a second for what is relayed and for what is said back; members have half."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, link=Link(None, **{way: 8.0}))
        await world.asked(CALLED, relay_messages.reserve())
        wire, _ = await world.asked(caller, relay_messages.connect(CALLED))
        began_s = trio.current_time()
        assert await said_back(wire, 4 * 10**6)
        least_s = 14.0 if caller == CALLER else 7.0
        assert least_s < trio.current_time() - began_s < 1.2 * least_s
        nursery.cancel_scope.cancel()
