"""Whoever was wrong is out, wherever it sits by then."""

from types import SimpleNamespace
from typing import Any, cast

from daa_dag.ids import ChainId, NodeId
from daa_node.gateway.config import GatewayConfig
from daa_node.gateway.task_desk import Judged, Seat
from daa_node.gateway.volunteers import Surroundings, Volunteers
from daa_node.observability.events import EventLog

NAME = NodeId(b"n" * 32)


def seat(number: int, name: NodeId = NAME) -> Seat:
    return Seat(bytes([number]) * 16, name, b"key", "a")


async def test_who_has_come_back_before_it_was_found_wrong_goes_again() -> None:
    around = Surroundings(
        *(ChainId(b"c" * 32), NodeId(b"g" * 32), cast(Any, None)),
        cast(Any, SimpleNamespace(wall_ns=lambda: 0)),
        cast(Any, SimpleNamespace(bytes=bytes)),
        *(cast(Any, None), cast(Any, None)),
        EventLog(lambda: 0, lambda event: None),
    )
    volunteers = Volunteers(GatewayConfig(), around, (), lambda evidence: None)
    before, *now, other = (*map(seat, range(1, 4)), seat(4, NodeId(b"o" * 32)))
    ended: dict[bytes, str] = {}
    for each in (*now, other):
        session = SimpleNamespace(
            send=lambda frame: None,
            end=lambda reason, words, each=each: ended.update({each.session: reason}),
        )
        volunteers._sessions[each.session] = cast(Any, session)
        volunteers._desk.sit(each)
    volunteers._judged(Judged(before, b"t" * 16, False))
    assert ended == {each.session: "standing" for each in now}
