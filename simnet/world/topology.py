"""Which link lies between two nodes: presets by what is at both ends, and the seed.

`three_tier` is a WAN between regions, a regional network between sites of a region, and a local
one inside a site. Access links bound what a node's class can send and receive.
"""

from typing import NamedTuple

from simnet.world.determinism import Streams
from simnet.world.links import MILLION, MS, LinkModel
from simnet.world.scenario import Preset, Scenario

MBIT = 1_000_000
REGIONS = 3  # of a three-tier world
SITES_A_REGION = 3
SHARE_BYTES = 6  # of a draw between 0 and 1; a float holds 53 bits of it


class Tier(NamedTuple):
    """Links of one preset: latency one way, least and most, and what else they do."""

    latency_ms: tuple[float, float]
    jitter_ms: float
    mbit_s: float
    loss_percent: float


TIERS: dict[Preset, Tier] = {
    "local": Tier((0.1, 1.0), 0.1, 10_000, 0.0),
    "datacenter": Tier((0.05, 0.5), 0.05, 10_000, 0.0),
    "regional": Tier((10.0, 50.0), 5.0, 1_000, 0.05),
    "wan": Tier((100.0, 500.0), 20.0, 100, 0.5),
    "mobile": Tier((30.0, 120.0), 30.0, 1, 1.0),
}


class Topology:
    """The links of one scenario. Both directions of a pair have the same latency."""

    def __init__(self, scenario: Scenario, streams: Streams) -> None:
        self._scenario = scenario
        self._streams = streams.below("topology")
        told = {*Tier._fields}
        self._changed = scenario.topology.model_dump(include=told, exclude_none=True)
        chance = self._streams.random("places")
        # (region, site) of every node, and of every address behind them
        self._places = [
            (chance.randrange(REGIONS), chance.randrange(SITES_A_REGION))
            for _ in range(scenario.place_count)
        ]

    def tier_between(self, one: int, other: int) -> Tier:
        """The preset's tier, with what the scenario changes about it."""
        preset = self._scenario.topology.preset
        if preset == "three_tier":
            here, there = self._places[one], self._places[other]
            beside: Preset = "regional" if here[0] == there[0] else "wan"
            tier = TIERS["local"] if here == there else TIERS[beside]
        else:
            tier = TIERS[preset]
        return tier._replace(**self._changed)

    def link(self, sender: int, receiver: int) -> LinkModel:
        """The model of the direction from `sender` to `receiver`."""
        tier = self.tier_between(sender, receiver)
        low, high = min(sender, receiver), max(sender, receiver)
        least, most = tier.latency_ms
        # drawn from the hash itself: a generator for each pair of a large world costs seconds
        drawn = int.from_bytes(self._streams.bytes(f"latency {low} {high}", SHARE_BYTES))
        share = drawn / (1 << 8 * SHARE_BYTES)
        rates = [tier.mbit_s]
        if sender < self._scenario.node_count:
            rates.append(self._scenario.group_of(sender).up_mbit_s or tier.mbit_s)
        if receiver < self._scenario.node_count:
            rates.append(self._scenario.group_of(receiver).down_mbit_s or tier.mbit_s)
        return LinkModel(
            latency_ns=int((least + share * (most - least)) * MS),
            jitter_ns=int(tier.jitter_ms * MS),
            bits_per_s=max(1, int(min(rates) * MBIT)),  # 0 would mean no limit
            loss_ppm=int(tier.loss_percent * MILLION / 100),
            reorder_ppm=int((self._scenario.topology.reorder_percent or 0) * MILLION / 100),
        )

    def mesh(self) -> list[tuple[int, ...]]:
        """Whom each node gossips with: of about the degree that the scenario wants."""
        return self.graph("mesh", self._scenario.topology.degree)

    def graph(self, name: str, degree: int) -> list[tuple[int, ...]]:
        """A connected graph of about this degree: `degree // 2` random rings, neighbours sorted.

        Where two rings share an edge a node has fewer; in a world of few nodes, all others.
        """
        count = self._scenario.node_count
        neighbours: list[set[int]] = [set() for _ in range(count)]
        order = list(range(count))
        chance = self._streams.random(name)
        for _ in range(max(1, degree // 2)):
            chance.shuffle(order)
            for here, there in zip(order, [*order[1:], order[0]], strict=True):
                if here != there:
                    neighbours[here].add(there)
                    neighbours[there].add(here)
        return [tuple(sorted(found)) for found in neighbours]
