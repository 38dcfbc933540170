"""Changes of members among whole daemons: what they cost, who is told of them, who comes back."""

from typing import Any

import pytest
import trio

from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.world import run_virtual
from simnet.pytest_plugin import RunCluster
from simnet.world.determinism import Trace
from simnet.world.scenario import Scenario

ASKED = b"\xa5asked"  # the word of a message that tells of a request
HEARD_S = 10.0


def scenario(validators: int, changes: list[dict[str, Any]], **fields: Any) -> Scenario:
    named = {
        "name": "members",
        "duration_s": 8,
        "nodes": [{"count": validators}, {"name": "outside", "count": 1, "role": "observer"}],
        "work": {"rounds": 1000, "inner_steps_max": 10, "delta_ms": 100, "epoch_rounds": 2},
        "changes": changes,
        "checks": {"finalizations_after_heal": 3, "heal_s": 60},
    }
    return Scenario.model_validate({**named, **fields})


class Counting(Trace):
    """Counts the messages that tell of a change."""

    told = 0

    def frame(self, now_ns: int, sender: int, receiver: int, payload: bytes) -> None:
        super().frame(now_ns, sender, receiver, payload)
        self.told += ASKED in bytes(payload)


@pytest.mark.long
def test_a_change_costs_messages_by_the_square_of_the_members_and_not_by_their_cube() -> None:
    trace, members = Counting(), 10
    join = {"kind": "join", "at_s": 2, "node": members, "stake": 1}
    outcome = run_virtual(scenario(members, [join], duration_s=5), trace)
    assert [each for each in outcome.invariants if not each.ok] == []
    # The request, told on by each member to whom it was news, and each member's approval.
    assert members < trace.told <= 3 * members**2


@pytest.mark.long
def test_who_leaves_may_come_back_under_the_same_key_and_signs_no_slot_twice() -> None:
    back = [
        {"kind": "leave", "at_s": 0.5, "node": 0},
        {"kind": "join", "at_s": 4, "node": 0, "stake": 1},
    ]
    kill = {"kind": "kill", "at_s": 3, "for_s": 0.5, "nodes": [0]}
    outcome = run_virtual(scenario(5, back, faults=[kill]), Trace())
    assert [each for each in outcome.invariants if not each.ok] == []
    assert {"leaver stopped", "joiner voted"} <= {mark.name for mark in outcome.sometimes}
    first, without, last = outcome.facts["committees"]
    assert first == last != without


def test_whom_the_power_fails_is_told_again_what_others_ask_for(
    simnet_cluster: RunCluster,
) -> None:
    """No quorum is connected meanwhile, so no set carries it, and no chain tells of it."""

    async def script(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.until_height(1, 60)
        cluster.links.partition("halves", [0, 1])
        asked = await cluster.ask(0, "propose", action="stake", stake=2)
        await has_heard(cluster, asked["id"])
        cluster.kill(1)
        cluster.start(1)
        await has_heard(cluster, asked["id"])

    async def has_heard(cluster: Cluster, request_id: str) -> None:
        with trio.fail_after(HEARD_S):
            while True:
                await trio.sleep(0.1)
                if "validators" in cluster.machines[1].desk.handlers:
                    listing = await cluster.ask(1, "validators")
                    if any(request["id"] == request_id for request in listing["asked"]):
                        return

    simnet_cluster(script, nodes=4, rounds=100, seed=7, fidelity="light")
