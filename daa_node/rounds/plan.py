"""What every participant may do in the next round: a pure function of the certified parent.

H_i follows the speed that participant i reported in the newest finalized set, so that all finish at
one time: when the window's share for training ends, or when the fastest have taken every step they
may, whichever comes first. Nobody then waits for the slow, and nobody slow comes too late. Integers
only: every node computes the same plan. What it names are ceilings; a node may do less.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from daa_consensus.committee import Committee
from daa_dag.checkpoint import Vertex
from daa_dag.ids import Digest, NodeId, VertexId
from daa_node.rounds.config import RoundsConfig

# Training gets 7 tenths of the window; upload, checks and Acks the rest.
TRAIN_SHARE = (7, 10)
# While nobody's speed is known all start with this part of the ceiling rather than be late. Later
# a newcomer has the ceiling, as it stops in time (see Plan.train_us); its weight starts with it.
NEWCOMER_SHARE = (1, 2)
# Planned weights at most double a round: nobody buys influence by one large claim.
WEIGHT_GROWTH_MAX = 2


@dataclass(frozen=True, slots=True)
class Share:
    """One participant's ceilings for the round."""

    author: NodeId
    steps_max: int
    weight_max: int  # tokens that may count in weighted rules


@dataclass(frozen=True, slots=True)
class Plan:
    """The round after `base`, the same on every node."""

    round: int
    base: VertexId
    seed: Digest
    shares: tuple[Share, ...]  # sorted by author
    tokens_per_step: int
    train_us: int  # when everybody stops, however many steps it has taken

    def share_of(self, author: NodeId) -> Share | None:
        return next((share for share in self.shares if share.author == author), None)

    def weight_of(self, author: NodeId, tokens: int) -> int:
        """What an update of so many tokens counts in weighted rules: at most what was planned."""
        share = self.share_of(author)
        return 0 if share is None else min(tokens, share.weight_max)


def make_plan(
    parent: Vertex,
    contributors: Sequence[NodeId],
    config: RoundsConfig,
    tokens_per_step: int,
    newest_round: int,
    committee: Committee,
) -> Plan:
    """The plan on top of `parent`. `newest_round` counts aborted rounds; the plan's is one more.

    `contributors` are those of the round, `committee` is that of its epoch.
    """
    known = {facts.author: facts for facts in parent.contributors}
    train_us = _train_us(parent, config, committee)
    shares = []
    for author in sorted(contributors):
        facts = known.get(author)
        if facts is None:
            part = config.inner_steps_max * NEWCOMER_SHARE[0] // NEWCOMER_SHARE[1]
            steps, weight = config.inner_steps_max if known else part, part * tokens_per_step
        else:
            steps = train_us // max(1, facts.us_per_step)
            weight = facts.weight * WEIGHT_GROWTH_MAX
        steps = min(max(1, steps), config.inner_steps_max)
        weight = min(max(tokens_per_step, weight), config.inner_steps_max * tokens_per_step)
        shares.append(Share(author, steps, weight))
    vertex_id = parent.vertex_id
    seed = Digest(bytes(vertex_id))
    return Plan(newest_round + 1, vertex_id, seed, tuple(shares), tokens_per_step, train_us)


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
