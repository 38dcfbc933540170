"""How long an inner step takes on which node, in which round, at what hour: drawn from the seed.

Four things make a node slow: its class, a jitter from round to round, being a straggler for one
round, and the hour of the day, when its machine has other work to do. All are functions of the
node, the round and the time alone, so that asking twice, or asking others first, changes nothing.
"""

from math import cos, exp, log, pi, sqrt

from simnet.world.determinism import Streams
from simnet.world.links import NS
from simnet.world.scenario import Scenario

UNIT_BYTES = 8
STEP_NS_MIN = 1_000  # no step is quicker than a microsecond, whatever the class


class Speeds:
    """Step times of every node of one scenario."""

    def __init__(self, scenario: Scenario, streams: Streams) -> None:
        self._streams = streams.below("speeds")
        self._config = scenario.work.speeds
        self._base_s = [
            scenario.work.step_s / scenario.group_of(node).speed
            for node in range(scenario.node_count)
        ]
        # The hour is another one everywhere: where in its day a node starts.
        self._phases = [self._unit(f"hour {node}", 0) for node in range(scenario.node_count)]

    def step_ns(self, node: int, round_number: int, now_ns: int) -> int:
        """The time of each inner step that `node` takes in this round from now on."""
        config = self._config
        step_s = self._base_s[node]
        if config.jitter_percent:
            step_s *= exp(config.jitter_percent / 100 * self._normal(node, round_number))
        if config.straggler_percent:
            drawn = self._unit(f"straggler {node}", round_number)
            if drawn < config.straggler_percent / 100:
                step_s *= config.straggler_factor
        if config.day_slow_percent:
            hour = now_ns / NS / config.day_s + self._phases[node]
            lost = config.day_slow_percent / 100 * 0.5 * (1 - cos(2 * pi * hour))
            step_s /= 1 - lost
        return max(STEP_NS_MIN, round(step_s * NS))

    def _normal(self, node: int, round_number: int) -> float:
        """Box and Muller 1958, one of the pair."""
        one = 1.0 - self._unit(f"jitter {node}", 2 * round_number)  # above 0
        other = self._unit(f"jitter {node}", 2 * round_number + 1)
        return sqrt(-2 * log(one)) * cos(2 * pi * other)

    def _unit(self, name: str, draw: int) -> float:
        """Even in 0 to 1, 1 excluded."""
        drawn = self._streams.bytes(f"{name} {draw}", UNIT_BYTES)
        return (int.from_bytes(drawn) >> 11) * 2.0**-53
