"""Who may train without a vote, as a job says it, and whether a merge can hold off their liars.

With v validators, of whom f may lie, each vouching for p trainers at most, a round of v + t
contributors has no more than `f_agg = f + min(f * p, t)` bad ones among those that count. A genesis
is refused unless its rule holds off so many (for a trimmed mean: `2 f_agg < v + t`) of the fullest
round, `t = min(max, v * p, contributors_max - v)`. Of every set of fewer, the plan lets count only
so many that it holds (rounds/plan.py).
"""

from pydantic import BaseModel, ConfigDict, Field

from daa_consensus.committee import CONTRIBUTORS_MAX, lying_trainers_max
from daa_consensus.roll import Admission, RollRules
from daa_node.errors import RuleUnbounded
from daa_node.updates.aggregation.rule import rule_named
from daa_node.updates.config import UpdatesConfig


class TrainersConfig(BaseModel):
    """Who may enroll while the network runs; those in the genesis are there in any case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    admission: Admission = Field(
        Admission.CLOSED,
        description="closed: the genesis names all; vouched: whom a validator vouches for; open: "
        "whoever asks, and nothing bounds how many of them lie",
    )
    per_voucher: int = Field(
        1, ge=1, le=CONTRIBUTORS_MAX, description="trainers that one validator vouches for"
    )
    max: int = Field(
        32, ge=1, le=CONTRIBUTORS_MAX, description="trainers on the roll, those that idle too"
    )
    contributors_max: int = Field(
        64,
        ge=1,
        le=CONTRIBUTORS_MAX,
        description="of one round, validators among them; of more trainers a lot picks",
    )

    @property
    def rules(self) -> RollRules:
        room = self.contributors_max
        if self.admission is Admission.CLOSED:
            room = CONTRIBUTORS_MAX  # all that the genesis names
        return RollRules(self.admission, self.per_voucher, self.max, room)

    def why_unfit(self, members: int, named: int, updates: UpdatesConfig) -> str | None:
        """Why so many validators, and trainers that a genesis names, cannot go by these."""
        try:
            updates.check_bounds(members, named)
        except RuleUnbounded as unbounded:
            remedy = "; list more of them, or set updates.rule to mean" if named else ""
            return f"updates: {unbounded}{remedy}"
        if self.admission is Admission.CLOSED:
            return None
        why = self._why_too_many(members, named) or self._why_unbounded(members, named, updates)
        return None if why is None else f"trainers.{why}"

    def why_outvoted(self, survived: int, members: int, updates: UpdatesConfig) -> str | None:
        """Why members may bring in more liars than a merge holds off, though agreement survives.

        Agreement survives `survived` of the members that lie, by stake; a merge counts heads. It is
        asked where a genesis is made: of a chain that is there, members and stakes change.
        """
        counted = updates.f_agg_among(members)
        if self.admission is Admission.CLOSED or updates.rule == "mean" or survived <= counted:
            return None
        remedy = "give validators stakes that are nearer to each other"
        if updates.f_agg is not None:
            remedy = f"leave updates.f_agg out, {remedy}"
        return (
            f"trainers.admission: {self.admission}, and agreement of these stakes survives "
            f"{survived} of {members} validators that lie, while updates.rule {updates.rule} "
            f"reckons with {counted}, and with the trainers that so many let in: more could spoil "
            f"the model while every vote is right. To bear it, {remedy}, set updates.rule to mean, "
            "which holds off nobody, or trainers.admission to closed"
        )

    def _why_too_many(self, members: int, named: int) -> str | None:
        if named > self.max:
            return f"max: the genesis names {named} trainers already, and this is {self.max}"
        if members + self.max > CONTRIBUTORS_MAX:
            return (
                f"max: {members} validators and {self.max} trainers are more than the "
                f"{CONTRIBUTORS_MAX} that may listen to each other; it is "
                f"{CONTRIBUTORS_MAX - members} at most"
            )
        if members + named >= self.contributors_max:
            return (
                f"contributors_max: {members} validators and {named} trainers of the genesis fill "
                f"the {self.contributors_max} places of a round, so nobody else would ever train"
            )
        return None

    def _why_unbounded(self, members: int, named: int, updates: UpdatesConfig) -> str | None:
        if updates.rule == "mean" or self._is_bounded(members, named, updates, self.per_voucher):
            return None
        f_agg, count = self._fullest(members, named, updates, self.per_voucher)
        fitting = [
            each
            for each in range(1, self.per_voucher)
            if self._is_bounded(members, named, updates, each)
        ]
        remedy = "have more validators, or set updates.rule to mean"
        if self.admission is Admission.VOUCHED and fitting:
            remedy = f"set it to {fitting[-1]} at most, {remedy}"
        return (
            f"per_voucher: of a full round of {count} contributors {f_agg} could be bad, as those "
            f"that lie among {members} validators vouch for others, and {updates.rule} does not "
            f"hold off so many: {remedy}"
        )

    def _fullest(
        self, members: int, named: int, updates: UpdatesConfig, per_voucher: int
    ) -> tuple[int, int]:
        """How many of a full round may be bad, and how many it has."""
        lying = updates.f_agg_among(members)
        room = min(self.max, self.contributors_max - members) - named
        if self.admission is Admission.OPEN:
            return lying + lying_trainers_max(named + room), members + named + room
        coming = min(room, members * per_voucher)
        bad = lying + min(lying * per_voucher, coming) + lying_trainers_max(named)
        return bad, members + named + coming

    def _is_bounded(
        self, members: int, named: int, updates: UpdatesConfig, per_voucher: int
    ) -> bool:
        f_agg, count = self._fullest(members, named, updates, per_voucher)
        try:
            rule_named(updates.rule).check_bound(count, f_agg)
        except RuleUnbounded:
            return False
        return True
