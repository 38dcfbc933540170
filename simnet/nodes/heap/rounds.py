"""Whole rounds of a crowd: a few validators, a thousand trainers that come and go, and no daemon.

Who is drawn trains for a time of its class, and offers what it made; validators fetch it from each
other, acknowledge it, close and agree on a set; the set's delta spreads over the mesh to everybody,
and the next round begins. Whoever leaves by attrition comes back, or another one comes in its place
under a new name, asks a validator for its word, and is on the roll two rounds after the set.

Real: the roll, the lot, the plan, what counts of a set, collecting, when to close, fetching. A
model: agreement (see round_seats), signatures, training, checking and merging, which take time.

Invariants:
  * no round takes longer than `heal_s`, and has two sets;
  * who is ready and up is drawn within three turns of all;
  * no voucher has more trainers than its quota, and of what counts in a set no more may be bad than
    its rule holds off;
  * what all nodes keep is bounded by their number, whatever the number of rounds.
"""

import resource
from collections import Counter, deque

from daa_dag.ids import NodeId
from daa_node.autonomy.reason import RECENT_ROUNDS
from daa_node.errors import UserError
from simnet.checks.outcome import Outcome, Stopwatch
from simnet.nodes.heap.gossip import share
from simnet.nodes.heap.round_blobs import TICK_NS, Shipments
from simnet.nodes.heap.round_books import Books, Newcomer, middle
from simnet.nodes.heap.round_chain import Chain
from simnet.nodes.heap.round_crowd import Crowd
from simnet.nodes.heap.round_deltas import DELTAS_KEPT, Deltas
from simnet.nodes.heap.round_making import Contributions, work_ns
from simnet.nodes.heap.round_messages import Asked, Freight, Hello, Message, Offered, Proposed
from simnet.nodes.heap.round_requests import POOL_MAX
from simnet.nodes.heap.round_seats import Bound, Host, Seat
from simnet.nodes.heap.wires import Wires
from simnet.world.determinism import BROKEN, DOWN, ROUND, UP, Streams, Trace
from simnet.world.faults import Edge
from simnet.world.links import MS, NS
from simnet.world.scenario import Scenario

KNOCK_NS = 20 * NS  # how often a trainer looks whether it has to ask for its place
EARLY = 10  # a part of the run after which memory is looked at first
KIB = 1024  # getrusage tells of as many bytes


class Rounds:
    """One run."""

    def __init__(self, scenario: Scenario, trace: Trace) -> None:
        self._scenario = scenario
        self._trace = trace
        streams = Streams(scenario.seed).below("rounds")
        self.wires: Wires[Message] = Wires(scenario, trace, self._deliver, reliable=True)
        self.engine = self.wires.engine
        self.crowd = Crowd(scenario, streams)
        names = self.crowd.names
        validators = [names[node] for node in self.crowd.validators]
        self.chain = Chain(scenario, validators, [names[node] for node in self.crowd.trainers])
        crowd = scenario.work.crowd
        self.books = Books(crowd.per_voucher, self.chain.members, self.chain.room)
        self._mesh = self.wires.topology.mesh()
        self.shipments = Shipments(self.wires, streams, self._on_whole)
        self.deltas = Deltas(scenario, self.shipments, self._mesh)
        self.contributions = Contributions(
            scenario, streams, self.wires, self.crowd, self.chain, self.shipments, self._made
        )
        self._chance = streams.random("starts")
        self._merging: set[int] = set()
        self._settled: Proposed | None = None  # of the round
        self._sets: deque[set[NodeId]] = deque(maxlen=RECENT_ROUNDS)  # authors, the newest last
        self._bounds = {node: Bound() for node in self.crowd.validators}
        self._seats: dict[int, Seat] = {}  # of validators that are up
        self.peak_early_kib = 0

    def run(self) -> None:
        """Play the whole scenario."""
        self._draw()
        for node in range(self._scenario.node_count):
            self.wires.alarm(self._chance.randrange(TICK_NS), node, self._come_up, node)
        self.wires.play(self._edge)

    def _come_up(self, node: int) -> None:
        if node in self._bounds:
            self._seats[node] = self._seat(node)
            self.wires.alarm(self.engine.now_ns + TICK_NS, node, self._look, node)
        else:
            self._knock(node)
        if self.engine.now_ns > TICK_NS:
            members = self.crowd.validators if node in self._bounds else ()
            for peer in sorted({*self._mesh[node], *members} - {node}):
                self.wires.send(node, peer, Hello(self.deltas.newest[node]))
        if self.deltas.newest[node] == self.chain.resolved:
            self._begin(node)

    def _edge(self, edge: Edge) -> None:
        now_ns, newcomers = self.engine.now_ns, self.books.newcomers
        for node in self.wires.apply(edge):
            self._trace.note(now_ns, DOWN if edge.begins else UP, node=node)
            if edge.begins:
                self.crowd.left(node)
                self.shipments.node_died(node)
                self._seats.pop(node, None)
                self._merging.discard(node)
                continue
            before = self.crowd.names[node]
            if self.crowd.returned(node):
                newcomers.pop(before, None)
                newcomers[self.crowd.names[node]] = Newcomer(now_ns, self.chain.plan.round)
                self.deltas.newest[node] = 0
            self._come_up(node)

    def _knock(self, node: int) -> None:
        """A trainer asks for its place on the roll, if it has to, again and again."""
        self.wires.alarm(self.engine.now_ns + KNOCK_NS, node, self._knock, node)
        asked = self.crowd.knock(node, self.chain)
        if asked is not None:
            voucher, request = asked
            self.wires.send(node, voucher, Asked((request,), is_first_hand=True))

    def _seat(self, node: int) -> Seat:
        others = [each for each in self.crowd.validators if each != node]

        def tell(message: Message) -> None:
            for validator in others:
                self.wires.send(node, validator, message)

        host = Host(
            now_ns=lambda: self.engine.now_ns,
            tell=tell,
            reachable=lambda: self.crowd.up,
            newest_sets=lambda: list(self._sets),
            fetch=lambda number: self.contributions.fetch(node, number),
            merge=lambda: self._merge(node),
            decide=self._decide,
            over=lambda: self._over(node),
        )
        delta_ns = self._scenario.work.delta_ms * MS
        return Seat(self.crowd.names[node], self.chain, host, self._bounds[node], delta_ns)

    def _look(self, node: int) -> None:
        seat = self._seats[node]
        if seat.round == self.chain.resolved + 1:
            seat.look()
        self.wires.alarm(self.engine.now_ns + TICK_NS, node, self._look, node)

    def _begin(self, node: int) -> None:
        """It has the newest state: the next round begins here."""
        plan, seat = self.chain.plan, self._seats.get(node)
        if seat is not None:
            if seat.round == plan.round:
                return
            if seat.round == plan.round - 1 and self._sets:
                seat.learn(self._sets[-1])
            seat.begin(plan)
        self.contributions.train(node)

    def _made(self, node: int, offered: Offered) -> None:
        seat = self._seats.get(node)
        if seat is not None:
            seat.own_ready(offered)

    def _on_whole(self, node: int, number: int) -> None:
        done_ns = self.engine.now_ns + work_ns(self._scenario.work, 1)
        round_number = self.deltas.round_of(number)
        if round_number is None:
            self.wires.alarm(done_ns, node, self._checked, node, number)
        else:
            done_ns += self.deltas.catch_up_ns(node, round_number)
            self.wires.alarm(done_ns, node, self._stepped, node, round_number)

    def _checked(self, node: int, number: int) -> None:
        """A validator holds a contribution, and has looked at it."""
        root, seat = self.contributions.root_of(number), self._seats[node]
        if root is not None:
            seat.held(root)
            if seat.is_decided:
                self._merge(node)

    def _merge(self, node: int) -> None:
        decided = self.chain.decided
        if decided is None or node in self._merging:
            return
        if self.contributions.has_all(node, decided):
            self._merging.add(node)
            took_ns = work_ns(self._scenario.work, len(decided.offers) + 1)
            self.wires.alarm(self.engine.now_ns + took_ns, node, self._merged, node, decided.round)

    def _merged(self, node: int, round_number: int) -> None:
        if self.chain.resolved < round_number:  # else the others were quicker: it is fetched
            self.deltas.give(node, round_number)
            self._seats[node].executed(self.crowd.names[node])

    def _decide(self, proposal: Proposed) -> None:
        """Some validator has seen a quorum bound to this."""
        if self.chain.resolved >= proposal.round:
            return
        if self._settled is None:
            self._settled = proposal
            bodies = [self.contributions.body_of(root) for root in proposal.roots]
            decided = self.chain.decide(bodies, proposal.requests)
            self.deltas.made(decided.round, is_abort=not bodies)
        elif self._settled.what != proposal.what:
            self.books.forked(proposal.round)

    def _over(self, node: int) -> None:
        """A validator has seen that a quorum has merged the round's set."""
        round_number = self._seats[node].round
        if self.chain.resolved < round_number:
            self._certify()
        if self.deltas.newest[node] == round_number:
            self._told(node)
            self.deltas.share(node)
            self._begin(node)
        else:
            self.deltas.fetch(node, round_number, self.crowd.ring[node])

    def _stepped(self, node: int, round_number: int) -> None:
        """It has the state of the round."""
        if self.deltas.newest[node] < round_number:
            self.deltas.newest[node] = round_number
            if round_number == self.chain.resolved:
                self._told(node)
                self._begin(node)

    def _told(self, node: int) -> None:
        if node in self._bounds and self._sets:
            told = {"height": self.chain.parent.height, "vertex": self.chain.parent.vertex_id.hex()}
            size = len(self._sets[-1])
            self._trace.note(
                self.engine.now_ns, ROUND, node=node, loss_nats=None, contributors=size, **told
            )

    def _certify(self) -> None:
        decided, books = self.chain.decided, self.books
        assert decided is not None
        books.certified(decided, self.chain.vouchers, self.engine.now_ns)
        for offer in decided.offers:
            if offer.author not in self.chain.members:
                shipment = self.contributions.shipment_of(offer.root)
                books.uploaded(shipment.sent_bytes, shipment.blob.size_bytes)
        seats = sum(seat.kept for seat in self._seats.values())
        books.keeps(self.shipments.kept + seats + self.crowd.kept, kept_max(self._scenario))
        before = self.chain.vouchers.keys()
        self.chain.certify()
        books.enrolled += len(self.chain.vouchers.keys() - before)
        books.retired += len(before - self.chain.vouchers.keys())
        if decided.offers:
            self._sets.append({offer.author for offer in decided.offers})
        self.contributions.forget()
        self.deltas.forget_before(self.chain.plan)
        self._merging.clear()
        self._settled = None
        self._draw()

    def _draw(self) -> None:
        """A round begins: the books look at who is in it."""
        self.books.begins(self.chain.roll, self.chain.plan, self.crowd.up, self.engine.now_ns)
        if not self.peak_early_kib and self.engine.now_ns * EARLY > self.wires.end_ns:
            self.peak_early_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def _deliver(self, sender: int, receiver: int, message: Message) -> None:
        seat = self._seats.get(receiver)
        match message:
            case Freight():
                self.deltas.hear(receiver, message)
                self.shipments.on_freight(sender, receiver, message)
            case Hello(round=newest):
                if self.deltas.newest[receiver] > newest:
                    self.deltas.share(receiver, (sender,))
                if seat is not None and sender in self._bounds:
                    near = sender in self.crowd.ring[receiver]
                    for each in seat.recall(with_offers=near):
                        self.wires.send(receiver, sender, each)
            case Asked(requests=requests, is_first_hand=first):
                told = () if seat is None else seat.pool.add(requests, first)
                for validator in self.crowd.validators if told else ():
                    if validator != receiver:
                        self.wires.send(receiver, validator, Asked(told, False))
            case _:
                if seat is not None:
                    seat.hear(self.crowd.names[sender], message)


def kept_max(scenario: Scenario) -> int:
    """Entries that all nodes together may keep, of blobs, seats and requests."""
    count, most = scenario.node_count, scenario.work.crowd.contributors_max
    members = sum(group.count for group in scenario.nodes if group.role == "validator")
    contributions = (most + members) * (2 * members + 3)
    deltas = 2 * (DELTAS_KEPT + 1) * count
    return contributions + deltas + members * (POOL_MAX + 12 * most + 8 * members) + count


def run_rounds(scenario: Scenario, trace: Trace) -> Outcome:
    """Raises UserError for what this work does not have."""
    began = Stopwatch()
    if scenario.adversaries:
        raise UserError("heap rounds have no adversaries")
    world = Rounds(scenario, trace)
    world.run()
    books, engine = world.books, world.engine
    verdicts = books.verdicts(engine.now_ns, int(scenario.checks.heal_s * NS))
    for verdict in verdicts:
        if not verdict.ok:
            trace.note(engine.now_ns, BROKEN, name=verdict.name, detail=verdict.detail)
    met = {
        "newcomer in a set": books.first_rounds.total(),
        "retired by its voucher": books.retired,
        "idle, drawn and not there": books.idled,
    }
    return began.outcome(
        scenario,
        trace,
        engine.now_ns / NS,
        (world.chain.parent.vertex_id.hex(),),
        verdicts,
        Counter(met),
        _facts(world) | _costs(world, began.used_s),
    )


def _facts(world: Rounds) -> dict[str, object]:
    books = world.books
    hours = world.engine.now_ns / NS / 3600
    return {
        "rounds": books.rounds,
        "rounds_an_hour": round(books.rounds / hours, 1),
        "rounds_aborted": books.aborted,
        "longest_round_s": round(books.longest_round_ns / NS, 1),
        "trainers_on_the_roll": len(world.chain.roll.entries),
        "drawn_in_set_share": share(books.in_set, books.drawn),
        "drawn_and_up_in_set_share": share(books.in_set, books.drawn_up),
        "counted_share": share(books.counted, books.in_set),
        "bad_most": books.bad_most,
        "enrolled": books.enrolled,
        "retired": books.retired,
        "idled": books.idled,
        "first_set_rounds_p50": middle(books.first_rounds, 50),
        "first_set_rounds_last": middle(books.first_rounds, 100),
        "first_set_s_p50": middle(books.first_s, 50),
        "waited_rounds_most": books.waited_max,
        "waited_rounds_bound": books.waited_bound,
        "upload_percent_p50": middle(books.uploads, 50),
        "upload_percent_p99": middle(books.uploads, 99),
    }


def _costs(world: Rounds, used_s: float) -> dict[str, object]:
    count, wires = len(world.crowd.names), world.wires
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "kept_entries_most": world.books.kept_most,
        "peak_mib": round(peak_kib / KIB, 1),
        "peak_mib_after_a_tenth": round(world.peak_early_kib / KIB, 1),
        "peak_kib_a_node": round(peak_kib / count, 1),
        "messages": sum(wires.sent),
        "mib_a_node": round(sum(wires.sent_bytes) / count / (1 << 20), 1),
        "events": wires.engine.events,
        "cpu_s_a_virtual_minute": round(used_s / (wires.engine.now_ns / NS / 60), 2),
    }
