"""Who is told of how round trips were: members first, and as many as a page can show."""

import json

import trio

from daa_dag.ids import NodeId
from daa_node.api.round_trips import PEERS_TOLD_MAX, told_round_trips
from daa_node.network.directory import Directory
from daa_node.observability.events import EventLog
from daa_node.seams import PeerId


def peer(number: int) -> PeerId:
    return PeerId(f"12D3KooW{number:04}" + "x" * 40)


async def crowd(members: int, others: int) -> Directory:
    table = {NodeId(number.to_bytes(32, "big")): peer(9_000 + number) for number in range(members)}
    directory = Directory(trio.current_time, table, EventLog(lambda: 0))
    for peer_id in [*table.values(), *(peer(number) for number in range(others))]:
        directory.saw(peer_id, 1)
        directory.note_round_trip(peer_id, 0.020)
    return directory


async def test_members_come_first_and_then_who_is_connected() -> None:
    directory = await crowd(members=2, others=3)
    directory.saw(peer(7), 1, rtt_s=0.020)  # at the hello, and never again
    told = told_round_trips(directory, {peer(2), peer(9_001)}, ())
    assert [row["peer_id"] for row in told["peers"]] == [
        *(peer(9_001), peer(9_000)),
        *(peer(2), peer(0), peer(1)),
    ]
    first = told["peers"][0]
    assert first["node_id"] == (1).to_bytes(32, "big").hex()
    assert [row["connected"] for row in told["peers"]] == [True, False, True, False, False]
    assert first["rtts_ms"][-1] == 20.0
    assert told["peers_in_all"] == 5


async def test_trainers_leave_the_rows_of_those_who_vote() -> None:
    voting = [NodeId(number.to_bytes(32, "big")) for number in (98, 99)]
    told = told_round_trips(await crowd(members=100, others=0), {peer(9_000)}, voting)
    names = [row["node_id"] for row in told["peers"]]
    assert names[:3] == [*(name.hex() for name in voting), (0).to_bytes(32, "big").hex()]


async def test_of_a_thousand_a_page_of_them_is_told() -> None:
    told = told_round_trips(await crowd(members=100, others=900), set(), ())
    assert len(told["peers"]) == PEERS_TOLD_MAX
    assert told["peers_in_all"] == 1_000
    assert len(json.dumps(told)) < 40_000
