"""The operator's API through real sockets: hostile clients hurt nobody but themselves."""

import ssl
from pathlib import Path
from random import Random
from typing import Any

import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from daa_node.adapters.anteroom import HANDFUL, HANDFUL_S, LOOK_S
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.http_door import (
    ACCEPTS_PER_S,
    BODY_TIMEOUT_S,
    HEAD_BYTES_MAX,
    HEAD_TIMEOUT_S,
    PIECE_TIMEOUT_S,
    REQUESTS_MAX,
    RETRY_S_MIN,
)
from daa_node.adapters.operator_door import ANTEROOM, SOCKETS_MAX, public_door
from daa_node.api.event_stream import STREAMS_MAX
from daa_node.api.public_desk import PublicDesk
from daa_node.api.replies import POLICY
from daa_node.observability.events import DECISION, EventLog
from tests.daa_node.adapters.certificates import make_certificate
from tests.daa_node.adapters.http_asking import asked
from tests.daa_node.adapters.operator_doors import TOKEN, Opened, opened
from tests.daa_node.api.operator_desks import STATUS, TOKENS, operator_desk

IDLE = 500


async def let_handfuls_in(clock: trio.testing.MockClock) -> None:
    """Until cancelled: a clock that stands goes on where everybody waits for it."""
    while True:
        await trio.testing.wait_all_tasks_blocked(0.01)
        clock.jump(HANDFUL_S)


def hostile(subject: Opened) -> dict[str, tuple[bytes, bytes]]:
    """Name of a case -> (request, how the status begins)."""
    get = subject.get
    host = f"Connection: close\r\nHost: localhost:{subject.port}\r\n".encode()
    line, other = b"GET /v1/status HTTP/1.1\r\n", b"POST /v1/status HTTP/1.1\r\n"
    length = b"Content-Length: 5\r\n"
    return {
        "no HTTP": (b"\x00\x01\x02\r\n\r\n", b"400"),
        "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        "HTTP/2 at once": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"4"),
        "h2c": (
            get(head=TOKEN + b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
            b"200",
        ),
        "a WebSocket and a byte": (
            get(head=TOKEN + b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n") + b"\x00",
            b"200",
        ),
        "no token": (get(head=b""), b"401"),
        "a wrong token": (get(head=b"Authorization: Bearer " + b"0" * 64 + b"\r\n"), b"401"),
        "a token of other bytes": (get(head=b"Authorization: Bearer \xff\xfe\r\n"), b"401"),
        "two tokens": (get(head=TOKEN + TOKEN), b"401"),
        "a token in the address": (get(f"/v1/status?token={TOKENS.read}", b""), b"400"),
        "bad UTF-8 in the path": (b"GET /\xff\xfe HTTP/1.1\r\n" + host + TOKEN + b"\r\n", b"400"),
        "bad UTF-8 in a value": (get(head=TOKEN + b"X: \xff\xfe\r\n"), b"200"),
        "a name with a space": (get(head=TOKEN + b"X Y: z\r\n"), b"400"),
        "a folded header": (get(head=TOKEN + b"X: a\r\n b\r\n"), b"200"),
        "a zero byte": (get(head=TOKEN + b"X: a\x00b\r\n"), b"400"),
        "no host": (line + TOKEN + b"\r\n", b"400"),
        "no host, HTTP/1.0": (b"GET /livez HTTP/1.0\r\n\r\n", b"421"),
        "two hosts": (line + host + host + TOKEN + b"\r\n", b"400"),
        "a rebound host": (get(head=TOKEN).replace(b"localhost", b"evil.example"), b"421"),
        "a whole address": (get(f"http://evil.example:{subject.port}/metrics"), b"404"),
        "another site": (get(head=TOKEN + b"Origin: http://evil.example\r\n"), b"403"),
        "two origins": (get(head=TOKEN + b"Origin: null\r\nOrigin: null\r\n"), b"403"),
        "a cross-site image": (get("/livez", b"Sec-Fetch-Site: cross-site\r\n"), b"403"),
        "another port's page": (get("/livez", b"Sec-Fetch-Site: same-site\r\n"), b"403"),
        "POST": (other + host + TOKEN + b"Content-Length: 0\r\n\r\n", b"405"),
        "a body": (other + host + TOKEN + length + b"\r\nabcde", b"405"),
        "a body that never comes": (other + host + length + b"\r\n", b"401"),
        "a body of a GET": (get(head=TOKEN + length) + b"abcde", b"413"),
        "chunks": (other + host + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde", b"401"),
        "two lengths": (other + host + length + b"Content-Length: 6\r\n\r\nabcdef", b"400"),
        "a length and no chunks": (
            other + host + length + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"401",
        ),
        "chunks that are none": (other + host + b"Transfer-Encoding: xchunked\r\n\r\n", b"501"),
        "a length below zero": (other + host + b"Content-Length: -1\r\n\r\n", b"400"),
        "a huge length": (other + host + b"Content-Length: " + b"9" * 50 + b"\r\n\r\n", b"4"),
        "a long line": (get("/" + "a" * 2 * HEAD_BYTES_MAX), b"431"),
        "a long header": (get(head=b"X: " + b"a" * 2 * HEAD_BYTES_MAX + b"\r\n"), b"431"),
        "many headers": (get(head=b"X: y\r\n" * HEAD_BYTES_MAX), b"431"),
        "TRACE": (b"TRACE / HTTP/1.1\r\n" + host + TOKEN + b"\r\n", b"404"),
        "CONNECT": (b"CONNECT evil.example:80 HTTP/1.1\r\n" + host + TOKEN + b"\r\n", b"404"),
        "a path upwards": (get("/v1/../api-admin.token"), b"404"),
    }


async def test_whatever_is_no_honest_request_is_refused_and_the_next_one_is_served() -> None:
    async with opened() as subject:
        for name, (request, status) in hostile(subject).items():
            answer = await subject.ask(request)
            assert answer.startswith(b"HTTP/1.1 " + status) or answer == b"reset", (name, answer)
            assert TOKENS.read.encode() not in answer, name
            if answer != b"reset":
                for header, value in POLICY:
                    assert f"{header}: {value}\r\n".encode() in answer, (name, header)
            assert b" 101 " not in answer, name
            await subject.check_alive()


async def test_a_second_request_is_not_smuggled_in_behind_a_refused_one() -> None:
    async with opened() as subject:
        host = f"Host: localhost:{subject.port}\r\n".encode()
        for lengths in (
            b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            b"Content-Length: 3\r\n",
            b"Content-Length: 0\r\nContent-Length: 3\r\n",
        ):
            bait = b"GET /livez HTTP/1.1\r\n" + host + lengths + b"\r\n0\r\n"
            answer = await subject.ask(bait + subject.get())
            assert answer.count(b"HTTP/1.1 ") <= 1, answer
            assert b" 200 " not in answer
        await subject.check_alive()


async def test_pipelined_requests_are_answered_in_turn_up_to_a_limit() -> None:
    async with opened() as subject:
        turns = [subject.get("/livez", last=False), subject.get("/nowhere", last=False)]
        answer = await subject.ask(b"".join(turns) + subject.get())
        statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [b"200", b"404", b"200"]
        many = await subject.ask(subject.get("/livez", b"", last=False) * (REQUESTS_MAX + 50))
        assert many.count(b"HTTP/1.1 200 ") == REQUESTS_MAX or many.endswith(b"reset")


async def test_a_scrape_over_the_socket_is_read_by_the_libraries_reader() -> None:
    async with opened() as subject:
        answer = await subject.ask(subject.get("/metrics"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"\r\nContent-Type: text/plain; version=" in head
        told = {family.name for family in text_string_to_metric_families(body.decode())}
        assert {"daa_height", "daa_sent_bytes", "daa_events"} <= told
        only_head = await subject.ask(subject.get("/metrics").replace(b"GET", b"HEAD", 1))
        assert b"Content-Length: %d\r\n" % len(body) in only_head
        assert only_head.endswith(b"\r\n\r\n")


async def test_a_body_is_taken_whole_in_pieces_and_after_a_word_from_us() -> None:
    async with opened() as subject:
        assert b" 200 " in await subject.ask(subject.post(b"Content-Length: 2\r\n") + b"{}")
        chunked = subject.post(b"Transfer-Encoding: chunked\r\n")
        assert b" 200 " in await subject.ask(chunked + b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\nX: y\r\n\r\n")
        async with await subject.connect() as stream:
            words = b"Content-Length: 2\r\nExpect: 100-continue\r\n"
            await stream.send_all(subject.post(words, last=False))
            assert await stream.receive_some(100) == b"HTTP/1.1 100 \r\n\r\n"
            await stream.send_all(b"{")
            await trio.testing.wait_all_tasks_blocked()
            await stream.send_all(b"}" + subject.get())
            said = b""
            while piece := await stream.receive_some(1 << 16):
                said += piece
            assert said.count(b" 200 ") == 2  # what came behind the body is the next request
        assert [name for name, _ in subject.done.asked] == ["pause"] * 3


async def test_a_body_that_is_not_wanted_is_not_waited_for() -> None:
    async with opened() as subject:
        for token, status in [
            (b"", b"401"),
            (TOKEN, b"403"),
            (TOKEN.replace(b"1a", b"2b"), b"415"),
        ]:
            head = token + b"Content-Length: 9\r\nExpect: 100-continue\r\n"
            request = subject.get("/v1/pause", head, last=False).replace(b"GET", b"POST", 1)
            answer = await subject.ask(request)  # it hangs up, and the 9 bytes never come
            assert answer.startswith(b"HTTP/1.1 " + status)
            assert b"Connection: close\r\n" in answer
        assert subject.done.asked == []


async def test_who_drips_a_body_is_left(mock_clock: trio.testing.MockClock) -> None:
    async with opened() as subject, await subject.connect() as stream:
        await stream.send_all(subject.post(b"Content-Length: 60\r\n", last=False))
        for _ in range(9):
            await stream.send_all(b" ")
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(BODY_TIMEOUT_S / 8.5)
        assert await stream.receive_some(1) == b""
        assert subject.done.asked == []
        assert subject.door.standing()["connections"] == 0


async def heard(stream: trio.SocketStream, word: bytes) -> bytes:
    """What comes up to `word`, and with it."""
    said = b""
    while word not in said:
        piece = await stream.receive_some(1 << 16)
        assert piece, said
        said += piece
    return said


async def test_fifty_programs_follow_the_events_and_whoever_idles_drives_none_out(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with opened() as subject, trio.open_nursery() as nursery:
        nursery.start_soon(let_handfuls_in, mock_clock)
        streams = []
        for _ in range(50):
            stream = await subject.connect()
            streams.append(stream)
            await stream.send_all(subject.get("/v1/events", last=False))
            head = await heard(stream, b"\n\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b"\r\nContent-Type: text/event-stream" in head

        async def sit() -> None:
            async with await subject.connect("127.0.0.3"):
                await trio.sleep_forever()

        for _ in range(ANTEROOM + 10):
            nursery.start_soon(sit)
        while subject.door.standing()["connections"] < 50 + ANTEROOM:
            await trio.testing.wait_all_tasks_blocked(0.01)
        subject.events.emit(DECISION, decision="last", reason="planted")
        for stream in streams:
            assert b'"planted"' in await heard(stream, b'"last"')
        for stream in streams:
            await stream.aclose()
        while subject.door.standing()["connections"] > ANTEROOM:
            await trio.testing.wait_all_tasks_blocked(0.01)
        await subject.check_alive()
        nursery.cancel_scope.cancel()


async def test_a_stream_ends_when_its_visitor_says_more_and_a_head_alone_opens_none() -> None:
    async with opened() as subject:
        only_head = await subject.ask(subject.get("/v1/events").replace(b"GET", b"HEAD", 1))
        assert only_head.startswith(b"HTTP/1.1 200 ")
        both = await subject.ask(subject.get("/v1/events", last=False) + subject.get())
        assert both.count(b"HTTP/1.1 ") == 1  # what is smuggled in behind it is not read
        async with await subject.connect() as stream:
            await stream.send_all(subject.get("/v1/events?tail=5", last=False))
            await heard(stream, b"event: api_opened")
            await stream.send_eof()
            assert (await stream.receive_some(1 << 16)) in (b"", b"0\r\n\r\n")
        await subject.check_alive()
        assert STREAMS_MAX >= 50


async def test_who_does_not_take_its_events_is_cut_off(mock_clock: trio.testing.MockClock) -> None:
    async with opened() as subject, await subject.connect() as stream:
        await stream.send_all(subject.get("/v1/events", last=False))
        while subject.door.standing()["connections"] < 1:
            await trio.testing.wait_all_tasks_blocked(0.01)
        for _ in range(400):  # until no buffer takes any more
            for _ in range(100):
                subject.events.emit(DECISION, decision="x" * 600, reason="y" * 600)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.1)
        mock_clock.jump(PIECE_TIMEOUT_S)
        while subject.door.standing()["connections"]:
            await trio.testing.wait_all_tasks_blocked(0.01)
        await subject.check_alive()


async def test_who_drips_a_head_is_left(mock_clock: trio.testing.MockClock) -> None:
    async with opened() as subject, await subject.connect() as stream:
        for byte in subject.get()[:8]:
            await stream.send_all(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(HEAD_TIMEOUT_S / 8.5)
        assert subject.door.standing()["connections"] == 1
        mock_clock.jump(HEAD_TIMEOUT_S / 8)
        assert await stream.receive_some(1) == b""
        assert subject.door.standing()["connections"] == 0


async def test_five_hundred_idle_connections_hold_no_more_than_their_places_and_keep_nobody_out(
    mock_clock: trio.testing.MockClock,
) -> None:
    most, began_s = 0, trio.current_time()
    async with opened() as subject, trio.open_nursery() as nursery:
        nursery.start_soon(let_handfuls_in, mock_clock)

        async def sit() -> None:
            stream = await subject.connect("127.0.0.3")
            try:
                await trio.sleep_forever()
            finally:
                await trio.aclose_forcefully(stream)

        async with await subject.connect("127.0.0.2") as kept:
            await kept.send_all(subject.get(last=False))
            await heard(kept, b"}\n")
            for _ in range(IDLE - 100):
                nursery.start_soon(sit)
            while subject.door.standing()["connections"] < ANTEROOM + 1:
                await trio.testing.wait_all_tasks_blocked(0.01)
            for _ in range(3):
                await kept.send_all(subject.get(last=False))  # it stays
                await heard(kept, b"}\n")
                await subject.check_alive()  # and a newcomer is answered
                most = max(most, subject.door.standing()["connections"])
        assert most <= ANTEROOM + 2
        turns = 2 * ACCEPTS_PER_S + ACCEPTS_PER_S * (trio.current_time() - began_s)
        assert turns < IDLE - 100  # behind those who idle, had they taken any, there was none
        mock_clock.jump(HEAD_TIMEOUT_S)
        while subject.door.standing()["connections"]:
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(LOOK_S)
        nursery.cancel_scope.cancel()


async def test_whoever_has_shown_no_token_is_not_familiar_whatever_it_was_answered() -> None:
    async with opened() as subject:
        for head, status, is_familiar in ((b"", b"401", False), (TOKEN, b"200", True)):
            assert (await subject.ask(subject.get("/livez", head=head))).split()[1] == b"200"
            assert ("127.0.0.1" in subject.door._familiar) is is_familiar
            assert (await subject.ask(subject.get(head=head))).split()[1] == status
            assert ("127.0.0.1" in subject.door._familiar) is is_familiar


async def test_whoever_has_shown_a_token_is_answered_before_a_crowd_that_speaks(
    mock_clock: trio.testing.MockClock,  # it stands: after the first hundred nobody has a turn
) -> None:
    async with opened() as subject, trio.open_nursery() as nursery:
        await subject.check_alive()

        crowd, answers = list[trio.SocketStream](), list[bytes]()
        while subject.door.standing()["connections"] < SOCKETS_MAX + 9:  # the turns are used up
            crowd.append(await subject.connect(f"127.0.3.{len(crowd) + 1}"))
            await crowd[-1].send_all(b"G")
            await trio.testing.wait_all_tasks_blocked()
            if len(crowd) % HANDFUL == 0:
                mock_clock.jump(HANDFUL_S)  # a turn, too, for ten that come
        mock_clock.jump(HANDFUL_S)
        await trio.testing.wait_all_tasks_blocked(0.01)

        async def ask() -> None:
            answers.append(await subject.ask(subject.get()))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not answers
        mock_clock.jump(1.5 / ACCEPTS_PER_S)  # one turn
        while not answers:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert b" 200 " in answers[0]
        nursery.cancel_scope.cancel()


async def test_a_taken_address_is_told_and_tried_again(mock_clock: trio.testing.MockClock) -> None:
    (holder,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    subject = Opened(f"127.0.0.1:{holder.socket.getsockname()[1]}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subject.door.run)
        assert "in use" in (await subject.until_told("api_failed"))["error"]
        await holder.aclose()
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(RETRY_S_MIN)
        await subject.until_told("api_opened")
        assert b" 200 " in await subject.ask(subject.get())
        nursery.cancel_scope.cancel()


async def test_a_mistake_of_ours_costs_one_visit_and_is_told() -> None:
    async with opened() as subject:

        async def broken() -> Any:
            raise ZeroDivisionError("planted")

        subject.door.set_asking_desk(operator_desk(lambda: subject.port, peers=broken).answer)
        assert await subject.ask(subject.get("/v1/peers")) == b""
        with trio.fail_after(60):
            told = await subject.until_told("visit_failed")
        assert (told["where"], "planted" in told["error"]) == ("api", True)
        assert b" 200 " in await subject.ask(subject.get())


async def test_with_a_certificate_it_speaks_https_and_nothing_else(tmp_path: Path) -> None:
    certificate, name = make_certificate(tmp_path), "node.example:9180"
    async with opened(certificate, (name,)) as subject:
        assert subject.events.tail()[0]["url"] == f"https://node.example:{subject.port}/"
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        for origin, status in [(f"https://{name}", b"200"), (f"http://{name}", b"403")]:
            head = TOKEN + f"Origin: {origin}\r\n".encode()
            request = subject.get(head=head).replace(
                f"localhost:{subject.port}".encode(), name.encode(), 1
            )
            stream = trio.SSLStream(
                await subject.connect(),
                trusted,
                server_hostname="node.example",
                https_compatible=True,
            )
            await stream.send_all(request)
            assert (await stream.receive_some(1 << 16)).startswith(b"HTTP/1.1 " + status)
            await trio.aclose_forcefully(stream)
        assert b"HTTP/1.1" not in await subject.ask(subject.get())
        assert not subject.events.counts["visit_failed"]


async def test_a_renewed_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    async with opened(make_certificate(tmp_path), ("node.example:9180",)) as subject:
        (tmp_path / "key.pem").write_text("no key")
        assert b"HTTP" not in await subject.ask(subject.get())
        told = await subject.until_told("visit_failed")
        assert (told["where"], "renewed certificate" in told["error"]) == ("api", True)
        make_certificate(tmp_path)
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        stream = trio.SSLStream(
            await subject.connect(), trusted, server_hostname="node.example", https_compatible=True
        )
        await stream.do_handshake()
        await trio.aclose_forcefully(stream)


async def test_anybody_is_answered_at_the_public_door_and_by_no_token() -> None:
    events = EventLog(lambda: 0)
    door = public_door("127.0.0.1:0", events, Shortage(), Random(1))

    async def status() -> dict[str, Any]:
        return dict(STATUS)

    door.set_asking_desk(PublicDesk("ours", status, lambda: True).answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.run)
        while door.standing()["listens"] is None:
            await trio.testing.wait_all_tasks_blocked()
        port = int(door.standing()["listens"].rpartition(":")[2])
        for path, status_line in [("/", b"200"), ("/status.json", b"200"), ("/v1/status", b"404")]:
            words = f"GET {path} HTTP/1.1\r\nHost: any\r\n".encode() + TOKEN
            answer = await asked(port, words + b"Connection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 " + status_line)
        body = b"POST / HTTP/1.1\r\nHost: any\r\nContent-Length: 2\r\n\r\n{}"
        assert (await asked(port, body)).startswith(b"HTTP/1.1 413")
        nursery.cancel_scope.cancel()
