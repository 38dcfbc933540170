"""The deltas of the newest rounds: who has which, and how one comes to everybody over the mesh."""

from collections.abc import Iterable

from daa_node.rounds.plan import Plan
from simnet.nodes.heap.round_blobs import Shipments
from simnet.nodes.heap.round_messages import Freight
from simnet.world.links import NS
from simnet.world.scenario import Scenario
from simnet.world.topology import MBIT

DELTAS_KEPT = 2  # for those that are a round behind
SNAPSHOT_DELTAS = 4  # a state weighs as much: who has missed more fetches that
DOWN_MBIT_S = 100.0  # of whoever's class says nothing


class Deltas:
    """Of one world. An aborted round has one of a single chunk, which says so."""

    def __init__(
        self, scenario: Scenario, shipments: Shipments, mesh: list[tuple[int, ...]]
    ) -> None:
        self._scenario = scenario
        self._shipments = shipments
        self._mesh = mesh
        self._rounds: dict[int, int] = {}  # by the number of the blob
        self.newest = [0] * scenario.node_count  # round whose state each node has

    def made(self, round_number: int, is_abort: bool) -> None:
        """A round is decided: whoever merges its set has this."""
        work = self._scenario.work
        chunks = 1 if is_abort else work.crowd.delta_chunks
        self._rounds[self._shipments.made(chunks, work.chunk_bytes, None)] = round_number

    def round_of(self, number: int) -> int | None:
        return self._rounds.get(number)

    def give(self, node: int, round_number: int) -> None:
        """It has merged the set itself."""
        self._shipments.give(node, self._number(round_number))
        self.newest[node] = round_number

    def share(self, node: int, peers: Iterable[int] | None = None) -> None:
        """Tell these, or all neighbours, of the newest that is here, if it is whole."""
        number = self._number_or_none(self.newest[node])
        shipment = None if number is None else self._shipments.find(number)
        if shipment is not None and number is not None and shipment.has_whole(node):
            self._shipments.share(node, number, self._mesh[node] if peers is None else peers)

    def fetch(self, node: int, round_number: int, more_peers: Iterable[int] = ()) -> None:
        number = self._number_or_none(round_number)
        if number is not None:
            self._shipments.fetch(node, number, (*self._mesh[node], *more_peers))

    def hear(self, node: int, freight: Freight) -> None:
        """Of one that is newer than what is here: begin to get it."""
        if self._rounds.get(freight.blob, 0) > self.newest[node]:
            self._shipments.fetch(node, freight.blob, self._mesh[node])

    def catch_up_ns(self, node: int, round_number: int) -> int:
        """To get those that were missed before this one, on its own link; a model."""
        missed = min(max(0, round_number - self.newest[node] - 1), SNAPSHOT_DELTAS)
        mbit_s = self._scenario.group_of(node).down_mbit_s or DOWN_MBIT_S
        work = self._scenario.work
        size_bytes = missed * work.crowd.delta_chunks * work.chunk_bytes
        return int(size_bytes * 8 * NS / (mbit_s * MBIT))

    def forget_before(self, plan: Plan) -> None:
        """What nobody asks for any more."""
        for number, made in list(self._rounds.items()):
            if made < plan.round - DELTAS_KEPT:
                self._shipments.forget(number)
                del self._rounds[number]

    def _number(self, round_number: int) -> int:
        number = self._number_or_none(round_number)
        assert number is not None, f"round {round_number} has no delta that is kept"
        return number

    def _number_or_none(self, round_number: int) -> int | None:
        return next((n for n, made in self._rounds.items() if made == round_number), None)
