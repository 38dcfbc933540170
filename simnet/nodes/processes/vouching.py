"""A member vouches for each node that comes to train, as its operator would.

    waiting --it says that it is a trainer--> on the roll

Asked again every few seconds: whoever was asked may have crashed. Where one refuses or is gone, as
one that vouches for as many as it may, the next one is asked. Of a process that stands still nobody
asks anything: it would answer when it goes on.
"""

from collections.abc import Callable, Mapping
from typing import Any

from daa_consensus.roll import Admission
from daa_node.adapters import control_socket
from daa_node.errors import UserError
from simnet.nodes.processes.cluster import Cluster, Node
from simnet.world.links import NS
from simnet.world.node_classes import newcomers_of
from simnet.world.scenario import Scenario

EVERY_NS = 2 * NS

Ask = Callable[..., Mapping[str, Any]]


class Vouching:
    """Of one run; `look` is called all the time."""

    def __init__(self, scenario: Scenario, cluster: Cluster, ask: Ask = control_socket.ask) -> None:
        is_on = scenario.work.trainers.admission is Admission.VOUCHED
        self._ask = ask
        self._waiting = sorted(newcomers_of(scenario.nodes)) if is_on else []
        self._nodes = cluster.nodes
        self._members = [
            node
            for node in cluster.nodes
            if scenario.group_of(node.index).role == "validator" and node.nature.liar is None
        ]
        self._turns = dict.fromkeys(self._waiting, 0)  # how many members did nothing for each
        self._next_ns = 0

    def look(self, now_ns: int) -> None:
        if not self._waiting or now_ns < self._next_ns:
            return
        self._next_ns = now_ns + EVERY_NS
        self._waiting = [at for at in self._waiting if not self._is_on_the_roll(self._nodes[at])]
        for at in self._waiting:
            member = self._members[(at + self._turns[at]) % len(self._members)]
            if not self._said(member, "vouch", trainer=self._nodes[at].nature.node_id):
                self._turns[at] += 1

    def _is_on_the_roll(self, node: Node) -> bool:
        return self._said(node, "status").get("part") == "trainer"

    def _said(self, node: Node, command: str, **words: object) -> Mapping[str, Any]:
        """Its answer; nothing if it gives none, or refuses."""
        if node.pid is None or node.is_paused:
            return {}
        try:
            return self._ask(node.directory / "control.sock", command, **words)
        except UserError:
            return {}
