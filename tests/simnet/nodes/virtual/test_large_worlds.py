"""What grows with the number of nodes grows no faster than what they have to say to each other."""

from dataclasses import dataclass

import pytest
import trio

from daa_node.agreement import messages
from simnet.nodes.virtual.cluster import Cluster
from simnet.nodes.virtual.sightings import Sightings
from simnet.nodes.virtual.world import run_script
from simnet.world.determinism import Trace
from simnet.world.node_classes import NodesConfig
from simnet.world.scenario import Scenario, TopologyConfig, WorkConfig

ROUNDS = 2
# Of greetings at the start, which pairs have once, and of words that come in another order.
SLACK = 1.05


class Heard(Trace):
    """A trace that counts what nodes write to others."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = 0

    def frame(self, now_ns: int, sender: int, receiver: int, payload: bytes) -> None:
        self.messages += 1
        super().frame(now_ns, sender, receiver, payload)


class Steps(trio.abc.Instrument):
    """How often any task ran."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


@dataclass(frozen=True)
class Work:
    """What a run took; `bodies` of messages that were decoded, among all nodes."""

    messages: int
    senders: list[int]  # of each message between members
    steps: int
    bodies: int


def scenario_of(voters: int, observers: int = 0) -> Scenario:
    groups = [NodesConfig(name="voter", count=voters)]
    if observers:
        groups.append(NodesConfig(name="watcher", count=observers, role="observer"))
    return Scenario(
        name="large",
        fidelity="light",
        nodes=tuple(groups),
        topology=TopologyConfig(preset="regional"),
        work=WorkConfig(kind="training", rounds=ROUNDS, inner_steps_max=10),
    )


def work_of(voters: int, observers: int = 0) -> Work:
    scenario = scenario_of(voters, observers)
    heard, steps, senders = Heard(), Steps(), list[int]()
    see = Sightings.on_message

    def on_message(self: Sightings, node: int, message: bytes) -> None:
        senders.append(node)
        see(self, node, message)

    async def script(cluster: Cluster) -> None:
        trio.lowlevel.add_instrument(steps)
        cluster.start()
        assert await cluster.until_done(60)

    messages._remembered_body.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sightings, "on_message", on_message)
        outcome = run_script(scenario, heard, script)
    assert outcome.ok, outcome.invariants
    bodies = messages._remembered_body.cache_info().misses
    return Work(heard.messages, senders, steps.count, bodies)


@pytest.mark.long
def test_twice_the_voters_cost_no_more_a_pair() -> None:
    few, many = work_of(10), work_of(20)
    pairs_few, pairs_many = 10 * 9, 20 * 19
    assert many.messages / pairs_many <= SLACK * few.messages / pairs_few
    assert many.steps / pairs_many <= SLACK * few.steps / pairs_few
    # Each reads what all say: all together decode it once, and those who look at messages once.
    assert many.bodies <= 2 * len(many.senders) / 19


@pytest.mark.long
def test_twice_the_lookers_on_cost_no_more_each_and_write_no_messages() -> None:
    none, few, many = work_of(4), work_of(4, 10), work_of(4, 20)
    assert max(many.senders) < 4
    assert many.messages - none.messages <= SLACK * 2 * (few.messages - none.messages)
    assert many.steps - none.steps <= SLACK * 2 * (few.steps - none.steps)


def test_a_node_among_many_hundreds_holds_as_many_connections_as_a_daemon_may() -> None:
    async def script(cluster: Cluster) -> None:
        cluster.start(*range(4))
        assert await cluster.until_height(1, 60, *range(4))

    outcome = run_script(scenario_of(4, 1100), Trace(), script)
    assert outcome.ok, outcome.invariants
