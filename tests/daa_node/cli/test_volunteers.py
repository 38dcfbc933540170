"""A real daemon gives pieces of its chain to volunteers, and its rounds go on whoever comes."""

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from daa_dag import canonical
from daa_dag.ids import ChainId, NodeId
from daa_node.adapters.libp2p_transport import Libp2pTransport
from daa_node.checkpoints.config import CheckpointsConfig
from daa_node.errors import PeerFault, Unavailable
from daa_node.gateway.admission import NEW_NAMES_A_PLACE
from daa_node.gateway.config import VOLUNTEERS_PER_ADDRESS
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES, NodeKeys
from daa_node.network.config import NetworkConfig
from daa_node.seams import Address, ByteStream, PeerId
from daa_node.spot_checks.config import SpotChecksConfig
from daa_node.wire import protocols
from daa_node.wire.framing import read_message, read_message_or_end, write_message
from daa_node.wire.limits import TASK_BYTES_MAX
from daa_node.wire.volunteer_messages import TaskKind
from simnet.nodes.virtual.volunteer import Volunteer
from tests.daa_node.cli.test_daemon import daa_node, network, running, until
from tests.daa_node.cli.test_gateway import ENDLESS, with_gateway

pytestmark = pytest.mark.usefixtures("warm")

JOB = ENDLESS.model_copy(update={"checkpoints": CheckpointsConfig(snapshot_every=2)})
# every contribution is checked, by the one other node
CHECKED = JOB.model_copy(update={"spot_checks": SpotChecksConfig(share=(1, 1))})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a network of one that goes on and on, and asks volunteers."""
    (node,) = network(tmp_path_factory.mktemp("volunteers"), 1, JOB)
    with_gateway(node)
    with running(node):
        until(node, "vertices", lambda said: said["gateway"]["url"] and said["height"] > 2)
        yield node


def standing(node: Path) -> dict[str, Any]:
    return until(node, "answer", lambda said: True)


def volunteer(node: Path, number: int, **how: Any) -> Volunteer:
    said = standing(node)
    return Volunteer(
        NodeKeys.from_seed(b"volunteer %d" % number),
        ChainId(bytes.fromhex(said["chain_id"])),
        NodeId(bytes.fromhex(said["node_id"])),
        lambda: int(time.time()),
        **how,
    )


@asynccontextmanager
async def way_from(host: str, address: str) -> AsyncIterator[str]:
    """An address that leads to that one, where whoever dials it is seen to come from `host`."""
    port = address.split("/")[4]

    async def carry(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for piece in source:
                await sink.send_all(piece)
            await sink.send_eof()

    async def pass_on(near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", int(port), local_address=host)
        async with far, trio.open_nursery() as nursery:
            nursery.start_soon(carry, near, far)
            nursery.start_soon(carry, far, near)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, pass_on, [listener])
        yield address.replace(f"/tcp/{port}/", f"/tcp/{listener.socket.getsockname()[1]}/")
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(
    node: Path, keys: NodeKeys, host: str = "127.0.0.1"
) -> AsyncIterator[Libp2pTransport]:
    """A libp2p of the volunteer's own, connected by WebSocket from `host`."""
    said = standing(node)
    (dialled,) = [a for a in said["addresses"] if "/ws/" in a and "/127.0.0.1/" in a]
    config = NetworkConfig(listen=(), bootstrap=())
    transport = Libp2pTransport(keys.ed25519_seed, "elsewhere", config)
    async with way_from(host, dialled) as address, trio.open_nursery() as nursery:
        await nursery.start(transport.run)
        await transport.dial(Address(address))
        yield transport
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def stream_to(
    node: Path, keys: NodeKeys, host: str = "127.0.0.1"
) -> AsyncIterator[ByteStream]:
    async with connected(node, keys, host) as transport:
        peer_id = transport.connected()[0]
        yield await transport.open_stream(peer_id, protocols.VOLUNTEER)


async def attending(
    node: Path, who: Volunteer, is_enough: Callable[[], bool], host: str = "127.0.0.1"
) -> None:
    with trio.fail_after(60):
        async with stream_to(node, who.keys, host) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(who.attend, stream)
            while not is_enough() and who.refused is None:
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()


async def test_three_honest_volunteers_check_the_chain_and_agree(gateway: Path) -> None:
    three = [volunteer(gateway, number) for number in range(3)]
    kinds = {TaskKind.CERTIFICATE, TaskKind.DAG, TaskKind.CHUNKS}

    def is_enough() -> bool:
        return all(len(one.done) > 12 and kinds <= set(one.done) for one in three)

    async with trio.open_nursery() as nursery:
        for one in three:
            nursery.start_soon(attending, gateway, one, is_enough)
    assert all(one.refused is None and False not in one.judged for one in three)
    assert any(True in one.judged for one in three)
    found = json.loads(daa_node("logs", "-n", "2000", "--json", "--dir", gateway).stdout)["events"]
    agreed = [event for event in found if event["name"] == "volunteers_found"]
    assert agreed
    assert all(event["sound"] for event in agreed)


async def test_all_kinds_of_work_come_out_as_the_chain_and_the_author_say(tmp_path: Path) -> None:
    node, other = network(tmp_path, 2, CHECKED)
    with_gateway(node)
    with running(node), running(other):
        until(node, "vertices", lambda said: said["gateway"]["url"] and said["height"] > 2)
        three = [volunteer(node, number) for number in range(3)]

        def found() -> list[dict[str, Any]]:
            said = daa_node("logs", "-n", "2000", "--json", "--dir", node).stdout
            return [e for e in json.loads(said)["events"] if e["name"] == "volunteers_found"]

        judged, is_enough = list[dict[str, Any]](), False
        async with trio.open_nursery() as nursery:
            for one in three:
                nursery.start_soon(attending, node, one, lambda: is_enough)
            while not is_enough:  # a slice is found once a second one has done it, too
                await trio.sleep(0.5)
                judged = await trio.to_thread.run_sync(found)
                kinds = {event["kind"] for event in judged}
                done = all(set(one.done) == set(TaskKind) for one in three)
                is_enough = done and kinds >= {"slice", "segment"}
    assert all(one.refused is None and False not in one.judged for one in three)
    assert all(event["sound"] for event in judged), judged
    segments = [event for event in judged if event["kind"] == "segment"]
    assert all(0 <= event["distance"] < 1e-3 for event in segments)


async def answer_to(
    node: Path, who: Volunteer, *frames: bytes, nonce: bytes | None = None
) -> list[Any]:
    """The last frame of the gateway on what a volunteer says by hand after its hello."""
    said: list[Any] = []
    with trio.fail_after(120):
        async with stream_to(node, who.keys) as stream:
            said = canonical.decode(await read_message(stream, TASK_BYTES_MAX), TASK_BYTES_MAX)
            if said[0] == "no":  # at the door, and nothing follows
                return said
            await write_message(stream, who.hello(nonce or said[2]))
            said = canonical.decode(await read_message(stream, TASK_BYTES_MAX), TASK_BYTES_MAX)
            for frame in frames if said[0] == "welcome" else ():
                await stream.send_all(frame)
            with suppress(trio.BrokenResourceError):
                while payload := await read_message_or_end(stream, TASK_BYTES_MAX):
                    said = canonical.decode(payload, TASK_BYTES_MAX)
    return said


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4) + payload


HOSTILE = {
    "malformed": framed(b"\xff" * 50),
    "oversize": framed(
        canonical.encode(["verdict", b"t" * 16, [bytes(64)] * 1100, 5, b"s" * 3309])
    ),
    "unknown-task": framed(
        canonical.encode(["verdict", b"t" * 16, [1, 1], 5, b"s" * ML_DSA_SIGNATURE_BYTES])
    ),
    "too-fast": framed(canonical.encode(["beat", 1])) * 200,
}


@pytest.mark.parametrize("reason", HOSTILE)
async def test_what_no_page_says_ends_its_session_with_a_reason(gateway: Path, reason: str) -> None:
    before = standing(gateway)["gateway"]["volunteers"]["refused"].get(reason, 0)
    who = volunteer(gateway, 100 + list(HOSTILE).index(reason))
    said = await answer_to(gateway, who, HOSTILE[reason])
    assert said[:2] == ["no", reason]
    assert standing(gateway)["gateway"]["volunteers"]["refused"][reason] == before + 1


async def test_a_verdict_that_comes_again_ends_its_session(gateway: Path) -> None:
    who = volunteer(gateway, 150, frames_each=2)
    await attending(gateway, who, lambda: False, "127.0.0.7")
    assert who.refused is not None
    assert who.refused[0] == "replayed"


FLOOD = framed(canonical.encode(["beat", 1])) * 400
FLOODERS, MEMORY_BYTES = 8, 48 << 20


async def flood(node: Path, number: int, reasons: Counter[str]) -> None:
    """Come again and again from one address, and say as much as the sockets take."""
    who = volunteer(node, number, opening=FLOOD)
    while True:
        try:
            async with stream_to(node, who.keys, "127.0.0.3") as stream:
                await who.attend(stream)
        except* (Unavailable, PeerFault, trio.BrokenResourceError):
            reasons["cut off"] += 1
        if who.refused is not None:
            reasons[who.refused[0]] += 1


async def test_a_flood_from_one_address_hurts_that_one_alone(gateway: Path) -> None:
    before = standing(gateway)
    honest = {f"127.0.0.{4 + n}": volunteer(gateway, 400 + n) for n in range(3)}
    reasons: Counter[str] = Counter()
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            for host, one in honest.items():
                nursery.start_soon(attending, gateway, one, lambda: False, host)
                await one.welcomed.wait()
            for number in range(FLOODERS):
                nursery.start_soon(flood, gateway, 500 + number, reasons)
            while reasons["address-faults"] < 2 * FLOODERS:
                await trio.sleep(0.1)
            done, height = [len(one.done) for one in honest.values()], standing(gateway)["height"]
            while (
                any(len(one.done) < n + 5 for n, one in zip(done, honest.values(), strict=True))
                or standing(gateway)["height"] < height + 2
            ):
                await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
    assert all(one.refused is None and not one.judged[False] for one in honest.values())
    assert reasons["too-fast"] >= 16
    after = standing(gateway)
    assert after["gateway"]["volunteers"]["refused"]["address-faults"] >= 2 * FLOODERS
    assert after["anon_rss_bytes"] < before["anon_rss_bytes"] + MEMORY_BYTES


async def test_a_hello_for_another_connection_is_not_good_for_this_one(gateway: Path) -> None:
    said = await answer_to(gateway, volunteer(gateway, 200), nonce=b"n" * 32)
    assert said[:2] == ["no", "signature"]


async def asked(transport: Libp2pTransport, peer_id: PeerId, protocol: str) -> bytes:
    """What the gateway answers there. Raises BrokenResourceError if it ends the stream."""
    stream = await transport.open_stream(peer_id, protocol)
    await write_message(stream, b"\x00")
    answer = await stream.receive_some(100)
    if not answer:
        raise trio.BrokenResourceError("it is over")
    return answer


async def test_a_browser_gets_no_further_than_the_gateway(gateway: Path) -> None:
    who = volunteer(gateway, 300)
    async with connected(gateway, who.keys) as transport, trio.open_nursery() as nursery:
        (peer_id,) = transport.connected()
        stream = await transport.open_stream(peer_id, protocols.VOLUNTEER)
        nursery.start_soon(who.attend, stream)
        await who.welcomed.wait()
        for protocol in (protocols.REQUEST, protocols.HELLO, protocols.VOTES, protocols.BULK):
            with trio.fail_after(60), pytest.raises((Unavailable, trio.BrokenResourceError)):
                await asked(transport, peer_id, protocol)
        assert who.refused is None
        peers = json.loads(daa_node("peers", "--json", "--dir", gateway).stdout)["peers"]
        assert who.keys.peer_id not in {peer["peer_id"] for peer in peers}
        nursery.cancel_scope.cancel()


async def test_a_thousand_names_from_one_address_are_refused_and_rounds_go_on(
    gateway: Path,
) -> None:
    before = standing(gateway)["height"]
    reasons, refused = list[str](), {"new-names", "address-faults"}
    # Where sessions end slowly some find its places taken, which is held against nobody.
    for number in range(1000, 1000 + 2 * NEW_NAMES_A_PLACE * VOLUNTEERS_PER_ADDRESS):
        said = await answer_to(gateway, volunteer(gateway, number), framed(b"\xff"))
        reasons.append(said[1])
        if said[1] in refused:
            break
    assert refused & {*reasons}, reasons
    until(gateway, "rounds", lambda said: said["height"] > before + 1)


async def test_who_ends_its_session_and_stays_connected_is_hung_up_on(gateway: Path) -> None:
    """Else one address could take each connection that there is, one session after another."""
    who = volunteer(gateway, 600)
    async with connected(gateway, who.keys, "127.0.0.8") as transport:
        (peer_id,) = transport.connected()
        stream = await transport.open_stream(peer_id, protocols.VOLUNTEER)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(who.attend, stream)
            await who.welcomed.wait()
            nursery.cancel_scope.cancel()
        await stream.aclose()
        with trio.fail_after(60):
            while transport.connected():
                await trio.sleep(0.05)
