"""Who asks is dialled back, at its own address alone, and no oftener than others can bear."""

from contextlib import suppress
from typing import Any

import pytest
import trio

from daa_dag import canonical
from daa_node.errors import PeerFault, Unavailable
from daa_node.network import dial_back
from daa_node.network.dial_back import DialBack, decode_answer, decode_request, encode_request
from daa_node.seams import BELL_TOKEN_BYTES, PeerId
from tests.daa_node.network.neighbours import Neighbour, running, until

TOKEN = bytes(range(BELL_TOKEN_BYTES))
MEMBER = PeerId("member")


class Bell:
    """Notes what is rung, and takes as long as a dial that nobody answers."""

    def __init__(self) -> None:
        self.rung: list[tuple[str, int, bytes]] = []
        self.at_once = self.at_once_max = 0

    def host_of(self, peer_id: PeerId) -> str:
        return f"198.51.100.{sum(peer_id.encode()) % 250}"

    async def ring(self, host: str, port: int, token: bytes) -> None:
        self.rung.append((host, port, token))
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            await trio.sleep_forever()
        finally:
            self.at_once -= 1


def served() -> tuple[DialBack, Bell]:
    bell: Any = Bell()
    return DialBack(bell, lambda peer_id: peer_id.startswith(MEMBER)), bell


async def test_the_askers_own_address_is_dialled_and_nothing_else(autojump_clock: object) -> None:
    own, bell = served()
    with trio.move_on_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(own.run)
            answer = await own.answer(MEMBER, encode_request(TOKEN, (4001, 443)))
    host = bell.host_of(MEMBER)
    assert decode_answer(answer) == (host, 5)
    assert bell.rung == [(host, 4001, TOKEN), (host, 443, TOKEN)]


async def test_one_at_a_time_and_whoever_comes_too_many_asks_again(autojump_clock: object) -> None:
    own, bell = served()
    busy = 0
    with trio.move_on_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(own.run)
            for number in range(8):
                await trio.sleep(0.1)
                try:
                    await own.answer(PeerId(f"{MEMBER} {number}"), encode_request(TOKEN, (1, 2)))
                except Unavailable:
                    busy += 1
    assert busy == 8 - 1 - dial_back.WAITING_MAX
    assert bell.at_once_max == 1
    assert len(bell.rung) == 2 * (1 + dial_back.WAITING_MAX)


async def test_an_asker_has_a_budget_and_all_strangers_another(autojump_clock: object) -> None:
    own, _ = served()
    body, taken = encode_request(TOKEN, (1,)), dict[str, int]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own.run)
        for name in ("member", "stranger"):
            taken[name] = 0
            for number in range(100):
                each = name if name == MEMBER else f"{name} {number}"
                with suppress(Unavailable):
                    await own.answer(PeerId(each), body)
                    taken[name] += 1
                await trio.sleep(3)
        nursery.cancel_scope.cancel()
    span_s = 300
    assert taken["member"] <= dial_back.ASKER_BURST + span_s / dial_back.ASKER_EVERY_S + 1
    most = dial_back.STRANGERS_BURST + span_s / dial_back.STRANGERS_EVERY_S + 1
    assert 0 < taken["stranger"] <= most


async def test_members_are_dialled_while_strangers_fill_their_own_lane(
    autojump_clock: object,
) -> None:
    own, bell = served()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own.run)
        body = encode_request(TOKEN, (1, 2))
        await own.answer(PeerId("one"), body)
        await trio.sleep(0.1)
        for name in ("two", "three"):
            await own.answer(PeerId(name), body)
        with pytest.raises(Unavailable, match="busy"):
            await own.answer(PeerId("four"), body)
        await own.answer(MEMBER, body)
        await trio.sleep(0.1)
        assert bell.at_once_max == 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "value",
    [
        [TOKEN[1:], [1]],
        [TOKEN, []],
        [TOKEN, [1, 2, 3]],
        [TOKEN, [1, 1]],
        [TOKEN, [0]],
        [TOKEN, [65_536]],
        [TOKEN, [True]],
        [TOKEN, ["1"]],
        [TOKEN, ["203.0.113.1", 1]],
        [TOKEN],
        7,
    ],
)
def test_a_malformed_request_is_the_askers_fault(value: Any) -> None:
    with pytest.raises(PeerFault, match="dial-back-malformed"):
        decode_request(canonical.encode(value))


@pytest.mark.parametrize(
    "payload",
    [b"\xc1", b"", canonical.encode(["a.example", 1]), canonical.encode(["192.0.2.1", 99])],
)
def test_a_malformed_answer_is_the_answerers_fault(payload: bytes) -> None:
    with pytest.raises(PeerFault, match="dial-back-malformed"):
        decode_answer(payload)


async def test_a_real_listener_hears_the_bell_beside_its_peers() -> None:
    async with running(Neighbour(0)) as caller, running(Neighbour(1)) as called:
        bell = called.transport.doorbell
        await caller.transport.dial(called.address)
        await until(lambda: caller.welcomed(called) and called.welcomed(caller))
        host, port = (
            caller.transport.doorbell.host_of(called.peer_id),
            int(called.address.split("/")[4]),
        )
        assert host == "127.0.0.1"
        with bell.awaiting(TOKEN) as rung:
            await caller.transport.doorbell.ring(host, port, TOKEN[::-1])  # a token of nobody
            await trio.sleep(0.05)
            assert not rung.is_set()
            await caller.transport.doorbell.ring(host, port, TOKEN)
            with trio.fail_after(30):
                await rung.wait()
        assert not bell.is_awaited
        await caller.transport.doorbell.ring(host, port, TOKEN)  # is no peer, and costs none
        await caller.transport.doorbell.ring(host, 1, TOKEN)  # nobody is there
        assert called.transport.connected() == [caller.peer_id]
        with pytest.raises(Unavailable):
            bell.host_of(PeerId("12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp"))


async def test_where_we_are_seen_is_an_address_and_nothing_behind_it(
    autojump_clock: object,
) -> None:
    own, bell = served()
    seen: Any = bell
    seen.host_of = lambda _peer: "fe80::1%eth0"
    answer = await own.answer(MEMBER, encode_request(TOKEN, (1,)))
    assert decode_answer(answer)[0] == "fe80::1"
    with pytest.raises(PeerFault, match="dial-back-malformed"):
        decode_answer(canonical.encode(["fe80::1%\x1b[2J", 1]))


async def test_who_asked_is_kept_of_so_many(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial_back, "ASKERS_KEPT_MAX", 3)
    own, _ = served()
    for number in range(10):
        with suppress(Unavailable):
            await own.answer(PeerId(f"stranger {number}"), encode_request(TOKEN, (1,)))
    assert len(own._of_askers) == 3
    await trio.sleep(dial_back.ASKER_EVERY_S)
    with pytest.raises(Unavailable, match="busy"):  # not too many any more
        await own.answer(PeerId("another"), encode_request(TOKEN, (1,)))
