"""Leave the agreement so that the others lose nothing by it."""

from collections.abc import Callable

import trio

from daa_dag.ids import NodeId
from daa_node.agreement.wan_bft import WanBft

DRAIN_S_MAX = 20.0  # for the round under way; a second signal does not wait
# Without a quorum it will not end, unless whoever is missing only dials again.
ALONE_S_MAX = 2.0
LINGER_S_MAX = 3.0  # peers in the same round get there sooner: what they lack is resent every 1 s
LOOK_S = 0.05


async def until_hopeless(quorum_reachable: Callable[[], bool]) -> None:
    """Return when a drained node need no longer wait for the round under way to end."""
    alone_s = 0.0
    with trio.move_on_after(DRAIN_S_MAX):
        while alone_s < ALONE_S_MAX:
            await trio.sleep(LOOK_S)
            alone_s = 0.0 if quorum_reachable() else alone_s + LOOK_S


async def see_others_through(agreement: WanBft, reachable: Callable[[], set[NodeId]]) -> None:
    """Stay until the others have what we have: our last votes may be what they lack."""
    with trio.move_on_after(LINGER_S_MAX):
        while True:
            positions = [agreement.position_of(node) for node in reachable()]
            resolved_round = agreement.outcomes.resolved_round
            if all(p is None or p.resolved_round >= resolved_round for p in positions):
                return
            await trio.sleep(LOOK_S)
