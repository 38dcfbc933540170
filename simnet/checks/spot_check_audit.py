"""Whether the rules of spot checks and disputes do what they are for, told from outside of them.

  * Whoever trains otherwise than it shows is drawn, and seen through, as often as the lot predicts:
    so often not that honest code would do so once in 1 / RARE runs at most.
  * What a quorum convicts somebody for is a quorum's, and he is not honest.
  * No honest checker finds honest work to differ, and no honest judge convicts the honest; nor does
    anybody honest shun the honest. One doubts honest work so seldom that more is not one run in
    1 / RARE.
  * Whoever accuses falsely, and in time, is convicted.
  * Nothing is judged or opened any more once its dispute is over its time.

Of a liar's contributions those count that took every step, for a round that was cut short may hold
nothing false; and not the first two: a cheat is honest until one of its updates is merged.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import comb
from typing import Any, Final

from daa_consensus.bft.evidence import decode_evidence
from daa_consensus.bft.messages import ResultPayload, SetPayload
from daa_consensus.votes import Certificate
from daa_node.disputes.decided_sets import DISPUTE_ROUNDS
from daa_node.observability import events as names
from daa_node.spot_checks.config import SpotChecksConfig
from daa_node.spot_checks.findings import Finding
from simnet.checks.invariants import (
    FRAMERS_FALL,
    IN_TIME,
    NO_SLANDER,
    SEEN_THROUGH,
    Broken,
    Watch,
)
from simnet.world.adversaries.shapes import LIMITS
from simnet.world.links import NS
from simnet.world.scenario import AdversaryConfig, Cheat

RARE = 1e-4
CHECKED_WITHIN_ROUNDS = 8  # one is fetched while another waits for a training of its checker
# Draws that are told of where nodes come and go: who was not there when a set was decided checks
# nothing of it.
DRAWN_LEAST = 0.5
# To open, halve, replay and tell takes some ten rounds; then two cycles of leaders have a set each.
JUDGED_WITHIN_ROUNDS = 20
# A replay that was begun in time may end a round later, and the dispute is looked at every 2 s.
LATE_ROUNDS, LATE_S = 2, 5.0
HONEST_AT_FIRST = 2
# What one step hides in a segment is seen once all devices are calibrated, and have said so: they
# are asked every five seconds.
TOLD_WITHIN_ROUNDS = 12
DOUBTED_WRONGLY = 0.01  # of honest segments at most; measured was a thousandth
DROWNED: Final[frozenset[Cheat]] = frozenset({"stretches_one_step"})
DROWNED_SEEN = 0.9  # of those that are looked at: it drowns more in some than in others
IN_ONE_SEGMENT: Final[frozenset[Cheat]] = frozenset(
    {"skips_in_the_middle", "skips_one_step", "rounds_once", "moments_only", *DROWNED}
)
JUDGING = frozenset({names.VERDICT_GIVEN, names.VERDICT_FAILED, names.SEGMENT_OPENED})


def seen_share(liar: AdversaryConfig, segments: int) -> float | None:
    """Of a full round's segments those whose check sees through the liar; None: nobody can say.

    The seal is part of every check. A copycat that finds nothing to copy offers its own.
    """
    match liar.kind, liar.cheat:
        case (("poisoner" | "free_rider"), _):
            return 1.0
        case "cheat", "knows_the_lot":
            return 1 - 1 / segments
        case "cheat", "copies_update":
            return None
        case "cheat", cheat:
            share = 1 / segments if cheat in IN_ONE_SEGMENT else 1.0
            return share * (DROWNED_SEEN if cheat in DROWNED else 1.0)
        case _:
            return None


@dataclass(slots=True)
class SpotCheckAudit:
    """Of one run; `numbers` are nodes by node id in hex, `watch` knows the chain."""

    watch: Watch
    numbers: Mapping[str, int]
    nodes: int
    steps: int  # of a whole round
    rules: SpotChecksConfig
    liars: Mapping[int, AdversaryConfig]
    lossy: Collection[int]  # nodes whose disk has failed them, as far as that has come
    # By author and round: what an honest checker has found.
    _found: dict[tuple[int, int], Finding] = field(default_factory=dict)
    _honest_looks: int = 0  # at honest work
    _honest_doubts: int = 0
    _calibrated: dict[int, int] = field(default_factory=dict)  # by node: after how many sets
    _framed: dict[int, int] = field(default_factory=dict)  # by framer: after how many sets
    # By node: when it knew of a decided set, by round.
    _decided_ns: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def on_event(self, node: int, event: Mapping[str, Any], now_ns: int) -> None:
        """Any node says so; of liars only whom they accuse is heard. Raises Broken."""
        name = event["name"]
        if name == names.CALIBRATED:
            self._calibrated.setdefault(node, len(self._sets()))
        elif node in self.liars:
            if name == names.DOUBT_ENDED and event["outcome"] == "accused":
                self._accused(node, self.numbers.get(event["author"]))
        elif name == names.BLOCK_FINALIZED and event["payload"] == SetPayload.__name__:
            self._decided_ns[node].setdefault(event["height"], now_ns)
        elif name == names.SEGMENT_CHECKED:
            self._checked(node, self.numbers.get(event["author"]), event)
        elif name == names.AUTHOR_SHUNNED:
            author = self.numbers.get(event["author"])
            if self._is_honest(node) and self._is_honest(author):
                raise Broken(NO_SLANDER, f"node {node} shuns node {author}: {event}")
        elif name in JUDGING:
            self._judged(node, event, now_ns)

    def _accused(self, framer: int, author: int | None) -> None:
        kind = self.liars[framer].kind
        if kind == "framer" and self._is_honest(author):
            self._framed.setdefault(framer, len(self._sets()))

    def _checked(self, node: int, author: int | None, event: Mapping[str, Any]) -> None:
        if author is None:
            return
        finding = Finding(event["finding"])
        if finding is Finding.DIFFERS and self._is_honest(node) and self._is_honest(author):
            raise Broken(NO_SLANDER, f"node {node} finds node {author}'s work false: {event}")
        if finding is not Finding.UNCHECKED and self._is_honest(node) and self._is_honest(author):
            self._honest_looks += 1
            self._honest_doubts += finding is Finding.DOUBTED
        best = self._found.get((author, event["round"]), Finding.UNCHECKED)
        if best is Finding.UNCHECKED:
            self._found[author, event["round"]] = finding

    def _judged(self, node: int, event: Mapping[str, Any], now_ns: int) -> None:
        if event["name"] == names.VERDICT_GIVEN:
            convicted = self.numbers.get(event["convicted"])
            if self._is_honest(node) and self._is_honest(convicted):
                raise Broken(NO_SLANDER, f"node {node} would convict node {convicted}: {event}")
        over = event["round"] + DISPUTE_ROUNDS + LATE_ROUNDS
        since_ns = self._decided_ns[node].get(over)
        if since_ns is not None and now_ns - since_ns > LATE_S * NS:
            newest = max(self._decided_ns[node])
            raise Broken(IN_TIME, f"node {node} in round {newest}: {event}")

    def at_the_end(self) -> None:
        """Raises Broken."""
        fallen = self._convicted()
        for framer, after in self._framed.items():
            since = len(self._sets()) - after
            if since > JUDGED_WITHIN_ROUNDS and framer not in fallen:
                raise Broken(FRAMERS_FALL, f"node {framer} has accused {since} sets ago")
        fewer = chance_of_so_few(self._honest_doubts - 1, self._honest_looks, DOUBTED_WRONGLY)
        if 1 - fewer < RARE:
            detail = f"{self._honest_doubts} of {self._honest_looks} honest segments are doubted"
            raise Broken(NO_SLANDER, detail)
        if self.rules.is_on:
            for liar, config in self.liars.items():
                share = seen_share(config, self.rules.segments)
                if share is not None and liar not in self.lossy:
                    self._is_seen_through(liar, share)

    def _is_seen_through(self, liar: int, share: float) -> None:
        rounds = self._contributed(liar)[HONEST_AT_FIRST:]
        if self.liars[liar].cheat in DROWNED:
            if len(self._calibrated) < self.nodes:
                return
            since = max(self._calibrated.values()) + TOLD_WITHIN_ROUNDS
            rounds = [round_ for round_ in rounds if round_ > since]
        newest = len(self._sets())
        rounds = [round_ for round_ in rounds if round_ + CHECKED_WITHIN_ROUNDS <= newest]
        told = [self._found[liar, round_] for round_ in rounds if (liar, round_) in self._found]
        honest = (self.nodes - len(self.liars)) / max(1, self.nodes - 1)  # of its checkers
        numerator, denominator = self.rules.share
        drawn = DRAWN_LEAST * honest * numerator / denominator
        looks = [finding for finding in told if finding is not Finding.UNCHECKED]
        seen = sum(finding is not Finding.SOUND for finding in looks)
        if chance_of_so_few(len(told), len(rounds), drawn) < RARE:
            detail = f"drawn {len(told)} times in {len(rounds)} rounds"
        elif chance_of_so_few(seen, len(looks), share) < RARE:
            detail = f"seen {seen} times in {len(looks)} checks"
        else:
            return
        raise Broken(SEEN_THROUGH, f"node {liar}, {self.liars[liar].kind}: {detail}")

    def _is_honest(self, node: int | None) -> bool:
        """And remembers what it has said and done."""
        return node is not None and node not in self.liars and node not in self.lossy

    def _sets(self) -> list[SetPayload]:
        return [b.payload for b in self.watch.chain if isinstance(b.payload, SetPayload)]

    def _contributed(self, liar: int) -> list[int]:
        """Rounds with a result whose sets hold a whole contribution of the liar's."""
        payloads = [block.payload for block in self.watch.chain]
        closed = {payload.round for payload in payloads if isinstance(payload, ResultPayload)}
        return [
            decided.round
            for decided in self._sets()
            if decided.round in closed
            and any(
                self.numbers.get(offer.author.hex()) == liar and offer.steps >= self.steps
                for offer in decided.offers
            )
        ]

    def _convicted(self) -> set[int]:
        """Whom final sets carry evidence against. Raises Broken for what no set should carry."""
        found = set()
        for decided in self._sets():
            for payload in decided.evidence:
                evidence = decode_evidence(payload, LIMITS)
                offender = self.numbers.get(evidence.offender.hex())
                if offender is None:
                    continue
                found.add(offender)
                for part in evidence.parts:
                    if isinstance(part, Certificate):
                        self.watch.counted(part)
                if self._is_honest(offender):
                    raise Broken(NO_SLANDER, f"node {offender} is convicted: {evidence.offence}")
        return found


def chance_of_so_few(seen: int, tries: int, chance: float) -> float:
    """That of so many independent tries so few succeed, or fewer."""
    return sum(
        comb(tries, few) * chance**few * (1 - chance) ** (tries - few) for few in range(seen + 1)
    )
