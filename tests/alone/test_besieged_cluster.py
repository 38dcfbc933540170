"""A cluster of real daemons goes on while a stranger attacks one of them in one way after another.

Each attack lasts for some rounds. The median time of a round, less what the attacker took of the
machine, is held against that of the last quiet rounds, and if it was longer against those that
follow, whichever were slower: other things happen on a machine, too. They pass, and an attack that
slows the cluster down does so each time: it is measured up to three times. Memory, descriptors and
bans are held against what they were before the attack.
"""

import os
import resource
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from daa_node.adapters.key_files import load_keys
from daa_node.cli import identity
from tests.scenarios.little_cluster import (
    WAIT_S,
    LittleCluster,
    Node,
    height,
    published,
    until,
)
from tests.scenarios.stranger_attacks import SIEGE, Attack, Besieger

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("warm")]

OPEN_FILES = 1024  # `ulimit -n` of many systems
ROUNDS = 10  # nine times between two of them
SLOWER_MAX = 1.5
ATTEMPTS = 3
GROWTH_MIB_MAX = 20.0
DESCRIPTORS_MORE_MAX = 150  # both waiting rooms, and some that are being closed


def address_of(node: Node) -> str:
    keys, made = load_keys(node.directory / "keys"), identity.open_node(node.directory)
    return f"{made.config.value.network.listen[0]}/p2p/{keys.peer_id}"


@dataclass(slots=True)
class Besieged:
    """The cluster, and the stranger who attacks its first node."""

    cluster: LittleCluster
    besieger: Besieger
    quiet_s: float = 0.0  # the median time of the last rounds that were measured without one

    @property
    def victim(self) -> Node:
        return self.cluster.nodes[0]

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.victim.running.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) / 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.victim.running.pid}/fd"))

    def rounds(self) -> tuple[float, int]:
        """The median time of the next rounds, and the most descriptors meanwhile.

        Rounds of this size wait for the processor alone, and the attacker of a real network has
        brought its own: what it takes of this machine's is no time of theirs.
        """
        since, most = self.victim.events.mark(), 0
        began_s, before_s = time.monotonic(), self.besieger.cpu_s()
        deadline_s = time.monotonic() + WAIT_S
        while len(published(self.victim, since)) < ROUNDS:
            assert self.victim.running.poll() is None, self.victim.last_words()
            assert time.monotonic() < deadline_s, self.victim.last_words()
            most = max(most, self.descriptors())
            time.sleep(0.05)
        of_machine_s = (time.monotonic() - began_s) * len(os.sched_getaffinity(0))
        left = 1.0 - (self.besieger.cpu_s() - before_s) / of_machine_s
        at_s = [event["ts"] for event in published(self.victim, since)]
        round_s = statistics.median(b - a for a, b in zip(at_s, at_s[1:], strict=False))
        return round_s * left, most


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    cluster = LittleCluster(tmp_path_factory.mktemp("besieged") / "cluster")
    besieger = Besieger(address_of(cluster.nodes[0]), cluster.nodes[0].directory / "genesis.json")
    try:
        made = Besieged(cluster, besieger)
        cluster.start()
        _, hard = resource.prlimit(made.victim.running.pid, resource.RLIMIT_NOFILE)
        limits = (min(OPEN_FILES, hard), min(OPEN_FILES, hard))
        resource.prlimit(made.victim.running.pid, resource.RLIMIT_NOFILE, limits)
        nodes = cluster.nodes
        until("some vertices on all", lambda: all(height(n) >= 4 for n in nodes), nodes)
        made.quiet_s, _ = made.rounds()
        yield made
    finally:
        besieger.close()
        cluster.close()


@pytest.mark.parametrize("attack", SIEGE, ids=lambda attack: attack.__name__)
def test_rounds_go_on_while_a_stranger_does_its_worst(besieged: Besieged, attack: Attack) -> None:
    before_mib, before = besieged.memory_mib(), besieged.descriptors()
    for _ in range(ATTEMPTS):
        before_s = besieged.quiet_s
        with besieged.besieger.at_work(attack):
            attacked_s, most = besieged.rounds()
        after_mib = besieged.memory_mib()
        print(
            f"{attack.__name__}: a round {before_s:.2f} s before, {attacked_s:.2f} s attacked; "
            f"{before} descriptors, then {most} at most; {before_mib:.0f} MiB, then {after_mib:.0f}"
        )
        assert most <= before + DESCRIPTORS_MORE_MAX
        assert after_mib - before_mib < GROWTH_MIB_MAX
        slower = attacked_s / before_s
        if slower > SLOWER_MAX:
            besieged.quiet_s, _ = besieged.rounds()
            slower = attacked_s / max(before_s, besieged.quiet_s)
            print(f"and {besieged.quiet_s:.2f} s after")
        if slower <= SLOWER_MAX:
            break
    assert slower <= SLOWER_MAX
    honest = {load_keys(node.directory / "keys").peer_id for node in besieged.cluster.nodes}
    for node in besieged.cluster.nodes:
        banned = {e["peer_id"] for e in node.events.read() if e["name"] == "peer_banned"}
        assert not banned & honest, node.last_words()
