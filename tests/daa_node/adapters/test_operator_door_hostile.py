"""What hostile clients write to the operator's door: nothing of it is done, and the next is served.

Each case is one real connection, and the first answer has the status that stands beside it.
"""

import pytest
import trio

from daa_node.adapters.http_door import HEAD_BYTES_MAX
from daa_node.api.bodies import BODY_BYTES_MAX
from daa_node.api.replies import POLICY
from tests.daa_node.adapters.operator_doors import ADMIN, TOKEN, Opened, opened
from tests.daa_node.api.operator_desks import TOKENS

Cases = dict[str, tuple[bytes, bytes]]  # name -> (request, how the status begins)
READ_HEX, ADMIN_HEX = TOKENS.read.encode(), TOKENS.admin.encode()
BODY = b"Content-Length: 2\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def lengths(subject: Opened) -> Cases:
    """Bodies whose end two readers could see at different places."""
    post = subject.post
    return {
        "a sign before a length": (post(b"Content-Length: +2\r\n") + b"{}", b"400"),
        "a length in hex": (post(b"Content-Length: 0x2\r\n") + b"{}", b"400"),
        "two lengths in one": (post(b"Content-Length: 2, 3\r\n") + b"{} ", b"400"),
        "a length and words": (post(b"Content-Length: 2 2\r\n") + b"{}", b"400"),
        "an empty length": (post(b"Content-Length: \r\n") + b"{}", b"400"),
        "a length of ten digits": (post(b"Content-Length: 9999999999\r\n"), b"413"),
        "a space before the colon": (post(b"Content-Length : 2\r\n") + b"{}", b"400"),
        "chunked, and something else": (
            post(b"Transfer-Encoding: chunked, identity\r\n") + b"2\r\n{}\r\n0\r\n\r\n",
            b"501",
        ),
        "gzip, then chunked": (
            post(b"Transfer-Encoding: gzip, chunked\r\n") + b"2\r\n{}\r\n0\r\n\r\n",
            b"501",
        ),
        "chunked twice": (post(2 * CHUNKED) + b"2\r\n{}\r\n0\r\n\r\n", b"501"),
        "chunked behind a tab": (
            post(b"Transfer-Encoding:\x0bchunked\r\n") + b"2\r\n{}\r\n0\r\n\r\n",
            b"4",
        ),
        "a chunk of no size": (post(CHUNKED) + b"\r\n{}\r\n0\r\n\r\n", b"400"),
        "a chunk below zero": (post(CHUNKED) + b"-2\r\n{}\r\n0\r\n\r\n", b"400"),
        "a chunk of 0x2": (post(CHUNKED) + b"0x2\r\n{}\r\n0\r\n\r\n", b"400"),
        "a chunk of 21 digits": (post(CHUNKED) + b"f" * 21 + b"\r\n{}\r\n0\r\n\r\n", b"400"),
        "a chunk longer than it says": (post(CHUNKED) + b"1\r\n{}\r\n0\r\n\r\n", b"400"),
        "a chunk's extension without end": (
            post(CHUNKED) + b"2;" + b"x" * 3 * HEAD_BYTES_MAX,
            b"4",
        ),
        "trailers without end": (
            post(CHUNKED) + b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * HEAD_BYTES_MAX,
            b"4",
        ),
        "chunks of more than may be": (
            post(CHUNKED) + (b"4000\r\n" + b" " * 0x4000 + b"\r\n") * 5,
            b"413",
        ),
    }


def bodies(subject: Opened) -> Cases:
    """Bodies that are none of what the path takes."""

    def sent(body: bytes, path: str = "/v1/pause") -> bytes:
        return subject.post(b"Content-Length: %d\r\n" % len(body), path) + body

    return {
        "an empty body": (sent(b""), b"4"),
        "bad UTF-8 in a body": (sent(b'{"a":"\xff"}'), b"400"),
        "UTF-16": (sent("{}".encode("utf-16")), b"400"),
        "a bomb of brackets": (sent(b"[" * BODY_BYTES_MAX), b"400"),
        "a bomb of digits": (sent(b"9" * BODY_BYTES_MAX), b"400"),
        "one byte too many": (sent(b" " * (BODY_BYTES_MAX + 1)), b"413"),
        "a key twice": (sent(b'{"id":"1","id":"2"}', "/v1/membership/approve"), b"400"),
        "infinity": (sent(b'{"changes":{"a":Infinity}}', "/v1/pause"), b"400"),
        "a prototype": (sent(b'{"__proto__":{"x":1}}'), b"400"),
        "no token, and a body": (
            sent(b"{}").replace(ADMIN, b"Content-Type: application/json\r\n"),
            b"401",
        ),
        "the read token": (
            sent(b"{}").replace(TOKENS.admin.encode(), TOKENS.read.encode()),
            b"403",
        ),
        "GET in a header": (
            sent(b"{}")
            .replace(b"POST", b"GET", 1)
            .replace(b"\r\n", b"\r\nX-HTTP-Method: POST\r\n", 1),
            b"405",
        ),
        "PUT": (sent(b"{}").replace(b"POST", b"PUT", 1), b"405"),
    }


def sites(subject: Opened) -> Cases:
    """What a page elsewhere can have its visitor's browser send, did it know the token."""
    cases: Cases = {}
    sent = subject.post(BODY) + b"{}"
    for kind in (
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"text/plain; application/json",
    ):
        typed = sent.replace(b"application/json", kind, 1)
        cases[f"no site, {kind.decode()}"] = (typed, b"415")
        foreign = typed.replace(BODY, BODY + b"Origin: http://evil.example\r\n")
        cases[f"another site, {kind.decode()}"] = (foreign, b"403")
    cases["no type"] = (sent.replace(b"Content-Type: application/json\r\n", b""), b"415")
    for name, value in {
        "Origin": [b"null", b"https://localhost", b"http://localhost:1", b"file://", b"x" * 999],
        "Sec-Fetch-Site": [b"cross-site", b"same-site", b"none, cross-site", b"\xff"],
    }.items():
        for each in value:
            line = name.encode() + b": " + each + b"\r\n"
            cases[f"{name} {each[:20]!r}"] = (sent.replace(BODY, BODY + line), b"403")
    return cases


def hosts(subject: Opened) -> Cases:
    """Names that are pointed at us, and other ways to write our address."""
    ours, port = b"Host: localhost:%d" % subject.port, b"%d" % subject.port
    return {
        f"Host {each[:30]!r}": (subject.get().replace(ours, b"Host: " + each), b"4")
        for each in (
            b"evil.example:" + port,
            b"localhost",
            b"localhost:0" + port,
            b"localhost.:" + port,
            b"localhost:" + port + b".evil.example",
            b"127.0.0.1:" + port + b"@evil.example",
            b"user@localhost:" + port,
            b"0.0.0.0:" + port,
            b"127.1:" + port,
            b"2130706433:" + port,
            b"0x7f.1:" + port,
            b"127.0.0.1.nip.io:" + port,
            b"[::ffff:127.0.0.1]:" + port,
            b"localhost:" + port + b", evil.example",
            b"\xd0\xbbocalhost:" + port,
            b"",
        )
    }


def heads(subject: Opened) -> Cases:
    """Request lines and headers that no honest client writes."""
    host = b"Host: localhost:%d\r\nConnection: close\r\n" % subject.port
    rest = host + TOKEN + b"\r\n"
    return {
        "HTTP/0.9": (b"GET /livez\r\n\r\n", b"400"),
        # answered as HTTP/1.1 is, which its sender will not take for what it asked for
        "HTTP/2.0 in words": (b"GET /livez HTTP/2.0\r\n" + rest, b"200"),
        "HTTP/1.2": (b"GET /livez HTTP/1.2\r\n" + rest, b"200"),
        "a small http": (b"GET /livez http/1.1\r\n" + rest, b"400"),
        "two spaces": (b"GET  /livez HTTP/1.1\r\n" + rest, b"400"),
        "a tab": (b"GET\t/livez HTTP/1.1\r\n" + rest, b"400"),
        "a zero byte in the path": (b"GET /livez\x00 HTTP/1.1\r\n" + rest, b"400"),
        "a line break in the path": (b"GET /livez\rX HTTP/1.1\r\n" + rest, b"400"),
        "no name of a header": (b"GET /livez HTTP/1.1\r\n: x\r\n" + rest, b"400"),
        "a name with a tab": (b"GET /livez HTTP/1.1\r\nX\tY: x\r\n" + rest, b"400"),
        "a folded first header": (b"GET /livez HTTP/1.1\r\n X: y\r\n" + rest, b"400"),
        "a token in a cookie": (
            b"GET /v1/status HTTP/1.1\r\n"
            + host
            + b"Cookie: token=%s\r\n\r\n" % TOKENS.read.encode(),
            b"401",
        ),
        "a token in the query of events": (
            subject.get(f"/v1/events?access_token={TOKENS.read}", b""),
            b"400",
        ),
        "a long query": (subject.get("/v1/events?tail=" + "1" * 5_000), b"400"),
        "an escaped query": (subject.get("/v1/events?tail=%31"), b"400"),
        "a fragment": (subject.get("/v1/status#x"), b"400"),
        "a number of no event": (
            subject.get("/v1/events", TOKEN + b"Last-Event-ID: \xff\r\n"),
            b"400",
        ),
        "an expectation of nothing": (subject.get(head=TOKEN + b"Expect: 200-ok\r\n"), b"200"),
        "a forwarded address": (subject.get(head=TOKEN + b"X-Forwarded-For: 1.2.3.4\r\n"), b"200"),
        "h2c with a body": (
            subject.post(BODY + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n") + b"[]",
            b"400",
        ),
        "a WebSocket to the events": (
            subject.post(b"Upgrade: websocket\r\n", "/v1/events") + b"\x81\x00",
            b"405",
        ),
    }


@pytest.mark.parametrize("group", [lengths, bodies, sites, hosts, heads])
async def test_nothing_of_it_is_done_and_the_next_one_is_served(group: object) -> None:
    assert callable(group)
    async with opened() as subject:
        cases: Cases = group(subject)
        assert len(cases) > 10
        for name, (request, status) in cases.items():
            with trio.fail_after(120):
                answer = await subject.ask(request)
            assert answer.startswith(b"HTTP/1.1 " + status) or answer == b"reset", (name, answer)
            assert answer.count(b"HTTP/1.1 ") <= 1, (name, answer)
            assert b" 101 " not in answer, name
            assert TOKENS.read.encode() not in answer, name
            assert TOKENS.admin.encode() not in answer, name
            for header, value in POLICY if answer != b"reset" else ():
                assert f"{header}: {value}\r\n".encode() in answer, (name, header)
            assert subject.done.asked == [], name
        await subject.check_alive()


async def test_a_request_that_is_smuggled_in_behind_a_body_is_never_obeyed() -> None:
    async with opened() as subject:
        bait = subject.post(BODY, "/v1/drain") + b"{}"
        for head in (
            BODY + CHUNKED,
            CHUNKED + BODY,
            b"Content-Length: 0\r\nContent-Length: 2\r\n",
            b"Transfer-Encoding: xchunked\r\n" + BODY,
            b"Transfer-Encoding : chunked\r\n" + BODY,
            b"Content-Length: 3\r\n" + CHUNKED,
        ):
            for end in (b"0\r\n\r\n", b"", b"0\r\n"):
                outer = subject.post(head, last=False).replace(b"pause", b"nothing")
                answer = await subject.ask(outer + end + bait)
                assert [name for name, _ in subject.done.asked] in ([], ["drain"]), (head, end)
                # where it is obeyed it stands on its own: behind a request that has ended
                if subject.done.asked:
                    assert (end, answer.count(b"HTTP/1.1 ")) == (b"0\r\n\r\n", 2), (head, answer)
                subject.done.asked.clear()
        await subject.check_alive()


async def test_half_closed_sockets_get_what_they_asked_for_in_full_and_nothing_else() -> None:
    async with opened() as subject:
        for request, status in {
            subject.get(last=False): b"200",
            subject.post(BODY, last=False) + b"{}": b"200",
            subject.post(BODY, last=False) + b"{": b"400",
            subject.get(last=False)[:-4]: b"",
            b"": b"",
        }.items():
            async with await subject.connect() as stream:
                await stream.send_all(request)
                await stream.send_eof()
                said = b""
                with trio.fail_after(120):
                    while piece := await stream.receive_some(1 << 16):
                        said += piece
            assert said.startswith(b"HTTP/1.1 " + status if status else b"HTTP/1.1 400") or (
                not status and not said
            ), (request, said)
        assert [name for name, _ in subject.done.asked] == ["pause"]
        await subject.check_alive()


async def test_pipelined_commands_are_obeyed_in_turn_and_none_behind_a_refused_body() -> None:
    async with opened() as subject:
        one = subject.post(BODY, last=False) + b"{}"
        two = subject.post(BODY, "/v1/resume", last=False) + b"{}"
        answer = await subject.ask(one + two + subject.get())
        assert answer.count(b"HTTP/1.1 200 ") == 3
        assert [name for name, _ in subject.done.asked] == ["pause", "resume"]
        subject.done.asked.clear()
        refused = one.replace(b"application/json", b"text/plain")
        answer = await subject.ask(refused + two)  # its body is not read, and nothing behind it
        assert answer.startswith(b"HTTP/1.1 415 ")
        assert (answer.count(b"HTTP/1.1 "), subject.done.asked) == (1, [])
        await subject.check_alive()
