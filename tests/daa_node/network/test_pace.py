"""Paces of members: what is owed is remembered, and names that owe nothing are not."""

import trio
import trio.testing

from daa_dag.ids import NodeId
from daa_node.network.pace import PACES_KEPT, Paces


async def test_ever_new_names_leave_nothing_behind_once_they_owe_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    paces, debtor = Paces(1.0, lambda: 1000), NodeId(b"d" * 32)
    paces.of(debtor).spend(1e6)
    for number in range(10 * PACES_KEPT):
        paces.of(NodeId(number.to_bytes(32))).spend(1000)
        await trio.sleep(0.1)
    assert len(paces._paces) <= PACES_KEPT
    assert paces.of(debtor).debt_s > 400
