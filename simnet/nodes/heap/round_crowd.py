"""Who is there: machines, the names that they go by, and what their owners ask of the roll.

A trainer that leaves comes back as itself, or another one comes in its place under a new name and
knows nothing. Who has no place on the roll, or has lost it by idling, asks a validator for its
word, and another one the next time.
"""

from daa_consensus.enrolment import Enroll, TrainerRequest
from daa_dag.ids import NodeId, tagged_digest
from daa_node.errors import UserError
from simnet.nodes.heap.round_chain import Chain
from simnet.nodes.heap.round_requests import EXPIRY_ROUNDS
from simnet.world.determinism import Streams
from simnet.world.scenario import Scenario

NEIGHBOURS = (1, 3)  # places round the ring of validators, either way


class Crowd:
    """All machines of one world."""

    def __init__(self, scenario: Scenario, streams: Streams) -> None:
        """Raises UserError for a role that these worlds do not have."""
        count = scenario.node_count
        roles = [scenario.group_of(node).role for node in range(count)]
        if "observer" in roles:
            raise UserError("heap rounds have validators and trainers, no observers: nodes")
        self.validators = tuple(n for n, role in enumerate(roles) if role == "validator")
        self.trainers = tuple(n for n, role in enumerate(roles) if role == "trainer")
        self.ring = self._ring()
        self._seed = scenario.seed
        self._replaced_percent = scenario.work.crowd.replaced_percent
        self._chance = streams.random("lives")
        self._generations = [0] * count
        self.names = [self._name(node) for node in range(count)]
        self.up: set[NodeId] = set(self.names)
        self._requests: dict[int, TrainerRequest] = {}  # that a trainer waits for
        self._knocks = [0] * count

    def left(self, node: int) -> None:
        self.up.discard(self.names[node])

    def returned(self, node: int) -> bool:
        """A machine is up again; whether it is another's now."""
        is_new = self._chance.random() * 100 < self._replaced_percent
        is_new = is_new and node not in self.ring
        if is_new:
            self._generations[node] += 1
            self.names[node] = self._name(node)
            self._requests.pop(node, None)
        self.up.add(self.names[node])
        return is_new

    def knock(self, node: int, chain: Chain) -> tuple[int, TrainerRequest] | None:
        """What a trainer asks of which validator at present; None if nothing."""
        name, next_round = self.names[node], chain.resolved + 1
        entry = chain.entry_of(name)
        if entry is not None:
            on_its_way = next_round < entry.since or entry.until is not None
            if on_its_way or entry.is_ready(next_round):
                self._requests.pop(node, None)
                return None
        request = self._requests.get(node)
        if request is None or request.expires_round <= next_round:
            request = TrainerRequest(Enroll(name, b"keys"), next_round + EXPIRY_ROUNDS)
            self._requests[node] = request
        self._knocks[node] += 1
        return self.validators[(node + self._knocks[node]) % len(self.validators)], request

    @property
    def kept(self) -> int:
        return len(self._requests)

    def _name(self, node: int) -> NodeId:
        told = [self._seed, node, self._generations[node]]
        return NodeId(tagged_digest("simnet-node", [*told]))

    def _ring(self) -> dict[int, tuple[int, ...]]:
        """Whom each validator passes contributions on to."""
        count = len(self.validators)
        return {
            node: tuple(
                self.validators[(at + way * far) % count] for far in NEIGHBOURS for way in (1, -1)
            )
            for at, node in enumerate(self.validators)
        }
