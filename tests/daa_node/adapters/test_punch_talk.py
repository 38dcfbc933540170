"""What is said of a hole, word by word and in virtual time: who asks what, how often, and when."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from libp2p.peer.id import ID
from multiaddr import Multiaddr
from trio.testing import memory_stream_pair

from daa_node.adapters import hole_punches
from daa_node.adapters.budgets import Endpoint
from daa_node.adapters.hole_punches import ROUND_TRIP_S_MAX, HolePunches, _Askers
from daa_node.errors import PeerFault, Unavailable
from daa_node.network.addresses import RELAYED_BY
from daa_node.seams import PeerId
from daa_node.wire import punch_messages
from daa_node.wire.framing import TRUNCATED, read_message, write_message
from daa_node.wire.punch_messages import TRIES_MAX, Word, said
from tests.daa_node.adapters.test_relay_desk import Wire

PEER, RELAY, OTHER = PeerId("Peer"), PeerId("Re1ay"), PeerId("Another")
OURS: Endpoint = ("10.0.0.1", 4001)
RELAYS: Endpoint = ("10.0.0.9", 4001)
THEIRS: Endpoint = ("10.0.0.2", 5000)
Talk = Callable[[Wire], Awaitable[None]]


class NetStream:
    """Ours to a peer, as the library gives it."""

    def __init__(self, end: trio.StapledStream, peer_id: PeerId) -> None:  # type: ignore[type-arg]
        self._end = end
        self.muxed_conn = SimpleNamespace(peer_id=peer_id)
        self.is_closed = False

    async def read(self, size_bytes: int) -> bytes:
        return bytes(await self._end.receive_some(size_bytes))

    async def write(self, payload: bytes) -> None:
        await self._end.send_all(payload)

    async def close(self) -> None:
        self.is_closed = True
        await self._end.aclose()

    reset = close


class World:
    """HolePunches without a network: as host and swarm the world itself."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.background_nursery = nursery
        self.swarm = self
        self.places = {PEER: (RELAYED_BY + RELAY, 0), RELAY: RELAYS}
        self.says: dict[PeerId, Talk] = {RELAY: partial(says_place, THEIRS)}
        self.streams: list[NetStream] = []
        self.sockets: list[trio.socket.SocketType] = []
        self.members: set[PeerId] = set()
        self.faults: list[tuple[PeerId, str]] = []
        self.crossed: list[tuple[float, Endpoint, Endpoint]] = []
        self.is_open = True  # both routers let us through
        self.upgraded: list[str] = []
        self.left: list[PeerId] = []
        world: Any = self
        self.circuits = SimpleNamespace(desk=SimpleNamespace(joins=lambda *_: True))
        self.punches = HolePunches(self.circuits, self.cross)  # type: ignore[arg-type]
        self.own_ends: dict[Endpoint, Endpoint] = {RELAYS: OURS}
        self.reached_at = THEIRS
        self.punches.serve(world, self.own_ends.get, self.blame, self.members.__contains__)

    def blame(self, peer_id: PeerId, fault: PeerFault) -> None:
        self.faults.append((peer_id, fault.reason))

    async def cross(self, own: Endpoint, other: Endpoint) -> trio.SocketStream:
        self.crossed.append((trio.current_time(), own, other))
        if not self.is_open:
            raise Unavailable("no way through")
        self.sockets.append(trio.socket.socket())
        return trio.SocketStream(self.sockets[-1])

    def set_stream_handler(self, *_: object) -> None:
        """Each test serves by itself."""

    async def new_stream(self, peer: ID, _protocols: object) -> NetStream:
        peer_id = PeerId(str(peer))
        ours, theirs = memory_stream_pair()
        self.streams.append(NetStream(ours, peer_id))
        self.background_nursery.start_soon(self.says[peer_id], Wire(theirs, OTHER))
        return self.streams[-1]

    @property
    def connections(self) -> set[ID]:
        return set(map(ID.from_base58, self.places))

    def get_connections(self, peer: ID) -> list[Any]:
        peer_id = PeerId(str(peer))
        if peer_id not in self.places:
            return []
        secured = SimpleNamespace(get_remote_address=lambda: self.places[peer_id])
        muxed = SimpleNamespace(secured_conn=secured)
        return [SimpleNamespace(muxed_conn=muxed, close=partial(self._leave, peer_id))]

    async def _leave(self, peer_id: PeerId) -> None:
        self.left.append(peer_id)

    async def upgrade_outbound_raw_conn(self, _raw: object, peer: ID) -> None:
        self.upgraded.append(f"to {peer}")

    def handler_of(self, maddr: Multiaddr) -> Callable[[object], Awaitable[None]]:
        async def serve(_raw: object) -> None:
            self.upgraded.append(f"{maddr}")
            self.places[PEER] = self.reached_at

        return serve

    async def asked(self, payload: bytes, by: PeerId = PEER) -> Wire:
        """The asking end of a stream with us."""
        ours, theirs = memory_stream_pair()
        self.background_nursery.start_soon(self._serve, Wire(ours, by))
        wire = Wire(theirs, by)
        await write_message(wire, payload)
        return wire

    async def _serve(self, wire: Wire) -> None:
        with suppress(PeerFault, trio.TooSlowError):
            await self.punches._on_stream(wire)
        await wire.aclose()


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        made = World(nursery)
        yield made
        nursery.cancel_scope.cancel()
    for socket in made.sockets:
        socket.close()


async def hear(wire: Wire) -> bytes:
    with trio.fail_after(60):
        return await read_message(wire, 512)


async def says(payload: bytes, wire: Wire) -> None:
    await hear(wire)
    await write_message(wire, payload)
    await trio.sleep_forever()


async def says_place(place: Endpoint, wire: Wire) -> None:
    await says(punch_messages.at(*place), wire)


async def agrees(wire: Wire, one_way_s: float = 0.0, is_done: bool = True) -> None:
    """The other end, so far away."""
    answers = {Word.CONNECT: Word.READY, Word.PING: Word.PONG}
    if is_done:
        answers[Word.SYNC] = Word.DONE
    with suppress(PeerFault):  # until we close the stream
        while True:
            word = punch_messages.word_of(await hear(wire))
            if word in answers:
                await trio.sleep(2 * one_way_s)
                await write_message(wire, said(answers[word]))


@pytest.mark.parametrize("one_way_s", [0.0, 0.7, 4.0])
async def test_who_asks_dials_when_its_word_has_come_there(
    one_way_s: float, autojump_clock: object
) -> None:
    """Half a round trip later; whoever draws that out has us wait no longer."""
    async with world() as here:
        here.says[PEER] = partial(agrees, one_way_s=one_way_s)
        began_s = trio.current_time()
        await here.punches.punch(PEER)
        ((at_s, *ends),) = here.crossed
        waited_s = at_s - began_s - 4 * one_way_s  # connect and ping, there and back
        assert waited_s == pytest.approx(min(one_way_s, ROUND_TRIP_S_MAX / 2))
        assert ends == [OURS, THEIRS]
        assert here.upgraded == [f"to {PEER}"]
        assert here.left == [PEER]
        assert [stream.is_closed for stream in here.streams] == [True, True]


async def test_each_try_is_agreed_on_anew_and_there_are_few(autojump_clock: object) -> None:
    async with world() as here:
        here.is_open = False
        here.says[PEER] = partial(agrees, one_way_s=0.1, is_done=False)
        with pytest.raises(Unavailable, match="no way through"):
            await here.punches.punch(PEER)
        first_s, *_ = times = [at_s for at_s, *_ in here.crossed]
        assert times == pytest.approx([first_s + turn * 0.3 for turn in range(TRIES_MAX)])
        assert not here.left
        assert [stream.is_closed for stream in here.streams] == [True, True]


async def test_the_relay_is_left_once_the_other_end_has_the_connection_too(
    autojump_clock: object,
) -> None:
    async with world() as here:
        here.says[PEER] = partial(agrees, is_done=False)
        with pytest.raises(Unavailable, match="no hole to Peer"):
            await here.punches.punch(PEER)
        assert here.upgraded
        assert not here.left


@pytest.mark.parametrize("word", [Word.PONG, Word.CONNECT])
async def test_another_word_than_is_due_is_a_fault(word: Word, autojump_clock: object) -> None:
    async with world() as here:
        here.says[PEER] = partial(says, said(word))
        with pytest.raises(PeerFault, match="in place of <Word.READY"):
            await here.punches.punch(PEER)
        assert not here.crossed


async def test_a_relay_that_tells_no_place_is_blamed_and_one_that_goes_away_is_not(
    autojump_clock: object,
) -> None:
    async def leaves(wire: Wire) -> None:
        await hear(wire)
        await wire.send_all(punch_messages.at(*THEIRS)[:3])
        await wire.aclose()

    malformed = partial(says, said(Word.PONG))
    cases: list[tuple[Talk, list[tuple[PeerId, str]]]] = [
        (leaves, []),
        (malformed, [(RELAY, punch_messages.MALFORMED)]),
    ]
    async with world() as here:
        for talk, blamed in cases:
            here.says[RELAY] = talk
            with pytest.raises(Unavailable, match="Re1ay does not say where Peer is"):
                await here.punches.punch(PEER)
            assert here.faults == blamed
        assert all(stream.is_closed for stream in here.streams)


async def test_without_a_socket_that_we_dialled_to_the_relay_nobody_is_asked(
    autojump_clock: object,
) -> None:
    async with world() as here:
        here.places[RELAY] = ("10.0.0.9", 4444)  # where it has dialled us from
        with pytest.raises(Unavailable, match="we dialled no socket to the relay"):
            await here.punches.punch(PEER)
        assert not here.streams


@pytest.mark.parametrize(
    ("place", "kind"), [(THEIRS, "ip4"), (("2606:4700::1111", 5000), "ip6")], ids=["ip4", "ip6"]
)
async def test_who_is_asked_serves_the_new_connection_and_says_so(
    place: Endpoint, kind: str, autojump_clock: object
) -> None:
    relay: Endpoint = RELAYS if kind == "ip4" else ("2001:4860::8888", 4001)
    async with world() as here:
        here.says[RELAY] = partial(says_place, place)
        here.places[RELAY] = relay
        here.reached_at = place
        here.own_ends[relay] = OURS
        wire = await here.asked(said(Word.CONNECT))
        for word, answer in [(None, Word.READY), (Word.PING, Word.PONG), (Word.SYNC, Word.DONE)]:
            if word is not None:
                await write_message(wire, said(word))
            assert punch_messages.word_of(await hear(wire)) is answer
        assert here.upgraded == [f"/{kind}/{place[0]}/tcp/{place[1]}"]
        assert here.punches.is_punched(PEER)
        assert not here.left  # who asked does that


async def test_what_begins_no_talk_is_told_of_and_who_goes_away_in_the_middle_is_not(
    autojump_clock: object,
) -> None:
    async with world() as here:
        for payload in (said(Word.PING), b"\xc1"):
            wire = await here.asked(payload, by=OTHER)
            with pytest.raises(PeerFault, match=TRUNCATED):
                await hear(wire)
        assert here.faults == [(OTHER, punch_messages.MALFORMED)] * 2
        wire = await here.asked(said(Word.CONNECT))
        assert punch_messages.word_of(await hear(wire)) is Word.READY
        await wire.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert len(here.faults) == 2


async def test_members_at_work_take_no_strangers_place_and_nobody_has_two(
    autojump_clock: object,
) -> None:
    async with world() as here:
        here.members |= {RELAY, OTHER}
        here.punches._busy |= here.members
        wires = [await here.asked(said(Word.CONNECT)) for _ in range(2)]
        assert punch_messages.word_of(await hear(wires[0])) is Word.READY
        here.punches._busy -= here.members
        again = await here.asked(said(Word.CONNECT))
        for wire in (wires[1], again):
            with pytest.raises(Unavailable, match="busy: other holes"):
                punch_messages.word_of(await hear(wire))


async def test_who_draws_every_word_out_holds_its_place_only_so_long(
    autojump_clock: object,
) -> None:
    """Each of its words comes in time."""
    async with world() as here:
        here.is_open = False
        wire = await here.asked(said(Word.CONNECT))

        async def draw_out() -> None:
            for word in (Word.PING, Word.SYNC) * TRIES_MAX:
                await trio.sleep(hole_punches.WORD_TIMEOUT_S - 1)
                await write_message(wire, said(word))

        here.background_nursery.start_soon(draw_out)
        await trio.testing.wait_all_tasks_blocked()
        assert here.punches._busy == {PEER}
        await trio.sleep(hole_punches.ANSWER_TIMEOUT_S + 1)
        assert not here.punches._busy


async def place_told(here: World, by: str) -> Endpoint:
    wire = await here.asked(punch_messages.where(PEER), by=PeerId(by))
    return punch_messages.place_of(await hear(wire))


async def test_a_relay_tells_no_place_that_nobody_could_dial(autojump_clock: object) -> None:
    async with world() as here:
        here.places[PEER] = THEIRS
        assert await place_told(here, "Asker") == THEIRS
        for place in [(RELAYED_BY + RELAY, 0), (RELAYED_BY + RELAY, 5000), (THEIRS[0], 1023)]:
            here.places[PEER] = place
            with pytest.raises(Unavailable, match="at no address that is seen here"):
                await place_told(here, "Asker")


async def test_a_relay_answers_all_together_so_often_and_refusals_take_nothing_of_it(
    autojump_clock: object,
) -> None:
    async with world() as here:
        here.places[PEER] = THEIRS
        own, all_of_them = int(hole_punches.WHERE_OF_ONE_BURST), int(hole_punches.WHERE_BURST)
        for _ in range(own):
            await place_told(here, "Greedy")
        for _ in range(all_of_them):
            with pytest.raises(Unavailable, match="busy"):
                await place_told(here, "Greedy")
        for turn in range(all_of_them - own):
            await place_told(here, f"Asker{turn + 1}".replace("0", "o"))
        with pytest.raises(Unavailable, match="busy"):
            await place_told(here, "Late")
        await trio.sleep(1)
        await place_told(here, "Late")


async def test_so_many_askers_are_kept_and_those_who_ask_seldom_give_way(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hole_punches, "ASKERS_KEPT_MAX", 2)
    askers = _Askers(per_s=1.0, burst=2.0)
    one, two, three = map(PeerId, "abc")
    assert [askers.take(peer) for peer in (one, one, one, two)] == [True, True, False, True]
    assert not askers.take(three)
    await trio.sleep(1)  # the second is as good as new, and the first is not
    assert askers.take(three)
    assert [askers.take(one), askers.take(one)] == [True, False]


async def test_of_who_was_punched_the_last_so_many_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hole_punches, "PUNCHED_KEPT_MAX", 2)
    async with world() as here:
        for peer in (PEER, OTHER, PEER, RELAY):
            here.places[peer] = THEIRS
            here.punches._note(peer, THEIRS)
        assert [here.punches.is_punched(peer) for peer in (PEER, OTHER, RELAY)] == [
            True,
            False,
            True,
        ]
        here.places[PEER] = ("10.0.0.2", 5001)  # as it was reached otherwise since
        assert not here.punches.is_punched(PEER)
