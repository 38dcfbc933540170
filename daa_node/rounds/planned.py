"""Whether contributions, and a set of them, are what the round's plan allows.

Pure: whoever collects, votes or verifies a chain later asks the same question.
"""

from collections.abc import Callable

from daa_consensus.bft.messages import OfferBody, SetPayload
from daa_node.errors import PeerFault
from daa_node.rounds.plan import Plan

SizeOf = Callable[[str], int | None]  # bytes of a blob in the named codec; None: unknown codec


def unplanned(
    plan: Plan, rule: str, f_agg: int, size_of: SizeOf, decided: SetPayload
) -> str | None:
    """Why the plan does not lead to these contributions with these weights, merged by this rule.

    None if it does.
    """
    if (decided.rule, decided.f_agg) != (rule, f_agg):
        return f"rule {decided.rule} f={decided.f_agg}, want {rule} f={f_agg}"
    for contribution, weight in zip(decided.offers, decided.weights, strict=True):
        author = contribution.author
        try:
            check_offer(plan, size_of, contribution)
        except PeerFault as fault:
            return f"{author.hex()[:8]}: {fault}"
        if weight != plan.weight_of(author, contribution.tokens):
            return f"weight {weight} of {author.hex()[:8]}"
    return None


def check_offer(plan: Plan, size_of: SizeOf, contribution: OfferBody) -> None:
    """Raises PeerFault unless the plan allows the contribution."""
    share = plan.share_of(contribution.author)
    if share is None:
        raise PeerFault("stranger_offer", "the author is no contributor of this network")
    if contribution.round != plan.round:
        raise PeerFault("wrong_round", f"{contribution.round}, now {plan.round}")
    if contribution.base_vertex_id != plan.base:
        raise PeerFault("wrong_base", contribution.base_vertex_id.hex())
    size_bytes = size_of(contribution.codec)
    if size_bytes is None:
        raise PeerFault("unknown_codec", contribution.codec)
    if contribution.size_bytes != size_bytes:
        raise PeerFault("bad_size", f"{contribution.size_bytes} bytes, want {size_bytes}")
    if not 1 <= contribution.steps <= share.steps_max:
        raise PeerFault("too_many_steps", f"{contribution.steps} of {share.steps_max}")
    if contribution.tokens < 1:  # its weight would be 0, and where all are, there is no mean
        raise PeerFault("no_tokens", f"in {contribution.steps} steps")
    if contribution.tokens > contribution.steps * plan.tokens_per_step:
        raise PeerFault("too_many_tokens", f"{contribution.tokens} in {contribution.steps} steps")
