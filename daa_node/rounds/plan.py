"""What every participant may do in the next round, if there is one: a pure function of the parent.

H_i follows the speed that participant i reported in the newest finalized set, so that all finish at
one time: when the window's share for training ends, or when the fastest have taken every step they
may, whichever comes first. Nobody then waits for the slow, and nobody slow comes too late. Integers
only: every node computes the same plan. What it names are ceilings; a node may do less.

Whoever collects, votes or verifies a chain later asks the same question: whether contributions, and
a set of them, are what the plan allows.

Trainers contribute and do not vote, so agreement survives any number of them that lie; a merge does
not. Of v members' and t trainers' contributions `f_agg = f + c_1 + ... + c_f + min(u, L)` may be
bad: f members, as without trainers; the f largest counts of trainers with one voucher; and of u
that nobody vouches for at most L, a third of those planned, rounded up. Trainers count as far as
the rule holds off so many (for a trimmed mean `2 f_agg < v + t`): all, or of each voucher so many
at most, by lot, or of u none. Else too few honest ones may be there. So liars are never more than
f_agg of what is merged, however many are away, and trainers that stay away stop nobody.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from statistics import median_high
from types import MappingProxyType

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_consensus.committee import Committee
from daa_consensus.roll import lying_max
from daa_dag.checkpoint import Vertex
from daa_dag.ids import Digest, NodeId, VertexId, tagged_digest
from daa_node.errors import PeerFault, RuleUnbounded
from daa_node.rounds.config import EndConfig, RoundsConfig
from daa_node.spot_checks.copies import Likeness, Update, sample_seed
from daa_node.spot_checks.usefulness import Usefulness
from daa_node.training.boundaries import boundary_steps
from daa_node.updates.aggregation.rule import rule_named

# Training gets 7 tenths of the window; upload, checks and Acks the rest.
TRAIN_SHARE = (7, 10)
# While nobody's speed is known all start with this part of the ceiling rather than be late. Later
# a newcomer has the ceiling, as it stops in time (see Plan.train_us); its weight starts with it.
NEWCOMER_SHARE = (1, 2)
# Planned weights at most double a round: nobody buys influence by one large claim.
WEIGHT_GROWTH_MAX = 2
NO_VOUCHERS: Mapping[NodeId, NodeId | None] = MappingProxyType({})

# (updates of a set, seed of the sample, liars at most) -> how near they are to each other
Compare = Callable[[Sequence[Update], Digest, int], Likeness]
# (round, the updates that it merged, seed of the sample) -> what each is worth to the others
Measure = Callable[[int, Sequence[Update], Digest], Sequence[Usefulness]]
SizeOf = Callable[[str], int | None]  # bytes of a blob in the named codec; None: unknown codec


@dataclass(frozen=True, slots=True)
class Share:
    """One participant's ceilings for the round."""

    author: NodeId
    steps_max: int
    weight_max: int  # tokens that may count in weighted rules
    votes: bool = True  # False: a trainer
    voucher: NodeId | None = None  # of a trainer, if somebody vouches for it


@dataclass(frozen=True, slots=True)
class Plan:
    """The round after `base`, the same on every node."""

    round: int
    base: VertexId
    seed: Digest
    shares: tuple[Share, ...]  # sorted by author
    tokens_per_step: int
    train_us: int  # when everybody stops, however many steps it has taken
    segment_steps: int = 0  # from one committed inner state to the next; 0: none is committed
    speeds_known: bool = True  # False: nobody has contributed, and shares are smaller for it

    def share_of(self, author: NodeId) -> Share | None:
        return next((share for share in self.shares if share.author == author), None)

    @property
    def trainers(self) -> frozenset[NodeId]:
        """Those planned that do not vote."""
        return frozenset(share.author for share in self.shares if not share.votes)

    def lying_trainers(self, authors: Collection[NodeId], members_lying: int) -> int:
        """How many trainers among these lie at most, if so many members do."""
        training = [share for share in self.shares if not share.votes]
        vouchers = [share.voucher for share in training if share.author in authors]
        unvouched = sum(share.voucher is None for share in training)
        return lying_max(vouchers, members_lying, unvouched)

    def liars_among(self, authors: Collection[NodeId]) -> int:
        """Of these, how many lie at most: of members, as many as agreement survives."""
        members = len(self.shares) - len(self.trainers)
        lying = max(0, members - 1) // 3
        return lying + self.lying_trainers(authors, lying)

    def choices(self, authors: Collection[NodeId]) -> Iterator[frozenset[NodeId]]:
        """Which trainers among these may count, the larger choice first; the last has none.

        Of each voucher so many at most, by lot: whom it leaves out is another one each round.
        """
        here = [share for share in self.shares if not share.votes and share.author in authors]
        alone = frozenset(share.author for share in here if share.voucher is None)
        of_voucher: dict[NodeId, list[NodeId]] = {}
        for share in sorted(here, key=self._lot):
            if share.voucher is not None:
                of_voucher.setdefault(share.voucher, []).append(share.author)
        most = max((len(names) for names in of_voucher.values()), default=0)
        for others in (alone, frozenset[NodeId]()):
            for each_max in range(most, 0, -1):
                yield others.union(*(names[:each_max] for names in of_voucher.values()))
            yield others

    def _lot(self, share: Share) -> bytes:
        return tagged_digest("trainers-counted", [self.seed, share.author])

    def weight_of(self, author: NodeId, tokens: int) -> int:
        """What an update of so many tokens counts in weighted rules: at most what was planned."""
        share = self.share_of(author)
        return 0 if share is None else min(tokens, share.weight_max)

    def check(self, contribution: OfferBody, size_of: SizeOf) -> None:
        """Raises PeerFault unless the plan allows the contribution."""
        share = self.share_of(contribution.author)
        if share is None:
            raise PeerFault("stranger_offer", "the author is no contributor of this network")
        if contribution.round != self.round:
            raise PeerFault("wrong_round", f"{contribution.round}, now {self.round}")
        if contribution.base_vertex_id != self.base:
            raise PeerFault("wrong_base", contribution.base_vertex_id.hex())
        size_bytes = size_of(contribution.codec)
        if size_bytes is None:
            raise PeerFault("unknown_codec", contribution.codec)
        if contribution.size_bytes != size_bytes:
            raise PeerFault("bad_size", f"{contribution.size_bytes} bytes, want {size_bytes}")
        steps, tokens = contribution.steps, contribution.tokens
        if not 1 <= steps <= share.steps_max:
            raise PeerFault("too_many_steps", f"{steps} of {share.steps_max}")
        if tokens < 1:  # its weight would be 0, and where all are, there is no mean
            raise PeerFault("no_tokens", f"in {steps} steps")
        if tokens > steps * self.tokens_per_step:
            raise PeerFault("too_many_tokens", f"{tokens} in {steps} steps")
        roots = len(contribution.snapshot_roots)
        want = len(boundary_steps(steps, self.segment_steps))
        if roots != want:
            raise PeerFault("bad_boundaries", f"{roots} in {steps} steps, want {want}")


@dataclass(frozen=True, slots=True)
class Terms:
    """How one set is merged: how many that count may be bad, and whose contributions do not."""

    f_agg: int
    idle: frozenset[NodeId]  # trainers that are too many for those who may lie


@dataclass(frozen=True, slots=True)
class RoundRules:
    """What the genesis says of a round and of updates."""

    rounds: RoundsConfig
    tokens_per_step: int
    rule: str
    f_agg_among: Callable[[int], int]  # of so many members that may contribute, how many are bad
    codec: str  # the plan's ceiling
    codec_sizes: Mapping[str, int]  # bytes of a blob in each codec allowed here
    check_update: Callable[[memoryview, str], None]  # raises PeerFault("bad_update", why)
    compare: Compare
    measure: Measure
    segment_steps: int = 0  # as in the plan
    train_on: bool = False  # nobody stands idle while updates travel

    def plan(
        self,
        parent: Vertex,
        contributors: Sequence[NodeId],
        newest_round: int,
        committee: Committee,
        vouchers: Mapping[NodeId, NodeId | None] = NO_VOUCHERS,
    ) -> Plan:
        """As `make_plan`."""
        speed = self.rounds, self.tokens_per_step
        plan = make_plan(parent, contributors, *speed, newest_round, committee, vouchers)
        return replace(plan, segment_steps=self.segment_steps)

    def f_agg(self, plan: Plan) -> int:
        """Of the members planned, how many may be arbitrarily bad."""
        return self.f_agg_among(len(plan.shares) - len(plan.trainers))

    def terms(self, plan: Plan, authors: Collection[NodeId]) -> Terms:
        """How a set of these authors' contributions is merged."""
        f_agg, trainers = self.f_agg(plan), plan.trainers.intersection(authors)
        if not trainers or self.rule == "mean":  # a mean holds off nobody, whoever votes
            return Terms(f_agg, frozenset())
        members = len({*authors}) - len(trainers)
        for counted in plan.choices(authors):
            more = f_agg + plan.lying_trainers(counted, f_agg)
            if counted and self._is_bounded(members + len(counted), more):
                return Terms(more, trainers - counted)
        return Terms(f_agg, trainers)

    def without_idle(self, plan: Plan, decided: SetPayload) -> SetPayload:
        """The set without those that do not count, whatever they have made."""
        idle = self.terms(plan, [offer.author for offer in decided.offers]).idle
        if not idle:
            return decided
        kept = [at for at, offer in enumerate(decided.offers) if offer.author not in idle]
        return replace(
            decided,
            offers=tuple(decided.offers[at] for at in kept),
            weights=tuple(decided.weights[at] for at in kept),
        )

    def are_merged_by(self, node: NodeId, committee: Committee) -> bool:
        """Whether the node merges a round's updates: where all train on, trainers need not.

        They wait for nothing, a delta has fewer bytes than all updates, and who votes must hold
        these anyway. A checker needs what it checks, but who trains on is checked by nobody.
        """
        return not self.train_on or node in committee.stake_of

    def mergers(self, committee: Committee, trainers: Set[NodeId]) -> set[NodeId]:
        """Who fetches a round's updates, of all who vote and train.

        Nodes pass on to each other what each of them sends about once. So where links are alike, an
        author's sends as much as if it served all of them alone.
        """
        here = committee.stake_of.keys() | trainers
        return {node for node in here if self.are_merged_by(node, committee)}

    def ahead_max(self, plan: Plan, steps: int) -> int:
        """How many steps of the round after `plan` to take before its order: never all of them.

        That round has as many as this one, `steps`, unless speeds are known then for the first
        time: shares are no longer smaller, and its updates may travel for longer than those take.
        """
        next_steps = steps if plan.speeds_known else self.rounds.inner_steps_max
        return max(0, next_steps - 1) if self.train_on else 0

    def are_enough(self, plan: Plan, authors: Collection[NodeId]) -> bool:
        """Whether a set of these can be merged, if none is another's copy."""
        terms = self.terms(plan, authors)
        return self._is_bounded(len(authors) - len(terms.idle), terms.f_agg)

    def _is_bounded(self, count: int, f_agg: int) -> bool:
        try:
            rule_named(self.rule).check_bound(count, f_agg)
        except RuleUnbounded:
            return False
        return True

    def unplanned(self, plan: Plan, decided: SetPayload) -> str | None:
        """Why the plan does not lead to these contributions, weights and rule; None if it does."""
        terms = self.terms(plan, [offer.author for offer in decided.offers])
        f_agg = terms.f_agg
        if (decided.rule, decided.f_agg) != (self.rule, f_agg):
            return f"rule {decided.rule} f={decided.f_agg}, want {self.rule} f={f_agg}"
        for contribution, weight in zip(decided.offers, decided.weights, strict=True):
            author = contribution.author
            try:
                plan.check(contribution, self.codec_sizes.get)
            except PeerFault as fault:
                return f"{author.hex()[:8]}: {fault}"
            most = 0 if author in terms.idle else plan.weight_of(author, contribution.tokens)
            if weight not in (0, most):
                return f"weight {weight} of {author.hex()[:8]}"
        if len(decided.offers) > len(terms.idle) and not any(decided.weights):
            return "no contribution counts"
        return None

    def likeness(
        self, plan: Plan, offers: Sequence[OfferBody], blobs: Sequence[memoryview]
    ) -> Likeness:
        """Of a set's contributions, whose blobs these are. Blocking."""
        liars_max = plan.liars_among([offer.author for offer in offers])
        return self.compare(_updates(offers, blobs), _seed(plan, offers), liars_max)

    def usefulness(
        self, plan: Plan, offers: Sequence[OfferBody], blobs: Sequence[memoryview]
    ) -> Mapping[NodeId, Usefulness]:
        """Of a set's contributions that count, by author. Blocking. Raises PeerFault."""
        measures = self.measure(plan.round, _updates(offers, blobs), _seed(plan, offers))
        return dict(zip((offer.author for offer in offers), measures, strict=False))


def _updates(offers: Sequence[OfferBody], blobs: Sequence[memoryview]) -> list[Update]:
    return [Update(blob, offer.codec) for offer, blob in zip(offers, blobs, strict=True)]


def _seed(plan: Plan, offers: Sequence[OfferBody]) -> Digest:
    return sample_seed(plan.seed, [offer.root for offer in offers])


def make_plan(
    parent: Vertex,
    contributors: Sequence[NodeId],
    config: RoundsConfig,
    tokens_per_step: int,
    newest_round: int,
    committee: Committee,
    vouchers: Mapping[NodeId, NodeId | None] = NO_VOUCHERS,
) -> Plan:
    """The plan on top of `parent`. `newest_round` counts aborted rounds; the plan's is one more.

    `contributors` are those of the round, `committee` is that of its epoch: others of them train,
    and `vouchers` names who vouches for which of these.
    """
    known = {facts.author: facts for facts in parent.contributors}
    train_us = _train_us(parent, config, committee)
    shares = []
    for author in sorted(contributors):
        facts = known.get(author)
        part = config.inner_steps_max * NEWCOMER_SHARE[0] // NEWCOMER_SHARE[1]
        if facts is None:
            steps = config.inner_steps_max if known else part
        else:
            steps = train_us // max(1, facts.us_per_step)
        # Whose update counted nothing starts again as who made none: it may have been the origin.
        counted = 0 if facts is None else facts.weight
        weight = counted * WEIGHT_GROWTH_MAX or part * tokens_per_step
        steps = min(max(1, steps), config.inner_steps_max)
        weight = min(max(tokens_per_step, weight), config.inner_steps_max * tokens_per_step)
        votes = author in committee.stake_of
        shares.append(Share(author, steps, weight, votes, vouchers.get(author)))
    vertex_id = parent.vertex_id
    seed = Digest(bytes(vertex_id))
    return Plan(
        newest_round + 1,
        vertex_id,
        seed,
        tuple(shares),
        tokens_per_step,
        train_us,
        speeds_known=bool(known),
    )


def _train_us(parent: Vertex, config: RoundsConfig, committee: Committee) -> int:
    """How long everybody trains: as long as the fastest that can be believed need.

    A speed is believed once a blocking weight claims it or a higher one: one of those is honest,
    whoever happened to be in the set. If the set does not weigh as much, nobody is believed.
    """
    window_us = config.window_ms * 1_000 * TRAIN_SHARE[0] // TRAIN_SHARE[1]
    claimed_by: set[NodeId] = set()
    for facts in sorted(parent.contributors, key=lambda facts: facts.us_per_step):
        claimed_by.add(facts.author)
        if committee.weight(claimed_by) >= committee.blocking:
            return min(window_us, config.inner_steps_max * facts.us_per_step)
    return window_us


def told_loss_micronats(vertex: Vertex) -> int | None:
    """The held-out loss of the vertex's base, as those merged tell it; None if most cannot.

    The upper median: no minority of them makes it lower than somebody else measured. Zero says that
    somebody could not measure. Who counts nothing tells nothing: of such, most may lie.
    """
    told = [facts.base_loss_micronats for facts in vertex.contributors if facts.weight]
    measured = [loss for loss in told if loss > 0]
    return median_high(measured) if 2 * len(measured) > len(told) else None


def why_ended(vertex: Vertex, end: EndConfig) -> str | None:
    """Why the job is done with `vertex`, or None."""
    if end.rounds is not None and vertex.height >= end.rounds:
        return f"{vertex.height} rounds are done"
    if end.tokens is not None and vertex.tokens_total >= end.tokens:
        return f"{vertex.tokens_total} tokens are done"
    loss = told_loss_micronats(vertex)
    target = end.target_loss
    if loss is not None and target is not None and loss <= round(target * 1e6):
        return f"the held-out loss fell to {loss / 1e6:.4f} nats"
    return None
