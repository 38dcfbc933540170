"""Members that fetch one blob pass it on, so that its author sends it about once, whoever lies."""

import pytest
import trio

from daa_dag.ids import BlobRoot, digest_of
from daa_dag.spread import SPREAD_CHUNKS_MIN, mask_of
from daa_node.errors import StorageFailed, Unavailable
from daa_node.network.spreading import BLOBS_SPREAD_MAX, SHARES_AT_ONCE, SHARES_PER_S, Part
from daa_node.network.stall import STALL_S
from daa_node.seams import FrameStream
from daa_node.wire.blob_messages import (
    Chunks,
    ChunksRequest,
    Refused,
    Shared,
    ShareRequest,
    decode_answer,
    decode_request,
    encode_chunks,
    encode_request,
    encode_shared,
)
from tests.daa_node.network.swarm_stage import (
    CHUNK_COUNT,
    KIND,
    MANIFEST,
    Member,
    World,
    chunk,
    in_swarm,
    one_uplink_each,
)

ALL = (1 << CHUNK_COUNT) - 1
RATIO_MAX = 1.3


def share(have: int) -> bytes:
    return encode_request(ShareRequest(KIND, MANIFEST.root, 0, (), have))


async def claim_everything(world: World, liar: Member) -> None:
    """Again and again, as fast as it is answered, whatever it is offered."""
    stream = await liar.bulk.open(world.author.source.peer_id)
    while True:
        await stream.send_frame(share(ALL))
        await stream.receive_frame()


@pytest.mark.parametrize("receivers", [2, 4, 8, 20])
def test_an_author_sends_its_blob_about_once(receivers: int) -> None:
    assert CHUNK_COUNT >= SPREAD_CHUNKS_MIN

    async def play(world: World) -> None:
        await world.fetch_all()
        assert 1.0 <= world.author.ratio <= 1.05
        assert not any(member.faults for member in world.members.values())
        assert max(member.ratio for member in world.receivers) < 3.0

    in_swarm(play, receivers)


@pytest.mark.parametrize("kind", ["deltas", "boundaries"])
def test_deltas_are_passed_on_and_what_few_ask_for_is_not(kind: str) -> None:
    async def play(world: World) -> None:
        for member in world.members.values():
            member.link = trio.Lock()
        async with trio.open_nursery() as nursery:
            for member in world.receivers:
                nursery.start_soon(member.fetch, [world.author.source], 60.0, kind)
        passed_on = sum(member.ratio for member in world.receivers)
        assert 8.0 <= world.author.ratio + passed_on < 10.0  # what two owe comes twice
        assert (passed_on > 1.0) == (kind == "deltas")

    in_swarm(play, receivers=8, chunk_s=0.1)


def test_who_has_a_delta_and_a_fat_link_lets_nobody_wait_for_thin_ones() -> None:
    """Who sends each chunk once, as authors do, has others pass on seven of eight copies."""

    async def play(world: World) -> None:
        for member in world.receivers:
            member.chunk_s = 0.5
        for member in world.members.values():
            member.link = trio.Lock()
        async with trio.open_nursery() as nursery:
            for member in world.receivers:
                nursery.start_soon(member.fetch, [world.author.source], 60.0, "deltas")
        assert trio.current_time() < 1.1 * 8 * CHUNK_COUNT * world.author.chunk_s

    in_swarm(play, receivers=8)


@pytest.mark.parametrize(("receivers", "open_s"), [(8, 1.5), (8, 4.5), (20, 3.0)])
def test_sessions_that_take_long_to_open_cost_no_copies(receivers: int, open_s: float) -> None:
    async def play(world: World) -> None:
        world.open_s = open_s
        await world.fetch_all()
        assert world.author.ratio <= 1.05
        assert trio.current_time() < 3 * open_s + 1

    in_swarm(play, receivers)


def test_a_stall_begins_when_a_holder_can_be_asked() -> None:
    async def play(world: World) -> None:
        world.open_s = 9.0  # longer than any stall

        async def calm_down() -> None:
            await trio.sleep(8.9)
            world.open_s = 0.0

        world.nursery.start_soon(calm_down)
        await world.fetch_all()
        assert world.author.ratio <= 1.05

    in_swarm(play)


def test_everybody_is_served_before_one_uplink_could_have_served_all() -> None:
    async def play(world: World) -> None:
        took_s = await world.fetch_all()
        assert took_s < 0.5 * len(world.receivers) * CHUNK_COUNT * world.author.chunk_s

    in_swarm(play, receivers=8, chunk_s=0.1)


def test_where_a_chunk_stands_for_many_the_spreading_is_as_it_was_but_slower() -> None:
    """An answer takes longer than the longest patience, and nobody is taken for silent."""
    took_s: list[float] = []

    async def play(world: World) -> None:
        took_s.append(await world.fetch_all())
        assert world.author.ratio == 1.0
        assert not any(member.faults for member in world.members.values())

    in_swarm(play, receivers=8, chunk_s=0.15)
    in_swarm(play, receivers=8, chunk_s=0.15 * 20, slowness=20.0)
    assert took_s[1] == pytest.approx(20 * took_s[0], rel=0.1)


def test_a_claim_to_everything_delays_nobody_by_more_than_a_stall() -> None:
    async def play(world: World) -> None:
        async def silent(stream: FrameStream) -> None:
            while await stream.receive_frame() is not None:
                pass

        liar = world.receivers[0]
        liar.handler = silent
        world.nursery.start_soon(claim_everything, world, liar)
        await trio.sleep(0.1)
        took_s = await world.fetch_all(world.receivers[1:])
        assert took_s < STALL_S
        assert world.author.ratio <= RATIO_MAX

    in_swarm(play)


def test_who_claims_everything_and_says_that_it_lacks_it_delays_nobody() -> None:
    async def play(world: World) -> None:
        async def poor(stream: FrameStream) -> None:
            while (frame := await stream.receive_frame()) is not None:
                request = decode_request(frame)
                assert isinstance(request, ChunksRequest)
                await stream.send_frame(encode_chunks([None] * len(request.indices)))

        liar = world.receivers[0]
        liar.handler = poor
        world.nursery.start_soon(claim_everything, world, liar)
        await trio.sleep(0.1)
        assert await world.fetch_all(world.receivers[1:]) < 1.0
        assert world.author.ratio <= RATIO_MAX

    in_swarm(play)


def test_wrong_chunks_are_refused_scored_and_asked_for_elsewhere() -> None:
    async def play(world: World) -> None:
        async def poison(stream: FrameStream) -> None:
            while (frame := await stream.receive_frame()) is not None:
                request = decode_request(frame)
                assert isinstance(request, ChunksRequest)
                wrong = [bytes(MANIFEST.sizes[index]) for index in request.indices]
                await stream.send_frame(encode_chunks(wrong))

        liar = world.receivers[0]
        liar.handler = poison
        world.nursery.start_soon(claim_everything, world, liar)
        await trio.sleep(0.1)
        assert await world.fetch_all(world.receivers[1:]) < STALL_S
        faults = [fault for member in world.receivers[1:] for fault in member.faults]
        assert set(faults) == {(liar.source.node_id, "chunk-mismatch")}
        assert world.author.ratio <= RATIO_MAX

    in_swarm(play)


async def keep_parts(world: World, liar: Member) -> None:
    """Take what is offered, and tell nobody."""
    stream = await liar.bulk.open(world.author.source.peer_id)
    while True:
        await stream.send_frame(share(0))
        answer = decode_answer(await stream.receive_frame() or b"")
        assert isinstance(answer, Shared)
        await trio.sleep(0.01)


def test_who_takes_its_part_and_tells_nobody_costs_one_more_copy_of_it() -> None:
    async def play(world: World) -> None:
        world.nursery.start_soon(keep_parts, world, world.receivers[0])
        await trio.sleep(0.1)
        assert await world.fetch_all(world.receivers[1:]) < STALL_S
        assert world.author.ratio <= RATIO_MAX

    in_swarm(play)


def test_many_names_without_a_vote_that_keep_their_parts_stretch_nobody_s_patience() -> None:
    async def play(world: World) -> None:
        honest, liars = world.receivers[:3], world.receivers[3:]
        world.stake_of = {member.source.node_id: 1 for member in (world.author, *honest)}
        for liar in liars:
            world.nursery.start_soon(keep_parts, world, liar)
        await trio.sleep(0.1)
        assert await world.fetch_all(honest) < STALL_S

    in_swarm(play, receivers=7)


def test_a_slow_member_holds_nobody_up() -> None:
    async def play(world: World) -> None:
        world.receivers[0].chunk_s = 3.0
        await world.fetch_all(world.receivers)
        others = [member.whole_s or 99.0 for member in world.receivers[1:]]
        assert max(others) < 2 * STALL_S
        assert world.author.ratio <= 1.6

    in_swarm(play)


def test_an_author_that_withholds_a_chunk_is_found_out_in_time() -> None:
    async def play(world: World) -> None:
        honest = world.author.handler

        class Short:
            """Says of one chunk that it is not here."""

            def __init__(self, inner: FrameStream) -> None:
                self._inner = inner
                self.node_id = inner.node_id
                self.receive_frame, self.aclose = inner.receive_frame, inner.aclose

            async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
                answer = bytes(payload)
                if chunk(0) in answer:
                    answer = encode_chunks([None])
                await self._inner.send_frame(answer)

        async def short(stream: FrameStream) -> None:
            await honest(Short(stream))

        world.author.handler = short
        failed = []
        async with trio.open_nursery() as nursery:
            for member in world.receivers:

                async def fetch(member: Member = member) -> None:
                    with pytest.raises(Unavailable):
                        await member.fetch([world.author.source], deadline_s=20)
                    failed.append(member)

                nursery.start_soon(fetch)
        assert len(failed) == len(world.receivers)
        assert trio.current_time() <= 21

    in_swarm(play)


def test_who_says_what_it_has_too_often_waits() -> None:
    async def play(world: World) -> None:
        stream = await world.receivers[0].bulk.open(world.author.source.peer_id)
        count = int(SHARES_AT_ONCE + 10 * SHARES_PER_S)
        for _ in range(count):
            await stream.send_frame(share(0))
            await stream.receive_frame()
        assert trio.current_time() >= 9.9

    in_swarm(play)


def test_who_asks_for_parts_of_many_old_deltas_lets_no_update_leave_again() -> None:
    async def play(world: World) -> None:
        first, second, liar = (member.source.node_id for member in world.receivers)
        answer = world.author.spreading.answer
        update = ShareRequest(KIND, MANIFEST.root, 0, (), 0)
        offered = (await answer(first, update, MANIFEST)).offered
        for number in range(BLOBS_SPREAD_MAX + 1):
            old = ShareRequest("deltas", BlobRoot(digest_of(b"%d" % number)), 0, (), 0)
            await answer(liar, old, MANIFEST)
        assert offered
        assert not (await answer(second, update, MANIFEST)).offered & offered

    in_swarm(play, receivers=3)


def test_who_comes_late_gets_it_from_those_that_have_it_by_then() -> None:
    async def play(world: World) -> None:
        late = world.receivers[-1]
        await world.fetch_all(world.receivers[:-1])
        sent_before = world.author.ratio
        await late.fetch([world.author.source, *(m.source for m in world.receivers[:-1])])
        assert world.author.ratio - sent_before < 0.5

    in_swarm(play)


async def asked(member: Member, world: World, request: bytes) -> object:
    stream = await world.receivers[0].bulk.open(member.source.peer_id)
    await stream.send_frame(request)
    answer = decode_answer(await stream.receive_frame() or b"")
    await stream.aclose()
    return answer


def test_what_may_not_be_seen_is_offered_to_nobody_nor_served_in_part() -> None:
    async def play(world: World) -> None:
        author, half = world.author, world.receivers[1]
        half.shelf.writer.chunks = {0: chunk(0)}
        part = Part(MANIFEST, half.shelf.writer, {0})
        half.spreading.under_way.begin((KIND, MANIFEST.root), part)
        wish = encode_request(ChunksRequest(KIND, MANIFEST.root, (0,)))
        assert isinstance(await asked(author, world, share(0)), Shared)
        assert isinstance(await asked(half, world, wish), Chunks)
        for member in (author, half):
            member.server.may_show = lambda _kind, _root: False
        assert isinstance(await asked(author, world, share(0)), Refused)
        assert isinstance(await asked(half, world, wish), Refused)

    in_swarm(play)


def test_only_what_many_fetch_is_spread() -> None:
    async def play(world: World) -> None:
        request = encode_request(ShareRequest("boundaries", MANIFEST.root, 0, (), 0))
        assert isinstance(await asked(world.author, world, request), Refused)

    in_swarm(play)


def test_who_is_named_as_a_holder_and_holds_nothing_is_not_blamed() -> None:
    async def play(world: World) -> None:
        honest, named = world.author.handler, world.add("named")
        mask = mask_of(range(CHUNK_COUNT))

        async def lying(stream: FrameStream) -> None:
            await honest(Naming(stream, Shared(1, 0, ((named.source.node_id, mask),))))

        world.author.handler = lying
        took_s = await world.fetch_all(world.receivers[:1])
        assert took_s < 2 * STALL_S  # it stalls, and asks the author for everything
        assert not world.receivers[0].faults

    in_swarm(play)


class Naming:
    """Says, whatever is asked of it to be spread, who has it all."""

    def __init__(self, inner: FrameStream, answer: Shared) -> None:
        self._inner, self._answer = inner, encode_shared(answer)
        self.node_id = inner.node_id
        self.receive_frame, self.aclose = inner.receive_frame, inner.aclose

    async def send_frame(self, payload: bytes | bytearray | memoryview) -> None:
        is_share = isinstance(decode_answer(bytes(payload)), Shared)
        await self._inner.send_frame(self._answer if is_share else payload)


@pytest.mark.parametrize("failure", [Unavailable("cut off"), StorageFailed("full")])
def test_what_keeps_a_passed_on_blob_from_being_whole_is_raised_alone(
    failure: Unavailable | StorageFailed,
) -> None:
    """In no group: who fetches knows what to do about each, and about no group."""

    async def play(world: World) -> None:
        unlucky = world.receivers[0]

        async def commit(durable: bool = True) -> None:
            await trio.sleep(0.01)
            raise failure

        unlucky.shelf.writer.commit = commit  # type: ignore[method-assign]
        with pytest.raises(type(failure)) as caught:
            await unlucky.fetch([world.author.source])
        assert caught.value is failure
        assert unlucky.spreading.under_way.part((KIND, MANIFEST.root)) is None

    in_swarm(play)


@pytest.mark.parametrize(("receivers", "chunk_s"), [(4, 0.3), (6, 0.2), (20, 0.15)])
def test_an_author_on_a_thin_uplink_is_asked_for_no_more_while_it_still_sends(
    receivers: int, chunk_s: float
) -> None:
    """Nobody has a thing to pass on for seconds, and that passed for a stall: 1.2 to 2.1 copies."""
    deadline_s = 300.0  # of a round of minutes: where time is short it is asked for more

    async def play(world: World) -> None:
        one_uplink_each(world)
        async with trio.open_nursery() as nursery:
            for member in world.receivers:
                nursery.start_soon(member.fetch, [world.author.source], deadline_s)
        assert world.author.ratio <= 1.3

    in_swarm(play, receivers, chunk_s)
