"""Bitmaps of chunks that others send: longer than the blob, and the same ones again and again."""

from itertools import count

import pytest
import trio

from daa_dag.chunking import CHUNKS_MAX
from daa_dag.fetch import Event, PeerGained, PeerJoined
from daa_dag.ids import NodeId
from daa_node.errors import Unavailable
from daa_node.network.hearsay import Hearsay
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import (
    FindRequest,
    Found,
    Refusal,
    Shared,
    ShareRequest,
    decode_request,
    encode_chunks,
    encode_found,
    encode_refused,
    encode_request,
    encode_shared,
)
from tests.daa_node.network.swarm_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    Member,
    World,
    in_swarm,
)

SWOLLEN = (1 << CHUNKS_MAX) - 1  # of a blob of 21 chunks
ALL = (1 << CHUNK_COUNT) - 1
ALICE, BOB = NodeId(b"a" * 32), NodeId(b"b" * 32)


async def tell(stream: FrameStream, first: Found, offered: int, held: dict[NodeId, int]) -> None:
    """A holder that has news in each answer, and not one chunk."""
    for news in count(1):
        frame = await stream.receive_frame()
        if frame is None:
            return
        request = decode_request(frame)
        if isinstance(request, FindRequest):
            await stream.send_frame(encode_found(first))
        elif isinstance(request, ShareRequest):
            shared = Shared(news, offered, tuple(held.items()))
            await stream.send_frame(encode_shared(shared))
        else:
            await stream.send_frame(encode_refused(Refusal.DAMAGED))


def fetch_from_one_that(first_have: int | None, offered: int, others_have: int) -> Member:
    """The one that fetched, from a holder that says so, within a second."""
    fetched: list[Member] = []

    async def play(world: World) -> None:
        held = {member.source.node_id: others_have for member in world.receivers[1:]}

        async def author(stream: FrameStream) -> None:
            await tell(stream, Found(first_have, MANIFEST.encode()), offered, held)

        world.author.handler = author
        with pytest.raises(Unavailable):
            await world.receivers[0].fetch([world.author.source], 1.0)
        fetched.append(world.receivers[0])

    in_swarm(play)
    return fetched[0]


@pytest.mark.parametrize(
    ("first_have", "offered", "others_have"),
    [
        pytest.param(SWOLLEN, 0, 0, id="of its own"),
        pytest.param(None, SWOLLEN, 0, id="offered"),
        pytest.param(None, 0, SWOLLEN, id="of others"),
        pytest.param(None, 0, ALL + 1, id="one too many"),
    ],
)
def test_bits_behind_a_blob_are_held_against_their_sender_and_never_counted(
    first_have: int | None, offered: int, others_have: int
) -> None:
    """Eleven such masks an answer, fifty answers a second: a node could do nothing else."""
    faults = fetch_from_one_that(first_have, offered, others_have).faults
    assert [reason for _, reason in faults] == ["malformed"]


def test_what_others_are_said_to_have_of_the_blob_is_held_against_nobody() -> None:
    assert not fetch_from_one_that(None, 0, ALL).faults


def test_who_says_that_it_has_more_than_there_is_is_served_no_more() -> None:
    async def play(world: World) -> None:
        swollen = encode_request(ShareRequest(KIND, MANIFEST.root, 0, (), SWOLLEN))
        stream = await world.receivers[0].bulk.open(world.author.source.peer_id)
        await stream.send_frame(swollen)
        assert await stream.receive_frame() is None

    in_swarm(play)


def test_a_relay_that_is_asked_what_it_has_and_says_more_than_there_is_is_given_up() -> None:
    """Once the holder is gone, others are asked themselves."""

    async def play(world: World) -> None:
        liar, honest = world.receivers[0], world.receivers[1]

        async def swollen(stream: FrameStream) -> None:
            while (frame := await stream.receive_frame()) is not None:
                is_asked = isinstance(decode_request(frame), ShareRequest)
                answer = (
                    encode_shared(Shared(0, SWOLLEN, ())) if is_asked else encode_chunks([None])
                )
                await stream.send_frame(answer)

        async def author(stream: FrameStream) -> None:
            held = {liar.source.node_id: 1}
            with trio.move_on_after(0.5):
                await tell(stream, Found(None, MANIFEST.encode()), 0, held)

        liar.handler, world.author.handler = swollen, author
        with pytest.raises(Unavailable):
            await honest.fetch([world.author.source], 10.0)
        assert (liar.source.node_id, "malformed") in honest.faults

    in_swarm(play)


def masks_of(events: list[Event]) -> list[tuple[NodeId, frozenset[int] | None]]:
    return [(event.peer, event.have) for event in events if isinstance(event, PeerGained)]


def test_what_was_heard_before_is_no_news_until_that_one_has_left() -> None:
    heard = Hearsay()
    assert heard.gains(ALICE, 0, True, BOB) == [
        PeerJoined(ALICE, frozenset()),
        PeerGained(ALICE, frozenset()),
    ]
    assert masks_of(heard.gains(ALICE, 0b11, True, BOB)) == [(ALICE, frozenset({0, 1}))]
    assert heard.gains(ALICE, 0b11, True, BOB) == []
    assert heard.gains(ALICE, 0b01, True, BOB) == []
    assert masks_of(heard.gains(ALICE, 0b111, True, BOB)) == [(ALICE, frozenset({2}))]
    assert masks_of(heard.gains(BOB, 0b11, False, BOB)) == [(BOB, frozenset({0, 1}))]
    heard.heard_of(ALICE, set())
    assert heard.gains(ALICE, 0b11, True, BOB) == [
        PeerJoined(ALICE, frozenset()),
        PeerGained(ALICE, frozenset({0, 1})),
    ]
