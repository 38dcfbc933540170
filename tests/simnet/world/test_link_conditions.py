"""What every link is like follows from the topology and from the faults that are under way."""

from dataclasses import replace

from simnet.world.determinism import Streams
from simnet.world.faults import Edge
from simnet.world.link_conditions import LinkConditions, LinkState
from simnet.world.links import NS
from simnet.world.node_classes import NodesConfig
from simnet.world.scenario import FaultConfig, Scenario, TopologyConfig
from simnet.world.topology import Topology

WORLD = Scenario(
    name="conditions", nodes=(NodesConfig(count=4),), topology=TopologyConfig(preset="wan")
)
TOPOLOGY = Topology(WORLD, Streams(3))
FAIR = LinkConditions(TOPOLOGY.link, 4).states(0)


def begun(**fields: object) -> Edge:
    fault = FaultConfig.model_validate({"at_s": 0.0, "for_s": 5.0, **fields})
    return Edge(0, True, fault, fault.nodes)


def under(*faults: Edge) -> LinkConditions:
    conditions = LinkConditions(TOPOLOGY.link, 4)
    for edge in faults:
        conditions.turn(edge)
    return conditions


def shut(*faults: Edge, now_ns: int = 0) -> set[tuple[int, int]]:
    states = under(*faults).states(now_ns)
    return {ends for ends, state in states.items() if not state.is_open}


def test_without_faults_every_link_is_as_the_topology_has_it() -> None:
    assert len(FAIR) == 12
    for ends, state in FAIR.items():
        assert state == LinkState(TOPOLOGY.link(*ends))


def test_halves_hear_nothing_of_each_other_and_everything_of_themselves() -> None:
    across = {(a, b) for a in range(4) for b in range(4) if (a < 2) != (b < 2)}
    assert shut(begun(kind="partition", shape="halves", nodes=(0, 1))) == across


def test_a_bridge_is_in_both_halves() -> None:
    found = shut(begun(kind="partition", shape="bridge", nodes=(0, 1)))
    assert found == {(1, 2), (1, 3), (2, 1), (3, 1)}


def test_one_way_silences_the_nodes_and_not_the_others() -> None:
    found = shut(begun(kind="partition", shape="one_way", nodes=(0,)))
    assert found == {(0, 1), (0, 2), (0, 3)}


def test_a_flapping_partition_cuts_first_and_every_other_period_from_then_on() -> None:
    flapping = begun(kind="partition", shape="flapping", nodes=(0, 1), period_s=2.0)
    flapping = replace(flapping, at_ns=3 * NS)
    across = {pair for a in (0, 1) for b in (2, 3) for pair in ((a, b), (b, a))}
    found = [set(shut(flapping, now_ns=at_s * NS)) for at_s in (3, 4, 5, 6, 7)]
    assert found == [across, across, set(), set(), across]
    assert [under(flapping).next_flap_ns(at_s * NS) for at_s in (3, 5, 6)] == [
        5 * NS,
        7 * NS,
        7 * NS,
    ]
    assert under(begun(kind="loss", nodes=(0,))).next_flap_ns(0) is None


def test_faults_of_one_link_add_up() -> None:
    slow = begun(kind="slow", nodes=(0,), factor=10.0)
    loss = begun(kind="loss", nodes=(1,), percent=10.0)
    hold = begun(kind="hold", nodes=(1,))
    states = under(slow, loss, hold).states(0)
    before, now = FAIR[0, 1].model, states[0, 1].model
    assert now.latency_ns == 10 * before.latency_ns
    assert now.bits_per_s == before.bits_per_s // 10
    assert now.loss_ppm == 104_500  # 1 - 0.995 x 0.9
    assert states[0, 1].holds
    assert states[1, 0].holds
    assert states[2, 3] == FAIR[2, 3]
    assert states[0, 2].model == FAIR[0, 2].model.slowed(10.0)


def test_what_has_healed_is_gone_and_the_rest_stays() -> None:
    slow = begun(kind="slow", nodes=(0,), factor=10.0)
    cut = begun(kind="partition", shape="halves", nodes=(0, 1))
    conditions = under(slow, begun(kind="hold", nodes=(0,)), cut)
    conditions.turn(replace(slow, begins=False))
    conditions.turn(replace(cut, begins=False))
    assert conditions.states(0)[0, 2] == replace(FAIR[0, 2], holds=True)
    assert conditions.states(0)[1, 2] == FAIR[1, 2]
