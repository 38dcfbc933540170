"""What everybody agrees on, round by round: the trainers' roll, the plan, the set, the vertex.

    draw: roll and parent -> plan        decide: plan, contributions and requests -> set -> roll
                                         certify: set -> vertex, the next parent

There is one such chain in a world: how nodes come to agree is the seats' business, and what they
then know follows from the rules of daemons, which are called here as they are. A set lets trainers
count where its rule holds off the f members and all trainers of the f vouchers that have most.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.enrolment import TrainerRequest
from daa_consensus.roll import Admission, Entry, Roll, RollRules, aborted
from daa_dag.checkpoint import ZERO_ID, Contributor, Vertex
from daa_dag.ids import (
    BlobRoot,
    BlockId,
    ChainId,
    Digest,
    NodeId,
    tagged_digest,
)
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.plan import Plan, RoundRules
from simnet.world.scenario import Scenario

MS_PER_S = 1000
VIEWS_A_ROUND = 64  # numbers set apart for a round's views
SETS_REMEMBERED = 4  # by what they asked for: a request on its way is younger
ROLL_FREE = 2  # times as many places as the world begins with trainers


@dataclass(frozen=True, slots=True)
class Decided:
    """A final set, as it is merged."""

    round: int
    offers: tuple[OfferBody, ...]
    weights: tuple[int, ...]  # one an offer; 0: it does not count
    idle: frozenset[NodeId]  # trainers of it that do not count
    f_agg: int
    requests: tuple[TrainerRequest, ...]


class Chain:
    """From the genesis to the newest set."""

    def __init__(
        self, scenario: Scenario, validators: Sequence[NodeId], trainers: Sequence[NodeId]
    ) -> None:
        """Each trainer is vouched for from the start, by one validator after the other."""
        crowd = scenario.work.crowd
        self.committee = Committee(tuple(Validator(name, 1) for name in sorted(validators)))
        chain_id = ChainId(tagged_digest("simnet-chain", [scenario.seed]))
        self.domain = Domain(chain_id, 0, self.committee.root)
        self.rules = rules_of(scenario)
        self.members = frozenset(validators)
        self._room = max(0, crowd.contributors_max - len(validators))
        entries = [
            Entry(name, b"keys", validators[at % len(validators)], 1, 0, 0)
            for at, name in enumerate(trainers)
        ]
        places = ROLL_FREE * len(trainers) + 1
        roll_rules = RollRules(
            Admission.VOUCHED,
            crowd.per_voucher,
            places,
            crowd.contributors_max,
            len(validators) + places,
        )
        self.roll = Roll(roll_rules, tuple(sorted(entries, key=lambda entry: entry.name)))
        self.parent = _genesis(self.committee)
        self.resolved = 0  # the newest round that is over, aborted ones included
        self.decided: Decided | None = None  # of the round that the plan is for
        self.settled: frozenset[Digest] = frozenset()  # ids of requests that the newest sets carry
        self._carried: list[frozenset[Digest]] = []  # by the newest sets, one each
        self.plan = self._drawn_plan()

    @property
    def room(self) -> int:
        """For trainers, of one round."""
        return self._room

    def decide(self, offers: Sequence[OfferBody], requests: Sequence[TrainerRequest]) -> Decided:
        """The plan's round has a final set of these; without any it is aborted."""
        assert self.decided is None, f"round {self.plan.round} is decided"
        ordered = sorted(offers, key=lambda offer: offer.author)
        for offer in ordered:
            self.plan.check(offer, self.rules.codec_sizes.get)
        authors = [offer.author for offer in ordered]
        terms = self.rules.terms(self.plan, authors)
        f_agg, idle = terms.f_agg, terms.idle
        weights = tuple(
            0 if each.author in idle else self.plan.weight_of(each.author, each.tokens)
            for each in ordered
        )
        self.decided = Decided(
            self.plan.round, tuple(ordered), weights, idle, f_agg, tuple(requests)
        )
        return self.decided

    def certify(self) -> Vertex | None:
        """The decided set is merged, and the next round drawn; None if it was aborted."""
        decided = self.decided
        assert decided is not None, "a set is decided before it is certified"
        self.decided, self.resolved = None, decided.round
        authors = [offer.author for offer in decided.offers]
        self.roll = self.roll.decided(decided.round, decided.requests, authors, (), self.members)
        self._carried = [*self._carried, frozenset(each.id for each in decided.requests)]
        self._carried = self._carried[-SETS_REMEMBERED:]
        self.settled = frozenset[Digest]().union(*self._carried)
        made = self._vertex(decided) if decided.offers else None
        if made is None:
            self.roll = aborted(self.roll, decided.round)
        self.parent = self.parent if made is None else made
        self.plan = self._drawn_plan()
        return made

    def entry_of(self, name: NodeId) -> Entry | None:
        """On the roll as it is now."""
        return self._entries.get(name)

    def leader(self, round_number: int, view: int) -> NodeId:
        """Of a view of the round."""
        number = round_number * VIEWS_A_ROUND + view % VIEWS_A_ROUND
        return self.committee.leader(self.domain, number)

    def most_since_ns(self, plan: Plan, eligible_ns: Iterable[int]) -> int | None:
        """Since when a quorum holds the updates of most; as rounds.closing has it."""
        most = max(len(plan.shares) // 2, 2 * self.rules.f_agg(plan)) + 1
        in_order = sorted(eligible_ns)
        return in_order[most - 1] if len(in_order) >= most else None

    @property
    def vouchers(self) -> dict[NodeId, NodeId | None]:
        """Of everybody on the roll."""
        return {name: entry.voucher for name, entry in self._entries.items()}

    def may_merge(self, authors: Collection[NodeId]) -> bool:
        """Whether a set of these holds off as many as may be bad in it."""
        return self.rules.are_enough(self.plan, authors)

    def _drawn_plan(self) -> Plan:
        round_number, vertex_id = self.resolved + 1, self.parent.vertex_id
        # An aborted round leaves the parent: the round's number makes the lot another one.
        self.roll = self.roll.drawn(round_number, Digest(bytes(vertex_id)), self._room)
        drawn = {entry.name: entry.voucher for entry in self.roll.planned(round_number)}
        contributors = sorted([*self.members, *drawn])
        self._entries = {entry.name: entry for entry in self.roll.entries}
        base = self.parent, contributors, self.resolved, self.committee
        return self.rules.plan(*base, drawn)

    def _vertex(self, decided: Decided) -> Vertex:
        facts = tuple(
            Contributor(
                offer.author,
                offer.root,
                weight,
                offer.steps,
                offer.tokens,
                offer.us_per_step,
                offer.upload_bytes_per_s,
                offer.base_loss_micronats,
            )
            for offer, weight in zip(decided.offers, decided.weights, strict=True)
        )
        block = BlockId(tagged_digest("simnet-block", _payload(decided, self.rules).as_value()))
        delta = BlobRoot(tagged_digest("simnet-delta", [block]))
        return Vertex(
            parents=(self.parent.vertex_id,),
            height=self.parent.height + 1,
            training_round=decided.round,
            decided_block=block,
            contributors=facts,
            rule=self.rules.rule,
            f_agg=decided.f_agg,
            delta_root=delta,
            model_root=BlobRoot(tagged_digest("simnet-model", [block])),
            outer_state_root=BlobRoot(tagged_digest("simnet-outer", [block])),
            ledger_root=bytes(ZERO_ID),
            validator_set_root=self.committee.root,
            tokens_total=self.parent.tokens_total + sum(each.tokens for each in facts),
        )


def rules_of(scenario: Scenario) -> RoundRules:
    """Of rounds, as a genesis of this scenario would have them."""
    work = scenario.work
    updates, window_ms = work.updates, round(work.window_s * MS_PER_S)
    return RoundRules(
        rounds=RoundsConfig(
            inner_steps_max=work.inner_steps_max, window_ms=window_ms, exec_ms=window_ms
        ),
        tokens_per_step=work.tokens_per_step,
        rule=updates.rule,
        f_agg_among=updates.f_agg_among,
        codec=updates.codec,
        codec_sizes={updates.codec: work.chunks * work.chunk_bytes},
        check_update=_nobody_looks,
        compare=_nobody_looks,
        measure=_nobody_looks,
    )


def _nobody_looks(*_of: object) -> NoReturn:
    raise AssertionError("contributions have no values here, only sizes")


def _payload(decided: Decided, rules: RoundRules) -> SetPayload:
    return SetPayload(
        decided.round, decided.offers, decided.weights, rules.rule, decided.f_agg, (), (), ()
    )


def _genesis(committee: Committee) -> Vertex:
    nothing = BlobRoot(ZERO_ID)
    return Vertex(
        parents=(),
        height=0,
        training_round=0,
        decided_block=BlockId(ZERO_ID),
        contributors=(),
        rule="",
        f_agg=0,
        delta_root=nothing,
        model_root=nothing,
        outer_state_root=nothing,
        ledger_root=bytes(ZERO_ID),
        validator_set_root=committee.root,
        tokens_total=0,
    )
