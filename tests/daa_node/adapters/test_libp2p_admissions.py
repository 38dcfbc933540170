"""Who is let in, how long a stream waits for it, and what is forgotten with a peer."""

import pytest
import trio
from libp2p.abc import INetStream
from libp2p.peer.id import ID

from daa_node.adapters.libp2p_admissions import Admissions
from daa_node.adapters.libp2p_peer_stream import PeerStream, serving
from daa_node.errors import PeerFault
from daa_node.seams import ByteStream

PEER = ID(b"\x01" * 34)


async def test_a_stream_that_comes_a_little_early_is_served_and_one_far_too_early_is_not(
    autojump_clock: object,
) -> None:
    admissions = Admissions()
    assert not await admissions.wait(PEER, 5.0)  # nobody is connected
    assert trio.current_time() == 0.0
    admissions.expect(PEER)
    assert not await admissions.wait(PEER, 5.0)
    assert trio.current_time() == pytest.approx(5.0)
    async with trio.open_nursery() as nursery:

        async def admit() -> None:
            await trio.sleep(2.0)
            admissions.admit(PEER)

        nursery.start_soon(admit)
        assert await admissions.wait(PEER, 5.0)
    assert trio.current_time() == pytest.approx(7.0)


async def test_who_comes_back_is_a_stranger_again(autojump_clock: object) -> None:
    admissions = Admissions()
    admissions.expect(PEER)
    admissions.admit(PEER)
    admissions.expect(PEER)  # one connection more of the same peer
    assert admissions.has(PEER)
    admissions.forget(PEER)
    admissions.admit(PEER)  # too late
    assert not admissions.has(PEER)
    admissions.expect(PEER)
    assert not admissions.has(PEER)


@pytest.mark.parametrize("what", ["let in", "closed", "not expected"])
async def test_whoever_waits_at_the_door_goes_on_with_the_first_of_both(
    what: str, autojump_clock: object
) -> None:
    admissions, closed = Admissions(), trio.Event()
    if what != "not expected":
        admissions.expect(PEER)
    async with trio.open_nursery() as nursery:

        async def change() -> None:
            await trio.sleep(2.0)
            if what == "let in":
                admissions.admit(PEER)
            else:
                closed.set()

        nursery.start_soon(change)
        with trio.fail_after(5.0):
            await admissions.wait_unless(PEER, closed)
        assert trio.current_time() == pytest.approx(2.0)


class Stream:
    """As much of the library's stream as its handler's end touches."""

    def __init__(self) -> None:
        self.muxed_conn = self
        self.peer_id = PEER
        self.ends: list[str] = []

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.ends.append("closed")

    async def reset(self) -> None:
        await trio.lowlevel.checkpoint()
        self.ends.append("reset")


@pytest.mark.parametrize(
    ("how", "ends"), [("done", "closed"), ("fault", "reset"), ("cancelled", "reset")]
)
async def test_a_stream_ends_cleanly_only_when_its_handler_has_done_all(
    how: str, ends: str, autojump_clock: object
) -> None:
    """Half an answer that ends like a whole one would be taken for one."""

    async def handler(stream: ByteStream) -> None:
        assert isinstance(stream, PeerStream)
        if how == "fault":
            raise PeerFault("malformed")
        if how == "cancelled":
            await trio.sleep_forever()

    stream: INetStream = Stream()  # type: ignore[assignment]
    with trio.move_on_after(1.0):
        await serving(handler)(stream)
    assert vars(stream)["ends"] == [ends]
