"""Whether a change of membership can come about at all, told to the operator who asks for it.

Said at once: else it is told only after others have approved, and epochs later.
"""

from daa_consensus.committee import Committee
from daa_consensus.membership import Membership, Rule
from daa_consensus.operations import Action, Approve, Join, Leave, Rotate, Withdraw, summary
from daa_consensus.turnover import moves_max
from daa_node.agreement.signer import is_for_good
from daa_node.errors import UserError


def check_fits(action: Action, now: Membership, quarantine: str | None) -> None:
    """Raises UserError for what would be dropped at the end of the epoch, or halt the network."""
    if isinstance(action, Approve | Withdraw):
        return
    rule = now.why_dropped(action)
    if rule is Rule.TOO_HEAVY:
        raise UserError(_too_heavy(action, now.committee))
    if rule is not None:
        raise UserError(f"this would be dropped at the end of the epoch: {rule}")
    if isinstance(action, Join):
        check_voice(action, now, quarantine)


def check_voice(action: Join | Rotate, now: Membership, quarantine: str | None) -> None:
    """Raises UserError if the newcomer, which is this node, would hold a seat and not vote, ever.

    Who is in quarantine votes once a block is final that carries its Rejoin, and so never where
    no block becomes final without its vote.
    """
    after = now.committee_after(action)
    newcomer = action.successor if isinstance(action, Rotate) else action.subject
    if quarantine is None or not is_for_good(after, newcomer):
        return
    raise UserError(
        f"this node is quarantined ({quarantine}), and the others could not let it vote again: "
        f"{len(after.validators)} validators that weigh {after.total} need {after.quorum} for "
        "everything, so the network would stand for good. Let a node join that has never lost its "
        "memory: make one with `daa-node init --dir NEW`"
    )


def _too_heavy(action: Action, committee: Committee) -> str:
    count, most = len(committee.validators), moves_max(committee)
    less = "lower its stake first" if isinstance(action, Leave) else "ask for less with --stake"
    return (
        f"too heavy, it would be dropped: {summary(action)}; at the end of this epoch a weight "
        f"of {most} may come or go at most, as {count} validators weigh {committee.total}: "
        f"{less}, and go on an epoch later"
    )
