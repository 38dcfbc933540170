"""How a node stands with others: each tells it alone, and what they say can do no harm."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from daa_dag import canonical
from daa_dag.ids import NodeId
from daa_node.contributors.score import RULES, Component, Level, Measure
from daa_node.contributors.views import (
    ANSWER_BYTES_MAX,
    ASKED_AT_ONCE_MAX,
    FRESH_S,
    PATIENCE_S,
    REQUEST,
    Views,
    view_in,
)
from daa_node.errors import PeerFault, Unavailable
from daa_node.seams import PeerId
from tests.daa_node.contributors.test_records import ALL_DONE, LATE, OTHER, THIRD, Bench

Answer = Callable[[PeerId], Awaitable[bytes]]


class Around:
    """Others, by name, and how they answer; `bench` is what this node thinks of them."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = {PeerId(name): answer for name, answer in answers.items()}
        self.nodes = {peer: NodeId(peer.encode().ljust(32)) for peer in self.answers}
        self.bench = Bench()
        self.asked: list[PeerId] = []
        self.blamed: list[NodeId] = []
        self.at_once = self.most_at_once = 0
        self.views = Views(
            self.bench.records,
            {PeerId("other"): OTHER, PeerId("third"): THIRD}.get,
            lambda: {node: peer for peer, node in self.nodes.items()},
            self.ask,
            lambda node, _fault: self.blamed.append(node),
        )

    async def ask(self, peer: PeerId, name: str, body: bytes, bytes_max: int) -> bytes:
        assert (name, body, bytes_max) == (REQUEST, b"", ANSWER_BYTES_MAX)
        self.asked.append(peer)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self.answers[peer](peer)
        finally:
            self.at_once -= 1


async def low(_peer: PeerId) -> bytes:
    return canonical.encode(["low", 612, "compute", "contributed"])


async def silent(_peer: PeerId) -> bytes:
    await trio.sleep_forever()
    return b""


async def unknowing(_peer: PeerId) -> bytes:
    raise Unavailable("you have contributed nothing")


async def raving(_peer: PeerId) -> bytes:
    return canonical.encode(["emperor", 2000, "compute", None])


async def test_each_is_told_how_it_stands_and_nobody_else() -> None:
    around = Around()
    around.bench.rounds(12, ALL_DONE)
    around.bench.rounds(9, LATE)
    around.bench.rounds(1, ALL_DONE, THIRD)
    view = view_in(await around.views.answer(PeerId("other"), b""))
    assert view.level is Level.LOW
    assert view.score == pytest.approx(around.bench.records.assessment_of(OTHER).score, abs=1e-3)
    assert view.weakest is Component.COMPUTE
    assert view.as_told()["would_raise"] == RULES[Measure.CONTRIBUTED].remedy
    third = view_in(await around.views.answer(PeerId("third"), b""))
    assert third.level is Level.NORMAL
    with pytest.raises(Unavailable):
        await around.views.answer(PeerId("stranger"), b"")
    with pytest.raises(PeerFault):
        await around.views.answer(PeerId("other"), b"of third")


async def test_who_does_not_answer_costs_a_moment_and_who_raves_is_blamed(
    autojump_clock: object,
) -> None:
    around = Around(low=low, silent=silent, unknowing=unknowing, raving=raving)
    began_s = trio.current_time()
    views = await around.views.of_us()
    assert trio.current_time() - began_s == pytest.approx(PATIENCE_S)
    assert {node.strip(): view.level for node, view in views.items()} == {b"low": Level.LOW}
    assert [node.strip() for node in around.blamed] == [b"raving"]


async def test_a_script_that_asks_without_end_asks_others_now_and_then(
    autojump_clock: object,
) -> None:
    around = Around(low=low)
    for _ in range(100):
        assert len(await around.views.of_us()) == 1
        await trio.sleep(FRESH_S / 50)
    assert len(around.asked) == 2


async def test_many_who_ask_at_once_have_the_others_asked_once(autojump_clock: object) -> None:
    around = Around(low=low, silent=silent)

    async def ask() -> None:
        assert len(await around.views.of_us()) == 1

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(ask)
    assert sorted(around.asked) == ["low", "silent"]


async def test_who_asks_and_leaves_has_asked_the_others_all_the_same(
    autojump_clock: object,
) -> None:
    around = Around(silent=silent)
    for _ in range(30):
        with trio.move_on_after(PATIENCE_S / 100):
            await around.views.of_us()
    assert around.asked == ["silent"]


async def test_of_many_a_few_are_asked_at_a_time(autojump_clock: object) -> None:
    async def slow(peer: PeerId) -> bytes:
        await trio.sleep(0.01)
        return await low(peer)

    around = Around(**{f"peer{at}": slow for at in range(3 * ASKED_AT_ONCE_MAX)})
    assert len(await around.views.of_us()) == 3 * ASKED_AT_ONCE_MAX
    assert around.most_at_once == ASKED_AT_ONCE_MAX


VALUES = st.none() | st.booleans() | st.integers(-3, 1003) | st.sampled_from([*Level, *Component])


@given(st.lists(VALUES, max_size=5) | st.binary(max_size=60))
def test_any_answer_is_a_view_or_its_senders_fault(said: Any) -> None:
    answer = said if isinstance(said, bytes) else canonical.encode(said)
    try:
        view = view_in(answer)
    except PeerFault:
        return
    assert 0 <= view.score <= 1
