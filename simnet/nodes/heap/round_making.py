"""The contributions of one round: trained for as long as the plan says, dealt out, passed on.

An author offers each chunk to one validator, who passes it on; whoever lacks some after a while
asks the author for it. So a contribution leaves its author about once.
"""

from collections.abc import Callable

from daa_consensus.bft.messages import OfferBody
from daa_dag.ids import BlobRoot, ContributionRoot
from daa_node.training.steps_in_time import reported_us_per_step, steps_in
from simnet.nodes.heap.round_blobs import Shipment, Shipments
from simnet.nodes.heap.round_chain import Chain, Decided
from simnet.nodes.heap.round_crowd import Crowd
from simnet.nodes.heap.round_messages import Message, Offered
from simnet.nodes.heap.wires import Wires
from simnet.world.determinism import Streams
from simnet.world.links import NS
from simnet.world.scenario import Scenario, WorkConfig
from simnet.world.speeds import Speeds

PATIENCE_NS = 4 * NS  # with others, before the author is asked; twice as long for some


def work_ns(work: WorkConfig, blobs: int) -> int:
    """To seal, check or merge so many contributions, a parameter a byte."""
    return int(blobs * work.chunks * work.chunk_bytes / work.parameters_per_s * NS)


class Contributions:
    """Of the round that is under way."""

    def __init__(
        self,
        scenario: Scenario,
        streams: Streams,
        wires: Wires[Message],
        crowd: Crowd,
        chain: Chain,
        shipments: Shipments,
        on_made: Callable[[int, Offered], None],
    ) -> None:
        """`on_made(node, offered)`: a node has made its own."""
        self._work = scenario.work
        self._wires = wires
        self._crowd = crowd
        self._chain = chain
        self._shipments = shipments
        self._on_made = on_made
        self._speeds = Speeds(scenario, streams)
        self._chance = streams.random("contributions")
        self._offers: dict[ContributionRoot, Offered] = {}
        self._roots: dict[int, ContributionRoot] = {}  # by the numbers of their blobs

    def train(self, node: int) -> None:
        """A node begins its round; nothing comes of it where the plan does not name it."""
        plan, now_ns = self._chain.plan, self._wires.engine.now_ns
        given = plan.share_of(self._crowd.names[node])
        if given is None:
            return
        step_ns = self._speeds.step_ns(node, plan.round, now_ns)
        steps = max(1, min(given.steps_max, steps_in(plan.train_us, step_ns // 1000)))
        done_ns = now_ns + steps * step_ns + work_ns(self._work, 1)
        self._wires.alarm(done_ns, node, self._trained, node, plan.round, steps, step_ns)

    def root_of(self, number: int) -> ContributionRoot | None:
        """Of the contribution with this blob; None of one of a round that is over."""
        return self._roots.get(number)

    def body_of(self, root: ContributionRoot) -> OfferBody:
        return self._offers[root].body

    def shipment_of(self, root: ContributionRoot) -> Shipment:
        shipment = self._shipments.find(self._offers[root].blob)
        assert shipment is not None, "a contribution is kept while its round lasts"
        return shipment

    def fetch(self, node: int, number: int) -> None:
        """A validator begins to get one from the others."""
        shipment = self._shipments.find(number)
        if shipment is not None and node != shipment.origin:
            self._shipments.fetch(node, number, self._crowd.ring[node])
            late_ns = self._wires.engine.now_ns
            late_ns += self._chance.randrange(PATIENCE_NS, 2 * PATIENCE_NS)
            self._wires.alarm(late_ns, node, self._shipments.complain, node, number)

    def has_all(self, node: int, decided: Decided) -> bool:
        """Whether a validator has the whole set; what it has not heard of it begins to get."""
        for offer in decided.offers:
            if not self.shipment_of(offer.root).has_whole(node):
                self.fetch(node, self._offers[offer.root].blob)
                return False
        return True

    def forget(self) -> None:
        """The round is over."""
        for number in self._roots:
            self._shipments.forget(number)
        self._offers.clear()
        self._roots.clear()

    def _trained(self, node: int, round_number: int, steps: int, step_ns: int) -> None:
        plan, work = self._chain.plan, self._work
        if plan.round != round_number or self._chain.decided is not None:
            return  # too late
        number = self._shipments.made(work.chunks, work.chunk_bytes, node)
        shipment = self._shipments.find(number)
        assert shipment is not None
        body = OfferBody(
            round=round_number,
            author=self._crowd.names[node],
            base_vertex_id=plan.base,
            blob_root=BlobRoot(shipment.blob.manifest.root),
            size_bytes=shipment.blob.size_bytes,
            codec=self._chain.rules.codec,
            steps=steps,
            tokens=steps * work.tokens_per_step,
            us_per_step=reported_us_per_step(
                max(1, step_ns // 1000), plan.train_us, self._chain.rules.rounds.inner_steps_max
            ),
            upload_bytes_per_s=1,
            base_loss_micronats=0,
            snapshot_roots=(),
        )
        offered = Offered(body, number)
        self._offers[body.root], self._roots[number] = offered, body.root
        receivers = [each for each in self._crowd.validators if each != node]
        for validator in receivers:
            self._wires.send(node, validator, offered)
        self._chance.shuffle(receivers)
        up = [each for each in receivers if self._wires.is_up(each)]
        self._shipments.deal(node, number, up)
        self._on_made(node, offered)
