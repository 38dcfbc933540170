"""A question gets its answer or the reason why not; no asker can make the other side fail."""

import pytest
import trio

from daa_node.errors import PeerFault, Unavailable
from daa_node.network.requests import REQUESTS_BURST
from daa_node.observability.events import REQUEST_FAILED
from daa_node.seams import ByteStream, PeerId
from daa_node.wire import protocols
from daa_node.wire.framing import write_message
from daa_node.wire.limits import LENGTH_PREFIX_BYTES, REQUESTS_PER_PEER_MAX
from tests.daa_node.network.neighbours import Neighbour, running, until


async def echo(peer_id: PeerId, body: bytes) -> bytes:
    return body


async def test_answers_refusals_and_bugs_each_reach_the_asker() -> None:
    async def accuse(peer_id: PeerId, body: bytes) -> bytes:
        raise PeerFault("too-clever", "no such page")

    async def decline(peer_id: PeerId, body: bytes) -> bytes:
        raise Unavailable("pruned long ago")

    async def fail(peer_id: PeerId, body: bytes) -> bytes:
        raise ZeroDivisionError("ours")

    async with running(Neighbour(0)) as server, running(Neighbour(1)) as asker:
        handlers = {"echo": echo, "accuse": accuse, "decline": decline, "fail": fail}
        for word, handler in handlers.items():
            server.requests.register(word, handler)
        await asker.transport.dial(server.address)
        ask = asker.requests.ask
        assert await ask(server.peer_id, "echo", bytes(60_000), 60_000) == bytes(60_000)
        expected = {
            "accuse": "too-clever: no such page",
            "decline": "pruned long ago",
            "fail": "internal: ZeroDivisionError",
            "unknown": "nobody here answers 'unknown'",
        }
        for word, words in expected.items():
            with pytest.raises(Unavailable, match=words):
                await ask(server.peer_id, word, b"", 100)
        told = [event for event in server.events.tail() if event["name"] == REQUEST_FAILED]
        assert [(event["request"], event["error"]) for event in told] == [
            ("fail", "ZeroDivisionError('ours')")
        ]
        assert server.directory.score(asker.peer_id) == pytest.approx(-10.0, abs=0.1)
        assert asker.directory.score(server.peer_id) == 0
        assert await ask(server.peer_id, "echo", b"still there", 100) == b"still there"


async def test_an_answer_that_is_too_long_or_no_answer_is_the_servers_fault() -> None:
    async def lie(stream: ByteStream) -> None:
        await stream.receive_some(1000)
        await write_message(stream, b"\xc1")

    async with running(Neighbour(0)) as server, running(Neighbour(1)) as asker:
        server.requests.register("echo", echo)
        await asker.transport.dial(server.address)
        with pytest.raises(PeerFault, match="oversize"):
            await asker.requests.ask(server.peer_id, "echo", bytes(5000), 2000)
        server.transport.set_handler(protocols.REQUEST, lie)
        with pytest.raises(PeerFault, match="response-malformed"):
            await asker.requests.ask(server.peer_id, "echo", b"", 2000)
        assert asker.directory.score(server.peer_id) < -40


async def test_a_server_that_does_not_answer_costs_the_timeout() -> None:
    async def sleep(peer_id: PeerId, body: bytes) -> bytes:
        await trio.sleep_forever()
        return b""

    async with running(Neighbour(0)) as server, running(Neighbour(1)) as asker:
        server.requests.register("sleep", sleep)
        await asker.transport.dial(server.address)
        with pytest.raises(Unavailable, match=r"no answer within 0 s"):
            await asker.requests.ask(server.peer_id, "sleep", b"", 10, timeout_s=0.2)
        assert asker.directory.score(server.peer_id) == 0


async def test_one_peers_requests_are_bounded_in_number_and_in_rate() -> None:
    release = trio.Event()

    async def wait(peer_id: PeerId, body: bytes) -> bytes:
        await release.wait()
        return b""

    refused: list[str] = []
    async with running(Neighbour(0, members=(1,))) as server, running(Neighbour(1)) as asker:
        server.requests.register("wait", wait)
        server.requests.register("echo", echo)
        await asker.transport.dial(server.address)

        async def ask(word: str) -> None:
            try:
                await asker.requests.ask(server.peer_id, word, b"", 10)
            except Unavailable as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            for _ in range(REQUESTS_PER_PEER_MAX + 3):
                nursery.start_soon(ask, "wait")
            await until(lambda: len(refused) == 3)
            release.set()
        assert all("busy" in text for text in refused)
        refused.clear()
        for _ in range(int(REQUESTS_BURST)):
            server.requests._loads[asker.peer_id].left = min(
                server.requests._loads[asker.peer_id].left, 0.5
            )
            await ask("echo")
            if refused:
                break
        assert "too fast" in refused[0]


async def test_who_gives_up_before_its_question_has_left_is_not_blamed() -> None:
    """So does whoever has been answered by enough others."""
    async with running(Neighbour(0)) as server, running(Neighbour(1)) as asker:
        server.requests.register("echo", echo)
        await asker.transport.dial(server.address)
        for said in (b"", (100).to_bytes(LENGTH_PREFIX_BYTES) + b"a part"):
            stream = await asker.transport.open_stream(server.peer_id, protocols.REQUEST)
            if said:
                await stream.send_all(said)
            await stream.aclose()
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some(1)
        assert server.directory.score(asker.peer_id) == 0
        assert await asker.requests.ask(server.peer_id, "echo", b"here", 100) == b"here"


async def test_a_request_that_is_garbage_costs_its_sender_score() -> None:
    async with running(Neighbour(0)) as server, running(Neighbour(1)) as asker:
        await asker.transport.dial(server.address)
        await until(lambda: server.welcomed(asker))
        stream = await asker.transport.open_stream(server.peer_id, protocols.REQUEST)
        await stream.send_all(b"\xff\xff\xff\xff")
        await until(lambda: server.directory.score(asker.peer_id) <= -39)
        stream = await asker.transport.open_stream(server.peer_id, protocols.REQUEST)
        await write_message(stream, b"\xc1")
        await until(lambda: server.directory.score(asker.peer_id) <= -49)
